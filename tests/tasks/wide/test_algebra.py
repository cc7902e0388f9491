"""Algebra of several lines: laws of each rule, and problems that were solved by hand."""

from __future__ import annotations

import pytest
import sympy

import rule_kit as kit
from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.family import FAMILIES
from repl_rl.tasks.sympy_proofs.wide import algebra

pytestmark = pytest.mark.slow

RULES = FAMILIES["algebra"].rules


def test_power_sums_and_coefficients_follow_from_each_other() -> None:
    # (x - 1)*(x - 2)*(x - 3): 1 + 2 + 3 = 6, 1 + 4 + 9 = 14, 1 + 8 + 27 = 36, 1 + 16 + 81 = 98.
    assert algebra.power_sums([1, -6, 11, -6], 4) == [3, 6, 14, 36, 98]
    assert algebra._from_power_sums([3, 6, 14, 36]).all_coeffs() == [1, -6, 11, -6]


def test_a_sum_of_quotients_worked_by_hand() -> None:
    """1/(4 - 1) + 1/(4 - 2) + 1/(4 - 3) = 11/6, from (x - 1)*(x - 2)*(x - 3) at 4."""
    cubic = sympy.Poly([1, -6, 11, -6], sympy.Symbol("x"))
    assert algebra.sum_of_quotients(cubic, 4) == sympy.Rational(11, 6)


def test_two_factors_are_taken_in_any_order() -> None:
    # (x**2 + x*sqrt(2) + 3)*(x**2 - x*sqrt(2) + 3) = (x**2 + 3)**2 - 2*x**2 = x**4 + 4*x**2 + 9
    answer = "[x**2 + sqrt(2)*x + 3, x**2 - sqrt(2)*x + 3]"
    problem = Problem(id="", statement="", meta={"answer": answer, "points": "0"})
    rule = RULES["conjugates"]
    assert kit.is_proved(rule, problem, "(x**2 - sqrt(2)*x + 3, 3 + x*(x + sqrt(2)))")
    for wrong in (
        "[x**2 + sqrt(2)*x + 3, x**2 + sqrt(2)*x + 3]",
        "[x**2 + sqrt(2)*x + 3, x**2 - sqrt(2)*x - 3]",
        "[2*x**2 + 2*sqrt(2)*x + 6, x**2/2 - sqrt(2)*x/2 + Rational(3, 2)]",
        "[x**4 + 4*x**2 + 9, 1]",
    ):
        assert not kit.is_proved(rule, problem, wrong), wrong


def test_a_resolvent_with_one_rational_root_has_one_pair_of_factors() -> None:
    # x**4 + 4*x**2 + 9 is also (x**2 - 3)**2 + 10*x**2: its resolvent has the roots 3, -3 and 2.
    assert not algebra._is_unique([1, 0, 4, 0, 9], 3)
    # (x**2 + 1)**2 - 2*(x + 1)**2 has the resolvent t**3 + t - 2 = (t - 1)*(t**2 + t + 2).
    assert algebra._is_unique([1, 0, 0, -4, -1], 1)
