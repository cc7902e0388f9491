"""Number theory modulo primes: discrete logarithms, squares, and roots that are lifted.

A solution is planted and the numbers of the problem follow from it. Knows no interpreter.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from typing import Any

import sympy

from repl_rl.tasks.sympy_proofs.draft import Draft, nonzero
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide.values import by_value

INTEGER = "an integer"

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


def _order(a: int, p: int) -> int:
    order = p - 1
    for q, count in sympy.factorint(p - 1).items():
        for _ in range(count):
            if pow(a, order // q, p) == 1:
                order //= q
    return int(order)


def _square_log(rng: random.Random, tier: int) -> Draft:
    """The least n with a**(n**2) = b (mod p): a logarithm, an order, a square root."""
    while True:
        p, planted = rng.choice(SMOOTH), rng.randrange(10**12)
        a = rng.randint(2, 999)
        order = _order(a, p)
        # Else the order need not be found: p - 1 does.
        if math.gcd(planted, order) == 1 and 10**10 < order < p - 1:
            break
    square = planted**2 % order
    choices = [_square_roots(square, q) for q in sympy.primefactors(order)]
    parts = [order // int(q) * pow(order // int(q), -1, int(q)) for q in sympy.primefactors(order)]
    least = min(
        sum(r * part for r, part in zip(pick, parts, strict=True)) % order
        for pick in itertools.product(*choices)
    )
    if least == sympy.sqrt_mod(square, p - 1):
        return _square_log(rng, tier)
    return Draft(
        question="Find the least n >= 0 with a**(n**2) = b (mod p)",
        form=INTEGER,
        answer=str(least),
        setup=(f"a, b, p = {a}, {pow(a, square, p)}, {p}",),
        solution=(
            "e = discrete_log(p, b, a)",
            "t = n_order(a, p)",
            "s = sqrt_mod(e, t, all_roots=True)",
            "submit_final_answer(min(s))",
        ),
        one_liners=(
            "discrete_log(p, b, a)",
            "discrete_log(p, sqrt_mod(b, p), a)",
            "sqrt_mod(discrete_log(p, b, a), p - 1)",
            "sqrt(discrete_log(p, b, a))",
            "next(j for j in range(p) if pow(a, j**2, p) == b)",
        ),
    )


def _square_roots(square: int, q: int) -> list[int]:
    return [r for r in range(int(q)) if (r * r - square) % int(q) == 0]


def _two_logs(rng: random.Random, tier: int) -> Draft:
    """n from two exponential congruences whose periods are not coprime."""
    while True:
        p, q = prime(rng, 10**5), prime(rng, 10**5)
        a, c, n = rng.randint(2, 999), rng.randint(2, 999), rng.randrange(10**12)
        orders = _order(a, p), _order(c, q)
        period = math.lcm(*orders)
        # Else the orders need not be found: p - 1 and q - 1 do.
        is_plain = orders[0] == p - 1 or orders[1] == q - 1
        if p != q and n % period > 10**7 and not is_plain:
            break
    b, d, least = pow(a, n, p), pow(c, n, q), n % period
    if tier == 4:
        return Draft(
            question="Find the least n >= 0 with a**n = b (mod p) and c**n = d (mod q)",
            form=INTEGER,
            answer=str(least),
            setup=(f"a, b, p = {a}, {b}, {p}", f"c, d, q = {c}, {d}, {q}"),
            solution=(
                "e = discrete_log(p, b, a)",
                "s = n_order(a, p)",
                "h = discrete_log(q, d, c)",
                "t = n_order(c, q)",
                "submit_final_answer(ntheory.modular.solve_congruence((e, s), (h, t))[0])",
            ),
            one_liners=(
                "discrete_log(p, b, a)",
                "discrete_log(p*q, ntheory.modular.crt([p, q], [b, d])[0], a)",
                "ntheory.modular.crt([p, q], [b, d])[0]",
                "ntheory.modular.crt([p - 1, q - 1], [discrete_log(p, b, a), "
                "discrete_log(q, d, c)])[0]",
                "next(j for j in range(p*q) if pow(a, j, p) == b and pow(c, j, q) == d)",
            ),
        )
    u, w = rng.randrange(2, p), rng.randrange(2, q)
    bound = rng.randint(10 * period, 10**6 * period)
    return Draft(
        question="Find the least n > l with u*a**n = b (mod p) and w*c**n = d (mod q)",
        form=INTEGER,
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
        one_liners=(
            "discrete_log(p, b, a)",
            "discrete_log(p, b*pow(u, -1, p) % p, a)",
            "ntheory.modular.crt([p, q], [b, d])[0]",
            "next(j for j in range(l + 1, 2*l) if u*pow(a, j, p) % p == b)",
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
        units = [(p - 1 - _symbol(d, p) - _symbol(a, p)) // 2 for p in primes]
        if units != [p // 2 for p in primes]:
            break
    lifts = [p ** (e - 1) for p, e in zip(primes, powers, strict=True)]
    m = math.prod(p**e for p, e in zip(primes, powers, strict=True))
    lifted = () if tier == 4 else ("w = [p**(e - 1) for p, e in g.items()]",)
    product = "prod(u)" if tier == 4 else "prod(u)*prod(w)"
    return Draft(
        question="Count the n with 0 <= n < m where f at x = n is congruent modulo m to the square "
        "of a number coprime to m",
        form=INTEGER,
        answer=str(math.prod(units) * math.prod(lifts)),
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
        one_liners=(
            "prod((p - 1)//2 for p in factorint(m))",
            "totient(m)//2**len(factorint(m))",
            "totient(m)//2",
            "m//2**len(factorint(m))",
            "sum(jacobi_symbol(int(f.subs(x, j)), m) == 1 for j in range(m))",
        ),
    )


def _symbol(a: int, p: int) -> int:
    """Legendre's, for a that p does not divide."""
    return 1 if pow(a, (p - 1) // 2, p) == 1 else -1


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
        setup=(f"p, e = {p}, {e}", f"f = {_shown(f)}", f"g = {_shown(g)}"),
        solution=(
            "h = Matrix([f, g])",
            "J = h.jacobian([n, k])",
            "F = lambdify((n, k), (f, g))",
            "v0 = Matrix(next((i, j) for i in range(p) for j in range(p) "
            "if not any(y % p for y in F(i, j))))",
            *lifts,
            f"submit_final_answer(tuple(v{len(lifts)}))",
        ),
        one_liners=(
            "solve([f, g], [n, k])[0]",
            "nonlinsolve([f, g], [n, k]).args[0]",
            "diop_solve(f - g)",
            "next((i, j) for i in range(p**e) for j in range(p**e) "
            "if not any(y.subs({n: i, k: j}) % p**e for y in (f, g)))",
        ),
    )


Terms = dict[tuple[int, int], int]
"""Coefficients by the exponents of n and k."""


def _through(rng: random.Random, zero: tuple[int, int], modulus: int) -> Terms:
    shapes = [(2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (3, 0), (0, 3)]
    terms = {shape: rng.randint(1, 99) for shape in rng.sample(shapes, 5)}
    value = sum(c * zero[0] ** i * zero[1] ** j for (i, j), c in terms.items())
    return terms | {(0, 0): -value % modulus}


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


def _shown(terms: Terms) -> str:
    expression: Any = sum(c * N**i * K**j for (i, j), c in terms.items())  # sympy ships no types
    return str(expression)


RESIDUES: Mapping[str, Rule] = {
    "square_log": Rule(draft=_square_log, grade=by_value, tiers=(3,), chance=0.02),
    "two_logs": Rule(draft=_two_logs, grade=by_value, tiers=(4, 5), chance=0.02),
    "squares": Rule(draft=_squares, grade=by_value, tiers=(4, 5), chance=0.02),
    "lift": Rule(draft=_lift, grade=by_value, tiers=(4, 5), chance=0.02, is_held_out=True),
}
