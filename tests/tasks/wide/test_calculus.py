"""Laws of integrals and derivatives in several lines: solved, known by hand, not fooled."""

from __future__ import annotations

from dataclasses import replace

import pytest

import draft_laws
from repl_rl.tasks.sympy_proofs.wide.calculus import RULES
from repl_rl.types import VerdictKind


@pytest.fixture
def play(request: pytest.FixtureRequest) -> draft_laws.Play:
    found: draft_laws.Play = request.getfixturevalue("interpreter").play
    return found


P = "p = symbols('p', positive=True)"


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        # 7*p + 5*p**2 = 6 at p = 3/5; 7*(9/25 - 3/5 + 1/2) + 5*(54/125 - 9/5 + 2)/3 = 431/150.
        ("median", ((P, "g = 7 + 10*x"), "(3/5, 431/150)")),
        # E - 1 + c = 0, and the integral of exp(x) + c**2.
        ("paired", (("c = symbols('c')", "f = exp(x) + 2*c*x", "g = exp(x) + c**2"),
                    "(1 - E, E - 1 + (1 - E)**2)")),
        # The derivative of sqrt(x**3 + p*x + 2).
        ("radical", ((P, "f = (3*x**2 + p)/(2*sqrt(x**3 + p*x + 2))"),
                     "sqrt(p + 3) - sqrt(2)", {"symbols": "p"})),
    ],
)  # fmt: skip
def test_it_agrees_with_answers_by_hand(
    play: draft_laws.Play, name: str, draft: tuple[tuple[str, ...], str, dict[str, str]]
) -> None:
    by_hand = draft_laws.by_hand(RULES[name], *draft)
    draft_laws.check_solution(play, RULES[name], name, by_hand)


def test_a_circle_bends_as_it_does(play: draft_laws.Play) -> None:
    # y = sqrt(25 - x**2) is 4 at 3, and its second derivative is -25/y**3.
    draft = next(d for d in draft_laws.drafts(RULES["implicit"], 2, 60) if " x = 3 " in d.question)
    circle = replace(
        draft, setup=("y = symbols('y')", "f = x**2 + y**2 - 25"), answer="(4, -25/64)"
    )
    draft_laws.check_solution(play, RULES["implicit"], "implicit", circle)


def test_an_inverse_has_the_derivatives_of_the_chain_rule(play: draft_laws.Play) -> None:
    # f = x**5 + x is 2 at 1, with derivatives 6, 20, 60: (3*400 - 6*60)/6**5 = 35/324.
    by_hand = draft_laws.by_hand(RULES["inverse"], ("f = x**5 + x",), "(1/6, -5/54, 35/324)")
    first = "r = [s for s in solve(f - 2, x) if s.is_Integer][0]"
    by_hand = replace(by_hand, solution=(first, *by_hand.solution[1:]))
    draft_laws.check_solution(play, RULES["inverse"], "inverse", by_hand)


def test_a_primitive_is_no_integral_and_a_restated_one_is_not_read() -> None:
    draft = draft_laws.by_hand(RULES["radical"], (), "sqrt(p + 3) - sqrt(2)", {"symbols": "p"})
    rule = RULES["radical"]
    verdict = draft_laws.graded(rule, "radical", draft, "1/(sqrt(p + 3) + sqrt(2))*(p + 1)")
    assert verdict.kind is VerdictKind.PROVED
    assert not draft_laws.graded(rule, "radical", draft, "sqrt(p + 3)").is_solved
    assert not draft_laws.is_read(rule, "radical", draft, "Integral(x, (x, 0, 1))")
