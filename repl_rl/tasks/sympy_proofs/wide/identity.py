"""Identities in several lines: floors over the integers, roots of squares over an interval.

A false claim fails in a narrow gap alone, or in one class of integers: it holds at the numbers that
somebody would try, and at nearly all others. The gap is drawn first, and the claim is built around
it. Rules of a `World` ask for coefficients. Knows no interpreter.

With several claims in one problem no answer can be guessed: which are true, and where do the others
fail? claims = [(left, right), ...] -> [True, 19/8, ...]
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from repl_rl.grading.equality import wrong
from repl_rl.grading.parse import Malformed, parse
from repl_rl.grading.points import is_different
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import STEPS, Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.wide.modes import by_value

IsInside = Callable[[Any, Problem], bool]
"""Test of whether a number is in the domain that the problem speaks of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    left: str
    right: str
    witness: str | None
    """A value at which both sides differ; None where the claim is true."""


def draw_claims(
    rng: random.Random, make: Callable[[bool], Claim], count: int
) -> tuple[str, str, dict[str, str]]:
    """(line that binds `claims`, answer, facts) of `count` claims.

    Each is true with the chance 1/2, but not all are true and not all false.
    """
    truths: list[bool] = []
    while len(set(truths)) < 2:
        truths = [rng.random() < 0.5 for _ in range(count)]
    claims = [make(truth) for truth in truths]
    pairs = ", ".join(f"({claim.left}, {claim.right})" for claim in claims)
    answer = f"[{', '.join(claim.witness or 'True' for claim in claims)}]"
    facts = {
        "lefts": "\n".join(claim.left for claim in claims),
        "rights": "\n".join(claim.right for claim in claims),
        "truths": " ".join(map(str, truths)),
    }
    return f"claims = [{pairs}]", answer, facts


def by_claims(name: str, is_inside: IsInside) -> Callable[[Problem, str], Verdict]:
    """A judge of lists of True and of values of the symbol `name`, one entry for each claim."""

    def grade(problem: Problem, submission: str) -> Verdict:
        entries = parse(submission)
        truths = problem.meta["truths"].split()
        if not isinstance(entries, list | tuple) or len(entries) != len(truths):
            raise Malformed(f"a list of {len(truths)} entries is expected")
        lefts, rights = (problem.meta[side].split("\n") for side in ("lefts", "rights"))
        for entry, truth, left, right in zip(entries, truths, lefts, rights, strict=True):
            if (entry is True) != (truth == "True"):
                evidence = f"{left} = {right} is {truth}"[:200]
                return Verdict(kind=VerdictKind.REFUTED, method="claims", evidence=evidence)
            if entry is True:
                continue
            if not (_is_plain(entry) and is_inside(entry, problem)):
                return wrong("witness", f"{entry} is no exact value of {name}"[:200])
            lhs, rhs = (parse(side, symbols=(name,)) for side in (left, right))
            if not is_different(lhs, rhs, {sympy.Symbol(name): entry}):
                evidence = f"both sides are equal at {entry}, or cannot be told apart"
                return wrong("witness", evidence[:200])
        return Verdict(kind=VerdictKind.PROVED, method="claims")

    return grade


def _is_plain(value: Any) -> bool:
    is_number = isinstance(value, sympy.Expr) and value.is_number
    return is_number and not value.has(sympy.Float, *STEPS)


X = sympy.Symbol("x")

Value = Callable[[int], Fraction]
"""Value of a function at one of infinitely many rational points, by number: 1, 2, 3, ..."""


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


def _number(value: int) -> Term:
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
        )

    return draft


def _function(rng: random.Random, world: World, weight: int, truth: bool) -> Term:
    terms = [world.member(rng, weight) for _ in range(3)]
    if not truth:
        terms[rng.randrange(3)] = world.stranger(rng, weight)
    first, second, third = (_number(nonzero(rng, 9)) * term for term in terms)
    return first + second + third


