"""Calculus of several lines: problems worked by hand whose solution names numbers of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.records import Problem
from repl_rl.tasks.sympy_proofs.wide.calculus import RULES

pytestmark = pytest.mark.slow


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


def finds(play: kit.Play, name: str, drawn: Problem, answer: str) -> bool:
    """Return whether its solution is proved to be this answer."""
    submission = kit.played(play, drawn)
    assert submission is not None
    return kit.is_proved(RULES[name], problem(answer), submission)


def problem(answer: str, **facts: str) -> Problem:
    return Problem(id="", statement="", meta={"answer": answer, "points": "0", **facts})


def test_a_circle_bends_as_it_does(play: kit.Play) -> None:
    # y = sqrt(25 - x**2) is 4 at 3, and its second derivative is -25/y**3.
    drawn = kit.drawn(kit.Case("calculus", "implicit", 2), 60)
    at_3 = next(problem for problem in drawn if " x = 3 " in problem.statement)
    setup = ("y = symbols('y')", "f = x**2 + y**2 - 25")
    assert finds(play, "implicit", replace(at_3, setup=setup), "(4, -25/64)")


def test_an_inverse_has_the_derivatives_of_the_chain_rule(play: kit.Play) -> None:
    # f = x**5 + x is 2 at 1, with derivatives 6, 20, 60: (3*400 - 6*60)/6**5 = 35/324.
    drawn = next(kit.drawn(kit.Case("calculus", "inverse", 3), 1))
    first = "r = [s for s in solve(f - 2, x) if s.is_Integer][0]"
    solution = "\n".join([first, *kit.solution_of(drawn)[1:]])
    by_hand = replace(drawn, setup=("f = x**5 + x",), meta={"solution": solution})
    assert finds(play, "inverse", by_hand, "(1/6, -5/54, 35/324)")


def test_a_primitive_is_no_integral_and_a_restated_one_is_not_read() -> None:
    rule, integral = RULES["radical"], problem("sqrt(p + 3) - sqrt(2)", symbols="p")
    assert kit.is_proved(rule, integral, "1/(sqrt(p + 3) + sqrt(2))*(p + 1)")
    for wrong in ("sqrt(p + 3)", "Integral(x, (x, 0, 1))"):
        assert not kit.is_proved(rule, integral, wrong), wrong
