"""Equality that cannot be fooled by tolerance, form, domain or an echo."""

import pytest
import sympy

from repl_rl.grading.draws import Domain
from repl_rl.grading.equality import compare
from repl_rl.grading.parse import Malformed, Value, parse
from repl_rl.grading.points import probe
from repl_rl.records import Verdict, VerdictKind

PROVED, SUPPORTED, UNDECIDED = (
    VerdictKind.PROVED,
    VerdictKind.SUPPORTED,
    VerdictKind.UNDECIDED,
)
REFUTED, WRONG = VerdictKind.REFUTED, VerdictKind.WRONG


def read(text: str) -> Value:
    return parse(text, symbols=("x", "n"))


def judged(got: str, expected: str, domain: Domain = Domain.REALS) -> Verdict:
    return compare(read(got), read(expected), seed="a secret", domain=domain)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("2/6", "1/3"),
        ("(x + 1)**2", "x**2 + 2*x + 1"),
        ("(x**2 - 1)/(x - 1)", "x + 1"),
        ("sin(x)**2", "1 - cos(x)**2"),
        ("6*sin(3*x)*cos(3*x)", "3*sin(6*x)"),
        ("coth(x)**2 - csch(x)**2", "sech(x)**2 + tanh(x)**2"),
        ("(2*x - 1)*exp(2*x)/4", "x*exp(2*x)/2 - exp(2*x)/4"),
        ("5*3**(n + 1)/2 - 5/2", "(15*3**n - 5)/2"),
        ("n*(n + 1)*(2*n + 1)/6", "n**3/3 + n**2/2 + n/6"),
        ("sqrt(5 + 2*sqrt(6))", "sqrt(2) + sqrt(3)"),
        ("3*sin(4) + 3*cos(4)/4 - 3/4", "(12*sin(4) + 3*cos(4) - 3)/4"),
        ("{sqrt(4), 1}", "{1, 2}"),
        ("{1, 2, 4/2}", "{2, 1}"),
        ("(1, 2)", "[1, 2]"),
        ("EmptySet", "set()"),
        ("True", "true"),
        ("Interval(0, 1)", "Interval(0, 1)"),
        ("tan(x)", "sin(x)/cos(x)"),
    ],
)
def test_equal_answers_are_proved(got: str, expected: str) -> None:
    assert judged(got, expected).kind is PROVED


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("sqrt(x**2) - x", "0"),
        ("log(x**2) - 2*log(x)", "0"),
        ("Abs(x)", "x"),
        ("1/10000000", "2/10000000"),
        ("exp(pi*sqrt(163))", "262537412640768744"),
        ("(1, 2)", "(2, 1)"),
        ("x**2 + 10**-30", "x**2"),
        ("(x + 1)**4096", "x"),
        ("Mod(x, 1)", "0"),
        ("8835 + 10**-60", "8835"),
        ("10**-2000", "0"),
        ("exp(-exp(8))", "0"),
        ("erf(20)", "1"),
        ("zeta(1501)", "1"),
        ("lowergamma(1/3, 900)", "gamma(1/3)"),
        ("2 + erfc(30)", "2"),
        ("2 + uppergamma(1/3, 1500)", "2"),
        ("4*exp(6) + 10**-60", "4*exp(6)"),
        ("x**2 + 10**-60", "x**2"),
        ("x**2 + sin(x)/10**300", "x**2"),
        ("x**2 + exp(-x**2 - 1000)", "x**2"),
        ("sin(1)**2 + 10**-1500", "1 - cos(1)**2"),
        ("2*x + sqrt((x - 100)**2) + x - 100", "2*x"),
        ("2*x + sqrt((x + 3000)**2) - x - 3000", "2*x"),
        (f"{sympy.Rational(str(sympy.sin(4).evalf(60)))}", "sin(4)"),
        (f"{sympy.Rational(str(sympy.sin(4).evalf(900)))}", "sin(4)"),
        (f"{sympy.Rational(str(sympy.sqrt(7).evalf(45)))} - 1", "sqrt(7) - 1"),
        (f"{sympy.Rational(str((sympy.sqrt(7) / sympy.pi).evalf(80)))}*pi", "sqrt(7)"),
    ],
)
def test_unequal_answers_are_refuted_by_a_point(got: str, expected: str) -> None:
    verdict = judged(got, expected)
    assert verdict.kind is REFUTED
    assert verdict.evidence.startswith("differs at ")


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("0.333333", "1/3"),
        ("0.5", "1/2"),
        ("2.0", "2"),
        ("{0.5}", "{1/2}"),
        ("x + 0.5 - 0.25", "x"),
        ("1.0*x", "x"),
        ("nan", "1"),
        ("zoo", "1"),
        ("oo", "1"),
        ("1/0", "0"),
        ("nan", "nan"),
        ("x - oo", "x"),
        ("[1, 2]", "{1, 2}"),
        ("{1, 2}", "(1, 2)"),
        ("(1, 2, 3)", "(1, 2)"),
        ("1", "{1}"),
        ("1", "True"),
        ("True", "1"),
        ("Eq(x, 1)", "1"),
        ("{1}", "{1, 2}"),
        ("{1, 2, 3}", "{1, 2}"),
        ("{1}", "set()"),
        ("set()", "{1}"),
    ],
)
def test_other_forms_and_values_are_wrong(got: str, expected: str) -> None:
    assert judged(got, expected).kind is WRONG


