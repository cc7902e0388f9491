"""Derivatives and integrals in several lines: a point, a number or a primitive is found first.

    primitive, point, root -> exact arithmetic of polynomials -> integrand, curve -> problem

Knows no interpreter; integrates and solves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

import sympy

from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero, polynomial
from repl_rl.tasks.sympy_proofs.wide.modes import BIND_P, NAMES, POSITIVE_P, by_value

X, Y, C = sympy.symbols("x y c")
P = sympy.Symbol("p", positive=True)


def _implicit(rng: random.Random, tier: int) -> Draft:
    """(y - b)*(y + s) + (x - a)*G(x, y) = 0: at x = a one root is positive."""
    a, b, s = nonzero(rng, 5), rng.randint(1, 9), rng.randint(1, 9)
    rest = sum(
        rng.randint(-5, 5) * X**i * Y**j for i in range(3) for j in range(3) if i + j <= 2
    ) + nonzero(rng, 5)
    curve = sympy.Poly((Y - b) * (Y + s) + (X - a) * rest, X, Y)
    at = (a, b)
    fx, fy = curve.diff(X), curve.diff(Y)
    slope = -fx(*at) / fy(*at)
    bend = fx.diff(X)(*at) + 2 * fx.diff(Y)(*at) * slope + fy.diff(Y)(*at) * slope**2
    second = -bend / fy(*at)
    return Draft(
        question=f"Near x = {a} the curve f = 0 has one branch with y > 0; find y and its second "
        "derivative in x there",
        form="a tuple (y, y'')",
        answer=str((b, second)),
        setup=("y = symbols('y')", f"f = {curve.as_expr()}"),
        solution=(
            f"r = [s for s in solve(f.subs(x, {a}), y) if s > 0][0]",
            f"d = idiff(f, y, x, 2).subs({{x: {a}, y: r}})",
            "submit_final_answer((r, d))",
        ),
    )


def _median(rng: random.Random, tier: int) -> Draft:
    """The integral of |x - p|*g over (0, 1) is least at the median of g, here u + 2*w*x.

    u*p + w*p**2 = (u + w)/2 there; 1/2 < p < 1/sqrt(2) makes u and w of one sign.
    """
    low = rng.randint(5, 40)
    p = Fraction(rng.randint(low + 1, int(low * 1.41)), 2 * low)
    ratio = (Fraction(1, 2) - p**2) / (p - Fraction(1, 2))  # u/w
    w = ratio.denominator * rng.randint(1, 9)
    u = w * ratio
    # The integrals of (p - x)*g over (0, p) and of (x - p)*g over (p, 1).
    least = u * (p**2 - p + Fraction(1, 2)) + w * (2 * p**3 - 3 * p + 2) / 3
    return Draft(
        question="I(p) = Integral(Abs(x - p)*g, (x, 0, 1)); find the p with 0 < p < 1 at which I "
        "is least, and that least value",
        form="a tuple (p, I)",
        answer=f"({p}, {least})",
        setup=(BIND_P, f"g = {u} + {2 * w}*x"),
        solution=(
            "I = integrate((p - x)*g, (x, 0, p)) + integrate((x - p)*g, (x, p, 1))",
            "r = [s for s in solve(diff(I, p), p) if 0 < s < 1][0]",
            "submit_final_answer((r, I.subs(p, r)))",
        ),
    )


def _paired(rng: random.Random, tier: int) -> Draft:
    """A number c makes the integral of f vanish; with it, the integral of g."""
    k = nonzero(rng, 4)
    # Primitives u*exp(k*x) + c*h of f, and v*exp(k*x) + c**2*m of g.
    u, v = (polynomial(rng, rng.randint(1, 2)) for _ in range(2))
    h, m = (polynomial(rng, rng.randint(2, 3)) for _ in range(2))
    steps = [one(1) - one(0) for one in (h, m)]
    growth = [one(1) * sympy.exp(k) - one(0) for one in (u, v)]
    if 0 in (*steps, growth[0]):  # no c, or c = 0
        return _paired(rng, tier)
    c = -growth[0] / steps[0]
    f, g = ((one.diff(X) + k * one).as_expr() * sympy.exp(k * X) for one in (u, v))
    return Draft(
        question="The integral of f over 0 < x < 1 is 0 for one number c; find c and, for this c, "
        "the integral J of g over 0 < x < 1",
        form="a tuple (c, J)",
        answer=str((c, growth[1] + c**2 * steps[1])),
        setup=(
            "c = symbols('c')",
            f"f = {f} + c*({h.diff(X).as_expr()})",
            f"g = {g} + c**2*({m.diff(X).as_expr()})",
        ),
        solution=(
            "A = integrate(f, (x, 0, 1))",
            "v = solve(A, c)[0]",
            "J = integrate(g.subs(c, v), (x, 0, 1))",
            "submit_final_answer((v, expand(J)))",
        ),
    )


def _radical(rng: random.Random, tier: int) -> Draft:
    """u*sqrt(q) has the derivative (2*u'*q + u*q')/(2*sqrt(q)); p is a parameter of q, in tier 5
    of u, too."""
    degree = tier - 1
    q = sympy.Poly(X**degree + rng.randint(1, 9) * P * X + rng.randint(2, 30), X)
    u = polynomial(rng, rng.randint(2, 3))
    if tier == 5:
        u += nonzero(rng, 9) * P * X ** rng.randint(0, 1)
    top = 2 * u.diff(X) * q + u * q.diff(X)
    answer = u(1) * sympy.sqrt(q(1)) - u(0) * sympy.sqrt(q(0))
    if answer == 0:
        return _radical(rng, tier)
    numerator = sympy.expand(top.as_expr())
    return Draft(
        question="Find the integral of f over 0 < x < 1 for p > 0, without unevaluated parts",
        form="an expression in p",
        answer=str(answer),
        facts={NAMES: POSITIVE_P},
        setup=(BIND_P, f"f = ({numerator})/(2*sqrt({q.as_expr()}))"),
        solution=(
            "t, b = fraction(f)",
            "q = (b/2)**2",
            "d = degree(t, x) - degree(q, x) + 1",
            "c = symbols(f'c0:{d + 1}')",
            "u = sum(s*x**i for i, s in enumerate(c))",
            "v = solve(Poly(2*u.diff(x)*q + u*q.diff(x) - t, x).coeffs(), c)",
            "F = u.subs(v)*sqrt(q)",
            "submit_final_answer(F.subs(x, 1) - F.subs(x, 0))",
        ),
    )


def _inverse(rng: random.Random, tier: int) -> Draft:
    """Derivatives of the inverse of an increasing polynomial."""
    a, b, e, x0 = rng.randint(0, 5), rng.randint(1, 9), nonzero(rng, 9), nonzero(rng, 5)
    f = sympy.Poly(X**5 + a * X**3 + b * X + e, X)
    value = f(x0)
    d1, d2, d3 = (f.diff((X, i))(x0) for i in (1, 2, 3))
    answer = (1 / d1, -d2 / d1**3, (3 * d2**2 - d1 * d3) / d1**5)
    return Draft(
        question=f"g is the inverse function of f, which increases; find g'({value}), "
        f"g''({value}) and g'''({value})",
        form="a tuple (g', g'', g''')",
        answer=str(answer),
        setup=(f"f = {f.as_expr()}",),
        solution=(
            f"r = [s for s in solve(f - ({value}), x) if s.is_Integer][0]",
            "d = [f.diff(x, i).subs(x, r) for i in (1, 2, 3)]",
            "g = -d[1]/d[0]**3",
            "submit_final_answer((1/d[0], g, (3*d[1]**2 - d[0]*d[2])/d[0]**5))",
        ),
    )


RULES: Mapping[str, Rule] = {
    "implicit": Rule(draft=_implicit, grade=by_value, tiers=(2,)),
    "median": Rule(draft=_median, grade=by_value, tiers=(2,)),
    "paired": Rule(draft=_paired, grade=by_value, tiers=(3,)),
    "radical": Rule(draft=_radical, grade=by_value, tiers=(4, 5)),
    "inverse": Rule(draft=_inverse, grade=by_value, tiers=(3,), is_held_out=True),
}
