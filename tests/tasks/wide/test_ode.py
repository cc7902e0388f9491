"""Differential equations of several lines: sums of modes, and spellings of a solution."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sympy

import rule_kit as kit
from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.wide.modes import at_zero, combined, slope, spelled, total
from repl_rl.tasks.sympy_proofs.wide.ode import RULES

pytestmark = pytest.mark.slow


def test_a_sum_of_modes_has_the_derivative_that_sympy_finds() -> None:
    # (3*exp(2*x) - 4*sin(5*x) + 2*cos(x) + x + 7)' = 6*exp(2*x) - 20*cos(5*x) - 2*sin(x) + 1
    y = total([("exp", 2, 3), ("sin", 5, -4), ("cos", 1, 2), ("x", 1, 1), ("exp", 0, 7)])
    assert spelled(slope(y)) == "6*exp(2*x) - 20*cos(5*x) - 2*sin(1*x) + 1"
    assert at_zero(y) == 12
    assert combined((1, y), (-1, y)) == {}
    assert spelled({}) == "0"
    x = sympy.Symbol("x")
    assert sympy.sympify(spelled(y)).diff(x) == sympy.sympify(spelled(slope(y)))
    assert at_zero(slope(y)) == Fraction(-13)


def test_a_solution_may_be_spelled_in_other_words() -> None:
    meta = {"answer": "(-5, 5*exp(-x) + sin(2*x))", "symbols": "x", "points": "0"}
    problem = Problem(id="", statement="", meta=meta)
    spelled = "[-5, (5 + 2*exp(x)*sin(x)*cos(x))/exp(x)]"
    assert kit.is_proved(RULES["bounded"], problem, spelled)
