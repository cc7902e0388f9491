"""Limits and asymptotics of several lines: their coefficients, and spellings of an answer."""

from __future__ import annotations

import random

import pytest
import sympy

import rule_kit as kit
from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.wide.limit import RULES, coefficients, iterable, unit

pytestmark = pytest.mark.slow

X = sympy.Symbol("x")


def test_the_known_coefficients_are_those_of_the_expression() -> None:
    rng = random.Random(5)
    germs = [iterable(rng, (1, 2, 3))[0] for _ in range(12)]
    for germ in [*germs, *(unit(rng, 3, -2) for _ in range(6))]:
        expected = sympy.series(sympy.sympify(germ.expression), X, 0, 5).removeO()
        assert coefficients(germ)[:5] == [expected.coeff(X, i) for i in range(5)], germ


def test_a_list_is_taken_for_a_tuple_and_a_restated_limit_is_not() -> None:
    meta = {"answer": "(p - 2, 2 - p**2/2)", "symbols": "p", "points": "0"}
    problem = Problem(id="", statement="", meta=meta)
    assert kit.is_proved(RULES["infinity"], problem, "[p - 2, (4 - p**2)/2]")
    assert not kit.is_proved(RULES["infinity"], problem, "(Limit(p - 2, p, 1), 2 - p**2/2)")
