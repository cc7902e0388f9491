"""Assumptions are the problem's: a submission names symbols and never says what they are."""

import pytest
import sympy

from repl_rl.grading.draws import Domain, points
from repl_rl.grading.equality import compare
from repl_rl.grading.parse import Malformed, declared, parse
from repl_rl.records import VerdictKind

PROVED, REFUTED, WRONG = VerdictKind.PROVED, VerdictKind.REFUTED, VerdictKind.WRONG


def judged(got: str, expected: str, declaration: str) -> VerdictKind:
    symbols = declared(declaration)
    values = parse(got, symbols=symbols), parse(expected, symbols=symbols)
    return compare(*values, seed="a secret", domain=Domain.COMPLEXES).kind


def test_a_declaration_names_symbols_and_what_they_are() -> None:
    symbols = declared("x:real n:integer,positive y")
    assert symbols == {
        "x": sympy.Symbol("x", real=True),
        "n": sympy.Symbol("n", integer=True, positive=True),
        "y": sympy.Symbol("y"),
    }
    assert declared("") == {}


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("x:transcendental", "transcendental"),
        ("x:", "''"),
        ("x:positive,negative", "x"),
        ("n:even,odd", "n"),
        ("2x", "2x"),
        ("x:real x", "twice"),
        ("pi:real", "pi"),
        ("sin", "sin"),
        ("lambda", "lambda"),
        ("n:even,prime", "no number"),
    ],
)
def test_a_declaration_that_cannot_be_drawn_is_refused(declaration: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declared(declaration)


@pytest.mark.parametrize(
    ("declaration", "verdict"),
    [
        ("x:positive", PROVED),
        ("x:nonnegative", PROVED),
        ("x:prime", PROVED),
        ("x:real", REFUTED),
        ("x:negative", REFUTED),
        ("x:nonzero", REFUTED),
        ("x:integer", REFUTED),
        ("x:complex", REFUTED),
        ("x", REFUTED),
    ],
)
def test_the_root_of_a_square_is_judged_where_its_symbol_lives(
    declaration: str, verdict: VerdictKind
) -> None:
    assert judged("sqrt(x**2)", "x", declaration) is verdict


@pytest.mark.parametrize(
    ("got", "expected", "declaration", "verdict"),
    [
        ("log(x**3)", "3*log(x)", "x:positive", PROVED),
        ("log(x**3)", "3*log(x)", "x:complex", REFUTED),
        ("(-1)**n", "1", "n:even", PROVED),
        ("(-1)**n", "1", "n:integer", REFUTED),
        ("sin(pi*n)", "0", "n:integer", PROVED),
        ("sin(pi*n)", "0", "n:real", REFUTED),
        ("cos(pi*n)*x", "(-1)**n*x", "n:integer x:real", PROVED),
        ("Abs(x)", "-x", "x:negative", PROVED),
        ("n**2 + binomial(n - 1, 60)", "n**2", "n:integer,positive", REFUTED),
        ("n**2 + Mod(n, 2)", "n**2 + 1", "n:prime", REFUTED),
        ("n**2 + Mod(n, 2)", "n**2 + 1", "n:odd", PROVED),
        ("x**Abs(n)", "x**n", "n:integer x:real", REFUTED),
    ],
)
def test_each_symbol_counts_with_its_own_assumptions(
    got: str, expected: str, declaration: str, verdict: VerdictKind
) -> None:
    assert judged(got, expected, declaration) is verdict


@pytest.mark.parametrize(
    "declaration",
    [
        *("x:positive", "x:negative", "x:nonnegative", "x:nonpositive", "x:nonzero", "x:real"),
        *("x:integer", "x:rational", "x:complex", "x:even", "x:odd", "x:prime"),
        *("x:integer,positive", "x:integer,negative", "x:even,nonnegative", "x:rational,positive"),
        *("x:odd,negative", "x:complex,nonzero"),
    ],
)
def test_every_point_is_one_of_its_declaration(declaration: str) -> None:
    [symbol] = declared(declaration).values()
    other = sympy.Symbol("y")
    drawn = [
        point[symbol]
        for seed in "abc"
        for point, _ in points([symbol, other], domain=Domain.COMPLEXES, seed=seed, limit=60)
    ]
    for number in set(drawn):
        for name, claim in symbol.assumptions0.items():
            assert getattr(number, f"is_{name}") is claim, (number, name)
    assert max(abs(number) for number in drawn) > 1000
    assert len(set(drawn)) > 60


def test_integers_begin_with_the_small_ones_of_their_declaration() -> None:
    symbols = list(declared("n:integer,positive m:odd x:real k:integer").values())
    found = [point for point, is_drawn in points(symbols, domain=Domain.REALS, seed="", limit=9)]
    assert [[point[s] for s in (symbols[0], symbols[1], symbols[3])] for point in found[:3]] == [
        [1, 1, 0],
        [2, -1, 1],
        [3, 3, -1],
    ]


def test_a_mapping_is_taken_as_it_stands() -> None:
    x = sympy.Symbol("x", positive=True)
    assert parse("sqrt(x**2)", symbols={"x": x}) is x
    with pytest.raises(Malformed, match="unknown name 'y'"):
        parse("y", symbols={"x": x})


def test_one_name_is_one_symbol() -> None:
    with pytest.raises(ValueError, match="'y' is declared as x"):
        parse("y", symbols={"y": sympy.Symbol("x")})
    with pytest.raises(ValueError, match="x stands for two symbols"):
        compare(sympy.Symbol("x"), sympy.Symbol("x", real=True), seed="s")


@pytest.mark.parametrize("text", ["Symbol('x', real=True)", "Dummy('x')", "symbols('x')", "x.real"])
def test_a_submission_cannot_declare(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text, symbols=declared("x:real"))
