"""Equality of a submission and an answer: a ladder of tests, from cheap and certain to weak.

    finite and exact at all -> same form -> refuted or without a value at one of 20 secret points
    -> zero by a canonical form (PROVED) -> refuted where digits can hide it, or where a step may
    wait -> zero by simplifying (PROVED) -> agreed at 20 points (SUPPORTED) -> UNDECIDED

Values are what `parse` returns. Order matters in lists and tuples, not in sets, mappings and lists
of mappings. Sets of reals are compared as such (`points.differ`). A float never equals an exact
answer, and an infinity only itself.

Two antiderivatives are equal where both increase alike between any two places: a constant cancels,
whatever its name or value, and a jump does not. Where the known one has log(|u|), the other may
have log(u), as sympy integrates: that is another constant where u < 0.

Knows no task and no process; the caller sets the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import sympy
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from repl_rl.grading.bounded import FACTORIALS
from repl_rl.grading.draws import ASSUMPTIONS, Domain
from repl_rl.grading.parse import Value
from repl_rl.grading.points import (
    SLOW,
    Probe,
    Unsolved,
    differ,
    has_value,
    is_condition,
    probe,
    probe_named,
)
from repl_rl.records import Verdict, VerdictKind

ENOUGH_POINTS = 20
CLOSE_LOOK = 5
"""Points at which the difference is looked at as closely as texts can hide one."""
ENOUGH_DIGITS = 100
MAX_EXPANDED_POWER = 32
"""Highest power of a sum that is expanded: beyond it, expanding costs more than an answer is
worth."""
MAX_OPS = 400
MAX_SIMPLIFIED_OPS = 150

Form = tuple[str, Callable[[Any], Any], int]
"""A name, a function that reveals a zero, and the largest expression that it is tried on."""

Same = Callable[[Value, Value], Verdict]
"""`compare` for the parts of two values, in the same domain and at the same points."""

_STEPS = (
    *(sympy.floor, sympy.ceiling, sympy.Mod, sympy.Piecewise, sympy.Max, sympy.Min, sympy.sign),
)
_NOTHING = sympy.Symbol("x").assumptions0
_INFINITE = (sympy.oo, -sympy.oo, sympy.zoo)
INEXACT = Verdict(
    kind=VerdictKind.WRONG, method="inexact", evidence="a float is not an exact answer"
)
"""Verdict on an answer that holds a float, whatever is asked for."""
_ORDER = [VerdictKind.PROVED, VerdictKind.SUPPORTED, VerdictKind.UNDECIDED]

CONSTANTS = ("C", "C0", "C1", "C2", "c", "K", "k")
"""Names that a constant of integration may have."""


def compare(got: Value, expected: Value, *, seed: str, domain: Domain = Domain.REALS) -> Verdict:
    """Judge how well `got` equals `expected` for all values of their symbols in `domain`.

    `seed` chooses the points at which they are compared; give a problem's id.

    >>> x_squared = parse("x**2", symbols=["x"])
    >>> compare(parse("x*x", symbols=["x"]), x_squared, seed="problem 1").kind
    <VerdictKind.PROVED: 'proved'>
    """
    same = partial(compare, seed=seed, domain=domain)
    is_region = _is_region(got) if isinstance(expected, frozenset) else _is_region(expected)
    if is_region and not isinstance(expected, bool):
        return _compare_regions(got, expected, same)
    match expected:
        case frozenset():
            if not isinstance(got, frozenset):
                return wrong("form", f"a {type(got).__name__} where a set is expected")
            return compare_sets(got, expected, seed=seed, domain=domain)
        case dict():
            return _compare_mappings(got, expected, same)
        case [dict(), *_] if all(isinstance(solution, dict) for solution in expected):
            return _compare_solutions(got, expected, same)
        case list() | tuple():
            return _compare_sequences(got, expected, same)
    if isinstance(expected, sympy.MatrixBase):
        return _compare_matrices(got, expected, same)
    if isinstance(expected, sympy.Expr) and isinstance(got, sympy.Expr) and not got.is_Matrix:
        return compare_expressions(got, expected, seed=seed, domain=domain)
    if type(got) is type(expected) and bool(got == expected):
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    return wrong("form", f"a {type(got).__name__} that is not the {type(expected).__name__}")


def compare_sets(
    got: frozenset[Value], expected: frozenset[Value], *, seed: str, domain: Domain = Domain.REALS
) -> Verdict:
    """Every element of one among the other's; two spellings of one element count once."""
    return _matched(got, list(expected), partial(compare, seed=seed, domain=domain))


