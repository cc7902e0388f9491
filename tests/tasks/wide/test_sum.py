"""Sums and products: laws of its rules, and problems worked by hand."""

from __future__ import annotations

from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.tasks.sympy_proofs.wide.sums import RULES

CASES = kit.cases("sum", tuple(RULES))


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


WORKED = {
    # 1 + 2 + ... + 2**n.
    ("power", 1): (("s = Sum(2**k, (k, 0, n))",), "2**(n + 1) - 1"),
    # k*binomial(n, k) = n*binomial(n - 1, k - 1).
    ("binomial", 2): (
        ("p, a = k + 1, Integer(1)", "s = Sum(binomial(n, k)*p*a**k, (k, 0, n))"),
        "2**n + n*2**(n - 1)",
    ),
    ("binomial", 3): (
        ("p, a = k**2 - k, Integer(2)", "s = Sum(binomial(n, k)*p*a**k, (k, 0, n))"),
        "4*n*(n - 1)*3**(n - 2)",
    ),
    # 7/3 * 13/7 * 21/13 * ...
    ("product", 2): (
        ("s = Product((k**2 + 3*k + 3)/(k**2 + k + 1), (k, 1, n))",),
        "(n**2 + 3*n + 3)/3",
    ),
    # 10/2 * 17/5 * 26/10 * ...
    ("product", 3): (
        ("s = Product((k**2 + 4*k + 5)/(k**2 + 1), (k, 1, n))",),
        "((n + 1)**2 + 1)*((n + 2)**2 + 1)/10",
    ),
    # From (1 + 2)**n and (1 - 2)**n; the sum is 4 for n = 2 and 12 for n = 3.
    ("even", 4): (
        ("p, a = k**2, Integer(4)", "s = Sum(binomial(n, 2*k)*p*a**k, (k, 0, n))"),
        "n*(3**(n - 1) - (-1)**(n - 1))/4 + n*(n - 1)*(3**(n - 2) + (-1)**(n - 2))/2",
    ),
    # The inner sum is k*2**(k - 1), so the outer one is n*(1 + 2)**(n - 1).
    ("double", 5): (
        (
            "j = symbols('j')",
            "a, b, p = Integer(1), Integer(1), j",
            "t = Sum(binomial(k, j)*p*b**j, (j, 0, k))",
            "s = Sum(binomial(n, k)*a**k*t, (k, 0, n))",
        ),
        "n*3**(n - 1)",
    ),
    # 1/(1 + k*(k + 1)) is the tangent of a difference.
    ("arctan", 2): (("s = Sum(atan(1/(k**2 + k + 1)), (k, 1, n))",), "atan(n + 1) - pi/4"),
    # 2/(1 + k*(k + 2)) = 2/(k + 1)**2.
    ("arctan", 3): (
        ("s = Sum(atan(2/(k + 1)**2), (k, 1, n))",),
        "atan(n + 1) + atan(n + 2) - pi/4 - atan(2)",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_problem_worked_by_hand(case: kit.Case, play: kit.Play) -> None:
    setup, answer = WORKED[case.rule, case.tier]
    assert kit.rule_proves(case, play, setup, answer)
