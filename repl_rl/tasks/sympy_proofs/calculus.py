"""Derivatives, integrals and sums: `Find an antiderivative in x: 3*x**2 + 2*x`.

An antiderivative F is compared with the known one: F(x) - F(y) is to be the same for all real x and
y, so any constant will do and no jump. What the problems integrate has no gaps, so neither has F.
Everything else is compared with the exact value. A restated question (Integral, Sum, Derivative) is
not an answer.

Knows no interpreter and no script.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

import sympy

from repl_rl.grading.bounded import expression
from repl_rl.grading.draws import Domain
from repl_rl.grading.equality import CONSTANTS, compare_expressions, compare_primitives, has_steps
from repl_rl.grading.parse import parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import STEPS, Draft, Rule, nonzero

X, N, K = sympy.symbols("x n k")

IN_X = "an expression in x"
"""The form of an answer that is a function."""

SYMBOLS: Mapping[str, tuple[str, ...]] = {
    "derivative": ("x",),
    "antiderivative": ("x", *CONSTANTS),
    "definite": (),
    "sum": (),
    "closed_sum": ("n",),
}
"""Symbols that an answer of each kind may depend on: an antiderivative on a constant that
cancels."""


def grade(problem: Problem, submission: str) -> Verdict:
    """Grade by equality on the reals, sums on the naturals, antiderivatives by differences."""
    kind, seed = problem.meta["kind"], problem.meta["points"]
    value = expression(parse(submission, symbols=SYMBOLS[kind]))
    domain = Domain.NATURALS if kind == "closed_sum" else Domain.REALS
    if has_steps(value, STEPS, domain):
        return Verdict(kind=VerdictKind.MALFORMED, evidence="a step function")
    expected = parse(problem.meta["answer"], symbols=SYMBOLS[kind])
    if kind == "antiderivative":
        return compare_primitives(value, expected, X, seed=seed)
    return compare_expressions(value, expected, seed=seed, domain=domain)


def _derivative(rng: random.Random, _: int) -> Draft:
    function = _function(rng)
    question = f"Differentiate in x: {function}"
    return _draft(question, IN_X, sympy.diff(function, X), function)


def _antiderivative(rng: random.Random, _: int) -> Draft:
    primitive = _function(rng)
    function = sympy.expand(sympy.diff(primitive, X))
    return _draft(f"Find an antiderivative in x: {function}", IN_X, primitive, function)


def _definite(rng: random.Random, _: int) -> Draft:
    primitive = _function(rng)
    low = rng.randint(-3, 4)
    high = low + rng.randint(1, 4)
    function = sympy.expand(sympy.diff(primitive, X))
    answer = primitive.subs(X, high) - primitive.subs(X, low)
    question = f"Integrate from {low} to {high}: {function}"
    return _draft(question, "the exact value", answer, function, low=low, high=high)


def _sum(rng: random.Random, _: int) -> Draft:
    coefficients = [nonzero(rng, 12) for _ in range(rng.randint(1, 3) + 1)]
    function = sympy.Add(*(c * K**power for power, c in enumerate(coefficients)))
    low, high = rng.randint(1, 5), rng.randint(9, 60)
    answer = sum(
        c * index**power for power, c in enumerate(coefficients) for index in range(low, high + 1)
    )
    question = f"Sum from k = {low} to {high}: {function}"
    return _draft(question, "an integer", answer, function, low=low, high=high)


def _closed_sum(rng: random.Random, _: int) -> Draft:
    """The sum S(n) comes first, with S(0) = 0; its summand is S(k) - S(k - 1)."""
    if rng.random() < 0.3:
        a, b = rng.randint(1, 9), rng.randint(2, 9)
        total = a * (b**N - 1) + nonzero(rng, 20) * N
    else:
        total = sum(nonzero(rng, 12) * N**power for power in range(1, rng.randint(1, 2) + 2))
    total = sympy.expand(total)
    function = sympy.expand(total.subs(N, K) - total.subs(N, K - 1))
    function = sympy.powsimp(function)
    question = f"Sum from k = 1 to n: {function}"
    return _draft(question, "a closed form in n", total, function, low=1)


def _function(rng: random.Random) -> Any:
    """A function without a constant term that sympy differentiates and integrates at once."""
    shape = rng.randint(1, 3)
    if shape == 1:
        powers = rng.sample(range(1, 5), rng.randint(2, 3))
        return sympy.Add(*(nonzero(rng, 12) * X**power for power in powers))
    wave = rng.choice((sympy.sin, sympy.cos, sympy.exp))(rng.randint(2, 6) * X)
    if shape == 2:
        return nonzero(rng, 12) * wave + nonzero(rng, 12) * X ** rng.randint(1, 3)
    return nonzero(rng, 12) * X * wave + rng.randint(-9, 9) * X


def _draft(question: str, form: str, answer: Any, function: Any, **bounds: int) -> Draft:
    facts = {"function": str(function)} | {name: str(bound) for name, bound in bounds.items()}
    return Draft(question=question, form=form, answer=str(answer), facts=facts)


_rule = partial(Rule, grade=grade, tiers=(1,), chance=0.01)

RULES: Mapping[str, Rule] = {
    "derivative": _rule(draft=_derivative),
    "antiderivative": _rule(draft=_antiderivative),
    "definite": _rule(draft=_definite),
    "sum": _rule(draft=_sum),
    "closed_sum": _rule(draft=_closed_sum),
}
