"""Is this submission that answer? A ladder of tests, from cheap and certain to costly and weak.

    finite and exact at all -> same form -> refuted at a secret point -> zero by a canonical form
    (PROVED) -> refuted where digits can hide it, or at one of 20 points -> zero by simplifying
    (PROVED) -> agreed at 20 points (SUPPORTED) -> UNDECIDED

Values are what `parse` returns. Order matters in lists and tuples, not in sets. A float never
equals an exact answer.

Knows no task and no process; the caller sets the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import sympy

from repl_rl.grading.parse import Value
from repl_rl.grading.points import Domain, Probe, probe
from repl_rl.types import Verdict, VerdictKind

FIRST_LOOK = 5
CLOSE_LOOK = 5
ENOUGH_POINTS = 20
FIRST_DIGITS = 30
"""Enough for a plainly wrong answer, and cheap where the difference is 0."""
ENOUGH_DIGITS = 100
MAX_EXPANDED_POWER = 32
"""Of a sum: beyond it, expanding costs more than an answer is worth."""
MAX_OPS = 400
MAX_SIMPLIFIED_OPS = 150

Form = tuple[str, Callable[[Any], Any], int]
"""A name, a function that reveals a zero, and the largest expression that it is tried on."""

_ORDER = [VerdictKind.PROVED, VerdictKind.SUPPORTED, VerdictKind.UNDECIDED]


def compare(got: Value, expected: Value, *, seed: str, domain: Domain = Domain.REALS) -> Verdict:
    """How well `got` equals `expected` for all values of their symbols in `domain`."""
    if isinstance(expected, frozenset):
        if not isinstance(got, frozenset):
            return _wrong("form", f"a {type(got).__name__} where a set is expected")
        return compare_sets(got, expected, seed=seed, domain=domain)
    if isinstance(expected, list | tuple):
        return _compare_sequences(got, expected, seed=seed, domain=domain)
    if isinstance(expected, sympy.Expr) and isinstance(got, sympy.Expr):
        return compare_expressions(got, expected, seed=seed, domain=domain)
    if type(got) is type(expected) and bool(got == expected):
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    return _wrong("form", f"a {type(got).__name__} that is not the {type(expected).__name__}")


def compare_sets(
    got: frozenset[Value], expected: frozenset[Value], *, seed: str, domain: Domain = Domain.REALS
) -> Verdict:
    """Every element of one among the other's; two spellings of one element count once."""
    verdicts = []
    missing = set(expected)
    for element in got:
        verdict, match = _best_match(element, expected, seed=seed, domain=domain)
        if verdict.kind not in _ORDER:
            return _wrong("set", f"{element} does not belong to it")
        verdicts.append(verdict)
        missing.discard(match)
    # An element that nobody can judge may stand for one that is missing, not for several.
    if len(missing) > sum(not verdict.is_solved for verdict in verdicts):
        return _wrong("set", f"{len(missing)} of {len(expected)} elements are missing")
    return _weakest(verdicts, method="set")


def compare_expressions(
    got: Any, expected: Any, *, seed: str, domain: Domain = Domain.REALS
) -> Verdict:
    """The ladder itself, on two sympy expressions.

    ValueError where one name is two symbols: their problem was declared twice, in two ways.
    """
    _check_names(got.free_symbols | expected.free_symbols)
    if got.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return _wrong("not finite", str(got)[:80])
    if got.has(sympy.Float):
        return _wrong("inexact", "a float is not an exact answer")
    if got == expected:
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    look = partial(probe, got, expected, domain=domain, seed=seed)
    if failure := _failed(look(num_points=FIRST_LOOK, max_digits=FIRST_DIGITS)):
        return failure
    if method := zero_method(got - expected, _CANONICAL):
        return Verdict(kind=VerdictKind.PROVED, method=method)
    if failure := _failed(look(num_points=CLOSE_LOOK, max_digits=None)):
        return failure
    many = look(num_points=ENOUGH_POINTS, max_digits=ENOUGH_DIGITS)
    if failure := _failed(many):
        return failure
    if method := zero_method(got - expected, _COSTLY):
        return Verdict(kind=VerdictKind.PROVED, method=method)
    kind = VerdictKind.SUPPORTED if many.is_enough else VerdictKind.UNDECIDED
    return Verdict(kind=kind, method="numeric", evidence=f"equal at {many.num_agreed} points")


