"""Equations over a stated domain: `Solve over the integers: 2*x**2 - 3*x - 2 = 0`.

Roots come first: some that belong to the domain and some that do not. The answer is the set of all
solutions in the domain, as a set, list or tuple; none may be missing, none may be extra.

Knows no interpreter and no script.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from sympy.ntheory.primetest import is_square

from repl_rl.grading.equality import compare_sets
from repl_rl.grading.parse import Malformed, Value, parse
from repl_rl.records import Problem, Verdict
from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero

X = sympy.Symbol("x")

DOMAINS: Mapping[str, Any] = {  # sympy ships no types
    "integers": sympy.S.Integers,
    "rationals": sympy.S.Rationals,
    "reals": sympy.S.Reals,
    "complexes": sympy.S.Complexes,
}

Planted = tuple[Any, list[Any]]
"""Polynomial (not expanded), its roots."""
Plant = Callable[[random.Random], Planted]


def grade(problem: Problem, submission: str) -> Verdict:
    """The submitted elements against the planted roots that lie in the domain."""
    solutions = _solutions(parse(submission, symbols=("x",)))
    expected = parse(problem.meta["answer"])
    return compare_sets(frozenset(solutions), frozenset(expected), seed=problem.meta["points"])


def _solutions(value: Value) -> list[Any]:
    """Numbers, from each form in which sympy gives them: see `_solution`, and {2: 1} of `roots`."""
    if isinstance(value, dict) and X not in value:
        if not all(isinstance(count, sympy.Integer) and count > 0 for count in value.values()):
            raise Malformed("a solution is counted by a whole number above 0")
        value = list(value)
    elif isinstance(value, dict):
        value = [value]
    if not isinstance(value, frozenset | list | tuple):
        raise Malformed("not a collection of solutions")
    return [_solution(element) for element in value]


def _solution(element: Value) -> Any:
    """2 from 2, (2,) or {x: 2}."""
    if isinstance(element, tuple) and len(element) == 1:
        element = element[0]
    elif isinstance(element, dict) and set(element) == {X}:
        element = element[X]
    if not (isinstance(element, sympy.Expr) and element.is_number):
        raise Malformed("a solution is a number")
    return element


def _linear(rng: random.Random) -> Planted:
    root = sympy.Rational(nonzero(rng, 30), rng.choice((1, 1, 1, 2, 3, 4, 5, 6, 7)))
    return nonzero(rng, 5) * (root.q * X - root.p), [root]


def _quadratic(rng: random.Random) -> Planted:
    factors, roots = zip(_whole(rng), _rational(rng), strict=True)
    return sympy.Mul(*factors), list(roots)


def _multiple(pair: Plant) -> Plant:
    def plant(rng: random.Random) -> Planted:
        factor, roots = pair(rng)
        return rng.randint(1, 3) * factor, roots

    return plant


def _cubic(pair: Plant) -> Plant:
    def plant(rng: random.Random) -> Planted:
        simple, root = rng.choice((_whole, _rational))(rng)
        factor, roots = pair(rng)
        return simple * factor, [root, *roots]

    return plant


def _biquadratic(rng: random.Random) -> Planted:
    """Two whole roots of opposite sign, and two that are irrational or imaginary."""
    a, b = rng.randint(1, 5), nonzero(rng, 40)
    while b > 0 and is_square(b):
        b = nonzero(rng, 40)
    root, other = sympy.Integer(a), sympy.sqrt(b)
    return (X**2 - a * a) * (X**2 - b), [root, -root, other, -other]


def _whole(rng: random.Random) -> tuple[Any, Any]:
    root = nonzero(rng, 9)
    return X - root, sympy.Integer(root)


def _rational(rng: random.Random) -> tuple[Any, Any]:
    root = sympy.Rational(nonzero(rng, 9), rng.randint(2, 4))
    return root.q * X - root.p, root


def _surd_pair(rng: random.Random) -> Planted:
    """(x - p)**2 = r with r > 0 not a square: p plus and minus sqrt(r)."""
    p, r = rng.randint(-5, 5), rng.choice([r for r in range(2, 30) if not is_square(r)])
    return (X - p) ** 2 - r, [p + sympy.sqrt(r), p - sympy.sqrt(r)]


def _complex_pair(rng: random.Random) -> Planted:
    """(x - p)**2 = -r with r > 0: p plus and minus sqrt(r)*I."""
    p, r = rng.randint(-5, 5), rng.randint(1, 40)
    return (X - p) ** 2 + r, [p + sympy.sqrt(r) * sympy.I, p - sympy.sqrt(r) * sympy.I]


def _rule(plant: Plant, domains: Sequence[str], chance: float) -> Rule:
    def draft(rng: random.Random, _: int) -> Draft:
        polynomial, roots = plant(rng)
        domain = rng.choice(domains)
        solutions = sorted({root for root in roots if root in DOMAINS[domain]}, key=str)
        expanded = str(sympy.expand(polynomial))
        return Draft(
            question=f"Solve over the {domain}: {expanded} = 0",
            form="a list of all solutions, exact",
            answer=str(solutions),
            facts={"polynomial": expanded, "domain": domain},
        )

    return Rule(draft=draft, grade=grade, tiers=(1,), chance=chance)


ALL = tuple(DOMAINS)
MOSTLY_REALS = ("reals", "reals", "complexes", "rationals")
MOSTLY_COMPLEXES = ("complexes", "complexes", "reals")

# Where no root may be left, the domain that keeps some is named more often: an empty set is an
# answer, not the rule. Chances of an empty list, except in `quadratic` and `biquadratic`: measured
# on 300 problems each.
RULES: Mapping[str, Rule] = {
    "linear": _rule(_linear, ALL, 0.13),
    "quadratic": _rule(_quadratic, ALL, 0.05),
    "quadratic_surd": _rule(_multiple(_surd_pair), MOSTLY_REALS, 0.28),
    "quadratic_complex": _rule(_multiple(_complex_pair), MOSTLY_COMPLEXES, 0.36),
    "cubic_surd": _rule(_cubic(_surd_pair), ALL, 0.1),
    "cubic_complex": _rule(_cubic(_complex_pair), ALL, 0.1),
    "biquadratic": _rule(_biquadratic, ALL, 0.2),
}