RIGHT = {
    "x*exp(2*x)/2 - exp(2*x)/4": (
        "exp(2*x)*(2*x - 1)/4",
        "exp(x)**2*(x/2 - 1/4)",
        "(x/2 - 1/4)*(cosh(2*x) + sinh(2*x))",
    ),
    "3*sin(6*x)": (
        "6*sin(3*x)*cos(3*x)",
        "3*I*(exp(-6*I*x) - exp(6*I*x))/2",
        "6*tan(3*x)/(1 + tan(3*x)**2)",
        "3*cos(6*x - pi/2)",
    ),
    "9*x**3 - 10*sin(2*x)": (
        "9*x**3 + 5*I*(exp(2*I*x) - exp(-2*I*x))",
        "x**3*9 - 20*sin(x)*cos(x)",
        "x*(3*x)**2 - 10*sin(2*x + 2*pi)",
    ),
    "8*sin(4) - 144": (
        "-144 - 4*I*(exp(4*I) - exp(-4*I))",
        "16*sin(2)*cos(2) - 12**2",
        "8*(sin(4) - 18)",
        "8*cos(4 - pi/2) - 144",
    ),
    "4*exp(6)": ("4*exp(3)**2", "(2*E**3)**2", "exp(6 + log(4))", "4*cosh(6) + 4*sinh(6)"),
    "sqrt(2) + sqrt(3)": ("sqrt(5 + 2*sqrt(6))", "1/(sqrt(3) - sqrt(2))", "(2 + sqrt(6))/sqrt(2)"),
    "-1 - sqrt(7)*I": ("-1 - sqrt(-7)", "(-2 - sqrt(-28))/2", "-(1 + I*sqrt(7))"),
    "pi/4": ("atan(1)", "atan(1/2) + atan(1/3)", "asin(sqrt(2)/2)", "4*atan(1/5) - atan(1/239)"),
    "log(6)": ("log(2) + log(3)", "-log(1/6)", "log(36)/2", "log(2)*log(6)/log(2)"),
    "n**2/2 + n/2": (
        "n*(n + 1)/2",
        "binomial(n + 1, 2)",
        "gamma(n + 2)/(2*gamma(n))",
        "factorial(n + 1)/(2*factorial(n - 1))",
        "(n**3 - n)/(2*(n - 1))",
    ),
    "5*3**(n + 1)/2 - 5/2": (
        "(15*3**n - 5)/2",
        "5*(exp((n + 1)*log(3)) - 1)/2",
        "5*(3*3**n - 1)/2",
    ),
}
"""Answers and other spellings of each."""


