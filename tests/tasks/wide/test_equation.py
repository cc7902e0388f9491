"""Equations in several lines: laws of its rules, and problems worked by hand."""

from __future__ import annotations

from typing import Any, cast

import pytest
import sympy

import rule_kit as kit
from repl_rl.tasks.sympy_proofs.wide.equations import RULES, by_set, power_sums, sum_of_quotients
from repl_rl.types import Problem

CASES = kit.cases("equation", tuple(RULES))


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


WORKED = {
    # x**4 - 2*x**2 turns at -1, 0, 1 with the values -1, 0, -1: three zeros at the level 0 alone.
    ("critical", 2): (("c = symbols('c')", "f = x**4 - 2*x**2 + c", "m = 3"), "[0]"),
    ("critical", 3): (("c = symbols('c')", "f = x**4 - 2*x**2 + c", "m = 2"), "[1]"),
    # At 2 and at -1 is x**3 + x 10 and -2; where it is 0 for x**2 = -1, no zero is real.
    ("common", 2): (
        ("c = symbols('c')", "f = x**3 + x - c", "g = (x**2 + 1)*(x - 2)"),
        "[10]",
    ),
    ("common", 3): (
        ("c = symbols('c')", "f = x**3 + x - c", "g = (x**2 + 1)*(x - 2)*(x + 1)"),
        "[-2, 10]",
    ),
}


@pytest.mark.parametrize("case", [case for case in CASES if case[1:] in WORKED], ids=str)
def test_a_problem_worked_by_hand(case: kit.Case, play: kit.Play) -> None:
    setup, answer = WORKED[case.rule, case.tier]
    assert kit.rule_proves(case, play, setup, answer)


def testpower_sums_of_three_numbers() -> None:
    """1, 2, 3: 6, 14, 36 from 6, 11, 6."""
    assert power_sums([6, 11, 6]) == [6, 14, 36]


def test_asum_of_quotients_worked_by_hand() -> None:
    """1/(1 + 1) + 1/(2 + 1) + 1/(3 + 1) = 13/12, from (x - 1)*(x - 2)*(x - 3) at -1."""
    assert sum_of_quotients([6, 11, 6], -1) == sympy.Rational(13, 12)


@pytest.mark.parametrize(
    ("answer", "is_solved"),
    [("[1, 2]", True), ("(2, 1)", True), ("{1, 2}", True), ("[1]", False), ("[1, 2, 3]", False)],
)
def test_values_are_taken_in_any_order_and_all_of_them(answer: str, is_solved: bool) -> None:
    problem = Problem(id="0", statement="", meta={"answer": "[1, 2]", "points": "0"})
    assert by_set(problem, answer).is_solved is is_solved
