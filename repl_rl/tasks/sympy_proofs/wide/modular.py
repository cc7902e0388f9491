"""Number theory in several lines: towers of powers, congruences, roots of polynomials.

Numbers come first and are bound to names; the answer follows from them by steps of which none can
be left out. Knows no interpreter.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sympy
from sympy.ntheory.modular import crt
from sympy.ntheory.residue_ntheory import polynomial_congruence

from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.modular import unit
from repl_rl.tasks.sympy_proofs.wide.modes import by_value

_draft = partial(Draft, form="an integer")

N, K = sympy.symbols("n k")

SMOOTH = (
    *(205234855387, 242969682391, 369751040231, 422612222299, 753085744087, 1066144135811),
    *(1185516279611, 2111599760843, 2288124648419, 2682755011327, 3117283607747, 5723444890307),
)
"""Primes p with p - 1 a product of different primes below 100: logarithms modulo p are found at
once, and a search by trial never ends."""


def prime(rng: random.Random, size: int) -> int:
    """A prime a little above `size`."""
    return int(sympy.nextprime(size + rng.randrange(size)))


def _square_log(rng: random.Random, tier: int) -> Draft:
    """The least n with a**(n**2) = b (mod p): a logarithm, an order, a square root."""
    while True:
        p, planted = rng.choice(SMOOTH), rng.randrange(10**12)
        a = rng.randint(2, 999)
        order = sympy.n_order(a, p)
        # Else the order need not be found: p - 1 does.
        if math.gcd(planted, order) == 1 and 10**10 < order < p - 1:
            break
    square = planted**2 % order
    least = min(sympy.sqrt_mod_iter(square, order))
    if least == sympy.sqrt_mod(square, p - 1):
        return _square_log(rng, tier)
    return _draft(
        question="Find the least n >= 0 with a**(n**2) = b (mod p)",
        answer=str(least),
        setup=(f"a, b, p = {a}, {pow(a, square, p)}, {p}",),
        solution=(
            "e = discrete_log(p, b, a)",
            "t = n_order(a, p)",
            "s = sqrt_mod(e, t, all_roots=True)",
            "submit_final_answer(min(s))",
        ),
    )


def _two_logs(rng: random.Random, tier: int) -> Draft:
    """n from two exponential congruences whose periods are not coprime."""
    while True:
        p, q = prime(rng, 10**5), prime(rng, 10**5)
        a, c, n = rng.randint(2, 999), rng.randint(2, 999), rng.randrange(10**12)
        orders = sympy.n_order(a, p), sympy.n_order(c, q)
        period = math.lcm(*orders)
        # Else the orders need not be found: p - 1 and q - 1 do.
        is_plain = orders[0] == p - 1 or orders[1] == q - 1
        if p != q and n % period > 10**7 and not is_plain:
            break
    b, d, least = pow(a, n, p), pow(c, n, q), n % period
    if tier == 4:
        return _draft(
            question="Find the least n >= 0 with a**n = b (mod p) and c**n = d (mod q)",
            answer=str(least),
            setup=(f"a, b, p = {a}, {b}, {p}", f"c, d, q = {c}, {d}, {q}"),
            solution=(
                "e = discrete_log(p, b, a)",
                "s = n_order(a, p)",
                "h = discrete_log(q, d, c)",
                "t = n_order(c, q)",
                "submit_final_answer(ntheory.modular.solve_congruence((e, s), (h, t))[0])",
            ),
        )
    u, w = rng.randrange(2, p), rng.randrange(2, q)
    bound = rng.randint(10 * period, 10**6 * period)
    return _draft(
        question="Find the least n > l with u*a**n = b (mod p) and w*c**n = d (mod q)",
        answer=str(bound + 1 + (least - bound - 1) % period),
        setup=(
            f"u, a, b, p = {u}, {a}, {u * b % p}, {p}",
            f"w, c, d, q = {w}, {c}, {w * d % q}, {q}",
            f"l = {bound}",
        ),
        solution=(
            "v, z = b*pow(u, -1, p) % p, d*pow(w, -1, q) % q",
            "e = discrete_log(p, v, a)",
            "s = n_order(a, p)",
            "h = discrete_log(q, z, c)",
            "t = n_order(c, q)",
            "r, m = ntheory.modular.solve_congruence((e, s), (h, t))",
            "submit_final_answer(r + m*((l - r)//m + 1))",
        ),
    )


def _squares(rng: random.Random, tier: int) -> Draft:
    """Count how often a quadratic polynomial is the square of a unit: sums of Legendre symbols."""
    while True:
        primes = [prime(rng, 10**4) for _ in range(3)]
        powers = [1, 1, 1] if tier == 4 else [1, rng.randint(2, 3), rng.randint(1, 2)]
        a, b, c = rng.randint(2, 999), nonzero(rng, 999), nonzero(rng, 999)
        d = b * b - 4 * a * c
        if len(set(primes)) < 3 or math.gcd(a * d, math.prod(primes)) > 1:
            continue
        legendre = sympy.legendre_symbol
        units = [int(p - 1 - legendre(d, p) - legendre(a, p)) // 2 for p in primes]
        if units != [p // 2 for p in primes]:
            break
    m = math.prod(p**e for p, e in zip(primes, powers, strict=True))
    lifted = () if tier == 4 else ("w = [p**(e - 1) for p, e in g.items()]",)
    product = "prod(u)" if tier == 4 else "prod(u)*prod(w)"
    return _draft(
        question="Count the n with 0 <= n < m where f at x = n is congruent modulo m to the square "
        "of a number coprime to m",
        answer=str(math.prod(units) * (m // math.prod(primes))),
        setup=(f"f, m = {a}*x**2 {b:+}*x {c:+}, {m}",),
        solution=(
            "g = factorint(m)",
            "d = int(discriminant(f, x))",
            "r = [1 + jacobi_symbol(d, p) for p in g]",
            "s = [-jacobi_symbol(int(LC(f, x)), p) for p in g]",
            "u = [(p - v + y)//2 for p, v, y in zip(g, r, s)]",
            *lifted,
            f"submit_final_answer({product})",
        ),
    )


def _lift(rng: random.Random, tier: int) -> Draft:
    """The only common zero of two polynomials in n and k, lifted from p to a power of p."""
    e = 4 if tier == 4 else 8
    while True:
        p = int(rng.choice([q for q in range(11, 40) if sympy.isprime(q)]))
        modulus = p**e
        zero = rng.randrange(modulus), rng.randrange(modulus)
        f, g = (_through(rng, zero, modulus) for _ in range(2))
        if _is_simple((f, g), p):
            break
    steps = range(1, 3 if tier == 4 else 4)
    lifts = [
        f"v{i} = (v{i - 1} - J.subs(dict(zip((n, k), v{i - 1}))).inv_mod(p**{2**i})"
        f"*h.subs(dict(zip((n, k), v{i - 1})))).applyfunc(lambda y: y % p**{2**i})"
        for i in steps
    ]
    return Draft(
        question="Find the numbers n and k from 0 to p**e - 1 where both f and g are divisible "
        "by p**e",
        form="(n, k)",
        answer=str(zero),
        setup=(f"p, e = {p}, {e}", f"f = {_spelled(f)}", f"g = {_spelled(g)}"),
        solution=(
            "h = Matrix([f, g])",
            "J = h.jacobian([n, k])",
            "F = lambdify((n, k), (f, g))",
            "v0 = Matrix(next((i, j) for i in range(p) for j in range(p) "
            "if not any(y % p for y in F(i, j))))",
            *lifts,
            f"submit_final_answer(tuple(v{len(lifts)}))",
        ),
    )


Terms = dict[tuple[int, int], int]
"""Coefficients by the exponents of n and k."""


def _through(rng: random.Random, zero: tuple[int, int], modulus: int) -> Terms:
    shapes = [(2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (3, 0), (0, 3)]
    terms = {shape: rng.randint(1, 99) for shape in rng.sample(shapes, 5)}
    return terms | {(0, 0): -_value(terms, zero) % modulus}


def _value(terms: Terms, at: tuple[int, int]) -> int:
    return sum(c * at[0] ** i * at[1] ** j for (i, j), c in terms.items())


def _is_simple(pair: tuple[Terms, Terms], p: int) -> bool:
    """Say whether both have one common zero modulo p, where their gradients are independent."""
    points = [(i, j) for i in range(p) for j in range(p)]
    zeros = [at for at in points if not any(_value(terms, at) % p for terms in pair)]
    if len(zeros) != 1:
        return False
    (i, j), (r, s) = (_gradient(terms, zeros[0]) for terms in pair)
    return (i * s - j * r) % p != 0


def _gradient(terms: Terms, at: tuple[int, int]) -> tuple[int, int]:
    by_n = {(i - 1, j): c * i for (i, j), c in terms.items() if i}
    by_k = {(i, j - 1): c * j for (i, j), c in terms.items() if j}
    return _value(by_n, at), _value(by_k, at)


def _spelled(terms: Terms) -> str:
    expression: Any = sum(c * N**i * K**j for (i, j), c in terms.items())  # sympy ships no types
    return str(expression)


SEARCHED = 10**7
"""More than a search by trial gets through in the time of a line."""

X = sympy.Symbol("x")
PRIMES = tuple(p for p in range(50, 250) if sympy.isprime(p))


def _tower(rng: random.Random, tier: int) -> Draft:
    """a**(b**c), or one storey more, by Euler's theorem: no memory holds the digits of b**c."""
    answer, wrong, power = 0, {0}, 1 if tier == 2 else 2
    while answer in wrong:  # else a wrong modulus gives the right answer
        p, q = rng.sample(range(8), 2)
        m = (prime(rng, 100 + 100 * p) * prime(rng, 100 + 100 * q)) ** power
        totient = int(sympy.totient(m))
        inner = int(sympy.totient(totient))
        a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 99)
        d = rng.randint(10**12, 10**15)
        if tier == 2:
            answer = pow(a, pow(b, d, totient) + totient, m)
            wrong = {pow(a, pow(b, d, m), m), pow(a, d, m), pow(a, b * d, m)}
        else:
            answer = pow(a, pow(b, pow(c, d, inner) + inner, totient) + totient, m)
            steps = (pow(b, pow(c, d, w), w) for w in (m, totient))
            wrong = {pow(a, step, m) for step in steps}
    if tier == 2:
        return _draft(
            question="Find the remainder of a**(b**c) by m",
            answer=str(answer),
            setup=(f"a, b, c, m = {a}, {b}, {d}, {m}",),
            solution=(
                "t = totient(m)",
                "e = pow(b, c, int(t)) + t",
                "submit_final_answer(pow(a, int(e), m))",
            ),
        )
    return _draft(
        question="Find the remainder of a**(b**(c**d)) by m",
        answer=str(answer),
        setup=(f"a, b, c, d, m = {a}, {b}, {c}, {d}, {m}",),
        solution=(
            "t = int(totient(m))",
            "s = int(totient(t))",
            "u = pow(c, d, s) + s",
            "v = pow(b, u, t) + t",
            "submit_final_answer(pow(a, v, m))",
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
    units = [unit(rng, w) for w in moduli]
    a = [u * g for u, g in zip(units, common, strict=True)]
    m = [w * g for w, g in zip(moduli, common, strict=True)]
    b = [u * n % w for u, w in zip(a, m, strict=True)]
    period, numbers = math.lcm(*moduli), f"{a}, {b}, {m}"
    solution = (
        "g = [igcd(u, w) for u, w in zip(a, m)]",
        "r = [(v//d*pow(u//d, -1, w//d), w//d) for u, v, w, d in zip(a, b, m, g)]",
    )
    conditions = "a[i]*n = b[i] (mod m[i]) for i = 0, 1, 2, 3"
    if tier == 2:
        return _draft(
            question=f"Find the least n >= 0 with {conditions}",
            answer=str(n),
            setup=(f"a, b, m = {numbers}",),
            solution=(*solution, "submit_final_answer(ntheory.modular.solve_congruence(*r)[0])"),
        )
    bound = rng.randint(10 * period, 10**6 * period)
    return _draft(
        question=f"Find the least n > l with {conditions}",
        answer=str(bound + 1 + (n - bound - 1) % period),
        setup=(f"a, b, m, l = {numbers}, {bound}",),
        solution=(
            *solution,
            "s, t = ntheory.modular.solve_congruence(*r)",
            "submit_final_answer(s + t*((l - s)//t + 1))",
        ),
    )


def _roots(rng: random.Random, tier: int) -> Draft:
    """All numbers that solve a polynomial congruence and another one: their maximum or sum."""
    f, m, roots = _split(rng, 3, degree=3)
    if tier == 2:
        q = _coprime_prime(rng, m)
        c = rng.randrange(q)
        answer = max(_joined((root, c), (m, q)) for root in roots)
        return _draft(
            question="Find the greatest n < m*q where f is divisible by m at x = n, "
            "and n = c (mod q)",
            answer=str(answer),
            setup=(f"f, m = {f}, {m}", f"c, q = {c}, {q}"),
            solution=(
                "r = ntheory.residue_ntheory.polynomial_congruence(f, m)",
                "s = [ntheory.modular.solve_congruence((u, m), (c, q))[0] for u in r]",
                "submit_final_answer(max(s))",
            ),
        )
    while True:
        g, w, others = _split(rng, 2, degree=2)
        # Else f*g modulo m*w has the same roots.
        if math.gcd(m, w) == 1 and (_has_root(g, m) or _has_root(f, w)):
            break
    answer = sum(_joined(pair, (m, w)) for pair in itertools.product(roots, others))
    return _draft(
        question="Add up all n from 0 to m*w - 1 where f is divisible by m and g by w at x = n",
        answer=str(answer),
        setup=(f"f, m = {f}, {m}", f"g, w = {g}, {w}"),
        solution=(
            "r = ntheory.residue_ntheory.polynomial_congruence(f, m)",
            "s = ntheory.residue_ntheory.polynomial_congruence(g, w)",
            "t = [ntheory.modular.solve_congruence((u, m), (v, w))[0] for u in r for v in s]",
            "submit_final_answer(sum(t))",
        ),
    )


def _split(rng: random.Random, count: int, *, degree: int) -> tuple[Any, int, list[int]]:
    """(polynomial, modulus, its roots): it has `degree` roots modulo each of `count` primes."""
    primes = rng.sample(PRIMES, count)
    roots = [rng.sample(range(p), degree) for p in primes]
    m = math.prod(primes)
    combined = [_joined(pick, primes) for pick in itertools.product(*roots)]
    # The i-th roots modulo each prime together make one of the factors.
    factors = [X - _joined(column, primes) for column in zip(*roots, strict=True)]
    polynomial = sympy.Poly(sympy.Mul(*factors), X)
    reduced = sympy.Poly([int(c) % m for c in polynomial.all_coeffs()], X)
    return reduced.as_expr(), m, combined


def _has_root(polynomial: Any, m: int) -> bool:
    """Modulo a prime that divides m."""
    return any(polynomial_congruence(polynomial, p) for p in sympy.primefactors(m))


def _joined(remainders: Sequence[int], moduli: Sequence[int]) -> int:
    """The least number with these remainders by coprime moduli."""
    return int(crt(moduli, remainders, check=False)[0])


def _coprime_prime(rng: random.Random, m: int) -> int:
    while True:
        if m % (q := prime(rng, rng.randint(300, 900))):
            return q


RULES: Mapping[str, Rule] = {
    "tower": Rule(draft=_tower, grade=by_value, tiers=(2, 4), chance=0.02),
    "system": Rule(draft=_system, grade=by_value, tiers=(2, 3), chance=0.02),
    "roots": Rule(draft=_roots, grade=by_value, tiers=(2, 3), chance=0.02),
    "square_log": Rule(draft=_square_log, grade=by_value, tiers=(3,), chance=0.02),
    "two_logs": Rule(draft=_two_logs, grade=by_value, tiers=(4, 5), chance=0.02),
    "squares": Rule(draft=_squares, grade=by_value, tiers=(4, 5), chance=0.02),
    "lift": Rule(draft=_lift, grade=by_value, tiers=(4, 5), chance=0.02, is_held_out=True),
}