@pytest.mark.parametrize(
    ("got", "expected"), [(form, answer) for answer, forms in RIGHT.items() for form in forms]
)
def test_a_right_answer_is_solved_in_any_form(got: str, expected: str) -> None:
    domain = Domain.NATURALS if "n" in expected.replace("sin", "") else Domain.REALS
    assert judged(got, expected, domain).is_solved


@pytest.mark.parametrize("echo", ["Integral(cos(x), (x, 0, 1))", "Sum(n, (n, 1, x))"])
def test_an_echo_never_reaches_equality(echo: str) -> None:
    with pytest.raises(Malformed):
        read(echo)


def test_what_only_numbers_support_is_not_called_proved() -> None:
    # True on the reals, and sympy cannot know that x is real.
    verdict = judged("Abs(x)", "sqrt(x**2)")
    assert (verdict.kind, verdict.evidence) == (SUPPORTED, "equal at 20 points")
    assert judged("Abs(x)", "sqrt(x**2)", Domain.COMPLEXES).kind is REFUTED


def test_the_domain_decides() -> None:
    assert judged("cos(2*pi*n)", "1", Domain.INTEGERS).kind is SUPPORTED
    assert judged("cos(2*pi*n)", "1", Domain.REALS).kind is REFUTED
    assert judged("Abs(n)", "n", Domain.NATURALS).kind is SUPPORTED
    assert judged("Abs(n)", "n", Domain.INTEGERS).kind is REFUTED


ZERO = "(sin(1)**2 + cos(1)**2 - 1)"


@pytest.mark.parametrize(
    "text",
    [
        "n + 0*(1/{0})",
        "n*{0}/{0}",
        "n + {0}*(1/{0})",
        "n + log({0}) - log({0})",
        "n*{0}**-2*{0}**2",
        "n*(1/{0})**0",
        "n + 1/(1/{0})",
        "n + 1/(1/0)",
        "n + 0/(sin(n)**2 + cos(n)**2 - 1)",
        "Piecewise((n, 1/{0} > n), (n, True))",
    ],
)
def test_what_sympy_drops_counts_as_it_is_written(text: str) -> None:
    assert judged(text.format(ZERO), "n").kind is WRONG


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("x + {0}", "x"),
        ("x*(1 + {0})", "x"),
        ("x + sqrt({0})", "x"),
        ("x + acos(1 + {0})", "x"),
        ("x + floor(1/2 + {0})", "x"),
        ("x/(1 + {0})**3", "x"),
        ("(2 + 11*I)**(1/3) + (2 - 11*I)**(1/3)", "4"),
        ("cos(pi/7)*cos(2*pi/7)*cos(3*pi/7)", "1/8"),
        ("16*atan(1/5) - 4*atan(1/239)", "pi"),
    ],
)
def test_a_zero_that_sympy_does_not_see_does_no_harm(got: str, expected: str) -> None:
    assert judged(got.format(ZERO), expected).is_solved


@pytest.mark.parametrize(
    "step",
    [
        "sqrt((n - 10**7)**2) + n - 10**7",
        "sqrt(n**2 - 2*10**9*n + 10**18) + n - 10**9",
        "((n - 10**9)**4)**(1/4) + n - 10**9",
        "sqrt((log(n) - 10**4)**2) + log(n) - 10**4",
        "sqrt((sqrt(n) - 10**9)**2) + sqrt(n) - 10**9",
        "atan(tan(n/10**8)) - n/10**8",
        "exp(n - 10**8)",
    ],
)
def test_a_step_without_a_name_is_found_however_far(step: str) -> None:
    assert judged(f"n + {step}", "n", Domain.NATURALS).kind is REFUTED


def test_a_step_that_comes_a_little_early_is_refuted() -> None:
    assert judged("floor((n + 1)/60)", "floor(n/60)", Domain.NATURALS).kind is REFUTED
    assert judged("ceiling((n - 1)/100) - 1", "ceiling(n/100) - 1", Domain.NATURALS).kind is REFUTED


