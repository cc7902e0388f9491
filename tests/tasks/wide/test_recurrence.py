"""Recurrences: laws of its rules, and problems worked by hand."""

from __future__ import annotations

from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.tasks.sympy_proofs.wide.recurrence import FUNCTIONS, RULES

CASES = kit.cases("recurrence", tuple(RULES))


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


WORKED = {
    # The roots are 2 and -1.
    ("linear", 1): (
        (FUNCTIONS, "e = f(n + 2) - f(n + 1) - 2*f(n)", "v = {f(0): 0, f(1): 3}"),
        "2**n - (-1)**n",
    ),
    # 1, 2, 4, ...
    ("history", 2): ((FUNCTIONS, "e = 1 + Sum(f(k), (k, 0, n - 1))"), "2**n"),
    # f(n + 2) = 5/2*f(n + 1) - f(n) after 1 and 3/2.
    ("history", 3): (
        (FUNCTIONS, "e = 1 + Rational(1, 2)*Sum((n - k)*f(k), (k, 0, n - 1))"),
        "2*2**n/3 + 1/(3*2**n)",
    ),
    # The powers of [[3, 2], [2, 3]] are halves of 5**n + 1 and 5**n - 1.
    ("mobius", 2): (
        (FUNCTIONS, "e = (3*f(n) + 2)/(2*f(n) + 3)", "v = Integer(0)"),
        "(5**n - 1)/(5**n + 1)",
    ),
    ("mobius", 3): (
        (FUNCTIONS, "e = (3*(f(n) - 7*n) + 2)/(2*(f(n) - 7*n) + 3) + 7*(n + 1)", "v = Integer(0)"),
        "(5**n - 1)/(5**n + 1) + 7*n",
    ),
    # 5**(n + 1) = 2*5**n + 3*5**n = 3*5**n + 2*5**n.
    ("forced", 4): (
        ("A, m = diag(2, 3, 4), Integer(5)",
         "u, b, c = Matrix([1, 1, 1]), Matrix([0, 0, 0]), Matrix([3, 2, 1])"),
        "25**n",
    ),
    # h(n) - 9*h(n - 1) + 20*h(n - 2) leaves g(n) = 12 + 6*2**n + 2*3**n; f(n) = -24 - 6*2**n.
    ("cascade", 5): (
        (FUNCTIONS, "d = f(n + 1) - 2*f(n) - 24", "e = g(n + 1) - 3*g(n) - f(n)",
         "s = h(n + 2) - 9*h(n + 1) + 20*h(n) - g(n)",
         "v = {g(0): 20, h(0): 5, h(1): 15, h(4): 979}"),
        "1 + 2**n + 3**n + 4**n + 5**n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_problem_worked_by_hand(case: kit.Case, play: kit.Play) -> None:
    setup, answer = WORKED[case.rule, case.tier]
    assert kit.rule_proves(case, play, setup, answer)
