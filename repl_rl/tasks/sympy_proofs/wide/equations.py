"""Equations with a parameter, and systems whose single solutions nobody writes down.

    zeros -> polynomials that have them, and extraneous ones beside them

Candidates are found by elimination; each has to be looked at. Knows no interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import sympy

from repl_rl.grading.equality import compare_sets
from repl_rl.grading.parse import Malformed, parse
from repl_rl.records import Problem, Verdict
from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.wide.algebra import power_sums, sum_of_quotients
from repl_rl.tasks.sympy_proofs.wide.modes import by_value

FORM = "a list of all values of c, exact"

X, C = sympy.symbols("x c")


def by_set(problem: Problem, submission: str) -> Verdict:
    """The submitted numbers against the known ones; their order does not matter."""
    value = parse(submission)
    if not isinstance(value, frozenset | list | tuple):
        raise Malformed("not a collection of numbers")
    if not all(isinstance(one, sympy.Expr) for one in value):
        raise Malformed("a value of c is a number")
    expected = parse(problem.meta["answer"])
    return compare_sets(frozenset(value), frozenset(expected), seed=problem.meta["points"])


def _critical(rng: random.Random, tier: int) -> Draft:
    """Draft that asks, of all c with a double zero, for those that leave a number of real zeros."""
    while True:
        stays = rng.sample(range(-4, 5), tier + 2)
        polynomial = _with_stays(stays) * rng.choice((-1, 1))
        levels = [polynomial(stay) for stay in sorted(stays)]
        counts = {-level: int((polynomial - level).count_roots()) for level in levels}
        count = rng.choice(sorted(set(counts.values())))
        answer = sorted(c for c in counts if counts[c] == count)
        # Else no candidate has to be looked at.
        is_plain = len(answer) == len(counts) or answer in ([min(counts)], [max(counts)])
        if len(counts) == len(stays) and not is_plain:
            break
    return Draft(
        question=f"Find all real c for which f has a double real zero and exactly {count} "
        "different real zeros in all",
        form=FORM,
        answer=str(answer),
        setup=("c = symbols('c')", f"f = {polynomial.as_expr()} + c", f"m = {count}"),
        solution=(
            "d = discriminant(f, x)",
            "s = sorted(set(real_roots(d)))",
            "w = [Poly(f.subs(c, v), x).count_roots() for v in s]",
            "submit_final_answer([v for v, i in zip(s, w) if i == m])",
        ),
    )


def _with_stays(stays: list[int]) -> Any:
    """A polynomial of whole coefficients whose derivative is zero there alone, and simply."""
    slope = sympy.Poly(sympy.Mul(*(X - stay for stay in stays)), X)
    return slope.integrate().clear_denoms(convert=True)[1].primitive()[1]


def _common(rng: random.Random, tier: int) -> Draft:
    """Draft that asks, of all c with a common zero, for those whose common zero is real."""
    while True:
        b, e = rng.randint(-4, 4), rng.randint(1, 12)
        quadratic, level = X**2 + b * X + e, nonzero(rng, 9)
        h = sympy.expand(level + quadratic * (nonzero(rng, 3) * X + nonzero(rng, 5)))
        zeros = rng.sample(range(-4, 5), 2)
        answer = sorted(h.subs(X, zero) for zero in zeros)
        if b * b < 4 * e and len({level, *answer}) == 3:
            break
    f = h - C
    g = sympy.expand((X - zeros[0]) * (X - zeros[1]) * quadratic + (X + nonzero(rng, 5)) * f)
    return Draft(
        question="Find all real c for which f and g have a common real zero",
        form=FORM,
        answer=str(answer),
        setup=("c = symbols('c')", f"f = {f}", f"g = {g}"),
        solution=(
            "r = resultant(f, g, x)",
            "s = sorted(set(real_roots(r)))",
            "w = [gcd(f.subs(c, v), g.subs(c, v)) for v in s]",
            "submit_final_answer([v for v, u in zip(s, w) if real_roots(u)])",
        ),
    )


def _symmetric(rng: random.Random, tier: int) -> Draft:
    """Sums of powers of the zeros of a polynomial are given, a sum of quotients is asked for."""
    count = tier - 1
    while True:
        # With the elementary symmetric functions of the zeros as coefficients, of changing sign.
        monic = [1, *(-((-1) ** i) * nonzero(rng, 9) for i in range(count))]
        polynomial = sympy.Poly(monic, X)
        a = nonzero(rng, 5)
        # Of t, the numerator alone is its value where the denominator is 1 or the value 0.
        is_quotient = abs(polynomial(a)) > 1 and polynomial.diff()(a) != 0
        if polynomial.is_irreducible and is_quotient:
            break
    names = ("x", "y", "z", "w")[:count]
    sums = power_sums(monic, count)[1:]
    powers = [
        " + ".join(f"{name}**{i + 1}" for name in names) + f" {-s:+}" for i, s in enumerate(sums)
    ]
    newton: tuple[str, ...] = ("e2 = (s[0]**2 - s[1])/2", "e3 = (s[2] - s[0]*s[1] + e2*s[0])/3")
    last = "P = x**3 - s[0]*x**2 + e2*x - e3"
    if count == 4:
        newton = (*newton, "e4 = (s[0]*s[2] - s[3] - e2*s[1] + e3*s[0])/4")
        last = "P = x**4 - s[0]*x**3 + e2*x**2 - e3*x + e4"
    return Draft(
        question="Find the value of t, where all of e are 0",
        form="the exact value",
        answer=str(-sum_of_quotients(polynomial, a)),
        setup=(
            "y, z, w = symbols('y z w')",
            f"e = [{', '.join(powers)}]",
            "t = " + " + ".join(f"1/({name} {-a:+})" for name in names),
        ),
        solution=(
            "s = [-u.subs(dict.fromkeys(u.free_symbols, 0)) for u in e]",
            *newton,
            last,
            "D = diff(P, x)",
            f"submit_final_answer((-D/P).subs(x, {a}))",
        ),
    )


RULES: Mapping[str, Rule] = {
    "critical": Rule(draft=_critical, grade=by_set, tiers=(2, 3), chance=0.02),
    "symmetric": Rule(draft=_symmetric, grade=by_value, tiers=(4, 5), chance=0.02),
    "common": Rule(draft=_common, grade=by_set, tiers=(2, 3), chance=0.02, is_held_out=True),
}
