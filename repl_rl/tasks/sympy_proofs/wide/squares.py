"""Sums of squares: nonnegative polynomials with a proof, or a point where one is negative.

    f = x**2 - 2*x*y + 3*y**2  ->  [(1, x - y), (2, y)]: f = 1*(x - y)**2 + 2*y**2

A certificate is checked by multiplying it out, a point by putting it in. Knows no interpreter.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from repl_rl.grading.declared import binding, declared
from repl_rl.grading.equality import compare_expressions
from repl_rl.grading.parse import Malformed, Value, parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.draft import Draft, nonzero
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide.values import NAMES

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
CALLS = (
    "factor(f)",
    "solve(f < 0)",
    "simplify(f)",
    "[(1, sqrt(f))]",
    "[(1, factor(f))]",
    "factor_list(f)[1]",
    "list(collect(f, x).args)",
)


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
    return Verdict(kind=VerdictKind.WRONG, method="squares", evidence=evidence[:200])


def _draft(
    f: Any, names: Sequence[str], answer: str, solution: Sequence[str], calls: Sequence[str] = ()
) -> Draft:
    listed, symbols = ", ".join(names), " ".join(f"{name}:real" for name in names)
    return Draft(
        question=QUESTION.format(listed),
        form=FORM.format(listed),
        answer=answer,
        facts={"f": str(f), NAMES: symbols},
        setup=(binding(symbols), f"f = {f}"),
        solution=tuple(solution),
        one_liners=(*CALLS, *calls),
    )


# Quadratic forms: f = v' * L * D * L' * v with a unit lower triangle L.


def _form(rng: random.Random, tier: int) -> Draft:
    names = VARIABLES[: tier + 1]
    size, symbols = len(names), sympy.symbols(VARIABLES[: tier + 1])
    is_true = rng.random() < 0.5
    while True:
        rows = [[rng.randint(-9, 9) for _ in range(i)] + [1] for i in range(size)]
        scales = [rng.randint(1, 9) for _ in range(size)]
        if not is_true:
            scales[rng.randrange(1, size)] = -1
        if all(_at(rows, scales, point) >= 0 for point in _nice(size)):
            break
    bases = [sum(rows[i][j] * symbols[i] for i in range(j, size)) for j in range(size)]
    f = sympy.expand(sum(d * b**2 for d, b in zip(scales, bases, strict=True)))
    if is_true:
        answer = str(list(zip(scales, bases, strict=True)))
        last = "[(D[i, i], (L.T*v)[i]) for i in range(len(v))]"
    else:
        answer = str(_direction(rows, scales))
        last = "list((L.T)**-1*Matrix([1 if d < 0 else 0 for d in D.diagonal()]))"
    solution = (
        f"v = Matrix([{', '.join(names)}])",
        "L, D = (hessian(f, list(v))/2).LDLdecomposition(hermitian=False)",
        f"A = {last}",
        "submit_final_answer(A)",
    )
    listed = ", ".join(names)
    calls = (
        f"hessian(f, [{listed}]).LDLdecomposition()",
        f"hessian(f, [{listed}]).is_positive_definite",
        f"list(hessian(f, [{listed}]).eigenvals())",
        f"[[1]*{size}, hessian(f, [{listed}]).eigenvects()][0]",
    )
    return _draft(f, names, answer, solution, calls)


def _at(rows: Sequence[Sequence[int]], scales: Sequence[int], point: Sequence[int]) -> int:
    size = len(scales)
    bases = (sum(rows[i][j] * point[i] for i in range(j, size)) for j in range(size))
    return sum(d * b * b for d, b in zip(scales, bases, strict=True))


def _nice(size: int) -> list[tuple[int, ...]]:
    return list(itertools.product(NICE, repeat=size))


def _direction(rows: Sequence[Sequence[int]], scales: Sequence[int]) -> list[int]:
    """Point where the base of the negative scale is 1 and all others 0, by back substitution."""
    size = len(scales)
    point = [0] * size
    for j in reversed(range(size)):
        wanted = int(scales[j] < 0)
        point[j] = wanted - sum(rows[i][j] * point[i] for i in range(j + 1, size))
    return point


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


SQUARES: Mapping[str, Rule] = {
    "form": Rule(draft=_form, grade=grade, tiers=(2, 3), chance=0.05),
    "nested": Rule(draft=_nested, grade=grade, tiers=(4, 5), chance=0.05),
}
