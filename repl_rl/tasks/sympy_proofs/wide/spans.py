"""Identities by coefficients: is f a sum of c*g for these g, for all values of its variable?

    basis = [cos(x), cos(3*x), ...], fs = [cos(x)**3, ...]  ->  [[3/4, 1/4, ...], ...], or False

What belongs to the basis and what does not look alike: one exponent or one sign apart, and equal
at the points that somebody would try. Knows no interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from repl_rl.tasks.sympy_proofs.draft import Draft, nonzero
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide.values import by_value

Value = Callable[[int], Fraction]
"""Of a function at one of infinitely many rational points, by number: 1, 2, 3, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    text: str
    value: Value

    def __mul__(self, other: Term) -> Term:
        return Term(
            text=f"{self.text}*{other.text}",
            value=lambda point: self.value(point) * other.value(point),
        )

    def __add__(self, other: Term) -> Term:
        return Term(
            text=f"{self.text} + {other.text}",
            value=lambda point: self.value(point) + other.value(point),
        )


def number(value: int) -> Term:
    return Term(text=f"({value})", value=lambda _: Fraction(value))


ONE = Term(text="S(1)", value=lambda _: Fraction(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Functions that are closed under products, graded by a weight."""

    declared: str
    domain: str
    basis: Callable[[int], Sequence[Term]]
    """By weight: the functions that all products of this weight are sums of, independent."""
    member: Callable[[random.Random, int], Term]
    """A product of a weight."""
    stranger: Callable[[random.Random, int], Term]
    """Like a member of this weight, but with the wrong parity: no sum of the basis."""
    solution: tuple[str, ...]
    """Lines that leave the answer as A."""
    one_liners: tuple[str, ...]


def _span(world: World) -> Callable[[random.Random, int], Draft]:
    def draft(rng: random.Random, tier: int) -> Draft:
        weight = tier + 1
        basis = world.basis(weight)
        truths: list[bool] = []
        while not any(truths):
            truths = [rng.random() < 0.5 for _ in range(3)]
        functions = [_function(rng, world, weight, truth) for truth in truths]
        answers = [
            str(_coefficients(one, basis)) if truth else "False"
            for one, truth in zip(functions, truths, strict=True)
        ]
        size = str(len(basis))
        return Draft(
            question=f"For each f in fs: is there a list c of rationals, one for each g in basis, "
            f"such that f is the sum of all c*g for all {world.domain}?",
            form="a list with, for each f, its list c, or False where there is none",
            answer=f"[{', '.join(answers)}]",
            setup=(
                world.declared,
                f"basis = [{', '.join(one.text for one in basis)}]",
                f"fs = [{', '.join(one.text for one in functions)}]",
            ),
            solution=tuple(line.replace("SIZE", size) for line in world.solution),
            one_liners=tuple(line.replace("SIZE", size) for line in world.one_liners),
        )

    return draft


def _function(rng: random.Random, world: World, weight: int, truth: bool) -> Term:
    terms = [world.member(rng, weight) for _ in range(3)]
    if not truth:
        terms[rng.randrange(3)] = world.stranger(rng, weight)
    scaled = [number(nonzero(rng, 9)) * term for term in terms]
    return scaled[0] + scaled[1] + scaled[2]


def _coefficients(function: Term, basis: Sequence[Term]) -> list[Any]:
    """Exact, from as many points as there are unknowns."""
    points = range(1, len(basis) + 1)
    rows = sympy.Matrix([[_rational(one.value(point)) for one in basis] for point in points])
    return list(rows.LUsolve(sympy.Matrix([_rational(function.value(point)) for point in points])))


def _rational(value: Fraction) -> Any:
    return sympy.Rational(value.numerator, value.denominator)


# Waves: the point t stands for x = 2*atan(t), where cos(x) and sin(x) are rational.


def _wave(name: str, k: int) -> Term:
    return Term(text=f"{name}({_multiple(k)})", value=lambda point: _turn(point, k)[name == "sin"])


def _multiple(k: int) -> str:
    return "x" if k == 1 else f"{k}*x"


def _turn(point: int, k: int) -> tuple[Fraction, Fraction]:
    """(cos(k*x), sin(k*x))."""
    norm = 1 + point * point
    c, s = Fraction(1 - point * point, norm), Fraction(2 * point, norm)
    real, imaginary = Fraction(1), Fraction(0)
    for _ in range(k):
        real, imaginary = real * c - imaginary * s, real * s + imaginary * c
    return real, imaginary


# Hyperbolic functions: the point t stands for x = log(t + 1).


def _hyperbolic(name: str, k: int) -> Term:
    sign = -1 if name == "sinh" else 1
    return Term(
        text=f"{name}({_multiple(k)})",
        value=lambda point: (Fraction(point + 1) ** k + sign * Fraction(point + 1) ** -k) / 2,
    )


def _harmonics(make: Callable[[str, int], Term], even: str, odd: str) -> dict[str, Any]:
    """The parts of a world whose functions have a frequency as their weight."""

    def basis(weight: int) -> list[Term]:
        parities = range(weight, 0, -2)
        constant = [] if weight % 2 else [ONE]
        return constant + [make(name, k) for k in sorted(parities) for name in (even, odd)]

    def member(rng: random.Random, weight: int) -> Term:
        return _of_terms(rng, weight, lambda k: make(rng.choice((even, odd)), k))

    def stranger(rng: random.Random, weight: int) -> Term:
        """A product of the wrong parity with `odd` of 2*x: a sine is 0 at multiples of pi/2."""
        return make(odd, 2) * member(rng, weight - 3 or 2)

    return {"basis": basis, "member": member, "stranger": stranger}


def _of_terms(rng: random.Random, weight: int, factor: Callable[[int], Term]) -> Term:
    """Product of at least two factors, where the weight allows it."""
    sizes: list[int] = []
    while sum(sizes) < weight:
        sizes.append(rng.randint(1, max(1, min(weight - sum(sizes), weight - 1))))
    product = factor(sizes[0])
    for size in sizes[1:]:
        product = product * factor(size)
    return product


_SUM = "sum(a*g for a, g in zip(symbols('c:SIZE'), basis))"
_CALLS = (
    "[simplify(f) for f in fs]",
    "[expand(f) for f in fs]",
    f"[solve(f - {_SUM}, symbols('c:SIZE')) for f in fs]",
    f"[list(solve(f - {_SUM}, symbols('c:SIZE'), dict=True)[0].values()) for f in fs]",
)
_BY_COEFFICIENTS = (
    "c, z = symbols('c:SIZE'), symbols('z', positive=True)",
    "E = [(f - sum(a*g for a, g in zip(c, basis))).rewrite(exp) for f in fs]",
    "P = [Poly(expand(expand(e.subs(x, BACK))*z**9), z) for e in E]",
    "R = [solve(p.coeffs(), c, dict=True) for p in P]",
    "A = [[r[0][a] for a in c] if r else False for r in R]",
    "submit_final_answer(A)",
)


def _exponential_world(make: Callable[[str, int], Term], even: str, odd: str, back: str) -> World:
    undetermined = f"solve_undetermined_coeffs(f - {_SUM}, symbols('c:SIZE'), x)"
    return World(
        declared="x = symbols('x', real=True)",
        domain="real x",
        solution=tuple(line.replace("BACK", back) for line in _BY_COEFFICIENTS),
        one_liners=(
            *_CALLS,
            f"[list({undetermined}.values()) for f in fs]",
            "[f.rewrite(exp).expand() for f in fs]",
        ),
        **_harmonics(make, even, odd),
    )


# Fibonacci and Lucas numbers: the point is n.


def _shifted(name: str, k: int, shift: int) -> Term:
    argument = ("n" if k == 1 else f"{k}*n") + (f" + {shift}" if shift else "")
    first = (2, 1) if name == "lucas" else (0, 1)

    def value(point: int) -> Fraction:
        here, after = first
        for _ in range(k * point + shift):
            here, after = after, here + after
        return Fraction(here)

    return Term(text=f"{name}({argument})", value=value)


SIGN = Term(text="(-1)**n", value=lambda point: Fraction((-1) ** point))
SEQUENCES = ("fibonacci", "lucas")


def _fibonacci_basis(weight: int) -> list[Term]:
    """a**i * b**j for i + j = weight, where a and b are the roots of z**2 = z + 1."""
    terms = [ONE] if weight % 4 == 0 else [SIGN] if weight % 2 == 0 else []
    for index, k in enumerate(range(weight, 0, -2)):
        pair = [_shifted(name, k, 0) for name in SEQUENCES]
        terms += [SIGN * one for one in pair] if index % 2 else pair
    return terms


def _fibonacci_member(rng: random.Random, weight: int) -> Term:
    if rng.random() < 0.3:
        return SIGN * _fibonacci_product(rng, weight - 2)
    return _fibonacci_product(rng, weight)


def _fibonacci_stranger(rng: random.Random, weight: int) -> Term:
    """A member with one sign more or less: at even n it makes no difference."""
    if rng.random() < 0.5:
        return SIGN * _fibonacci_product(rng, weight)
    return _fibonacci_product(rng, weight - 2)


def _fibonacci_product(rng: random.Random, weight: int) -> Term:
    return _of_terms(rng, weight, lambda k: _shifted(rng.choice(SEQUENCES), k, rng.randint(0, 4)))


FIBONACCI = World(
    declared="n = symbols('n', integer=True, nonnegative=True)",
    domain="integers n >= 0",
    basis=_fibonacci_basis,
    member=_fibonacci_member,
    stranger=_fibonacci_stranger,
    solution=(
        "V = Matrix([[g.subs(n, t) for g in basis] for t in range(SIZE)])",
        "C = [V.LUsolve(Matrix([f.subs(n, t) for t in range(SIZE)])) for f in fs]",
        "D = [f - sum(a*g for a, g in zip(c, basis)) for f, c in zip(fs, C)]",
        "A = [list(c) if not any(d.subs(n, t) for t in range(3*SIZE)) else False"
        " for c, d in zip(C, D)]",
        "submit_final_answer(A)",
    ),
    one_liners=(
        *_CALLS,
        "[expand(f.rewrite(sqrt)) for f in fs]",
        f"[linsolve([(f - {_SUM}).subs(n, t) for t in (1, 2)], symbols('c:SIZE')) for f in fs]",
    ),
)
TRIGONOMETRIC = _exponential_world(_wave, "cos", "sin", "-I*log(z)")
HYPERBOLIC = _exponential_world(_hyperbolic, "cosh", "sinh", "log(z)")

SPANS: Mapping[str, Rule] = {
    "trigonometric": Rule(draft=_span(TRIGONOMETRIC), grade=by_value, tiers=(2, 3, 4), chance=0.05),
    "fibonacci": Rule(draft=_span(FIBONACCI), grade=by_value, tiers=(3, 4), chance=0.05),
    "hyperbolic": Rule(
        draft=_span(HYPERBOLIC), grade=by_value, tiers=(2, 3), chance=0.05, is_held_out=True
    ),
}
