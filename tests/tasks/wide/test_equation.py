"""Equations in several lines: what its rules are made of, worked by hand."""

from __future__ import annotations

import pytest

from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.wide.equations import by_set

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("answer", "is_solved"),
    [("[1, 2]", True), ("(2, 1)", True), ("{1, 2}", True), ("[1]", False), ("[1, 2, 3]", False)],
)
def test_values_are_taken_in_any_order_and_all_of_them(answer: str, is_solved: bool) -> None:
    problem = Problem(id="0", statement="", meta={"answer": "[1, 2]", "points": "0"})
    assert by_set(problem, answer).is_solved is is_solved
