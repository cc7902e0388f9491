"""Number theory in several lines: towers of powers, congruences, roots of polynomials.

Numbers come first and are bound to names; the answer follows from them by steps of which none can
be left out. Discrete logarithms, squares and systems are in `residues`. Knows no interpreter.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence

import sympy

from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide import residues
from repl_rl.tasks.sympy_proofs.wide.residues import INTEGER, prime
from repl_rl.tasks.sympy_proofs.wide.values import by_value

SEARCHED = 10**7
"""More than a search by trial gets through in the time of a line."""

X = sympy.Symbol("x")
PRIMES = tuple(p for p in range(50, 250) if sympy.isprime(p))


def _tower(rng: random.Random, tier: int) -> Draft:
    """a**(b**c), or one storey more, by Euler's theorem: no memory holds the digits of b**c."""
    while True:
        draft = _storeys(rng, is_high=tier > 2)
        if draft is not None:
            return draft


def _storeys(rng: random.Random, *, is_high: bool) -> Draft | None:
    """None where a wrong modulus gives the right answer."""
    p, q = rng.sample(range(8), 2)
    m = (prime(rng, 100 + 100 * p) * prime(rng, 100 + 100 * q)) ** (2 if is_high else 1)
    totient = int(sympy.totient(m))
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 99)
    d = rng.randint(10**12, 10**15)
    if not is_high:
        answer = pow(a, pow(b, d, totient) + totient, m)
        wrong = {pow(a, pow(b, d, m), m), pow(a, d, m), pow(a, b * d, m)}
        return None if answer in wrong else _low_tower(a, b, d, m, answer)
    inner = int(sympy.totient(totient))
    answer = pow(a, pow(b, pow(c, d, inner) + inner, totient) + totient, m)
    wrong = {pow(a, pow(b, pow(c, d, m), m), m), pow(a, pow(b, pow(c, d, totient), totient), m)}
    return None if answer in wrong else _high_tower(a, b, c, d, m, answer)


def _low_tower(a: int, b: int, c: int, m: int, answer: int) -> Draft:
    return Draft(
        question="Find the remainder of a**(b**c) by m",
        form=INTEGER,
        answer=str(answer),
        setup=(f"a, b, c, m = {a}, {b}, {c}, {m}",),
        solution=(
            "t = totient(m)",
            "e = pow(b, c, int(t)) + t",
            "submit_final_answer(pow(a, int(e), m))",
        ),
        one_liners=(
            "pow(a, b**c, m)",
            "pow(a, pow(b, c, m), m)",
            "pow(a, b*c, m)",
            "(a**c) % m",
        ),
    )


def _high_tower(a: int, b: int, c: int, d: int, m: int, answer: int) -> Draft:
    return Draft(
        question="Find the remainder of a**(b**(c**d)) by m",
        form=INTEGER,
        answer=str(answer),
        setup=(f"a, b, c, d, m = {a}, {b}, {c}, {d}, {m}",),
        solution=(
            "t = int(totient(m))",
            "s = int(totient(t))",
            "u = pow(c, d, s) + s",
            "v = pow(b, u, t) + t",
            "submit_final_answer(pow(a, v, m))",
        ),
        one_liners=(
            "pow(a, pow(b, c**d, int(totient(m))), m)",
            "pow(a, pow(b, pow(c, d, m), m), m)",
            "pow(a, pow(b, pow(c, d, int(totient(m))), int(totient(m))), m)",
            "pow(a, b**(c**d), m)",
        ),
    )


def _system(rng: random.Random, tier: int) -> Draft:
    """a[i]*n = b[i] (mod m[i]), where no a[i] has an inverse; from tier 3 on beyond a bound."""
    while True:
        primes = [prime(rng, rng.randint(100, 900)) for _ in range(4)]
        n = rng.randrange(math.prod(primes))
        if len(set(primes)) == 4 and n > SEARCHED:
            break
    # A factor that two reduced moduli share, so that they are not coprime.
    shared = rng.randint(2, 9) if tier > 2 else 1
    moduli = [p * shared if i < 2 else p for i, p in enumerate(primes)]
    common = [rng.randint(2, 12) for _ in moduli]
    units = [_unit(rng, w) for w in moduli]
    a = [u * g for u, g in zip(units, common, strict=True)]
    m = [w * g for w, g in zip(moduli, common, strict=True)]
    b = [u * n % w for u, w in zip(a, m, strict=True)]
    period, numbers = math.lcm(*moduli), f"{a}, {b}, {m}"
    solution = (
        "g = [igcd(u, w) for u, w in zip(a, m)]",
        "r = [(v//d*pow(u//d, -1, w//d), w//d) for u, v, w, d in zip(a, b, m, g)]",
    )
    one_liners = (
        "ntheory.modular.crt(m, b)[0]",
        "ntheory.modular.solve_congruence(*zip(b, m))[0]",
        "ntheory.modular.crt(m, [v*pow(u, -1, w) for u, v, w in zip(a, b, m)])[0]",
        "ntheory.modular.crt([w//igcd(u, w) for u, w in zip(a, m)], b)[0]",
    )
    conditions = "a[i]*n = b[i] (mod m[i]) for i = 0, 1, 2, 3"
    if tier == 2:
        return Draft(
            question=f"Find the least n >= 0 with {conditions}",
            form=INTEGER,
            answer=str(n),
            setup=(f"a, b, m = {numbers}",),
            solution=(*solution, "submit_final_answer(ntheory.modular.solve_congruence(*r)[0])"),
            one_liners=one_liners,
        )
    bound = rng.randint(10 * period, 10**6 * period)
    return Draft(
        question=f"Find the least n > l with {conditions}",
        form=INTEGER,
        answer=str(bound + 1 + (n - bound - 1) % period),
        setup=(f"a, b, m, l = {numbers}, {bound}",),
        solution=(
            *solution,
            "s, t = ntheory.modular.solve_congruence(*r)",
            "submit_final_answer(s + t*((l - s)//t + 1))",
        ),
        one_liners=(*one_liners, "next(j for j in range(l + 1, 2*l) if a[0]*j % m[0] == b[0])"),
    )


