"""Ball arithmetic: a value has certain digits, and what may be undefined has none."""

import math

import pytest
import sympy
from flint import acb

from repl_rl.grading.balls import is_nonzero, sign_of, value_of
from repl_rl.grading.parse import parse

ZERO = "(sin(1)**2 + cos(1)**2 - 1)"
OTHER = "(cosh(2)**2 - sinh(2)**2 - 1)"
"""They are 0, and sympy keeps them."""


def value(text: str, **point: int) -> complex | None:
    symbols = {name: sympy.Symbol(name) for name in point}
    places = {symbols[name]: sympy.Integer(number) for name, number in point.items()}
    ball = value_of(parse(text, symbols=symbols), places, max_digits=300)
    return None if ball is None else complex(acb(ball))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2/3 - 1/6", 0.5),
        ("sqrt(-4)", 2j),
        ("(-8)**(1/3)", 1 + math.sqrt(3) * 1j),
        ("exp(I*pi)", -1),
        (f"sqrt({ZERO})", 0),
        (f"sqrt({ZERO} - 4)", 2j),
        (f"log({ZERO}*I - 1)", math.pi * 1j),
        (f"{ZERO}**(1/3)", 0),
        (f"floor(7 + {ZERO})", 7),
        (f"sign({ZERO})", 0),
        (f"acos(1 + {ZERO})", 0),
        ("1 - tanh(5000)", 0),
        ("Piecewise((3, pi > 3), (4, True))", 3),
        ("binomial(5, 2)", 10),
        ("factorial2(7)", 105),
        ("subfactorial(4)", 9),
        ("catalan(4)", 14),
        ("harmonic(4)", 25 / 12),
        ("harmonic(3, 2)", 49 / 36),
    ],
)
def test_a_value_is_that_of_mathematics(text: str, expected: complex) -> None:
    found = value(text)
    assert found is not None
    assert abs(found - expected) < 1e-12


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("binomial(n, 3)", 2, 0),
        ("binomial(-n, 3)", 2, -4),
        ("binomial(2*n, n)", 5, 252),
        ("fibonacci(n)", 10, 55),
        ("lucas(n)", 10, 123),
        ("factorial2(n)", 8, 384),
        ("subfactorial(n)", 5, 44),
        ("rf(n, 3)", 4, 120),
        ("ff(n, 3)", 4, 24),
        ("ff(n, 3)", 2, 0),
        ("n % 3", -7, 2),
        ("(-1)**n*n**2", 7, -49),
        ("polygamma(0, n) + EulerGamma", 3, 1.5),
    ],
)
def test_sequences_have_their_values_at_whole_numbers(text: str, n: int, expected: float) -> None:
    found = value(text, n=n)
    assert found is not None
    assert abs(found - expected) < 1e-12


@pytest.mark.parametrize(
    "text",
    [
        f"{ZERO}/{OTHER}",
        f"1/{ZERO}",
        f"{ZERO}**-2",
        f"{ZERO}**{OTHER}",
        f"log({ZERO})",
        f"7 + exp({ZERO}/{OTHER})",
        f"Abs(1/{ZERO})",
        f"tan(pi/2 + {ZERO})",
        f"atanh(1 + {ZERO})",
        f"1/sign({ZERO})",
        f"arg({ZERO})",
        "1/(sqrt(5 + 2*sqrt(6)) - sqrt(2) - sqrt(3))",
        "gamma(0)",
        "oo",
        "nan",
    ],
)
def test_what_may_be_undefined_has_no_value(text: str) -> None:
    assert value(text) is None


def test_a_difference_is_0_where_a_bound_says_so_and_nowhere_else() -> None:
    def differs(text: str) -> bool | None:
        return is_nonzero(parse(text), {}, zero_digits=100, max_digits=300)

    assert differs(ZERO) is False
    assert differs("exp(pi*sqrt(163)) - 262537412640768744") is True
    assert differs("10**-2000") is True
    assert differs(f"{ZERO} + 10**-90") is True
    assert differs(f"10**400*{ZERO}") is None
    assert differs(f"1/{ZERO}") is None


def test_real_numbers_have_an_order_and_others_none() -> None:
    def sign(text: str) -> int | None:
        return sign_of(parse(text), size=1, zero_digits=100, max_digits=300)

    assert [sign("pi - 22/7"), sign(ZERO), sign("pi - 355/113 + 1/10**6")] == [-1, 0, 1]
    assert sign("1 + I") is None
    assert sign("(2 + 11*I)**(1/3) + (2 - 11*I)**(1/3) - 3") == 1
    assert sign(f"1/{ZERO}") is None
