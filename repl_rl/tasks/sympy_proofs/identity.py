"""Identities, half of them false: `Prove or refute for all x: (x**2 - 5)**3 = x**6 - ...`.

The answer is True, or the least positive integer x at which both sides differ. A right side is a
polynomial, in some kinds times a wave or an exponential. A false identity is a true one with a
twist: a multiple of a polynomial with the same powers is added that is 0 where a quick look falls,
at 0 and at two of 1, 2 and 3. The third is the answer, so no number is right for more than a third
of the false ones, and one look at any place leaves it open. Waves are chosen to be 0 at all
multiples of pi/2, so both sides agree there too.

Knows no interpreter and no script.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from repl_rl.grading.equality import INEXACT, wrong
from repl_rl.grading.parse import parse
from repl_rl.grading.points import is_different
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import STEPS, Draft, Rule, nonzero

ANGLES = (1, 2, 3, 5, 6, 7, 9)
"""Multiples of 4 are left out: there sympy takes up to ten times as long."""
EVEN_ANGLES = (2, 6, 10)
"""The sine of such a multiple is 0 at all multiples of pi/2."""

X = sympy.Symbol("x")

Twists = Mapping[int, Any]
"""Polynomials by the one place of 1, 2 and 3 at which they are not 0; sympy ships no types."""

ODD: Twists = {
    place: sympy.expand(X * sympy.Mul(*(X**2 - zero**2 for zero in {1, 2, 3} - {place})))
    for place in (1, 2, 3)
}
"""Such as x**5 - 5*x**3 + 4*x, by 3: 0 at -2, -1, 0, 1 and 2."""
ODD_TWICE: Twists = {place: 2 * odd for place, odd in ODD.items()}
EVEN: Twists = {place: sympy.expand(X * odd) for place, odd in ODD.items()}
MIXED: Twists = {
    1: sympy.expand(X * (X - 2) * (X - 3) * (X + 1) * (4 * X + 1)),
    2: sympy.expand(X * (X - 1) * (X - 3) * (X + 1) * (3 * X - 1)),
    3: sympy.expand(X * (X - 1) * (X - 2) * (X + 1) * (2 * X - 1)),
}
"""Without x**3, such as 2*x**5 - 5*x**4 + 5*x**2 - 2*x, by 3: 0 at -1, 0, 1/2, 1 and 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides of a true identity, and what makes a twin. sympy ships no types."""

    lhs: str
    polynomial: Any
    """Polynomial of the right side."""
    function: Any = 1
    """Factor of the polynomial."""
    twists: Twists
    """The right side of a twin has a multiple of one of these added."""


def grade(problem: Problem, submission: str) -> Verdict:
    """True is right where the identity holds, else the least positive integer x against it.

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
        return wrong("no witness", "an x where the sides differ is asked for")
    return _judge_witness(problem, claim)


def _judge_witness(problem: Problem, value: Any) -> Verdict:
    if value.has(sympy.Float):
        return INEXACT
    if value.has(*STEPS) or not (value.is_real and value.is_finite):
        return Verdict(kind=VerdictKind.MALFORMED, evidence="x is to be a plain real number")
    lhs, rhs = (parse(problem.meta[side], symbols=("x",)) for side in ("lhs", "rhs"))
    if is_different(lhs, rhs, {X: value}):
        # Some statements take any.
        if "least" not in problem.statement or value == int(problem.meta["answer"]):
            return Verdict(kind=VerdictKind.PROVED, method="witness")
        evidence = f"the sides differ at x = {value}, which is not the least positive integer"
        return wrong("witness", evidence)
    return wrong("witness", f"both sides are equal at x = {value}, or cannot be told apart")


def _square(rng: random.Random) -> Sides:
    base, c = rng.randint(1, 6) * X**3 + nonzero(rng, 12) * X, nonzero(rng, 30)
    lhs = _joined(str(base**2), c * X**2)
    return Sides(lhs=lhs, polynomial=base**2 + c * X**2, twists=EVEN)


def _product(rng: random.Random) -> Sides:
    left = rng.randint(1, 9) * X**3 + nonzero(rng, 9)
    right = rng.randint(1, 9) * X**2 + nonzero(rng, 9) * X
    return Sides(lhs=f"({left})*({right})", polynomial=left * right, twists=MIXED)


def _cube(rng: random.Random) -> Sides:
    base, c = rng.randint(1, 3) * X**2 + nonzero(rng, 5), nonzero(rng, 30)
    lhs = _joined(str(base**3), c * X**2)
    return Sides(lhs=lhs, polynomial=base**3 + c * X**2, twists=EVEN)