def compare_expressions(
    got: Any, expected: Any, *, seed: str, domain: Domain = Domain.REALS
) -> Verdict:
    """The ladder itself, on two sympy expressions.

    ValueError where one name is two symbols: their problem was declared twice, in two ways.
    """
    _check_names(got.free_symbols | expected.free_symbols)
    if expected.has(*_INFINITE):
        is_same = bool(got == expected)
        return Verdict(kind=VerdictKind.PROVED if is_same else VerdictKind.WRONG, method="infinite")
    if got.has(sympy.nan, *_INFINITE):
        return wrong("not finite", str(got)[:80])
    if got.has(sympy.Float):
        return INEXACT
    if got == expected:
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    got, expected = _without_unknown_functions(got, expected)
    if got.has(*_STEPS):
        got, expected = (settled(side, domain) for side in (got, expected))
    look = partial(probe, got, expected, domain=domain, seed=seed)
    many = look(num_points=ENOUGH_POINTS, max_digits=ENOUGH_DIGITS)
    if failure := _failed(many):
        return failure
    if method := zero_method(got - expected, _CANONICAL):
        return Verdict(kind=VerdictKind.PROVED, method=method)
    close = look(num_points=CLOSE_LOOK, max_digits=None)
    if failure := _failed(close) or _failed(probe_named(got, expected, domain=domain)):
        return failure
    if method := zero_method(got - expected, _COSTLY):
        return Verdict(kind=VerdictKind.PROVED, method=method)
    is_supported = many.is_enough and not _may_jump_unseen(got, expected)
    kind = VerdictKind.SUPPORTED if is_supported else VerdictKind.UNDECIDED
    return Verdict(kind=kind, method="numeric", evidence=f"equal at {many.num_agreed} points")


def zero_method(difference: Any, forms: Sequence[Form] = ()) -> str | None:
    """The name of the first form in which `difference` is literally 0, None where none is."""
    if not _is_expandable(difference):
        return None
    for name, form, max_ops in forms or (*_CANONICAL, *_COSTLY):
        if difference.count_ops() <= max_ops and form(difference) == 0:
            return name
    return None


