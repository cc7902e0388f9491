"""Sums and products up to n whose closed form takes an idea: generating functions, telescopes.

    closed form -> its terms -> expanded, so that they do not show where they come from

Judged for n = 1, 2, 3, ... Knows no interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import sympy

from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.wide.modes import NAMES, by_value

_draft = partial(
    Draft,
    question="Find a closed form of s for n = 1, 2, 3, ...",
    form="a closed form in n",
    facts={NAMES: "n:integer,positive"},
)

BASES = (2, 3, 4, 5, 6, 7, -3, -4, -5, -6)
N, K = sympy.symbols("n k")


def _power(rng: random.Random, tier: int) -> Draft:
    """Polynomial times power: one call sums it."""
    a = rng.choice(BASES)
    # The difference of (b*k + c)*a**k.
    b, c = nonzero(rng, 9), nonzero(rng, 9)
    term = sympy.expand(a * (b * (K + 1) + c) - (b * K + c))
    return _draft(
        answer=f"({b}*(n + 1) + {c})*({a})**(n + 1) - ({c})",
        setup=(f"s = Sum(({term})*({a})**k, (k, 0, n))",),
        solution=("t = s.doit()", "submit_final_answer(t)"),
    )


def _binomial(rng: random.Random, tier: int) -> Draft:
    """Binomials times a power and a polynomial of degree 1, or 2: x*d/dx of (1 + a*x)**n."""
    a, b, c = rng.choice(BASES), nonzero(rng, 9), nonzero(rng, 9)
    d = 0 if tier == 2 else nonzero(rng, 9)
    base = 1 + a
    return _draft(
        answer=f"({c})*({base})**n + ({b + d})*({a})*n*({base})**(n - 1) "
        f"+ ({d})*({a})**2*n*(n - 1)*({base})**(n - 2)",
        setup=(
            f"p = {_polynomial(c, b, d)}",
            f"a = Integer({a})",
            "s = Sum(binomial(n, k)*p*a**k, (k, 0, n))",
        ),
        solution=(
            "q = Poly(p, k).all_coeffs()[::-1]",
            "G = (1 + a*x)**n",
            "D = x*diff(G, x)",
            "H = sum(u*v for u, v in zip(q, (G, D, x*diff(D, x))))",
            "submit_final_answer(H.subs(x, 1))",
        ),
    )


def _even(rng: random.Random, tier: int) -> Draft:
    """Every other binomial: the even part of (1 + a*x)**n."""
    a = rng.choice((2, 3, 4, 5, 6, 7))
    b, c, d = (nonzero(rng, 9) for _ in range(3))
    # With t = 2*k the weight is c + b/2*t + d/4*t**2.
    first, second = sympy.Rational(b, 2) + sympy.Rational(d, 4), sympy.Rational(d, 4)
    parts = [
        f"({c})*({1 + u})**n + ({first})*({u})*n*({1 + u})**(n - 1) "
        f"+ ({second})*({u})**2*n*(n - 1)*({1 + u})**(n - 2)"
        for u in (a, -a)
    ]
    return _draft(
        answer=f"({parts[0]} + {parts[1]})/2",
        setup=(
            f"p = {_polynomial(c, b, d)}",
            f"a = Integer({a * a})",
            "s = Sum(binomial(n, 2*k)*p*a**k, (k, 0, n))",
        ),
        solution=(
            "q = Poly(p, k).all_coeffs()[::-1]",
            "G = ((1 + sqrt(a)*x)**n + (1 - sqrt(a)*x)**n)/2",
            "D = x*diff(G, x)/2",
            "E2 = x*diff(D, x)/2",
            "H = q[0]*G + q[1]*D + q[2]*E2",
            "submit_final_answer(H.subs(x, 1))",
        ),
    )


def _double(rng: random.Random, tier: int) -> Draft:
    """A sum over k of binomials, of which each holds a sum over j of binomials."""
    while True:
        a, b = rng.choice(BASES), rng.choice(BASES)
        base = 1 + a * (1 + b)
        if base not in (0, 1, -1):
            break
    p, q = nonzero(rng, 9), nonzero(rng, 9)
    return _draft(
        # The inner sum is (1 + b)**k*(q + p*b/(1 + b)*k).
        answer=f"({q})*({base})**n + ({p * b * a})*n*({base})**(n - 1)",
        setup=(
            "j = symbols('j')",
            f"a, b, p = Integer({a}), Integer({b}), {p}*j {q:+}",
            "t = Sum(binomial(k, j)*p*b**j, (j, 0, k))",
            "s = Sum(binomial(n, k)*a**k*t, (k, 0, n))",
        ),
        solution=(
            "u = (1 + b*x)**k",
            "v = (p.coeff(j)*x*diff(u, x) + p.subs(j, 0)*u).subs(x, 1)",
            "w = Poly(expand(v/(1 + b)**k), k)",
            "G = (1 + a*(1 + b)*x)**n",
            "D = x*diff(G, x)",
            "H = w.coeff_monomial(k)*D + w.coeff_monomial(1)*G",
            "submit_final_answer(H.subs(x, 1))",
        ),
    )


def _product(rng: random.Random, tier: int) -> Draft:
    """c*q(k + h)/q(k) for a quadratic q without real zeros, h = 1, or 2 or 3 from tier 3 on."""
    h = 1 if tier == 2 else rng.choice((2, 3))
    c, b, d = rng.choice(BASES), rng.randint(1, 9), rng.randint(1, 9)
    q = K**2 + b * K + d + b * b // 4 + 1
    scale = rng.randint(2, 5)
    above = sympy.expand(scale * c * q.subs(K, K + h))
    quotient = "*".join(f"({q.subs(K, N + i)})/{q.subs(K, i)}" for i in range(1, h + 1))
    shift = (
        ""
        if tier == 2
        else "h = next(i for i in range(1, 9) if expand(p - c*q.subs(k, k + i)) == 0)"
    )
    ratio = "q.subs(k, n + 1)/q.subs(k, 1)"
    ratios = "prod(q.subs(k, n + i)/q.subs(k, i) for i in range(1, h + 1))"
    return _draft(
        answer=f"({c})**n*{quotient}",
        setup=(f"s = Product(({above})/({sympy.expand(scale * q)}), (k, 1, n))",),
        solution=(
            "p, q = fraction(cancel(s.function))",
            "c = LC(p, k)/LC(q, k)",
            *([shift] if shift else []),
            f"submit_final_answer(c**n*{ratios if shift else ratio})",
        ),
    )


def _arctan(rng: random.Random, tier: int) -> Draft:
    """atan(u(k + h)) - atan(u(k)) for a linear u that is positive: one arc tangent."""
    h = tier - 1
    d, c = rng.randint(1, 5), rng.randint(1, 9)
    u = d * K + c
    inside = h * d / sympy.expand(1 + u * (u + h * d))
    last = " + ".join(f"atan({d}*(n + {i}) + {c})" for i in range(1, h + 1))
    first = " - ".join(f"atan({d * i + c})" for i in range(1, h + 1))
    finds: tuple[str, ...] = (
        "u = q.coeff(k, 2)*k + (q.coeff(k, 1) - q.coeff(k, 2))/2",
        "submit_final_answer(atan(u.subs(k, n + 1)) - atan(u.subs(k, 1)))",
    )
    if tier > 2:
        finds = (
            "u = 2*q.coeff(k, 2)*k + q.coeff(k, 1) - 2*q.coeff(k, 2)",
            "a = [atan(u.subs(k, i)) for i in (n + 2, n + 1, 2, 1)]",
            "submit_final_answer(a[0] + a[1] - a[2] - a[3])",
        )
    return _draft(
        answer=f"{last} - {first}",
        setup=(f"s = Sum(atan({inside}), (k, 1, n))",),
        solution=("q = expand(1/tan(s.function))", *finds),
    )


def _polynomial(constant: int, first: int, second: int) -> str:
    return str(constant + first * K + second * K**2)


RULES: Mapping[str, Rule] = {
    "power": Rule(draft=_power, grade=by_value, tiers=(1,)),
    "binomial": Rule(draft=_binomial, grade=by_value, tiers=(2, 3)),
    "product": Rule(draft=_product, grade=by_value, tiers=(2, 3)),
    "even": Rule(draft=_even, grade=by_value, tiers=(4,)),
    "double": Rule(draft=_double, grade=by_value, tiers=(5,)),
    "arctan": Rule(draft=_arctan, grade=by_value, tiers=(2, 3), is_held_out=True),
}