def _two_squares(rng: random.Random) -> Sides:
    left = rng.randint(1, 4) * X**3 + nonzero(rng, 7) * X
    right = rng.randint(1, 4) * X**2 + nonzero(rng, 7)
    lhs = f"({left})**2 - ({right})**2"
    return Sides(lhs=lhs, polynomial=left**2 - right**2, twists=EVEN)


def _pythagoras(rng: random.Random) -> Sides:
    polynomial, k = _quintic(rng), rng.choice(EVEN_ANGLES)
    lhs = f"{polynomial}*(1 - cos({k}*x)**2)"
    function = sympy.sin(k * X) ** 2
    return Sides(lhs=lhs, polynomial=polynomial, function=function, twists=ODD)


def _double_sine(rng: random.Random) -> Sides:
    polynomial, k = _quintic(rng), rng.choice(ANGLES)
    lhs = str(2 * polynomial * sympy.sin(k * X) * sympy.cos(k * X))
    function = sympy.sin(2 * k * X)
    return Sides(lhs=lhs, polynomial=polynomial, function=function, twists=ODD)


def _double_cosine(rng: random.Random) -> Sides:
    polynomial, k = _quintic(rng), rng.choice(EVEN_ANGLES)
    lhs = f"{polynomial}*(1 - cos({2 * k}*x))"
    function = sympy.sin(k * X) ** 2
    return Sides(lhs=lhs, polynomial=2 * polynomial, function=function, twists=ODD_TWICE)


def _quintic(rng: random.Random) -> Any:
    return X * (rng.randint(1, 4) * X**2 + nonzero(rng, 9)) ** 2


def _exp_square(rng: random.Random) -> Sides:
    base, k = rng.randint(1, 5) * X**3 + nonzero(rng, 9) * X, rng.randint(1, 5)
    lhs = f"(({base})*{sympy.exp(k * X)})**2"
    function = sympy.exp(2 * k * X)
    return Sides(lhs=lhs, polynomial=base**2, function=function, twists=EVEN)


def _exp_product(rng: random.Random) -> Sides:
    left, right = X**2 + nonzero(rng, 9), X**2 + nonzero(rng, 9)
    k, m = rng.sample(range(1, 6), 2)
    lhs = f"x*({left})*{sympy.exp(k * X)}*({right})*{sympy.exp(m * X)}"
    function = sympy.exp((k + m) * X)
    return Sides(lhs=lhs, polynomial=X * left * right, function=function, twists=ODD)


def _joined(text: str, term: Any) -> str:
    """A sum spelled as sympy spells sums, in an order of our own."""
    return f"{text} - {-term}" if str(term).startswith("-") else f"{text} + {term}"


def _rule(make: Callable[[random.Random], Sides]) -> Rule:
    def draft(rng: random.Random, _: int) -> Draft:
        sides = make(rng)
        holds = rng.random() < 0.5
        polynomial = sympy.expand(sides.polynomial)
        answer = "True"
        if not holds:
            witness = rng.choice(tuple(sides.twists))
            polynomial, answer = _twin(polynomial, sides.twists[witness], rng), str(witness)
        rhs = str(polynomial) if sides.function == 1 else f"({polynomial})*{sides.function}"
        return Draft(
            question=f"Prove or refute for all x: {sides.lhs} = {rhs}",
            form="True, or the least positive integer x where the sides differ",
            answer=answer,
            facts={"lhs": sides.lhs, "rhs": rhs, "truth": str(holds)},
        )

    # True is right for one half, and no number for more than a third of the other.
    return Rule(draft=draft, grade=grade, tiers=(1,), chance=0.5)


def _twin(polynomial: Any, twist: Any, rng: random.Random) -> Any:
    """`polynomial` and a small multiple of `twist`, with as many terms where that can be."""
    twins = [sympy.expand(polynomial + scale * twist) for scale in (-2, -1, 1, 2)]
    alike = [twin for twin in twins if len(twin.args) == len(polynomial.args)]
    return rng.choice(alike or twins)


RULES: Mapping[str, Rule] = {
    "square": _rule(_square),
    "product": _rule(_product),
    "cube": _rule(_cube),
    "two_squares": _rule(_two_squares),
    "pythagoras": _rule(_pythagoras),
    "double_sine": _rule(_double_sine),
    "double_cosine": _rule(_double_cosine),
    "exp_square": _rule(_exp_square),
    "exp_product": _rule(_exp_product),
}
