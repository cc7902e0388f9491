"""Identities, half of them false: `Prove or refute for all x: (x + 3)**2 = x**2 + 6*x + 9`.

The answer is True, or a real x at which both sides differ. Right sides are sums of functions that
are linearly independent and not 0 at x = 1 (powers of x, of exp(x), ...), so a twin with one
coefficient changed is false, and 1 is always a witness.

Knows no interpreter and no script.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from repl_rl.grading.parse import parse
from repl_rl.grading.points import CLEAR_DIFFERENCE, digits
from repl_rl.tasks.sympy_proofs.draft import STEPS, Draft, Kind, nonzero
from repl_rl.types import Problem, Verdict, VerdictKind

MAX_WITNESS = 10**6
"""Larger ones only make both sides costly to evaluate."""

ANGLES = (1, 2, 3, 5, 6, 7, 9)
"""Multiples of 4 are left out: there sympy takes up to ten times as long."""

X = sympy.Symbol("x")

Terms = list[tuple[int, Any]]
"""Coefficients (not 0) and the functions they stand before; sympy ships no types."""
Sides = tuple[str, Terms, int]
"""Left side as text, right side in terms, tier."""


def grade(problem: Problem, submission: str) -> Verdict:
    """True is right where the identity holds; a number is right where both sides differ at it.

    False is an answer that names no such number: never right, and worth as much as a wrong number.
    """
    claim = parse(submission, symbols=("x",))
    holds = problem.meta["truth"] == "True"
    if claim is True:
        if holds:
            return Verdict(kind=VerdictKind.PROVED, method="identity")
        evidence = f"both sides differ at x = {problem.meta['answer']}"
        return Verdict(kind=VerdictKind.REFUTED, method="witness", evidence=evidence)
    if claim is not False and not (isinstance(claim, sympy.Expr) and claim.is_number):
        return Verdict(kind=VerdictKind.MALFORMED, evidence="neither True nor a value of x")
    if holds:
        return Verdict(kind=VerdictKind.REFUTED, method="identity", evidence="it holds for all x")
    if claim is False:
        evidence = "an x where the sides differ is asked for"
        return Verdict(kind=VerdictKind.WRONG, method="no witness", evidence=evidence)
    return _judge_witness(problem, claim)


def _judge_witness(problem: Problem, value: Any) -> Verdict:
    if value.has(sympy.Float):
        return Verdict(kind=VerdictKind.WRONG, method="inexact", evidence="a float is no witness")
    if value.has(*STEPS) or not (value.is_real and abs(value) <= MAX_WITNESS):
        evidence = f"x is to be a plain real number, at most {MAX_WITNESS}"
        return Verdict(kind=VerdictKind.MALFORMED, evidence=evidence)
    lhs, rhs = (parse(problem.meta[side], symbols=("x",)) for side in ("lhs", "rhs"))
    if _is_nonzero((lhs - rhs).subs(X, value)):
        return Verdict(kind=VerdictKind.PROVED, method="witness")
    evidence = f"both sides are equal at x = {value}, or cannot be told apart"
    return Verdict(kind=VerdictKind.WRONG, method="witness", evidence=evidence)


def _is_nonzero(number: Any) -> bool:
    if number.is_Rational:
        return bool(number != 0)
    # sympy raises its precision until the digits are certain; what it cannot tell from 0 is tiny.
    size = digits(number, {})
    return size is not None and bool(abs(size) > CLEAR_DIFFERENCE)


def _square(rng: random.Random) -> Sides:
    a, b, c = rng.randint(1, 6), nonzero(rng, 12), nonzero(rng, 30)
    terms: Terms = [(a * a, X**2), (2 * a * b + c, X), (b * b, 1)]
    return _joined(str((a * X + b) ** 2), c * X), terms, 1


def _product(rng: random.Random) -> Sides:
    a, b, c, d = rng.randint(1, 9), nonzero(rng, 9), rng.randint(1, 9), nonzero(rng, 9)
    text = f"({a * X + b})*({c * X + d})"
    return text, [(a * c, X**2), (a * d + b * c, X), (b * d, 1)], 1


def _cube(rng: random.Random) -> Sides:
    a, b, c = rng.randint(1, 3), nonzero(rng, 5), nonzero(rng, 30)
    terms: Terms = [(a**3, X**3), (3 * a * a * b, X**2), (3 * a * b * b + c, X), (b**3, 1)]
    return _joined(str((a * X + b) ** 3), c * X), terms, 3


def _two_squares(rng: random.Random) -> Sides:
    c, (a, b) = rng.randint(1, 9), rng.sample([*range(-12, 0), *range(1, 13)], 2)
    text = f"({c * X + a})**2 - ({c * X + b})**2"
    return text, [(2 * c * (a - b), X), (a * a - b * b, 1)], 2


def _pythagoras(rng: random.Random) -> Sides:
    a, b, k = rng.randint(2, 60), rng.randint(2, 60), rng.choice(ANGLES)
    sine, cosine = sympy.sin(k * X) ** 2, sympy.cos(k * X) ** 2
    return f"{a * sine} + {b * cosine}", [(a - b, sine), (b, 1)], 2


def _double_sine(rng: random.Random) -> Sides:
    a, k, c = rng.randint(1, 49), rng.choice(ANGLES), rng.randint(1, 60)
    lhs = _joined(str(2 * a * sympy.sin(k * X) * sympy.cos(k * X)), c)
    return lhs, [(a, sympy.sin(2 * k * X)), (c, 1)], 2


def _double_cosine(rng: random.Random) -> Sides:
    a, k, c = rng.randint(1, 49), rng.choice(ANGLES), nonzero(rng, 60)
    return str(a * sympy.cos(2 * k * X) + c), [(-2 * a, sympy.sin(k * X) ** 2), (a + c, 1)], 2


def _exp_square(rng: random.Random) -> Sides:
    a, b, k = rng.randint(1, 9), nonzero(rng, 12), rng.randint(1, 5)
    power = sympy.exp(k * X)
    return str((a * power + b) ** 2), [(a * a, power**2), (2 * a * b, power), (b * b, 1)], 3


def _exp_product(rng: random.Random) -> Sides:
    a, b = nonzero(rng, 9), nonzero(rng, 9)
    k, m = rng.sample(range(1, 6), 2)
    powers = sympy.exp(k * X), sympy.exp(m * X)
    terms: Terms = [(1, powers[0] * powers[1]), (b, powers[0]), (a, powers[1]), (a * b, 1)]
    return f"({powers[0] + a})*({powers[1] + b})", terms, 3


def _joined(text: str, term: Any) -> str:
    """A sum spelled as sympy spells sums, in an order of our own."""
    return f"{text} - {-term}" if str(term).startswith("-") else f"{text} + {term}"


def _kind(sides: Callable[[random.Random], Sides]) -> Kind:
    def draft(rng: random.Random) -> Draft:
        lhs, terms, tier = sides(rng)
        terms = [(coefficient, function) for coefficient, function in terms if coefficient != 0]
        holds = rng.random() < 0.5
        rhs = str(_sum(terms if holds else _twin(terms, rng)))
        return Draft(
            question=f"Prove or refute for all x: {lhs} = {rhs}",
            form="True, or an x where the sides differ",
            tier=tier,
            answer="True" if holds else "1",
            facts={"lhs": lhs, "rhs": rhs, "truth": str(holds)},
        )

    return draft


def _sum(terms: Terms) -> Any:
    return sympy.Add(*(coefficient * function for coefficient, function in terms))


def _twin(terms: Terms, rng: random.Random) -> Terms:
    """The same terms, one coefficient changed by a little or in its sign."""
    place = rng.randrange(len(terms))
    coefficient, function = terms[place]
    changed = rng.choice((coefficient + 1, coefficient - 1, -coefficient, 2 * coefficient))
    return [*terms[:place], (changed, function), *terms[place + 1 :]]


KINDS: Mapping[str, Kind] = {
    "square": _kind(_square),
    "product": _kind(_product),
    "cube": _kind(_cube),
    "two_squares": _kind(_two_squares),
    "pythagoras": _kind(_pythagoras),
    "double_sine": _kind(_double_sine),
    "double_cosine": _kind(_double_cosine),
    "exp_square": _kind(_exp_square),
    "exp_product": _kind(_exp_product),
}
