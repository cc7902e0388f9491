"""What a submission may spell, and what is refused before it costs anything."""

import time

import pytest
import sympy

from repl_rl.grading.parse import MAX_DEPTH, MAX_NODES, Malformed, parse

x, n = sympy.symbols("x n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9", sympy.Integer(9)),
        ("1/3", sympy.Rational(1, 3)),
        (" -x**2/2 + exp(2*x) ", -(x**2) / 2 + sympy.exp(2 * x)),
        ("5*3**(n + 1)/2 - 5/2", 5 * 3 ** (n + 1) / 2 - sympy.Rational(5, 2)),
        ("sqrt(8)", 2 * sympy.sqrt(2)),
        ("Rational(2, 6)", sympy.Rational(1, 3)),
        ("17 % 5", sympy.Integer(2)),
        ("17 // 5", sympy.Integer(3)),
        ("factorial(5) + binomial(5, 2)", sympy.Integer(130)),
        ("True", True),
        ("true", True),
        ("2 > 1", True),
        ("x > 1", x > 1),
        ("(1, 2)", (1, 2)),
        ("[1, I]", [1, sympy.I]),
        ("{2, 1, 4/2}", frozenset({1, 2})),
        ("FiniteSet(1, 2)", frozenset({1, 2})),
        ("set()", frozenset()),
        ("EmptySet", frozenset()),
        ("frozenset({1})", frozenset({1})),
        ("Union({1}, FiniteSet(2))", frozenset({1, 2})),
        ("{x: 1}", {x: 1}),
        ("Interval(0, 1)", sympy.Interval(0, 1)),
        ("Eq(x, 1)", sympy.Eq(x, 1)),
        ("Piecewise((1, x > 0), (0, True))", sympy.Piecewise((1, x > 0), (0, True))),
        ("-oo", -sympy.oo),
        ("0x10", sympy.Integer(16)),
        ("0**0 + 0**2", sympy.Integer(1)),
        ("gamma(n + 2)/gamma(n)", sympy.gamma(n + 2) / sympy.gamma(n)),
        ("re((1 + 2*I)**3)", sympy.Integer(-11)),
        ("floor((x + pi)**2)", sympy.floor((x + sympy.pi) ** 2)),
    ],
)
def test_answers_are_read_as_sympy_prints_them(text: str, value: object) -> None:
    assert parse(text, symbols=("x", "n")) == value


def test_2000_characters_are_read_and_2001_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("1" * 2000) == int("1" * 2000)
    monkeypatch.setattr("repl_rl.grading.parse.ast", None)  # nothing is left that parses
    with pytest.raises(Malformed, match="2001 characters, at most 2000 are read"):
        parse("1" * 2001)


def test_python_and_sympy_truth_have_one_form() -> None:
    assert parse("1 < 2") is True
    assert parse("false") is False