def _coefficients(function: Term, basis: Sequence[Term]) -> list[Any]:
    """Exact, from as many points as there are unknowns."""
    points = range(1, len(basis) + 1)
    rows = sympy.Matrix([[one.value(point) for one in basis] for point in points])
    return list(rows.LUsolve(sympy.Matrix([function.value(point) for point in points])))


# Waves: the point t stands for x = 2*atan(t), where cos(x) and sin(x) are rational.


def _wave(name: str, k: int) -> Term:
    return Term(text=f"{name}({k * X})", value=lambda point: _turn(point, k)[name == "sin"])


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
        text=f"{name}({k * X})",
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


_BY_COEFFICIENTS = (
    "c, z = symbols('c:SIZE'), symbols('z', positive=True)",
    "E = [(f - sum(a*g for a, g in zip(c, basis))).rewrite(exp) for f in fs]",
    "P = [Poly(expand(expand(e.subs(x, BACK))*z**9), z) for e in E]",
    "R = [solve(p.coeffs(), c, dict=True) for p in P]",
    "A = [[r[0][a] for a in c] if r else False for r in R]",
    "submit_final_answer(A)",
)


def _exponential_world(make: Callable[[str, int], Term], even: str, odd: str, back: str) -> World:
    return World(
        declared="x = symbols('x', real=True)",
        domain="real x",
        solution=tuple(line.replace("BACK", back) for line in _BY_COEFFICIENTS),
        **_harmonics(make, even, odd),
    )


# Fibonacci and Lucas numbers: the point is n.


def _shifted(name: str, k: int, shift: int) -> Term:
    argument = ("n" if k == 1 else f"{k}*n") + (f" + {shift}" if shift else "")
    sequence = getattr(sympy, name)
    return Term(
        text=f"{name}({argument})", value=lambda point: Fraction(int(sequence(k * point + shift)))
    )


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
)
TRIGONOMETRIC = _exponential_world(_wave, "cos", "sin", "-I*log(z)")
HYPERBOLIC = _exponential_world(_hyperbolic, "cosh", "sinh", "log(z)")

SIZES = (10**8, 10**9)
"""Sizes of the primes that claims about integers are made of."""
SEARCHED = 10**7
"""No such claim fails between -SEARCHED and SEARCHED: more than a line has time to try."""


