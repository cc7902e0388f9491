"""Answers that are no single expression: matrices, sets of reals, systems, limits, sequences."""

import pytest
import sympy

from repl_rl.grading.equality import compare
from repl_rl.grading.parse import Malformed, Value, declared, parse
from repl_rl.records import Verdict, VerdictKind

PROVED, SUPPORTED = VerdictKind.PROVED, VerdictKind.SUPPORTED
REFUTED, WRONG = VerdictKind.REFUTED, VerdictKind.WRONG

SYMBOLS = declared("x y t:real p:positive k:integer n:integer,positive f:function C1")


def read(text: str) -> Value:
    return parse(text, symbols=SYMBOLS)


def judged(got: str, expected: str) -> Verdict:
    return compare(read(got), read(expected), seed="a secret")


@pytest.mark.parametrize(
    "value",
    [
        sympy.Matrix([[1, sympy.Symbol("x")], [2, sympy.Rational(1, 3)]]),
        sympy.Matrix([1, 2]),
        sympy.Matrix(0, 0, []),
        sympy.Interval.open(0, 1),
        sympy.Interval.Lopen(0, sympy.sqrt(2)),
        sympy.Interval(0, sympy.oo),
        sympy.Union(sympy.Interval.open(-sympy.oo, -1), sympy.FiniteSet(3)),
        sympy.solve(sympy.Symbol("x") ** 2 > 1),
        sympy.Not(sympy.Eq(sympy.Symbol("x"), 1)),
        sympy.S.Reals - sympy.FiniteSet(0, 1),
        sympy.harmonic(sympy.Symbol("x")),
        sympy.RisingFactorial(sympy.Symbol("x"), sympy.Symbol("y")),
        sympy.LambertW(sympy.Symbol("x")),
        sympy.Eq(sympy.Function("f")(sympy.Symbol("x")), sympy.Symbol("C1")),
        {sympy.Symbol("x"): sympy.Integer(1)},
        sympy.Max(1, sympy.Symbol("x")),
        sympy.Xor(sympy.Symbol("x") > 0, sympy.Symbol("x") < 1),
    ],
)
def test_what_sympy_prints_is_read_back(value: object) -> None:
    assert read(repr(value)) == value