@pytest.mark.parametrize(
    "text",
    [
        '__import__("os").getpid()',
        "__import__",
        "().__class__",
        "x.real",
        "(1).bit_length()",
        "lambda: 1",
        "(lambda: 1)()",
        'f"{x}"',
        '"text"',
        "b'1'",
        "...",
        "None",
        "1j",
        "[i for i in (1, 2)]",
        "{**x}",
        "[*x]",
        "sin(*[1])",
        "sin(x, evaluate=False)",
        "Symbol('y')",
        "eval('1')",
        "sympify('1')",
        "(y := 1)",
        "1 if x else 2",
        "x and 1",
        "0 < x < 1",
        "x @ x",
        "x << 3",
        "1; 2",
        "x = 1",
        "import os",
        "<function f at 0x7f>",
        "range(0, 3)",
        "y + 1",
        "_",
        "",
        "1 +",
        "[1] + [2]",
        "[0]*10",
        "True + 1",
        "sin(True)",
        "FiniteSet([1])",
        "sin()",
        "sin(1, 2, 3)",
        "Rational(1, 0)",
        "Rational('1/3')",
        "1\0",
        "\ud800",
    ],
)
def test_what_is_no_answer_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text, symbols=("x",))


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "9.9**9.9**9.9",
        "2**8192",
        "(2**4000)**2 * 2**4000",
        "2**-9000",
        "x**5000",
        "exp(exp(exp(10)))",
        "exp(exp(4096)**4096)",
        "2**(pi**100)",
        "2**oo",
        "sqrt(10**200)",
        "2**(1/5000)",
        "factorial(10**9)",
        "factorial(factorial(9))",
        "binomial(10**6, 5*10**5)",
        "factorial(factorial(x))",
        "factorial(x**9)",
        "factorial(10**9*x)",
        "2**2**x",
        "x**x**x**x",
        "exp(exp(x))",
        "2**8000*2**8000",
        "(" * 150 + "1" + ")" * 150 + "+x" * 500,
        "-" * 1900 + "1",
        "sin(" * 80 + "x" + ")" * 80,
        "[" * 150 + "]" * 150,
        "1+" * 999 + "1",
        "1" * 2001,
        "re((pi + I)**4096)",
        "im((x + I*pi)**4096)",
        "arg((pi + I)**4096)",
        "conjugate(re((x + I)**400))",
        "re((x + I)**9*(x - I)**9*(pi + I*x)**9)",
        "re(sin((pi + I)**4096))",
        "2*sin((pi + I)**4096)",
        "cosh(pi**4096)**2",
        "floor((pi + E)**4096)",
        "(pi + I)**4096 // 3",
        "ceiling((sqrt(2) + sqrt(3))**4096)",
        "Mod((sqrt(2) + sqrt(3) + sqrt(5))**100, x)",
        "(sqrt(2) + sqrt(3) + sqrt(5))**100 % x",
        "0**x",
        "(x - x)**(x - 1)",
        "(exp(4096)**4096)**4096",
        "exp(-4096)*exp(-4095)",
        "gamma(10**9)",
        "gamma(gamma(x))",
    ],
)
def test_what_would_cost_too_much_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(Malformed):
        parse(text, symbols=("x",))
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "Integral(x, (x, 0, 1))",
        "Sum(x, (x, 1, 3))",
        "Product(x, (x, 1, 3))",
        "Limit(x, x, 0)",
        "Derivative(x**2, x)",
        "1 + Derivative(x**2, x)",
        "[Integral(x, x)]",
        "ConditionSet(x, Eq(sin(x), x/2), Reals)",
        "RootSum(x, x)",
        "CRootOf(x**5 - x + 1, 0)",
        "Subs(x, x, 1)",
    ],
)
def test_an_echo_of_the_question_is_no_answer(text: str) -> None:
    with pytest.raises(Malformed, match="unevaluated"):
        parse(text, symbols=("x",))


def test_symbols_carry_no_assumptions_and_must_be_declared() -> None:
    assert parse("x", symbols=("x",)).assumptions0 == {"commutative": True}
    with pytest.raises(Malformed, match="unknown name 'n'"):
        parse("n", symbols=("x",))


def test_the_size_caps_are_met_exactly() -> None:
    assert parse("1+" * (MAX_DEPTH - 1) + "1") == MAX_DEPTH
    with pytest.raises(Malformed, match="nested"):
        parse("1+" * MAX_DEPTH + "1")
    assert len(parse("[" + "1," * (MAX_NODES - 1) + "]")) == MAX_NODES - 1
    with pytest.raises(Malformed, match="parts"):
        parse("[" + "1," * MAX_NODES + "]")


def test_nothing_is_evaluated_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("untrusted text was evaluated")

    monkeypatch.setattr("builtins.eval", forbidden)
    monkeypatch.setattr("builtins.exec", forbidden)
    monkeypatch.setattr(sympy, "sympify", forbidden)
    monkeypatch.setattr(sympy, "parse_expr", forbidden)
    assert parse("{x**2/3, sqrt(2)}", symbols=("x",)) == frozenset({x**2 / 3, sympy.sqrt(2)})
