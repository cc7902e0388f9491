"""Inequalities of several lines: laws of each rule, and problems that were solved by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import sympy

import rule_kit as kit
from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.family import FAMILIES
from repl_rl.tasks.sympy_proofs.wide import inequality

pytestmark = pytest.mark.slow

RULES = FAMILIES["inequality"].rules


def claim(f: str, *names: str) -> Problem:
    meta = {"f": f, "symbols": " ".join(names), "points": "0", "answer": ""}
    return Problem(id="", statement="", meta=meta)


def test_a_sum_of_squares_is_proved_by_its_squares() -> None:
    # x**2 - 2*x*y + 3*y**2 = (x - y)**2 + 2*y**2
    problem = claim("x**2 - 2*x*y + 3*y**2", "x", "y")
    for right in (
        "[(1, x - y), (2, y)]",
        "((2, y), (1, y - x))",
        "[(3, y - x/3), (Rational(2, 3), x)]",
    ):
        assert kit.is_proved(RULES["form"], problem, right), right
    for wrong in (
        "[(1, x - y), (1, y)]",
        "[(1, x + y), (2, y)]",
        "[(1, x), (-2, y)]",
        "[(1, sqrt(x**2 - 2*x*y + 3*y**2))]",
        "[(x**2 - 2*x*y + 3*y**2, 1)]",
        "[(1, x - y), (2.0, y)]",
        "[(1, x - y), (-2, I*y)]",
        "[(1, I*x), (2, y)]",
        "[1, 1]",
        "[(1, (x + y)**4000), (2, y)]",
    ):
        assert not kit.is_proved(RULES["form"], problem, wrong), wrong


def test_squares_are_split_off_one_by_one() -> None:
    # y**2 - 2*x**2*y + x**4 + 2*x**2 - 4*x + 5 = (y - x**2)**2 + 2*(x - 1)**2 + 3.
    problem = claim("y**2 - 2*x**2*y + x**4 + 2*x**2 - 4*x + 5", "x", "y")
    assert kit.is_proved(RULES["nested"], problem, "[(1, y - x**2), (2, x - 1), (3, 1)]")
    for wrong in ("[(1, y - x**2), (2, x - 1), (2, 1)]", "[(1, y - x**2), (2, x - 1)]", "[1, 1]"):
        assert not kit.is_proved(RULES["nested"], problem, wrong), wrong


def test_what_is_negative_somewhere_is_refuted_by_a_point() -> None:
    # x**2 - 4*x*y + 3*y**2 = (x - y)*(x - 3*y) is negative for y < x < 3*y.
    problem = claim("x**2 - 4*x*y + 3*y**2", "x", "y")
    assert kit.is_proved(RULES["form"], problem, "[2, 1]")
    assert kit.is_proved(RULES["form"], problem, "(Rational(-3, 2), -1)")
    for wrong in ("[1, 1]", "[2.0, 1]", "[2, 1, 0]", "[I, 1]", "[(1, x - 2*y), (-1, y)]", "False"):
        assert not kit.is_proved(RULES["form"], problem, wrong), wrong


def test_integers_between_irrational_roots_are_counted() -> None:
    # (x**2 - 5)*(x**2 - 11) < 0 for -3 and 3 alone. (x - 2)**2 < 3 for 1, 2 and 3, and x**2 < 2
    # for -1, 0 and 1: one of both holds for -1, 0, 2 and 3.
    assert inequality._count([(0, 5), (0, 11)]) == 2
    assert inequality._count([(2, 3), (0, 2)]) == 4
    length = inequality._length([(0, 5), (0, 11)])
    assert math.isclose(length, 2 * (math.sqrt(11) - math.sqrt(5)))


def test_no_small_fractions_find_the_least_value_of_means() -> None:
    places = {Fraction(i, j) for i in range(1, 16) for j in range(1, 9)}
    for problem in kit.drawn(kit.Case("inequality", "means", 2), 6):
        (_, f) = problem.setup
        value = sympy.lambdify(("x", "y"), sympy.sympify(f.removeprefix("f = ")))
        found = min(value(x, y) for x in places for y in places)
        assert found > Fraction(problem.meta["answer"])
