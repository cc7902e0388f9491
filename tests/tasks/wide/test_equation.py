"""Equations in several lines: what its rules are made of, worked by hand."""

from __future__ import annotations

import pytest
import sympy

from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.wide.equations import by_set, power_sums, sum_of_quotients

pytestmark = pytest.mark.slow


def test_power_sums_of_three_numbers() -> None:
    """1, 2, 3: 6, 14, 36 from 6, 11, 6."""
    assert power_sums([6, 11, 6]) == [6, 14, 36]


def test_a_sum_of_quotients_worked_by_hand() -> None:
    """1/(1 + 1) + 1/(2 + 1) + 1/(3 + 1) = 13/12, from (x - 1)*(x - 2)*(x - 3) at -1."""
    assert sum_of_quotients([6, 11, 6], -1) == sympy.Rational(13, 12)


@pytest.mark.parametrize(
    ("answer", "is_solved"),
    [("[1, 2]", True), ("(2, 1)", True), ("{1, 2}", True), ("[1]", False), ("[1, 2, 3]", False)],
)
def test_values_are_taken_in_any_order_and_all_of_them(answer: str, is_solved: bool) -> None:
    problem = Problem(id="0", statement="", meta={"answer": "[1, 2]", "points": "0"})
    assert by_set(problem, answer).is_solved is is_solved
