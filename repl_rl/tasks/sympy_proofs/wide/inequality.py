"""Inequalities in several lines: least values, largest constants, numbers of solutions.

The point where equality holds is drawn first, and the inequality is built around it. Sums of
squares are in `squares`. Knows no interpreter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from math import isqrt, lcm

import sympy

from repl_rl.tasks.sympy_proofs.draft import Draft, nonzero
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide import squares
from repl_rl.tasks.sympy_proofs.wide.values import by_value

X, Y, Z, W = sympy.symbols("x y z w")
EXACT = "the exact value"


def _minimum(rng: random.Random, _: int) -> Draft:
    """a*(x - h)**4 + b*(x - h)**2 + c has its least value at h alone."""
    a, b, c, h = rng.randint(1, 5), rng.randint(1, 9), nonzero(rng, 200), nonzero(rng, 9)
    f = sympy.expand(a * (X - h) ** 4 + b * (X - h) ** 2 + c)
    return Draft(
        question="Find the least value of f over all real x",
        form=EXACT,
        answer=str(c),
        setup=("x = symbols('x', real=True)", f"f = {f}"),
        solution=("m = minimum(f, x)", "submit_final_answer(m)"),
        one_liners=("minimum(f, x)",),
    )


def _integers(rng: random.Random, tier: int) -> Draft:
    """A product of quadratics is negative where an odd number of them is: their roots are real."""
    while True:
        quadratics = [(nonzero(rng, 10**4), rng.randint(10**6, 10**9)) for _ in range(tier)]
        answer, length = _count(quadratics), _length(quadratics)
        is_square = any(isqrt(bound) ** 2 == bound for _, bound in quadratics)
        # The length of the solution set, rounded, is not to be the number of integers in it.
        if not is_square and abs(answer - length) > 1:
            break
    f = sympy.expand(sympy.Mul(*((X - h) ** 2 - bound for h, bound in quadratics)))
    return Draft(
        question="How many integers x satisfy f < 0?",
        form="an integer",
        answer=str(answer),
        setup=("x = symbols('x', real=True)", f"f = {f}"),
        solution=(
            "r = sorted(real_roots(f))",
            "e = [ceiling(t) for t in r]",
            "c = [b - a for a, b in zip(e[::2], e[1::2])]",
            "submit_final_answer(sum(c))",
        ),
        one_liners=(
            "solve(f < 0, x)",
            "reduce_inequalities(f < 0, x)",
            "solveset(f < 0, x, S.Reals)",
            "solveset(f < 0, x, S.Integers)",
            "len(solveset(f < 0, x, S.Integers))",
            "len(solve(f, x))",
            "sum(1 for t in range(-1000, 1000) if f.subs(x, t) < 0)",
            "solveset(f < 0, x, S.Reals).measure",
            "floor(solveset(f < 0, x, S.Reals).measure)",
            "ceiling(solveset(f < 0, x, S.Reals).measure)",
        ),
    )


def _count(quadratics: Sequence[tuple[int, int]]) -> int:
    """Integers at which an odd number of (x - h)**2 - bound is negative; no bound is a square."""
    ends = [end for h, b in quadratics for end in (h - isqrt(b), h + isqrt(b) + 1)]
    return int(_alternating(sorted(ends)))


def _length(quadratics: Sequence[tuple[int, int]]) -> float:
    return _alternating(sorted(h + s * math.sqrt(b) for h, b in quadratics for s in (-1, 1)))


def _alternating(ends: Sequence[float]) -> float:
    """The second less the first, the fourth less the third, and so on, added up."""
    return sum(ends[1::2]) - sum(ends[::2])


def _ratio(rng: random.Random, tier: int) -> Draft:
    """f - k*g is a sum of (a[i] - k)*b[i]**2: the largest k is the least a[i].

    From tier 4 on the least one belongs to a plane that the variables are kept off, so the form is
    restricted first.
    """
    symbols = (X, Y, Z)
    values = rng.sample([sympy.Rational(i, 6) for i in range(-60, 60) if i % 6], 3)
    scale = lcm(*(value.q for value in values))
    rows = [[rng.randint(-5, 5) for _ in range(i)] + [1] for i in range(3)]
    bases = [sum(rows[i][j] * symbols[i] for i in range(j, 3)) for j in range(3)]
    f = sum(scale * value * base**2 for value, base in zip(values, bases, strict=True))
    g = sum(scale * base**2 for base in bases)
    answer = str(min(values))
    names, plane = ["x", "y", "z"], None
    if tier > 3:
        names.append("w")
        plane = W - sum(nonzero(rng, 5) * one for one in symbols)
        # Both change where the plane is left.
        f += plane * sum(nonzero(rng, 9) * one for one in (*symbols, W))
        g += plane * sum(nonzero(rng, 9) * one for one in (*symbols, W))
    listed = ", ".join(names)
    bound = [f"{listed} = symbols('{' '.join(names)}', real=True)"]
    bound += [f"f = {sympy.expand(f)}", f"g = {sympy.expand(g)}"]
    if plane is not None:
        bound.append(f"h = {sympy.expand(plane)}")
    where = f"all real {listed}" + (" with h = 0" if plane is not None else "")
    restricted = ["s = solve(h, w)[0]", "F, G = f.subs(w, s), g.subs(w, s)"] if plane else []
    one, other = ("F", "G") if plane else ("f", "g")
    return Draft(
        question=f"Find the largest real k such that f >= k*g for {where}",
        form=EXACT,
        answer=answer,
        setup=tuple(bound),
        solution=(
            *restricted,
            f"A, B = hessian({one}, [x, y, z]), hessian({other}, [x, y, z])",
            "p = factor((A - k*B).det())",
            "r = roots(p, k)",
            "submit_final_answer(min(r))",
        ),
        one_liners=(
            "minimum(f/g, x)",
            f"min(hessian(f, [{listed}]).eigenvals())",
            f"hessian(f - k*g, [{listed}]).det()",
            f"solve(hessian(f - k*g, [{listed}]).det(), k)",
            f"solve([diff(f/g, t) for t in ({listed})])",
            "solve(f - k*g, k)",
        ),
    )


def _means(rng: random.Random, tier: int) -> Draft:
    """Weighted means: a*x**p + b*y**q + ... + c/(x**r*y**s*...) has one critical point among
    positive values, its least one, which is drawn first."""
    symbols = (X, Y)
    place = [sympy.Rational(rng.randint(20, 99), rng.randint(20, 99)) for _ in symbols]
    powers = [rng.randint(1, 2) for _ in symbols]
    others = [rng.randint(1, 2) for _ in symbols]
    last = sympy.Mul(*(value**-r for value, r in zip(place, others, strict=True)))
    scales = [last * r / (p * value**p) for value, p, r in zip(place, powers, others, strict=True)]
    common = rng.randint(1, 3) * lcm(*(scale.q for scale in scales))
    f = common * sympy.Mul(*(one**-r for one, r in zip(symbols, others, strict=True)))
    answer = common * last
    for one, value, scale, p in zip(symbols, place, scales, powers, strict=True):
        f += common * scale * one**p
        answer += common * scale * value**p
    return Draft(
        question="Find the least value of f over all positive x, y",
        form=EXACT,
        answer=str(answer),
        setup=("x, y = symbols('x y', positive=True)", f"f = {f}"),
        # Both at once take solve more seconds than a line has.
        solution=(
            "d = [numer(together(diff(f, t))) for t in (x, y)]",
            "u = solve(d[1], x)[0]",
            "v = solve(d[0].subs(x, u), y)[0]",
            "submit_final_answer(f.subs(x, u).subs(y, v))",
        ),
        one_liners=(
            "minimum(f, x)",
            "f.subs({t: 1 for t in (x, y)})",
            "solve([diff(f, t) for t in (x, y)], [x, y])",
            "solve(diff(f, x), x)",
            "stationary_points(f, x)",
            "min(f.subs({x: a, y: b}) for a in G for b in G)".replace(
                "G", "{Rational(i, j) for i in range(1, 16) for j in range(1, 9)}"
            ),
        ),
    )


RULES: Mapping[str, Rule] = {
    "minimum": Rule(draft=_minimum, grade=by_value, tiers=(1,), chance=0.05),
    "integers": Rule(draft=_integers, grade=by_value, tiers=(2, 3), chance=0.02),
    "ratio": Rule(draft=_ratio, grade=by_value, tiers=(3, 4), chance=0.05),
    "means": Rule(draft=_means, grade=by_value, tiers=(2,), chance=0.05, is_held_out=True),
    **squares.SQUARES,
}
