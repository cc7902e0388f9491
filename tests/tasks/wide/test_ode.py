"""Laws of differential equations: solved by lines, known by hand, no near miss is taken."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import sympy

import draft_laws
from repl_rl.tasks.sympy_proofs.wide.modes import at_zero, combined, shown, slope, total
from repl_rl.tasks.sympy_proofs.wide.ode import RULES
from repl_rl.types import VerdictKind


@pytest.fixture
def play(request: pytest.FixtureRequest) -> draft_laws.Play:
    found: draft_laws.Play = request.getfixturevalue("interpreter").play
    return found


def test_a_sum_of_modes_has_the_derivative_that_sympy_finds() -> None:
    # (3*exp(2*x) - 4*sin(5*x) + 2*cos(x) + x + 7)' = 6*exp(2*x) - 20*cos(5*x) - 2*sin(x) + 1
    y = total([("exp", 2, 3), ("sin", 5, -4), ("cos", 1, 2), ("x", 1, 1), ("exp", 0, 7)])
    assert shown(slope(y)) == "6*exp(2*x) - 20*cos(5*x) - 2*sin(1*x) + 1"
    assert at_zero(y) == 12
    assert combined((1, y), (-1, y)) == {}
    assert shown({}) == "0"
    x = sympy.Symbol("x")
    assert sympy.sympify(shown(y)).diff(x) == sympy.sympify(shown(slope(y)))
    assert at_zero(slope(y)) == Fraction(-13)


Y = "y = Function('y')"


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        # y = exp(x)*(exp(x) - 3) is 0 at log(3), where y' = 18 - 9.
        ("crossing", ((Y, "E = Eq(y(x).diff(x, 2), 3*y(x).diff(x) - 2*y(x))",
                       "initial = {y(0): -2, y(x).diff(x).subs(x, 0): -1}"), "(log(3), 9)", {})),
        # y'' = y: only 5*exp(-x) stays bounded, with y'(0) = -5.
        ("bounded", ((Y, "c = symbols('c')", "E = Eq(y(x).diff(x, 2), y(x))",
                      "initial = {y(0): 5, y(x).diff(x).subs(x, 0): c}"),
                     "(-5, 5*exp(-x))", {"symbols": "x"})),
        # u'' + x*u = x**3 + 2 for u = x**2 and y = u*exp(x), since (D - 1)**2 y = u''*exp(x).
        ("polynomial", ((Y, "E = Eq(y(x).diff(x, 2) - 2*y(x).diff(x) + (x + 1)*y(x),"
                         " (x**3 + 2)*exp(x))"), "x**2*exp(x)", {"symbols": "x"})),
        # Legendre's polynomial of degree 4, (35*x**4 - 30*x**2 + 3)/8: lam = 4*5.
        ("spectrum", ((Y, "lam = symbols('lam')",
                       "E = Eq((1 - x**2)*y(x).diff(x, 2) - 2*x*y(x).diff(x) + lam*y(x), 0)"),
                      "(20, x**4 - 6*x**2/7 + 3/35)", {"symbols": "x"})),
    ],
)  # fmt: skip
def test_it_agrees_with_answers_by_hand(
    play: draft_laws.Play, name: str, draft: tuple[tuple[str, ...], str, dict[str, str]]
) -> None:
    by_hand = draft_laws.by_hand(RULES[name], *draft)
    draft_laws.check_solution(play, RULES[name], name, by_hand)


def test_one_entry_of_two_growing_modes_is_taken_away(play: draft_laws.Play) -> None:
    # X' = (y, x) grows as exp(x) along (1, 1): X0 = (2, c) is bounded for c = -2.
    setup = ("c0 = symbols('c0')", "A = Matrix([[0, 1, 0], [1, 0, 0], [0, 0, -3]])",
             "b = Matrix([0, 0, 3])", "X0 = Matrix([2, c0, 5])")  # fmt: skip
    rule = replace(RULES["system"], tiers=(4,))
    by_hand = draft_laws.by_hand(rule, setup, "(-2, 2*exp(-x))", {"symbols": "x"})
    draft_laws.check_solution(play, RULES["system"], "system", by_hand)


def test_a_solution_may_be_spelled_in_other_words() -> None:
    draft = draft_laws.by_hand(RULES["bounded"], (), "(-5, 5*exp(-x) + sin(2*x))", {"symbols": "x"})
    spelled = "[-5, (5 + 2*exp(x)*sin(x)*cos(x))/exp(x)]"
    verdict = draft_laws.graded(RULES["bounded"], "bounded", draft, spelled)
    assert verdict.kind is VerdictKind.PROVED
