"""Answers without a value are wrong for each rule, and for rows, wherever they are hidden."""

from __future__ import annotations

import random

import pytest

import rule_kit as kit
from non_values import spoiled
from repl_rl.records import Problem, Verdict
from repl_rl.tasks.data.graders import ByName
from repl_rl.tasks.sympy_proofs.family import FAMILIES

ONE_LINE = "(sin(1)**2+cos(1)**2-1)/(sin(2)**2+cos(2)**2-1)**2"
"""0/0, which sympy does not see."""
ROWS = (
    *("8835", "1/3", "sqrt(2)/2", "n**2/2 + n/2", "2 + 3*I", "(1, 2)", "[6, 6, 7]", "{2, -2}"),
    *("Interval.Ropen(1, 2)", "Union(Interval(0, 1), {3})", "x < 3", "(x < -1) | (x > 1)"),
    *("Matrix([[1, 2], [3, 4]])", "{x: 1, y: 2}", "[{x: 1, y: 2}, {x: 2, y: 1}]", "Eq(x, 2)"),
)
CASES = [
    case for family in FAMILIES.values() for case in kit.cases(family.name, tuple(family.rules))
]


def is_judged_wrong(verdict: Verdict) -> bool:
    """UNDECIDED would be a way out of every price."""
    return verdict.kind.is_failed and verdict.grader_error is None


def of_rows(answer: str) -> Problem:
    meta = {"grader": "math", "answer": answer, "value": answer, "symbols": "n x y", "points": "s"}
    return Problem(id="p", statement="?", meta=meta)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_line_without_a_value_answers_no_problem_of_any_rule(case: kit.Case) -> None:
    for problem in kit.drawn(case, 1):
        wanted = problem.meta["answer"].count(",") + 1
        for text in (ONE_LINE, f"({', '.join([ONE_LINE] * wanted)},)"):
            assert is_judged_wrong(kit.graded(problem, text)), (problem, text)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_matrix_or_a_set_where_no_rule_expects_one_is_judged_and_wrong(case: kit.Case) -> None:
    for problem in kit.drawn(case, 1):
        wanted = problem.meta["answer"].count(",") + 1
        for part in ("Matrix([[0]])", "Interval(0, 1)", "Reals", "{1: 2}"):
            for text in (part, f"({', '.join([part] * wanted)},)"):
                assert is_judged_wrong(kit.graded(problem, text)), (problem, text)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_has_no_value_is_wrong_wherever_it_is_hidden(case: kit.Case) -> None:
    rng = random.Random(str(case))
    for problem in kit.drawn(case, 1):
        for text in spoiled(problem.meta["answer"], rng, 6):
            assert is_judged_wrong(kit.graded(problem, text)), (problem, text)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ROWS)
def test_what_has_no_value_is_wrong_for_rows(answer: str) -> None:
    rng = random.Random(answer)
    assert ByName().grade(of_rows(answer), answer).is_solved
    for text in spoiled(answer, rng, 8):
        assert is_judged_wrong(ByName().grade(of_rows(answer), text)), text
