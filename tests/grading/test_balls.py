"""Every function that an answer may name has a value, which is the one that sympy gives."""

from __future__ import annotations

import pytest
import sympy

from repl_rl.grading.balls import value_of
from repl_rl.grading.bounded import FUNCTIONS

ARGUMENTS = (sympy.Rational(3, 7), sympy.Rational(5, 4), sympy.Rational(2, 3))
WHOLE = (sympy.Integer(7), sympy.Integer(3))
BRANCH = (sympy.Rational(3, 7), sympy.Integer(-1))
OF_WHOLE = {"subfactorial", "Mod", "binomial", "factorial2", "lucas", "fibonacci", "catalan"}


def calls(name: str) -> list[sympy.Expr]:
    """Calls of a function with one, two and three numbers, as far as it takes so many."""
    given = WHOLE if name in OF_WHOLE else BRANCH if name == "LambertW" else ARGUMENTS
    found = []
    for count in range(1, len(given) + 1):
        try:
            made = FUNCTIONS[name](*given[:count])
        except (TypeError, ValueError):
            continue
        if isinstance(made, sympy.Expr) and made.is_number and not made.is_Rational:
            found.append(made)
    return found


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_of_numbers_has_the_value_that_sympy_gives(name: str) -> None:
    for call in calls(name):
        expected = call.evalf(30)
        if not all(part.is_Number for part in expected.as_real_imag()):
            continue  # sympy itself has no number for it
        ball = value_of(call, {}, max_digits=100)
        assert ball is not None, call
        real, imaginary = (sympy.Float(str(float(part))) for part in (ball.real, ball.imag))
        assert abs(expected - real - sympy.I * imaginary) < 1e-9, call
