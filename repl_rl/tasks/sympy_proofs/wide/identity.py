"""Identities in several lines: floors over the integers, roots of squares over an interval.

A false claim fails in a narrow gap alone, or in one class of integers: it holds at the numbers that
somebody would try, and at nearly all others. The gap is drawn first, and the claim is built around
it. Identities by coefficients are in `spans`. Knows no interpreter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide import spans
from repl_rl.tasks.sympy_proofs.wide.claims import Claim, by_claims, draw_claims

SIZES = (10**8, 10**9)
"""Of the primes that claims about integers are made of."""
SEARCHED = 10**7
"""No such claim fails between -SEARCHED and SEARCHED: more than a line has time to try."""


def _floors(rng: random.Random, tier: int) -> Draft:
    """Hermite: sum(floor(y + k/m) for k < m) = floor(m*y), at y = (a*n + b)/q."""
    claims = draw_claims(rng, lambda truth: _floor_claim(rng, truth, tier), tier + 2)
    return Draft(
        question="Which pairs in claims are equal for all integers n?",
        form="a list with, for each pair, True or an integer n where its sides differ",
        answer=claims.answer,
        facts=claims.facts,
        setup=("n = symbols('n', integer=True)", claims.line),
        solution=(
            "S = [[w.replace(floor, lambda y: y) for w in pair] for pair in claims]",
            "Y = [u - Rational(len(l.atoms(floor)) - 1, 2) for (u, v), (l, r) in zip(S, claims)]",
            "T = [(y.coeff(n).q, y.coeff(n).p, y.subs(n, 0)) for y in map(expand, Y)]",
            "E = [q*expand(v - y) for (u, v), y, (q, p, b) in zip(S, Y, T)]",
            "N = [mod_inverse(p, q)*(-ceiling(e) - q*b) % q for e, (q, p, b) in zip(E, T)]",
            "submit_final_answer([True if 0 <= e < 1 else w for e, w in zip(E, N)])",
        ),
        one_liners=(
            "[simplify(l - r) == 0 for l, r in claims]",
            "[simplify(l - r) == 0 or 1 for l, r in claims]",
            "[bool(l.equals(r)) or 1 for l, r in claims]",
            "[(l - r).subs(n, 0) == 0 or 0 for l, r in claims]",
            "[(l - r).subs(n, 50) == 0 or 50 for l, r in claims]",
            "[next((t for t in range(-9, 20) if (l - r).subs(n, t)), True) for l, r in claims]",
            "[next((t for t in range(10**5) if (l - r).subs(n, t)), True) for l, r in claims]",
            "[next((t for h in [lambdify(n, l - r, 'math')] for t in range(10**8) if h(t)), True)"
            " for l, r in claims]",
            "[solve(l - r, n) for l, r in claims]",
        ),
    )


def _floor_claim(rng: random.Random, truth: bool, tier: int) -> Claim:
    """floor((g*m*(a*n + b) + e)/(g*q)) is floor(m*y) for 0 <= e < g. With e = -1 it is one less
    where q divides m*(a*n + b), with e = g one more where that is -1 modulo q."""
    while True:
        q, m, g = sympy.nextprime(rng.randint(*SIZES)), rng.randint(2, tier), rng.randint(2, 5)
        a, b = rng.randint(2, 99), rng.randint(-99, 99)
        e, residue = (rng.randrange(g), 0) if truth else rng.choice(((-1, 0), (g, -1)))
        fails = (residue * pow(m, -1, q) - b) * pow(a, -1, q) % q
        if truth or SEARCHED < fails < q - SEARCHED:
            break
    left = " + ".join(f"floor(({m * a}*n + {m * b + k * q})/{m * q})" for k in range(m))
    right = f"floor(({g * m * a}*n + {g * m * b + e})/{g * q})"
    return Claim(left=left, right=right, witness=None if truth else str(fails))


def _is_integer(value: Any, _: Problem) -> bool:
    return bool(value.is_Integer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """s = g(x), one to one from a domain of x onto s > 0 or s >= 0."""

    domain: str
    low: str
    """The least x of the domain; empty where there is none."""
    sign: str
    """What s is."""
    spell: Callable[[Sequence[int]], str]
    """The text of c[0] + c[1]*s + c[2]*s**2 + ... in x."""
    back: Callable[[Any], Any]
    place: Callable[[float], float]
    """`back` of a float."""
    back_text: str


def _changes(low: int) -> tuple[Change, ...]:
    return (
        Change(
            domain=f"real x >= {low}",
            low=str(low),
            sign="nonnegative",
            spell=lambda c: _in_root(c, low),
            back=lambda s: low + s**2,
            place=lambda s: s * s,
            back_text=f"{low} + {{}}**2",
        ),
        Change(
            domain="real x",
            low="",
            sign="positive",
            spell=lambda c: _added(zip(c, map(_exponential, range(len(c))), strict=True)),
            back=sympy.log,
            place=math.log,
            back_text="log({})",
        ),
        Change(
            domain="real x >= 1",
            low="1",
            sign="nonnegative",
            spell=lambda c: _added(zip(c, map(_power_of_log, range(len(c))), strict=True)),
            back=sympy.exp,
            place=math.exp,
            back_text="exp({})",
        ),
    )


def _roots(rng: random.Random, tier: int) -> Draft:
    """sqrt(p(s)**2) = p(s) holds where p(s) >= 0; s is a function of x that nobody mentions."""
    change = rng.choice(_changes(rng.randint(1, 9)))
    claims = draw_claims(rng, lambda truth: _root_claim(rng, truth, change, tier - 3), 3)
    return Draft(
        question=f"Which pairs in claims are equal for all {change.domain}?",
        form="a list with, for each pair, True or an exact x where its sides differ",
        answer=claims.answer,
        facts={**claims.facts, "low": change.low},
        setup=("x = symbols('x', real=True)", claims.line),
        solution=(
            f"s = symbols('s', {change.sign}=True)",
            f"D = [(l - r).subs(x, {change.back_text.format('s')}) for l, r in claims]",
            "Q = [[w.base for w in d.atoms(Pow) if w.exp == S.Half] for d in D]",
            "Z = [sorted({z for q in qs for z in real_roots(q) if z >= 0}) for qs in Q]",
            "T = [[(u + v)/2 for u, v in zip(z, z[1:])] for z in Z]",
            "W = [[t for t in ts if d.subs(s, t) != 0] for d, ts in zip(D, T)]",
            f"A = [{change.back_text.format('w[0]')} if w else True for w in W]",
            "submit_final_answer(A)",
        ),
        one_liners=(
            "[simplify(l - r) == 0 for l, r in claims]",
            "[bool(l.equals(r)) or 2 for l, r in claims]",
            "[simplify(l**2 - r**2) == 0 or 2 for l, r in claims]",
            "[sqrtdenest(l) == r or 3 for l, r in claims]",
            "[next((t for t in range(1, 15) if abs(N((l - r).subs(x, t))) > 1e-9), True)"
            " for l, r in claims]",
        ),
    )


def _root_claim(rng: random.Random, truth: bool, change: Change, count: int) -> Claim:
    """The sum of `count` roots; the first of a false claim is of a square of what can be < 0."""
    low, high = _gap(rng, change)
    wanted = [_near(*_gap(rng, change), lift=True) for _ in range(count - 1)]
    wanted.insert(rng.randrange(count), _near(low, high, lift=truth))
    return Claim(
        left=" + ".join(f"sqrt({change.spell(_product(one, one))})" for one in wanted),
        right=change.spell([sum(column) for column in zip(*wanted, strict=True)]),
        witness=None if truth else str(change.back((low + high) / 2)),
    )


def _gap(rng: random.Random, change: Change) -> tuple[Any, Any]:
    """Two values of s close to each other; no multiple of 1/2 lies between their values of x."""
    while True:
        low = sympy.Rational(rng.randint(13, 36), 12)
        high = low + sympy.Rational(1, rng.randint(12, 40))
        places = [2 * change.place(float(end)) for end in (low, high)]
        if math.floor(places[0] - 1e-6) == math.floor(places[1] + 1e-6):
            return low, high


def _near(low: Any, high: Any, *, lift: bool) -> list[int]:
    """A polynomial of s whose roots are `low` and `high`, or barely lifted: it has none, and is
    positive."""
    polynomial = _product([-low.p, low.q], [-high.p, high.q])
    depth = low.q * high.q * (high - low) ** 2 / 4
    return [polynomial[0] + lift * (int(depth) + 1), *polynomial[1:]]


def _product(left: Sequence[int], right: Sequence[int]) -> list[int]:
    product = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    return product


def _in_root(coefficients: Sequence[int], low: int) -> str:
    """s**2 is x - low: a polynomial of x, and sqrt(x - low) times another one."""
    even, odd = ([0] * 3, [0] * 3)
    for k, c in enumerate(coefficients):
        power = [1]
        for _ in range(k // 2):
            power = _product(power, [-low, 1])
        for j, part in enumerate(power):
            (odd if k % 2 else even)[j] += c * part
    x, root = ("1", "x", "x**2"), f"sqrt(x - {low})"
    roots = (root, f"x*{root}", f"x**2*{root}")
    return _added([*zip(even, x, strict=True), *zip(odd, roots, strict=True)])


def _exponential(k: int) -> str:
    return ("1", "exp(x)")[k] if k < 2 else f"exp({k}*x)"


def _power_of_log(k: int) -> str:
    return ("1", "log(x)")[k] if k < 2 else f"log(x)**{k}"


def _added(terms: Iterable[tuple[int, str]]) -> str:
    """c*text for all of them, the last first, as Python spells it."""
    text = " + ".join(str(c) if t == "1" else f"{c}*{t}" for c, t in reversed(list(terms)) if c)
    return text.replace("+ -", "- ")


def _is_above(value: Any, problem: Problem) -> bool:
    low = problem.meta["low"]
    return bool(value.is_real and (not low or (value - int(low)).is_nonnegative))


RULES: Mapping[str, Rule] = {
    "floors": Rule(draft=_floors, grade=by_claims("n", _is_integer), tiers=(2, 3), chance=0.2),
    "roots": Rule(draft=_roots, grade=by_claims("x", _is_above), tiers=(4, 5), chance=0.3),
    **spans.SPANS,
}