def zero_method(difference: Any, forms: Sequence[Form] = ()) -> str | None:
    """The name of the first form in which `difference` is literally 0, None where none is."""
    if not _is_expandable(difference):
        return None
    for name, form, max_ops in forms or (*_CANONICAL, *_COSTLY):
        if difference.count_ops() <= max_ops and form(difference) == 0:
            return name
    return None


def _check_names(symbols: Collection[Any]) -> None:
    names = sorted(symbol.name for symbol in symbols)
    for name, following in pairwise(names):
        if name == following:
            raise ValueError(f"{name} stands for two symbols")


def _failed(look: Probe) -> Verdict | None:
    if look.counterexample is not None:
        evidence = f"differs at {look.counterexample}"
        return Verdict(kind=VerdictKind.REFUTED, method="numeric", evidence=evidence)
    if look.undefined is not None:
        return _wrong("not finite", f"no finite number at {look.undefined}")
    return None


def _is_expandable(expression: Any) -> bool:
    powers = (
        abs(power.exp)
        for power in expression.atoms(sympy.Pow)
        if power.exp.is_Integer and power.base.is_Add
    )
    return all(power <= MAX_EXPANDED_POWER for power in powers)


def _as_exponentials(expression: Any) -> Any:
    """Sines and cosines become monomials in exp(I*x), where expanding is a normal form."""
    return sympy.expand(sympy.expand(expression.rewrite(sympy.exp)))


def _as_algebraic(expression: Any) -> Any:
    if not (expression.is_number and expression.is_algebraic):
        return expression
    symbol = sympy.Symbol("z")
    return 0 if sympy.minimal_polynomial(expression, symbol) == symbol else expression


_CANONICAL: tuple[Form, ...] = (
    ("expand", sympy.expand, MAX_OPS),
    ("exponential", _as_exponentials, MAX_OPS),
    ("cancel", lambda expression: sympy.cancel(sympy.together(expression)), MAX_OPS),
)
_COSTLY: tuple[Form, ...] = (
    ("simplify", sympy.simplify, MAX_SIMPLIFIED_OPS),
    ("minimal polynomial", _as_algebraic, MAX_SIMPLIFIED_OPS // 4),
)


def _compare_sequences(got: Value, expected: Value, *, seed: str, domain: Domain) -> Verdict:
    if not isinstance(got, list | tuple) or len(got) != len(expected):
        return _wrong("form", f"{len(expected)} values in order are expected")
    pairs = zip(got, expected, strict=True)
    return _weakest([compare(a, b, seed=seed, domain=domain) for a, b in pairs], method="sequence")


def _best_match(
    element: Value, candidates: frozenset[Value], *, seed: str, domain: Domain
) -> tuple[Verdict, Value]:
    best: tuple[Verdict, Value] = _wrong("set", ""), None
    for candidate in candidates:
        verdict = compare(element, candidate, seed=seed, domain=domain)
        if verdict.is_solved:
            return verdict, candidate
        if verdict.kind is VerdictKind.UNDECIDED:
            best = verdict, None
    return best


def _weakest(verdicts: list[Verdict], *, method: str) -> Verdict:
    failed = [verdict for verdict in verdicts if verdict.kind not in _ORDER]
    if failed:
        return failed[0]
    kinds = [verdict.kind for verdict in verdicts]
    return Verdict(kind=max(kinds, key=_ORDER.index, default=VerdictKind.PROVED), method=method)


def _wrong(method: str, evidence: str) -> Verdict:
    return Verdict(kind=VerdictKind.WRONG, method=method, evidence=evidence)
