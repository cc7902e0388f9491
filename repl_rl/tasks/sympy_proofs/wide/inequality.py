"""Inequalities in several lines: least values, largest constants, numbers of solutions.

The point where equality holds is drawn first, and the inequality is built around it. Two rules
hide a sum of squares. Knows no interpreter.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from math import isqrt, lcm
from typing import Any

import sympy

from repl_rl.grading.equality import compare_expressions, wrong
from repl_rl.grading.parse import Malformed, Value, binding, declared, parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.wide.modes import NAMES, by_value

VARIABLES = ("x", "y", "z", "w")
QUESTION = "Prove or refute for all real {}: f >= 0"
FORM = (
    "where it holds, a list of pairs (c, q) such that f is the sum of all c*q**2, each c >= 0 and "
    "rational, each q a polynomial with rational coefficients; else a list of exact values of {} "
    "where f < 0"
)
NICE = (-2, -1, 0, 1, 2)
"""No false claim fails where all variables have such values."""
MAX_SQUARES = 20


def grade(problem: Problem, submission: str) -> Verdict:
    """Pairs are taken for a certificate, numbers for a point."""
    symbols = declared(problem.meta[NAMES])
    value = parse(submission, symbols=symbols)
    if not isinstance(value, list | tuple) or not 0 < len(value) <= MAX_SQUARES:
        raise Malformed("a list of pairs or of values is expected")
    f = parse(problem.meta["f"], symbols=symbols)
    if all(isinstance(part, list | tuple) and len(part) == 2 for part in value):
        return _judge_squares(f, list(symbols.values()), value, problem.meta["points"])
    if len(value) == len(symbols) and all(map(_is_rational, value)):
        return _judge_point(f, dict(zip(symbols.values(), value, strict=True)))
    raise Malformed(f"neither pairs (c, q) nor exact values of {', '.join(symbols)}")


def _judge_squares(f: Any, symbols: Sequence[Any], pairs: Value, seed: str) -> Verdict:
    total, most = sympy.S.Zero, sympy.Poly(f, *symbols).total_degree() // 2
    for scale, base in pairs:
        if not (isinstance(scale, sympy.Rational) and scale >= 0):
            return _wrong(f"{scale} is no rational number >= 0")
        if not (isinstance(base, sympy.Expr) and _degree(base) <= most):
            return _wrong(f"{base} is no polynomial of degree at most {most}")
        if not all(c.is_Rational for c in sympy.Poly(base, *symbols).coeffs()):
            return _wrong(f"{base} has other coefficients than rational ones")
        total += scale * base**2
    return compare_expressions(total, f, seed=seed)


def _degree(base: Any) -> float:
    """Bound of the total degree, before anything is multiplied out; infinite for other things than
    polynomials. No square of higher degree than f cancels against others."""
    if base.is_Rational:
        return 0
    if base.is_Symbol:
        return 1
    if base.is_Add:
        return max(map(_degree, base.args))
    if base.is_Mul:
        return sum(map(_degree, base.args))
    if base.is_Pow and base.exp.is_Integer and base.exp > 0:
        return _degree(base.base) * int(base.exp)
    return math.inf


def _judge_point(f: Any, point: Mapping[Any, Any]) -> Verdict:
    if f.subs(point).is_negative:
        return Verdict(kind=VerdictKind.PROVED, method="point")
    return _wrong("f is not negative there")


def _is_rational(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and bool(value.is_Rational)


def _wrong(evidence: str) -> Verdict:
    return wrong("squares", evidence[:200])


def _draft(f: Any, names: Sequence[str], answer: str, solution: Sequence[str]) -> Draft:
    listed, symbols = ", ".join(names), " ".join(f"{name}:real" for name in names)
    return Draft(
        question=QUESTION.format(listed),
        form=FORM.format(listed),
        answer=answer,
        facts={"f": str(f), NAMES: symbols},
        setup=(binding(symbols), f"f = {f}"),
        solution=tuple(solution),
    )


# Quadratic forms: f = v' * L * D * L' * v with a unit lower triangle L.


def _form(rng: random.Random, tier: int) -> Draft:
    names = VARIABLES[: tier + 1]
    size, symbols = len(names), sympy.symbols(names)
    is_true = rng.random() < 0.5
    while True:
        triangle = _triangle(rng, size, 9)
        scales = [rng.randint(1, 9) for _ in range(size)]
        if not is_true:
            scales[rng.randrange(1, size)] = -1
        bases = triangle.T * sympy.Matrix(symbols)
        f = sympy.expand(sum(d * b**2 for d, b in zip(scales, bases, strict=True)))
        value = sympy.lambdify(symbols, f)
        if all(value(*point) >= 0 for point in itertools.product(NICE, repeat=size)):
            break
    if is_true:
        answer = str(list(zip(scales, bases, strict=True)))
        last = "[(D[i, i], (L.T*v)[i]) for i in range(len(v))]"
    else:
        # Where the base of the negative scale is 1 and all others are 0.
        answer = str(list(triangle.T.inv() * sympy.Matrix([int(d < 0) for d in scales])))
        last = "list((L.T)**-1*Matrix([1 if d < 0 else 0 for d in D.diagonal()]))"
    solution = (
        f"v = Matrix([{', '.join(names)}])",
        "L, D = (hessian(f, list(v))/2).LDLdecomposition(hermitian=False)",
        f"A = {last}",
        "submit_final_answer(A)",
    )
    return _draft(f, names, answer, solution)


def _triangle(rng: random.Random, size: int, bound: int) -> Any:
    """A lower triangle of whole numbers with ones on the diagonal."""
    return sympy.Matrix(
        size, size, lambda i, j: rng.randint(-bound, bound) if j < i else int(i == j)
    )


# Completed squares: f = A*(y + c(x))**2 + (p*x - q)*(r*x - s), or a little more.


def _nested(rng: random.Random, tier: int) -> Draft:
    names = VARIABLES[: tier - 2]
    symbols = sympy.symbols(names)
    is_true = rng.random() < 0.5
    while True:
        low = sympy.Rational(rng.randint(1, 40), rng.randint(7, 13)) * rng.choice((-1, 1))
        high = low + sympy.Rational(1, rng.randint(9, 20))
        if all(not low <= sympy.Rational(j, 2) <= high for j in range(-14, 14)):
            break
    x = symbols[0]
    scale = low.q * high.q
    lift = int(scale * (high - low) ** 2 / 4) + 1 if is_true else 0
    rest = sympy.expand(scale * (x - low) * (x - high)) + lift
    pairs: list[tuple[Any, Any]] = []
    for index in range(1, len(names)):
        pairs.insert(0, (rng.randint(1, 9), symbols[index] + _curve(rng, symbols[:index])))
    f = sympy.expand(sum(c * q**2 for c, q in pairs) + rest)
    middle = (low + high) / 2
    if is_true:
        left = rest.subs(x, middle)
        answer = str([*pairs, (scale, x - middle), (left, 1)])
    else:
        answer = str(_on_curves(pairs, symbols, middle))
    return _draft(f, names, answer, _completing(names, is_true=is_true))


def _curve(rng: random.Random, symbols: Sequence[Any]) -> Any:
    """A polynomial of degree 2 in the last of `symbols`, of degree 1 in the others."""
    top = symbols[-1]
    return (
        nonzero(rng, 5) * top**2 + sum(nonzero(rng, 9) * one for one in symbols) + nonzero(rng, 9)
    )


def _on_curves(pairs: Sequence[tuple[Any, Any]], symbols: Sequence[Any], first: Any) -> list[Any]:
    """The point over `first` at which every base of `pairs` is 0."""
    point = {symbols[0]: first}
    for symbol, (_, base) in zip(symbols[1:], reversed(pairs), strict=True):
        point[symbol] = (symbol - base).subs(point)
    return list(point.values())


def _completing(names: Sequence[str], *, is_true: bool) -> list[str]:
    """Squares are completed from the last variable down to the first."""
    lines, rest = [], "f"
    for index, name in reversed(list(enumerate(names))):
        lines += [
            f"a{index} = Poly({rest}, {name}).coeff_monomial({name}**2)",
            f"b{index} = expand(Poly({rest}, {name}).coeff_monomial({name})/(2*a{index}))",
            f"r{index} = expand({rest} - a{index}*({name} + b{index})**2)",
        ]
        rest = f"r{index}"
    if is_true:
        pairs = [f"(a{i}, {name} + b{i})" for i, name in reversed(list(enumerate(names)))]
        return [*lines, f"submit_final_answer([{', '.join(pairs)}, (r0, 1)])"]
    lines.append("p0 = -b0")
    for index in range(1, len(names)):
        known = ", ".join(f"{names[i]}: p{i}" for i in range(index))
        lines.append(f"p{index} = -b{index}.subs({{{known}}})")
    values = ", ".join(f"p{i}" for i in range(len(names)))
    return [*lines, f"submit_final_answer([{values}])"]


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
    bases = _triangle(rng, 3, 5).T * sympy.Matrix(symbols)
    f = sum(scale * value * base**2 for value, base in zip(values, bases, strict=True))
    g = sum(scale * base**2 for base in bases)
    listed, where, forms = "x, y, z", "", ("f", "g")
    bound: tuple[str, ...] = ()
    restricted: tuple[str, ...] = ()
    if tier > 3:
        plane = W - sum(nonzero(rng, 5) * one for one in symbols)
        # Both change where the plane is left.
        f += plane * sum(nonzero(rng, 9) * one for one in (*symbols, W))
        g += plane * sum(nonzero(rng, 9) * one for one in (*symbols, W))
        listed, where, forms = "x, y, z, w", " with h = 0", ("F", "G")
        bound = (f"h = {sympy.expand(plane)}",)
        restricted = ("s = solve(h, w)[0]", "F, G = f.subs(w, s), g.subs(w, s)")
    names = listed.replace(",", "")
    return Draft(
        question=f"Find the largest real k such that f >= k*g for all real {listed}{where}",
        form=EXACT,
        answer=str(min(values)),
        setup=(
            f"{listed} = symbols('{names}', real=True)",
            f"f = {sympy.expand(f)}",
            f"g = {sympy.expand(g)}",
            *bound,
        ),
        solution=(
            *restricted,
            "A, B = hessian({}, [x, y, z]), hessian({}, [x, y, z])".format(*forms),
            "p = factor((A - k*B).det())",
            "r = roots(p, k)",
            "submit_final_answer(min(r))",
        ),
    )


def _means(rng: random.Random, tier: int) -> Draft:
    """Weighted means: a*x**p + b*y**q + ... + c/(x**r*y**s*...) has one critical point among
    positive values, its least one, which is drawn first."""
    symbols = (X, Y)
    point = [sympy.Rational(rng.randint(20, 99), rng.randint(20, 99)) for _ in symbols]
    powers = [rng.randint(1, 2) for _ in symbols]
    others = [rng.randint(1, 2) for _ in symbols]
    last = sympy.Mul(*(value**-r for value, r in zip(point, others, strict=True)))
    scales = [last * r / (p * value**p) for value, p, r in zip(point, powers, others, strict=True)]
    common = rng.randint(1, 3) * lcm(*(scale.q for scale in scales))
    f = common * sympy.Mul(*(one**-r for one, r in zip(symbols, others, strict=True)))
    answer = common * last
    for one, value, scale, p in zip(symbols, point, scales, powers, strict=True):
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
    )


RULES: Mapping[str, Rule] = {
    "minimum": Rule(draft=_minimum, grade=by_value, tiers=(1,), chance=0.05),
    "integers": Rule(draft=_integers, grade=by_value, tiers=(2, 3), chance=0.02),
    "ratio": Rule(draft=_ratio, grade=by_value, tiers=(3, 4), chance=0.05),
    "means": Rule(draft=_means, grade=by_value, tiers=(2,), chance=0.05, is_held_out=True),
    "form": Rule(draft=_form, grade=grade, tiers=(2, 3), chance=0.05),
    "nested": Rule(draft=_nested, grade=grade, tiers=(4, 5), chance=0.05),
}
