"""Recurrences with planted characteristic roots: their closed forms are asked for.

    roots and weights -> values for n = 0, 1, 2, ... -> a recurrence that only they satisfy

Each answer is a sum of powers of whole numbers with rational weights, or a quotient of two such
sums, judged for n = 0, 1, 2, ... Knows no interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import sympy

from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.wide.modes import NAMES, by_value

_draft = partial(Draft, form="a closed form in n", facts={NAMES: "n:integer,nonnegative"})

FUNCTIONS = "f, g, h = symbols('f g h', cls=Function)"


def _linear(rng: random.Random, tier: int) -> Draft:
    """f(n + 2) = (r + s)*f(n + 1) - r*s*f(n)."""
    r, s = _roots(rng, 2)
    a, b = nonzero(rng, 9), nonzero(rng, 9)
    return _draft(
        question="Find f(n) for n >= 0, where e is 0 for all n >= 0 and f has the values v",
        answer=_sum_of_powers({r: a, s: b}),
        setup=(
            FUNCTIONS,
            f"e = f(n + 2) {-r - s:+}*f(n + 1) {r * s:+}*f(n)",
            f"v = {{f(0): {a + b}, f(1): {a * r + b * s}}}",
        ),
        solution=("y = rsolve(e, f(n), v)", "submit_final_answer(y)"),
    )


def _history(rng: random.Random, tier: int) -> Draft:
    """Each value from the sum of all before it, in tier 3 with weights: differences help."""
    a, b, c = nonzero(rng, 9), nonzero(rng, 9), nonzero(rng, 9)
    return _plain_history(rng, a, b, c) if tier == 2 else _weighted_history(rng, a, b, c)


def _plain_history(rng: random.Random, a: int, b: int, c: int) -> Draft:
    w = rng.choice((2, 3, 4, 5, -3, -4))
    # f(n + 1) - (w + 1)*f(n) is the step of the polynomial: a*(2*n + 1) + b.
    slope = Fraction(-2 * a, w)
    shift = Fraction(a + b, -w) + slope / w
    power = c - shift
    return _draft(
        question="Find f(n) for n >= 0, where f(n) = e for all n >= 0, an empty sum being 0",
        answer=f"{_sum_of_powers({w + 1: power})} + ({slope})*n + ({shift})",
        setup=(FUNCTIONS, f"e = {a}*n**2 {b:+}*n {c:+} {w:+}*Sum(f(k), (k, 0, n - 1))"),
        solution=(
            "p, w = e.as_independent(Sum)[0], e.coeff(e.atoms(Sum).pop())",
            "d = f(n + 1) - (1 + w)*f(n) - expand(p.subs(n, n + 1) - p)",
            "submit_final_answer(rsolve(d, f(n), {f(0): p.subs(n, 0)}))",
        ),
    )


def _weighted_history(rng: random.Random, a: int, b: int, c: int) -> Draft:
    z = rng.choice((Fraction(2), Fraction(3), Fraction(4), Fraction(5), Fraction(-2), Fraction(-3)))
    w = (z - 1) ** 2 / z
    # f(n + 2) - (2 + w)*f(n + 1) + f(n) = 2*a for n >= 0: roots z and 1/z, and a constant.
    shift = -2 * a / w
    first, second = c - shift, a + b + c + w * c - shift
    big = (second - first / z) / (z - 1 / z)
    return _draft(
        question="Find f(n) for n >= 0, where f(n) = e for all n >= 0, an empty sum being 0",
        answer=f"({big})*({z})**n + ({first - big})*(1/({z}))**n + ({shift})",
        setup=(
            FUNCTIONS,
            f"e = {a}*n**2 {b:+}*n {c:+} + Rational({w.numerator}, {w.denominator})"
            "*Sum((n - k)*f(k), (k, 0, n - 1))",
        ),
        solution=(
            "p, w = e.as_independent(Sum)[0], e.coeff(e.atoms(Sum).pop())",
            "q = expand(p.subs(n, n + 2) - 2*p.subs(n, n + 1) + p)",
            "v = {f(0): p.subs(n, 0), f(1): p.subs(n, 1) + w*p.subs(n, 0)}",
            "y = rsolve(f(n + 2) - (2 + w)*f(n + 1) + f(n) - q, f(n), v)",
            "submit_final_answer(y)",
        ),
    )


def _mobius(rng: random.Random, tier: int) -> Draft:
    """f(n + 1) is a quotient of linear functions of f(n), in tier 3 of f(n) - c*n."""
    i, j = rng.randint(1, 3), rng.randint(1, 3)
    p, q, r, s = 1 + i * j, i, j, 1  # of determinant 1
    low, high = sorted(rng.sample(range(1, 8), 2))
    while p * s * low == q * r * high:  # a quotient by f(n) alone is no quotient once simplified
        low, high = sorted(rng.sample(range(1, 8), 2))
    a, b = rng.randint(1, 5), rng.randint(1, 5)
    matrix = (
        (p * s * high - q * r * low, p * q * (low - high)),
        (r * s * (high - low), p * s * low - q * r * high),
    )
    # All numbers of the denominator are positive, so it has no zero.
    above = _sum_of_powers({high: a * p, low: b * q})
    below = _sum_of_powers({high: a * r, low: b * s})
    start = f"v = Rational({a * p + b * q}, {a * r + b * s})"
    c = 0 if tier == 2 else nonzero(rng, 5)
    argument = "f(n)" if tier == 2 else f"(f(n) {-c:+}*n)"
    quotient = "/".join(f"({x}*{argument} {y:+})" for x, y in matrix)
    shift = "" if tier == 2 else f" {c:+}*(n + 1)"
    back = (
        "c = e.coeff(n)",
        "d = simplify(e.subs(f(n), f(n) + c*n) - c*(n + 1))",
    )
    at, terms = ("e", "w[0]/w[1]") if tier == 2 else ("d", "w[0]/w[1] + c*n")
    return _draft(
        question="Find f(n) for n >= 0, where f(0) = v and f(n + 1) = e for all n >= 0",
        answer=f"({above})/({below}) + ({c})*n",
        setup=(FUNCTIONS, f"e = {quotient}{shift}", start),
        solution=(
            *(back if tier > 2 else ()),
            f"q = [expand(y) for y in fraction({at})]",
            "M = Matrix([[y.coeff(f(n)), y.subs(f(n), 0)] for y in q])",
            "w = M**n*Matrix([v, 1])",
            f"submit_final_answer({terms})",
        ),
    )


def _forced(rng: random.Random, tier: int) -> Draft:
    """x(n + 1) = A*x(n) + b + m**n*c, and a product of two entries is asked for."""
    roots = _roots(rng, 4)
    base, m = _unimodular(rng), roots.pop()
    inverse = base.inv()
    A = base * sympy.diag(*roots) * inverse
    particular, constant, start = (
        sympy.Matrix([nonzero(rng, 5) for _ in range(3)]) for _ in range(3)
    )
    c = (m * sympy.eye(3) - A) * particular
    b = (sympy.eye(3) - A) * constant
    weights = inverse * (start - particular - constant)
    entries = [
        _sum_of_powers(
            {root: base[row, i] * weights[i] for i, root in enumerate(roots)}
            | {m: particular[row], 1: constant[row]}
        )
        for row in range(2)
    ]
    columns = (f"Matrix({list(column)})" for column in (start, b, c))
    return _draft(
        question="Find the product of the first two entries of the column y(n) for n >= 0, where "
        "y(0) = u and y(n + 1) = A*y(n) + b + m**n*c",
        answer=f"({entries[0]})*({entries[1]})",
        setup=(f"A, m = Matrix({A.tolist()}), Integer({m})", f"u, b, c = {', '.join(columns)}"),
        solution=(
            "p = (m*eye(3) - A).inv()*c",
            "q = (eye(3) - A).inv()*b",
            "w = A**n*(u - p - q)",
            "y = w + m**n*p + q",
            "submit_final_answer(expand(y[0]*y[1]))",
        ),
    )


def _cascade(rng: random.Random, tier: int) -> Draft:
    """f drives g and g drives h; where f starts is not said, but a later value of h is."""
    while True:
        r, s, y, z = _roots(rng, 4)
        if r + s + y + z:
            break
    weights = {root: nonzero(rng, 5) for root in (1, r, s, y, z)}
    h = [sum(w * root**n for root, w in weights.items()) for n in range(6)]
    g = [h[n + 2] - (y + z) * h[n + 1] + y * z * h[n] for n in range(4)]
    f = [g[n + 1] - s * g[n] for n in range(3)]
    b = f[1] - r * f[0]
    second = f"{-y - z:+}*{{}} {y * z:+}*{{}}"
    return _draft(
        question="Find h(n) for n >= 0, where d, e and s are 0 for all n >= 0 and g and h have the "
        "values v",
        answer=_sum_of_powers(weights),
        setup=(
            FUNCTIONS,
            f"d = f(n + 1) {-r:+}*f(n) {-b:+}",
            f"e = g(n + 1) {-s:+}*g(n) - f(n)",
            f"s = h(n + 2) {second.format('h(n + 1)', 'h(n)')} - g(n)",
            f"v = {{g(0): {g[0]}, h(0): {h[0]}, h(1): {h[1]}, h(4): {h[4]}}}",
        ),
        solution=(
            "t = [1, -d.coeff(f(n)), -e.coeff(g(n))]",
            "t = [*t, *roots(x**2 + s.coeff(h(n + 1))*x + s.coeff(h(n)))]",
            "a = symbols(f'a:{len(t)}')",
            "H = sum(u*w**n for u, w in zip(a, t))",
            "G = s.subs(g(n), 0).replace(h, lambda y: H.subs(n, y))",
            "F = e.subs(f(n), 0).replace(g, lambda y: G.subs(n, y))",
            "D = d.replace(f, lambda y: F.subs(n, y)).subs(n, 0)",
            "E = [G.subs(n, 0) - v[g(0)], *(H.subs(n, i) - v[h(i)] for i in (0, 1, 4)), D]",
            "w = solve(E, a)",
            "submit_final_answer(H.subs(w))",
        ),
    )


def _roots(rng: random.Random, count: int) -> list[int]:
    return rng.sample((-5, -4, -3, -2, 2, 3, 4, 5, 6), count)


def _unimodular(rng: random.Random) -> Any:
    """A 3 by 3 matrix of whole numbers whose inverse has whole numbers; sympy ships no types."""
    lower, upper = sympy.eye(3), sympy.eye(3)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        lower[i, j], upper[j, i] = nonzero(rng, 2), nonzero(rng, 2)
    return lower * upper


def _sum_of_powers(weights: Mapping[int, object]) -> str:
    return " + ".join(f"({weight})*({root})**n" for root, weight in weights.items())


RULES: Mapping[str, Rule] = {
    "linear": Rule(draft=_linear, grade=by_value, tiers=(1,)),
    "history": Rule(draft=_history, grade=by_value, tiers=(2, 3)),
    "mobius": Rule(draft=_mobius, grade=by_value, tiers=(2, 3), is_held_out=True),
    "forced": Rule(draft=_forced, grade=by_value, tiers=(4,)),
    "cascade": Rule(draft=_cascade, grade=by_value, tiers=(5,)),
}