def has_steps(value: Value, steps: Collection[Any], domain: Domain) -> bool:
    """Say whether some part of `value` has one of the functions `steps`, and jumps in `domain` as
    far as sympy knows."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | frozenset):
        return any(has_steps(part, steps, domain) for part in value)
    if not (isinstance(value, sympy.Basic) and value.has(*steps)):
        return False
    return bool(settled(value, domain).has(*steps))


def settled(value: Any, domain: Domain) -> Any:
    """`value` with symbols that declare nothing as what `domain` says: sign(exp(x)) is 1."""
    plain = [symbol for symbol in value.free_symbols if symbol.assumptions0 == _NOTHING]
    return value.xreplace({s: sympy.Symbol(s.name, **ASSUMPTIONS[domain]) for s in plain})


def wrong(method: str, evidence: str) -> Verdict:
    """Verdict on an answer that was read, and is another one."""
    return Verdict(kind=VerdictKind.WRONG, method=method, evidence=evidence)


def compare_primitives(got: Any, expected: Any, variable: Any, *, seed: str) -> Verdict:
    """Say how well `got` equals `expected` but for a constant, for all values of `variable`."""
    if got.has(sympy.Float):  # a difference can hide it
        return INEXACT
    if not has_value(got, domain=Domain.REALS, seed=seed):
        return Verdict(kind=VerdictKind.WRONG, method="not finite")
    if any(isinstance(log.args[0], sympy.Abs) for log in expected.atoms(sympy.log)):
        got, expected = (side.replace(sympy.log, _log_of_size) for side in (got, expected))
    sides = (_increase(side, variable) for side in (got, expected))
    return compare_expressions(*sides, seed=seed)


def _matched(got: Iterable[Value], expected: Sequence[Value], same: Same) -> Verdict:
    verdicts = []
    missing = set(range(len(expected)))
    for element in got:
        verdict, match = _best_match(element, expected, same)
        if verdict.kind not in _ORDER:
            return wrong("set", f"{element} does not belong to it")
        verdicts.append(verdict)
        missing.discard(match)
    # An element that nobody can judge may stand for one that is missing, not for several.
    if len(missing) > sum(not verdict.is_solved for verdict in verdicts):
        return wrong("set", f"{len(missing)} of {len(expected)} elements are missing")
    return _weakest(verdicts, method="set")


def _may_jump_unseen(got: Any, expected: Any) -> bool:
    """Points say little of a step that only one side has: it may come beyond all of them."""
    return bool(got.free_symbols) and got.has(*_STEPS) and not expected.has(*_STEPS, sympy.Abs)


def _without_unknown_functions(*sides: Any) -> list[Any]:
    """Each value f(x) of a function that the problem declares as a symbol of its own."""
    calls = {call for side in sides for call in side.atoms(AppliedUndef)}
    values = {call: sympy.Dummy(str(call)) for call in calls}
    return [side.xreplace(values) for side in sides]


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
        return wrong("not finite", f"no certain value at {look.undefined}")
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


def _as_gammas(expression: Any) -> Any:
    return sympy.gammasimp(expression) if expression.has(*FACTORIALS) else expression


def _simplified(expression: Any) -> Any:
    """Among special functions sympy searches for seconds, and seldom finds anything."""
    return expression if expression.has(*SLOW) else sympy.simplify(expression)


def _compare_sequences(got: Value, expected: Value, same: Same) -> Verdict:
    if not isinstance(got, list | tuple) or len(got) != len(expected):
        return wrong("form", f"{len(expected)} values in order are expected")
    pairs = zip(got, expected, strict=True)
    return _weakest([same(a, b) for a, b in pairs], method="sequence")


def _compare_mappings(got: Value, expected: Value, same: Same) -> Verdict:
    """Compare mappings: equal keys with equal values, in any order."""
    if not isinstance(got, dict) or len(got) != len(expected):
        return wrong("form", f"a mapping of {len(expected)} keys is expected")
    return _matched(list(got.items()), list(expected.items()), same)


def _compare_solutions(got: Value, expected: Value, same: Same) -> Verdict:
    """Compare solutions of a system, as `solve` gives them: mappings in any order, or one."""
    solutions = [got] if isinstance(got, dict) else got
    if not isinstance(solutions, list | tuple):
        return wrong("form", f"a list of {len(expected)} mappings is expected")
    return _matched(solutions, expected, same)


def _compare_matrices(got: Value, expected: Any, same: Same) -> Verdict:
    """Entry by entry."""
    if not isinstance(got, sympy.MatrixBase) or got.shape != expected.shape:
        return wrong("form", f"a matrix of {expected.rows} x {expected.cols} is expected")
    entries = zip(got.flat(), expected.flat(), strict=True)
    return _weakest([same(a, b) for a, b in entries], method="matrix")


def _compare_regions(got: Value, expected: Value, same: Same) -> Verdict:
    """Compare sets of reals; anything else must have the same form, with equal parts."""
    if not all(_is_region(value) or isinstance(value, frozenset) for value in (got, expected)):
        return wrong("form", f"a {type(got).__name__}, not a {type(expected).__name__}")
    try:
        difference = differ(got, expected)
    except Unsolved as unsolved:
        return _compare_parts(got, expected, same, str(unsolved))
    if difference.position:
        evidence = f"differs at {difference.position}"
        return Verdict(kind=VerdictKind.REFUTED, method="set", evidence=evidence)
    is_proved = all(zero_method(a - b) for a, b in difference.merged)
    kind = VerdictKind.PROVED if is_proved else VerdictKind.SUPPORTED
    return Verdict(kind=kind, method="set of reals")


def _is_region(value: Value) -> bool:
    return isinstance(value, sympy.Set) or is_condition(value)


def _compare_parts(got: Value, expected: Value, same: Same, reason: str) -> Verdict:
    if type(got) is type(expected) and got == expected:
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    spellings = [got, got.reversed] if isinstance(got, Relational) else [got]
    alike = [one for one in spellings if type(one) is type(expected)]
    if not alike or not isinstance(expected, sympy.Interval | Relational):
        return wrong("form", reason)
    pairs = [zip(one.args, expected.args, strict=True) for one in alike]
    verdicts = [_weakest([same(a, b) for a, b in sides], "parts") for sides in pairs]
    solved = [verdict for verdict in verdicts if verdict.kind in _ORDER]
    best = min(solved, key=lambda verdict: _ORDER.index(verdict.kind), default=None)
    return best or wrong("form", reason)


def _best_match(
    element: Value, candidates: Sequence[Value], same: Same
) -> tuple[Verdict, int | None]:
    best: tuple[Verdict, int | None] = wrong("set", ""), None
    for index, candidate in enumerate(candidates):
        verdict = same(element, candidate)
        if verdict.is_solved:
            return verdict, index
        if verdict.kind is VerdictKind.UNDECIDED:
            best = verdict, None
    return best


def _weakest(verdicts: list[Verdict], method: str) -> Verdict:
    failed = [verdict for verdict in verdicts if verdict.kind not in _ORDER]
    if failed:
        return failed[0]
    kinds = [verdict.kind for verdict in verdicts]
    return Verdict(kind=max(kinds, key=_ORDER.index, default=VerdictKind.PROVED), method=method)


def _log_of_size(argument: Any) -> Any:
    return sympy.log(sympy.Abs(argument))


def _increase(function: Any, variable: Any) -> Any:
    """Increase of a function from a second place, whose name no answer can write, to the first."""
    other = sympy.Symbol(f"{variable}'", **variable.assumptions0)
    return function - function.subs(variable, other)


_CANONICAL: tuple[Form, ...] = (
    ("expand", sympy.expand, MAX_OPS),
    ("exponential", _as_exponentials, MAX_OPS),
    ("cancel", lambda expression: sympy.cancel(sympy.together(expression)), MAX_OPS),
    ("gamma functions", _as_gammas, MAX_SIMPLIFIED_OPS),
)

_COSTLY: tuple[Form, ...] = (
    ("simplify", _simplified, MAX_SIMPLIFIED_OPS),
    ("minimal polynomial", _as_algebraic, MAX_SIMPLIFIED_OPS // 4),
)