def test_a_polynomial_is_the_expression_in_it() -> None:
    x = sympy.Symbol("x")
    assert read(repr(sympy.Poly(x**2 - 1, x))) == x**2 - 1
    with pytest.raises(Malformed):
        read("Poly(x**2 - 1, x, modulus=5)")


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("Matrix([[1, 2], [3, 4]])", "Matrix([[1, 4/2], [sqrt(9), 4]])"),
        ("Matrix([[(x + 1)**2], [0]])", "Matrix([x**2 + 2*x + 1, 0])"),
        ("Interval(0, sqrt(4))", "Interval(0, 2)"),
        ("Union(Interval.open(-oo, -1), Interval.open(1, oo))", "(x < -1) | (x > 1)"),
        ("((-oo < x) & (x < -1)) | ((1 < x) & (x < oo))", "(x < -1) | (x > 1)"),
        ("Union(Interval(0, 1), Interval(1, 2))", "Interval(0, 2)"),
        ("Union(Interval.open(0, 1), Interval.open(1, 2))", "Complement(Interval.open(0, 2), {1})"),
        ("Complement(Reals, {0})", "Ne(x, 0)"),
        ("~(x <= 1)", "x > 1"),
        ("(x > 0) ^ (x > 1)", "(0 < x) & (x <= 1)"),
        ("(x > -1) & (x < 1)", "Interval.open(-1, 1)"),
        ("Eq(x, 1) | Eq(x, 2)", "{1, 2}"),
        ("x < sqrt(5 + 2*sqrt(6))", "x < sqrt(2) + sqrt(3)"),
        ("True", "(t < 1) | (t >= 1) | (t > oo)"),
        ("p < 1", "(0 < p) & (p < 1)"),
        ("(p < 1) & (p > -5)", "Interval.open(0, 1)"),
        ("Reals", "Interval.open(-oo, oo)"),
        ("oo", "oo"),
        ("-oo", "-oo"),
        ("{x: 1, y: sqrt(4)}", "{y: 2, x: 1}"),
        ("[{x: 1, y: 2}, {x: 2, y: 1}]", "[{y: 1, x: 2}, {x: 1, y: 2}]"),
        ("{x: 1, y: 2}", "[{x: 1, y: 2}]"),
        ("{(1, 2), (2, 1)}", "{(2, 1), (1, 4/2)}"),
        ("{2: 1, sqrt(9): 2}", "{3: 2, 2: 1}"),
        ("Eq(f(x), C1*exp(x) + x)", "Eq(f(x), x + exp(x)*C1)"),
        ("Eq(2*x, y)", "Eq(y, x + x)"),
        ("x > y", "y < x"),
        ("factorial(n)*n + factorial(n)", "factorial(n + 1)"),
        ("RisingFactorial(x, 3)", "x*(x + 1)*(x + 2)"),
        ("True", "True"),
        ("(1 + I)**4", "-4"),
    ],
)
def test_equal_answers_of_any_kind_are_proved(got: str, expected: str) -> None:
    assert judged(got, expected).kind is PROVED


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("harmonic(n + 1)", "harmonic(n) + 1/(n + 1)"),
        ("fibonacci(n + 2)", "fibonacci(n + 1) + fibonacci(n)"),
        ("((1 + sqrt(5))**n - (1 - sqrt(5))**n)/(2**n*sqrt(5))", "fibonacci(n)"),
        ("RisingFactorial(x, n)", "gamma(x + n)/gamma(x)"),
        ("catalan(n)", "binomial(2*n, n)/(n + 1)"),
        ("polygamma(0, n + 1) + EulerGamma", "harmonic(n)"),
        ("lucas(n)", "fibonacci(n - 1) + fibonacci(n + 1)"),
    ],
)
def test_sequences_are_solved_in_any_form(got: str, expected: str) -> None:
    assert judged(got, expected).is_solved


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("Matrix([[1, 2], [3, 5]])", "Matrix([[1, 2], [3, 4]])"),
        ("Interval(0, 1)", "Interval.open(0, 1)"),
        ("Interval(1, 2)", "{1, 2}"),
        ("Interval(0, 2)", "Interval(0, 1)"),
        ("Interval.Lopen(0, 1)", "Interval.Ropen(0, 1)"),
        ("Interval(0, 2)", "Union(Interval(0, 1), Interval.Lopen(1, 3))"),
        ("x <= 1", "x < 1"),
        ("x < 1 + 10**-60", "x < 1"),
        ("(x < 1) | (x > 2)", "x < 1"),
        ("Ne(x, 0)", "Reals"),
        ("t > 0", "True & (t >= 0)"),
        ("Union(Interval.open(-oo, oo))", "Ne(x, 3)"),
        ("x < pi", "x < 355/113"),
        ("harmonic(n + 1)", "harmonic(n) + 1/n"),
        ("fibonacci(n) + 1", "((1 + sqrt(5))**n - (1 - sqrt(5))**n)/(2**n*sqrt(5))"),
        ("RisingFactorial(x, n)", "FallingFactorial(x, n)"),
        ("factorial(n)", "n**n*sqrt(2*pi*n)/exp(n)"),
        ("fibonacci(n)", "GoldenRatio**n/sqrt(5)"),
        ("x", "oo"),
    ],
)
def test_unequal_answers_of_any_kind_are_refuted(got: str, expected: str) -> None:
    assert judged(got, expected).kind in (REFUTED, WRONG)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("Matrix([[1, 2, 3]])", "Matrix([[1], [2], [3]])"),
        ("[[1, 2], [3, 4]]", "Matrix([[1, 2], [3, 4]])"),
        ("Matrix([[1]])", "1"),
        ("1", "Matrix([[1]])"),
        ("Matrix([[1.0]])", "Matrix([[1]])"),
        ("x**2 < 4", "(x < 2) & (x > -2)"),
        ("Or(x < 1, y > 2)", "x < 1"),
        ("x < 1.0", "x < 1"),
        ("1", "x < 1"),
        ("x < 1", "1"),
        ("k < 2", "k <= 1"),
        ("Interval(0, x)", "Interval(0, 1)"),
        ("oo", "-oo"),
        ("oo", "zoo"),
        ("oo", "5"),
        ("nan", "oo"),
        ("nan", "nan"),
        ("10**2000", "oo"),
        ("{x: 1}", "{x: 1, y: 2}"),
        ("{x: 2, y: 1}", "{x: 1, y: 2}"),
        ("[{x: 1, y: 2}]", "[{x: 1, y: 2}, {x: 2, y: 1}]"),
        ("[{x: 1, y: 2}, {x: 2, y: 1}, {x: 0, y: 0}]", "[{x: 1, y: 2}, {x: 2, y: 1}]"),
        ("{2: 1, 3: 1}", "{2: 1, 3: 2}"),
        ("Eq(f(x), C1*x)", "Eq(f(x), C1*exp(x))"),
        ("Eq(f(x), f(x))", "Eq(f(x), C1*exp(x))"),
        ("x > y", "y > x"),
        ("Naturals", "Integers"),
        ("{(1, 2)}", "Interval.open(1, 2)"),
        ("{(1, 2)}", "(1, 2)"),
        ("{True}", "Interval(0, 1)"),
    ],
)
def test_other_forms_are_wrong(got: str, expected: str) -> None:
    assert judged(got, expected).kind is WRONG


@pytest.mark.parametrize(
    "text",
    [
        "Interval.__class__(0, 1)",
        "Interval.fromiter(0, 1)",
        "x.open(0, 1)",
        "Matrix([[1, 2], [3]])",
        "Matrix(10**9, 10**9, [])",
        "Matrix([[1]])**1000",
        "Matrix([[1]]) + 1",
        "1 & 2",
        "x | True",
        "{x: 1, x: 2}",
        "harmonic(10**9)",
        "harmonic(1/3)",
        "fibonacci(10**9)",
        "fibonacci(fibonacci(n))",
        "RisingFactorial(x, 1000)",
        "rf(10**9, x)",
        "zeta(10**9)",
        "f(x, Matrix([[1]]))",
        "Poly(x, domain=x)",
        "Poly(x, 2, domain='ZZ')",
    ],
)
def test_what_is_no_answer_of_these_kinds_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        read(text)
