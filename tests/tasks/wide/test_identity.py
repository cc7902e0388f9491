"""Identities of several lines: laws of each rule, and problems that were solved by hand."""

from __future__ import annotations

import ast
import random

import pytest
import sympy

import rule_kit as kit
from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.family import FAMILIES
from repl_rl.tasks.sympy_proofs.wide.identity import FIBONACCI, HYPERBOLIC, TRIGONOMETRIC, World

pytestmark = pytest.mark.slow

RULES = FAMILIES["identity"].rules


def claims(lefts: str, rights: str, truths: str, **facts: str) -> Problem:
    meta = {"lefts": lefts, "rights": rights, "truths": truths, "points": "0", **facts}
    return Problem(id="", statement="", meta=meta)


def test_a_root_of_a_square_is_minus_its_base_between_the_zeros_of_the_base() -> None:
    # s = sqrt(x - 2): (s - 1)*(s - 3) < 0 for 1 < s < 3, where x is between 3 and 11.
    square = "sqrt((x + 1 - 4*sqrt(x - 2))**2)"
    problem = claims(
        f"{square}\nsqrt((x + 4 - 4*sqrt(x - 2))**2)",
        "x + 1 - 4*sqrt(x - 2)\nx + 4 - 4*sqrt(x - 2)",
        "False True",
        low="2",
    )
    rule = RULES["roots"]
    assert kit.is_proved(rule, problem, "[6, True]")
    assert kit.is_proved(rule, problem, "(Rational(7, 2), True)")
    for wrong in ("[3, True]", "[12, True]", "[1, True]", "[6, 6]", "[True, True]", "[6.0, True]"):
        assert not kit.is_proved(rule, problem, wrong), wrong


def test_a_sum_of_floors_fails_in_one_class_of_integers() -> None:
    # floor((4*n + 2)/10) is floor(2*n/5) + 1 where 2*n = 4 modulo 5: for n = 2 modulo 5.
    problem = claims(
        "floor(n/5) + floor((2*n + 5)/10)\nfloor(n/5) + floor((2*n + 5)/10)",
        "floor((4*n + 2)/10)\nfloor((4*n + 1)/10)",
        "False True",
    )
    rule = RULES["floors"]
    assert kit.is_proved(rule, problem, "[2, True]")
    assert kit.is_proved(rule, problem, "[-3, True]")
    for wrong in ("[3, True]", "[Rational(12, 5), True]", "[False, True]", "[2, False]", "[2]"):
        assert not kit.is_proved(rule, problem, wrong), wrong


@pytest.mark.parametrize("tier", [2, 3])
def test_no_claim_of_floors_fails_at_a_number_that_somebody_has_time_to_try(tier: int) -> None:
    for problem in kit.drawn(kit.Case("identity", "floors", tier), 20):
        answers = ast.literal_eval(problem.meta["answer"])
        assert all(one is True or one > 10**7 for one in answers)


def test_the_cube_of_a_cosine_is_known_by_its_coefficients() -> None:
    # cos(x)**3 = 3/4*cos(x) + 1/4*cos(3*x); the square of a cosine holds a constant.
    meta = {"answer": "[[3/4, 0, 1/4, 0], False]", "points": "0"}
    problem = Problem(id="", statement="", meta=meta)
    rule = RULES["trigonometric"]
    assert kit.is_proved(rule, problem, "[(Rational(3, 4), 0, Rational(1, 4), 0), False]")
    for wrong in ("[[3/4, 0, 1/4, 0], True]", "[[1/4, 0, 3/4, 0], False]", "[False, False]"):
        assert not kit.is_proved(rule, problem, wrong), wrong


@pytest.mark.parametrize(
    ("world", "weight"),
    [(TRIGONOMETRIC, 3), (TRIGONOMETRIC, 4), (HYPERBOLIC, 3), (FIBONACCI, 4), (FIBONACCI, 5)],
)
def test_members_are_sums_of_the_basis_and_strangers_are_not(world: World, weight: int) -> None:
    rng, basis = random.Random(7), world.basis(weight)
    points = range(1, len(basis) + 4)
    for make, extra in ((world.member, 0), (world.stranger, 1)):
        for _ in range(8):
            columns = [one.value for one in (*basis, make(rng, weight))]
            rows = sympy.Matrix([[sympy.Rational(v(point)) for v in columns] for point in points])
            assert rows.rank() == len(basis) + extra
