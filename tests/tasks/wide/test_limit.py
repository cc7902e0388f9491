"""Laws of limits and asymptotics: solved by lines, known by hand, no near miss is taken."""

from __future__ import annotations

import random

import pytest
import sympy

import draft_laws
from repl_rl.tasks.sympy_proofs.wide.limit import RULES
from repl_rl.tasks.sympy_proofs.wide.series import coefficients, iterable, unit
from repl_rl.types import VerdictKind

X = sympy.Symbol("x")


@pytest.fixture
def play(request: pytest.FixtureRequest) -> draft_laws.Play:
    found: draft_laws.Play = request.getfixturevalue("interpreter").play
    return found


def test_the_known_coefficients_are_those_of_the_expression() -> None:
    rng = random.Random(5)
    germs = [iterable(rng, (1, 2, 3))[0] for _ in range(12)]
    for germ in [*germs, *(unit(rng, 3, -2) for _ in range(6))]:
        expected = sympy.series(sympy.sympify(germ.expression), X, 0, 5).removeO()
        assert coefficients(germ)[:5] == [expected.coeff(X, i) for i in range(5)], germ


P = "p = symbols('p', positive=True)"


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        # exp(x) = 1 + x + x**2/2 + x**3/6; b/2 = 1/2 and a + b = 1; a*sin takes nothing.
        ("tune", (("a, b = symbols('a b')", "f = exp(x) - 1 - a*sin(x) - b*(exp(x) - 1)"),
                  "(0, 1, 0)", {})),
        # exp(p*x) is (1 + p*x/2)/(1 - p*x/2) up to p**3*x**3*(1/6 - 1/4).
        ("fraction", (("a, b = symbols('a b')", P, "f = exp(p*x) - (1 + a*x)/(1 + b*x)"),
                      "(p/2, -p/2, -p**3/12)", {"symbols": "p"})),
        # sqrt(x**2 + 2*p*x) = x + p - p**2/(2*x); sqrt(x**2 + 4*x) = x + 2 - 2/x.
        ("infinity", ((P, "f = sqrt(x**2 + 2*p*x) - sqrt(x**2 + 4*x)"),
                      "(p - 2, 2 - p**2/2)", {"symbols": "p"})),
        # sin = x - x**3/6 + (1/120 + q)*x**5 has K = 1/4 - 6*(1/120 + q): de Bruijn, 1/5 at q = 0.
        ("iterate", (("q = symbols('q')", "f = sin(x)*(1 + q*x**4)"), "(2, 1/30, 1/3)", {})),
        # f(g) - g(f) for x + x**3 and x/(1 + x**2)...: sin(tan(x)) - tan(sin(x)) = -x**7/30 - ...
        ("commute", (("f = sin(x)", "g = tan(x)"), "(7, 9, 29/756*30)", {})),
        # The integral of 2*x is 1, and the sum is 1 + 1/n.
        ("riemann", ((P, "g = 2*p*x"), "(p, 1)", {"symbols": "p"})),
    ],
)  # fmt: skip
def test_it_agrees_with_answers_by_hand(
    play: draft_laws.Play, name: str, draft: tuple[tuple[str, ...], str, dict[str, str]]
) -> None:
    by_hand = draft_laws.by_hand(RULES[name], *draft)
    draft_laws.check_solution(play, RULES[name], name, by_hand)


def test_a_list_is_taken_for_a_tuple_and_a_restated_limit_is_not() -> None:
    draft = draft_laws.by_hand(RULES["infinity"], (), "(p - 2, 2 - p**2/2)", {"symbols": "p"})
    verdict = draft_laws.graded(RULES["infinity"], "infinity", draft, "[p - 2, (4 - p**2)/2]")
    assert verdict.kind is VerdictKind.PROVED
    restated = "(Limit(p - 2, p, 1), 2 - p**2/2)"
    assert not draft_laws.is_read(RULES["infinity"], "infinity", draft, restated)