def test_a_step_that_jumps_nowhere_in_the_domain_is_none() -> None:
    assert judged("x*sign(exp(x))", "x").kind is PROVED
    assert judged("(x, 2*sign(x**2 + 1))", "(x, 2)").kind is PROVED
    assert judged("sign(n)*n", "n", Domain.NATURALS).kind is PROVED
    assert judged("x + sign(x)**2 - 1", "x").kind is UNDECIDED


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("1/(sin(x)**2 + cos(x)**2 - 1)", "x"),
        ("1/(sin(1)**2 + cos(1)**2 - 1)", "3*sin(4)"),
        ("log(sin(1)**2 + cos(1)**2 - 1)", "3*sin(4)"),
        ("n + (sin(1)**2 + cos(1)**2 - 1)**(61 - n)", "n"),
    ],
)
def test_what_is_not_finite_where_the_answer_is_is_wrong(got: str, expected: str) -> None:
    verdict = judged(got, expected, Domain.NATURALS)
    assert verdict.kind is WRONG
    assert verdict.method == "not finite"


@pytest.mark.slow
def test_two_sides_that_are_nowhere_defined_are_undecided() -> None:
    nowhere = "1/(sin(x)**2 + cos(x)**2 - 1)"
    assert judged(nowhere, f"2*({nowhere})").kind is UNDECIDED


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("n**2 + n + binomial(n - 1, 60)", "n**2 + n"),
        ("n + (n - 1)*(n - 3)*factorial(3)**-9*(n - 2)*10**-99", "n"),
        ("n + Piecewise((1, n < 2), (0, True))", "n"),
        ("n + Piecewise((1, n > 6000), (0, True))", "n"),
    ],
)
def test_naturals_are_tried_from_one_to_many(got: str, expected: str) -> None:
    assert judged(got, expected, Domain.NATURALS).kind is REFUTED


def test_a_gap_that_can_be_closed_is_none() -> None:
    assert judged("(n**3 - n)/(n - 1)", "n**2 + n", Domain.NATURALS).kind is PROVED
    assert judged("sin(pi*n) + n*(n - 2)/(n - 2)", "n", Domain.NATURALS).kind is SUPPORTED


def test_points_are_the_seed_s_secret() -> None:
    def counterexample(seed: str) -> str | None:
        return probe(
            read("x"), read("x + 1"), domain=Domain.REALS, seed=seed, num_points=3, max_digits=30
        ).counterexample

    assert counterexample("a") == counterexample("a") != counterexample("b")


def test_a_step_hidden_between_points_is_found() -> None:
    # Right wherever x is an integer: the points are not.
    assert judged("Piecewise((x, Eq(Mod(x, 1), 0)), (0, True))", "x").kind is REFUTED


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("n + Piecewise((0, n < 20000), (1, True))", "n"),
        ("n + Piecewise((1, Eq(n, 7777)), (0, True))", "n"),
        ("n + floor(n/30000)", "n"),
        ("n + Max(0, n - 50000)", "n"),
        ("2*n + sqrt((n - 70000)**2) + n - 70000", "2*n"),
    ],
)
def test_numbers_that_a_submission_names_are_points_too(got: str, expected: str) -> None:
    assert judged(got, expected, Domain.NATURALS).kind is REFUTED


def test_a_step_that_no_point_reaches_is_not_supported() -> None:
    step = "Max(1, log(n) - 10**6)*n"
    assert judged(step, "n", Domain.NATURALS).kind is UNDECIDED


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("(1 + tanh(x/2))/(1 - tanh(x/2))", "exp(x)"),
        ("1/(sqrt(exp(2*x) + 1) - exp(x))", "sqrt(exp(2*x) + 1) + exp(x)"),
        ("1/(1 - tanh(x)) - 1/2", "exp(2*x)/2"),
    ],
)
def test_digits_that_cancel_in_a_divisor_refute_nothing(got: str, expected: str) -> None:
    assert judged(got, expected).is_solved