def _floors(rng: random.Random, tier: int) -> Draft:
    """Hermite: sum(floor(y + k/m) for k < m) = floor(m*y), at y = (a*n + b)/q."""
    line, answer, facts = draw_claims(rng, lambda truth: _floor_claim(rng, truth, tier), tier + 2)
    return Draft(
        question="Which pairs in claims are equal for all integers n?",
        form="a list with, for each pair, True or an integer n where its sides differ",
        answer=answer,
        facts=facts,
        setup=("n = symbols('n', integer=True)", line),
        solution=(
            "S = [[w.replace(floor, lambda y: y) for w in pair] for pair in claims]",
            "Y = [u - Rational(len(l.atoms(floor)) - 1, 2) for (u, v), (l, r) in zip(S, claims)]",
            "T = [(y.coeff(n).q, y.coeff(n).p, y.subs(n, 0)) for y in map(expand, Y)]",
            "E = [q*expand(v - y) for (u, v), y, (q, p, b) in zip(S, Y, T)]",
            "N = [mod_inverse(p, q)*(-ceiling(e) - q*b) % q for e, (q, p, b) in zip(E, T)]",
            "submit_final_answer([True if 0 <= e < 1 else w for e, w in zip(E, N)])",
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
class Substitution:
    """s = g(x), one to one from a domain of x onto s > 0 or s >= 0."""

    domain: str
    low: str
    """The least x of the domain; empty where there is none."""
    sign: str
    """Sign of s."""
    spell: Callable[[Sequence[int]], str]
    """The text of c[0] + c[1]*s + c[2]*s**2 + ... in x."""
    back: Callable[[Any], Any]
    back_text: str


def _substitutions(low: int) -> tuple[Substitution, ...]:
    return (
        Substitution(
            domain=f"real x >= {low}",
            low=str(low),
            sign="nonnegative",
            spell=lambda c: _in_root(c, low),
            back=lambda s: low + s**2,
            back_text=f"{low} + {{}}**2",
        ),
        Substitution(
            domain="real x",
            low="",
            sign="positive",
            spell=lambda c: _added((a, str(sympy.exp(k * X))) for k, a in enumerate(c)),
            back=sympy.log,
            back_text="log({})",
        ),
        Substitution(
            domain="real x >= 1",
            low="1",
            sign="nonnegative",
            spell=lambda c: _added((a, str(sympy.log(X) ** k)) for k, a in enumerate(c)),
            back=sympy.exp,
            back_text="exp({})",
        ),
    )


def _roots(rng: random.Random, tier: int) -> Draft:
    """sqrt(p(s)**2) = p(s) holds where p(s) >= 0; s is a function of x that nobody mentions."""
    substitution = rng.choice(_substitutions(rng.randint(1, 9)))
    line, answer, facts = draw_claims(
        rng, lambda truth: _root_claim(rng, truth, substitution, tier - 3), 3
    )
    return Draft(
        question=f"Which pairs in claims are equal for all {substitution.domain}?",
        form="a list with, for each pair, True or an exact x where its sides differ",
        answer=answer,
        facts={**facts, "low": substitution.low},
        setup=("x = symbols('x', real=True)", line),
        solution=(
            f"s = symbols('s', {substitution.sign}=True)",
            f"D = [(l - r).subs(x, {substitution.back_text.format('s')}) for l, r in claims]",
            "Q = [[w.base for w in d.atoms(Pow) if w.exp == S.Half] for d in D]",
            "Z = [sorted({z for q in qs for z in real_roots(q) if z >= 0}) for qs in Q]",
            "T = [[(u + v)/2 for u, v in zip(z, z[1:])] for z in Z]",
            "W = [[t for t in ts if d.subs(s, t) != 0] for d, ts in zip(D, T)]",
            f"A = [{substitution.back_text.format('w[0]')} if w else True for w in W]",
            "submit_final_answer(A)",
        ),
    )


def _root_claim(rng: random.Random, truth: bool, substitution: Substitution, count: int) -> Claim:
    """The sum of `count` roots; the first of a false claim is of a square of what can be < 0."""
    low, high = _gap(rng, substitution)
    polynomials = [_near(*_gap(rng, substitution), lift=True) for _ in range(count - 1)]
    polynomials.insert(rng.randrange(count), _near(low, high, lift=truth))
    return Claim(
        left=" + ".join(f"sqrt({substitution.spell(_product(one, one))})" for one in polynomials),
        right=substitution.spell([sum(column) for column in zip(*polynomials, strict=True)]),
        witness=None if truth else str(substitution.back((low + high) / 2)),
    )


def _gap(rng: random.Random, substitution: Substitution) -> tuple[Any, Any]:
    """Two values of s close to each other; no multiple of 1/2 lies between their values of x."""
    while True:
        low = sympy.Rational(rng.randint(13, 36), 12)
        high = low + sympy.Rational(1, rng.randint(12, 40))
        doubled = [2 * float(substitution.back(end)) for end in (low, high)]
        if math.floor(doubled[0] - 1e-6) == math.floor(doubled[1] + 1e-6):
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
    even, odd = (
        sympy.Poly(coefficients[parity::2][::-1], X).compose(sympy.Poly(X - low, X))
        for parity in (0, 1)
    )
    factors = ((even, sympy.S.One), (odd, sympy.sqrt(X - low)))
    return _added((part.nth(j), str(X**j * factor)) for part, factor in factors for j in range(3))


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
    "trigonometric": Rule(draft=_span(TRIGONOMETRIC), grade=by_value, tiers=(2, 3, 4), chance=0.05),
    "fibonacci": Rule(draft=_span(FIBONACCI), grade=by_value, tiers=(3, 4), chance=0.05),
    "hyperbolic": Rule(
        draft=_span(HYPERBOLIC), grade=by_value, tiers=(2, 3), chance=0.05, is_held_out=True
    ),
}