def _unit(rng: random.Random, m: int) -> int:
    while True:
        unit = rng.randint(2, m - 1)
        if math.gcd(unit, m) == 1:
            return unit


def _roots(rng: random.Random, tier: int) -> Draft:
    """All numbers that solve a polynomial congruence and another one: their maximum or sum."""
    f, m, roots = _split(rng, 3, degree=3)
    if tier == 2:
        q = _coprime_prime(rng, m)
        c = rng.randrange(q)
        answer = max(joined((root, c), (m, q)) for root in roots)
        return Draft(
            question="Find the greatest n < m*q where f is divisible by m at x = n, "
            "and n = c (mod q)",
            form=INTEGER,
            answer=str(answer),
            setup=(f"f, m = {f}, {m}", f"c, q = {c}, {q}"),
            solution=(
                "r = ntheory.residue_ntheory.polynomial_congruence(f, m)",
                "s = [ntheory.modular.solve_congruence((u, m), (c, q))[0] for u in r]",
                "submit_final_answer(max(s))",
            ),
            one_liners=(
                "max(ntheory.residue_ntheory.polynomial_congruence(f, m))",
                "max(ntheory.residue_ntheory.polynomial_congruence(f, m*q))",
                "max(solve(f, x))",
                "ntheory.modular.crt([m, q], [0, c])[0]",
            ),
        )
    while True:
        g, w, others = _split(rng, 2, degree=2)
        # Else f*g modulo m*w has the same roots.
        if math.gcd(m, w) == 1 and (_has_root(g, m) or _has_root(f, w)):
            break
    answer = sum(joined(pair, (m, w)) for pair in itertools.product(roots, others))
    return Draft(
        question="Add up all n from 0 to m*w - 1 where f is divisible by m and g by w at x = n",
        form=INTEGER,
        answer=str(answer),
        setup=(f"f, m = {f}, {m}", f"g, w = {g}, {w}"),
        solution=(
            "r = ntheory.residue_ntheory.polynomial_congruence(f, m)",
            "s = ntheory.residue_ntheory.polynomial_congruence(g, w)",
            "t = [ntheory.modular.solve_congruence((u, m), (v, w))[0] for u in r for v in s]",
            "submit_final_answer(sum(t))",
        ),
        one_liners=(
            "sum(ntheory.residue_ntheory.polynomial_congruence(f*g, m*w))",
            "sum(ntheory.residue_ntheory.polynomial_congruence(f + g, m*w))",
            "sum(solve([f, g], x))",
        ),
    )


def _split(rng: random.Random, count: int, *, degree: int) -> tuple[str, int, list[int]]:
    """(polynomial, modulus, its roots): it has `degree` roots modulo each of `count` primes."""
    primes = rng.sample(PRIMES, count)
    roots = [rng.sample(range(p), degree) for p in primes]
    m = math.prod(primes)
    combined = [joined(pick, primes) for pick in itertools.product(*roots)]
    # The i-th roots modulo each prime together make one of the factors.
    factors = [X - joined(column, primes) for column in zip(*roots, strict=True)]
    polynomial = sympy.Poly(sympy.Mul(*factors), X)
    reduced = sympy.Poly([int(c) % m for c in polynomial.all_coeffs()], X)
    return str(reduced.as_expr()), m, combined


def _has_root(polynomial: str, m: int) -> bool:
    """Modulo a prime that divides m."""
    coefficients = [int(c) for c in sympy.Poly(polynomial, X).all_coeffs()]
    return any(
        sum(c * r**i for i, c in enumerate(reversed(coefficients))) % int(p) == 0
        for p in sympy.primefactors(m)
        for r in range(int(p))
    )


def joined(remainders: Sequence[int], moduli: Sequence[int]) -> int:
    """The least number with these remainders by coprime moduli."""
    m = math.prod(moduli)
    parts = zip(remainders, moduli, strict=True)
    return sum(r * (m // w) * pow(m // w, -1, w) for r, w in parts) % m


def _coprime_prime(rng: random.Random, m: int) -> int:
    while True:
        if m % (q := prime(rng, rng.randint(300, 900))):
            return q


RULES: Mapping[str, Rule] = {
    "tower": Rule(draft=_tower, grade=by_value, tiers=(2, 4), chance=0.02),
    "system": Rule(draft=_system, grade=by_value, tiers=(2, 3), chance=0.02),
    "roots": Rule(draft=_roots, grade=by_value, tiers=(2, 3), chance=0.02),
    **residues.RESIDUES,
}
