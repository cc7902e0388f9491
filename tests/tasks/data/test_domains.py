"""Domains of the unknowns of a row: its column says, or its words and its answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, VerdictKind
from repl_rl.tasks.data.columns import read_rows
from repl_rl.tasks.data.domains import implied, stated
from repl_rl.tasks.data.graders import ByName
from repl_rl.tasks.data.reading import Source, read

pytestmark = pytest.mark.slow


def row(tmp_path: Path, problem: str, answer: str, **columns: str) -> Problem:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"problem": problem, "answer": answer, **columns}))
    source = Source(name=path.name, location=str(path), rows=read_rows(path))
    (one,) = (p for side in read(source, DataConfig(held_out=1)).sides.values() for p in side)
    return one


# Problem, answer, what is right, what is not.
ROWS = [
    # An exponent of -1 and a wave in pi*n are for whole n.
    (r"Find \int_0^\pi x\cos(nx)dx/\pi.", r"\cos(n\pi)", ["(-1)**n"], ["1", "-(-1)**n"]),
    ("Find the coefficient b_n.", "2*(-1)**n/n", ["2*cos(pi*n)/n"], ["2/n", "2*cos(pi*n/2)/n"]),
    # cos(pi*x) is a wave: (-1)**x is not.
    ("Find f(x).", "x*cos(pi*x)", ["x*cos(-pi*x)"], ["x*(-1)**x", "x*cos(pi*x)**3"]),
    # A root or a logarithm of a product is for positive ones.
    ("Simplify.", r"\sqrt{1/n}", ["1/sqrt(n)", "sqrt(n)/n"], ["sqrt(n)", "-1/sqrt(n)"]),
    ("Simplify.", r"\sqrt{2 g h}", ["sqrt(2)*sqrt(g)*sqrt(h)"], ["sqrt(g*h)", "2*sqrt(g*h)"]),
    ("Simplify.", r"2\ln x", ["log(x**2)"], ["log(x)", "log(2*x)"]),
    # An even power says nothing: |x| is not x.
    ("Simplify.", r"\sqrt{x^2}", ["Abs(x)"], ["x", "-x"]),
    ("Simplify for $x > 0$.", "x**2/sqrt(x**2)", ["x"], ["-x", "x**2"]),
    # Words.
    ("Let $n$ be a positive integer. Find it.", "n*(n + 1)", ["n*(n + (-1)**(2*n))"], ["n**2"]),
    ("Given positive numbers a and b, find c.", "a*b", ["sqrt(a**2*b**2)"], ["-sqrt(a**2*b**2)"]),
    (r"For $m \in \mathbb{Z}$ find it.", "m**2", ["m**2*cos(2*pi*m)"], ["m**2*cos(pi*m)"]),
    # Cases are told apart by such words, so nothing is even.
    ("Let n be an even integer or an odd integer n.", "n*1", ["n*cos(2*pi*n)"], ["n*(-1)**n"]),
    # What is counted is whole: n/2 and its root are rounded, n itself is not.
    ("Find it.", r"\lfloor n/2 \rfloor", ["n - ceiling(n/2)", "(2*n - 1 + (-1)**n)/4"],
     ["n/2", "(n - 1)/2", "ceiling(n/2) - 1", "floor((n + 1)/2)"]),
    ("Find it.", r"\lceil\sqrt{m}\rceil", ["1 + floor(sqrt(m - 1))"], ["1 + floor(sqrt(m))"]),
    ("Find it.", r"\lfloor n \rfloor", ["-ceiling(-n)"], ["n"]),
    ("Find it.", r"\lfloor n + 1/2 \rfloor", ["ceiling(n - 1/2)"], ["n"]),
    ("Find it.", r"\lfloor n \rfloor + \lfloor n/2 \rfloor", [], ["n + floor(n/2)"]),
    ("Find it.", r"\lfloor x/2 \rfloor", [], ["x - ceiling(x/2)"]),
    ("For real numbers n find it.", r"\lfloor n/2 \rfloor", [], ["n - ceiling(n/2)"]),
    ("Find it.", r"1 \cdot (2n-1)!!", ["factorial(2*n)/(2**n*factorial(n))"], ["factorial2(2*n)"]),
    ("Find it.", r"2^n \cdot n!", ["factorial2(2*n)"], ["factorial(2*n)", "2**n*gamma(n)"]),
    ("Find it.", r"\lfloor n \rfloor!", [], ["factorial(n)"]),
    ("Find it.", r"n! k! \binom{n}{k}", ["factorial(n)**2/factorial(n - k)"], ["factorial(n)**2"]),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "answer", "right", "wrong"), ROWS)
def test_an_answer_may_use_what_a_row_says_and_no_more(
    problem: str, answer: str, right: list[str], wrong: list[str], tmp_path: Path
) -> None:
    one = row(tmp_path, problem, answer)
    for text in [ByName().reference(one) or "" if "\\" in answer else answer, *right]:
        assert ByName().grade(one, text).is_solved, (text, one.meta)
    for text in wrong:
        assert not ByName().grade(one, text).is_solved, (text, one.meta)


def test_a_column_declares(tmp_path: Path) -> None:
    """In the kernel as for the grader; it overrides all words."""
    one = row(tmp_path, "Let n be an integer.", "n*p*1", symbols="p:positive n q:integer,nonzero")
    assert one.meta["symbols"] == "n p:positive q:integer,nonzero"
    assert one.setup == (
        "n = symbols('n')",
        "p = symbols('p', positive=True)",
        "q = symbols('q', integer=True, nonzero=True)",
    )
    assert ByName().grade(one, "n*sqrt(p**2)").is_solved
    assert not ByName().grade(one, "n*p*cos(2*pi*n)").is_solved


def test_a_column_that_declares_nonsense_is_an_error_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows.jsonl:1: symbols 'symbols': 'n' is declared as"):
        row(tmp_path, "What is n?", "n**2", symbols="n:whole")


def test_what_the_answer_alone_says_is_not_shown_to_a_policy(tmp_path: Path) -> None:
    one = row(tmp_path, "Simplify.", "sqrt(p)*2")
    assert (one.meta["symbols"], one.setup) == ("p:positive", ("p = symbols('p')",))


@pytest.mark.parametrize(
    ("words", "claims"),
    [
        ("for all positive integers $n$", "integer positive"),
        ("where $k$ and $n$ are non-negative integers", "integer nonnegative"),
        ("natural numbers m, n", "integer positive"),
        (r"for each $n \in \mathbb{N}$", "integer positive"),
        ("a positive constant n", "positive"),
        ("when n is a positive integer, or n is a negative integer", "integer"),
        ("n is not an integer", ""),
        ("a non-integer n", ""),
        ("integers near n", ""),
        ("the number n", ""),
        ("for n > 0", "positive"),
        (r"for all $n \geq 0$", "nonnegative"),
        ("for n > 0, and for n < 0", ""),
        ("for n > 0.5", ""),
        ("a positive integer nabla", ""),
    ],
)
def test_words_claim_what_they_say(words: str, claims: str) -> None:
    assert stated(words, ["n"]).get("n", frozenset()) == frozenset(claims.split())


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("(-1)**(n + 1)", {"integer"}),
        ("(-1)**(n/2)", set()),
        ("(-n)**x", set()),
        ("n**(1/2)", {"positive"}),
        ("n**(-3/2)", {"positive"}),
        ("n**(1/3)", set()),
        ("sqrt(n**3*x**2)", {"positive"}),
        ("sqrt(n + 1)", set()),
        ("sqrt(-n)", set()),
        ("I*sqrt(n)", set()),
        ("sin(3*pi*n/2)", {"integer"}),
        ("sin(pi/n)", set()),
    ],
)
def test_an_answer_implies_what_it_is_made_for(answer: str, claims: set[str]) -> None:
    assert implied([answer]).get("n", frozenset()) == claims


def test_a_condition_is_not_decided_by_what_is_claimed(tmp_path: Path) -> None:
    one = row(tmp_path, "For positive numbers x: solve.", "x > 2")
    assert not ByName().grade(one, "x > 1").is_solved
    assert not ByName().grade(one, "True").is_solved


INTEGRALS = [
    (r"Find $\int 2x\,dx$.", "x^2 + C", ["x**2 + C", "x**2 + K", "x**2 + 3*c - 1", "C1 + x**2"],
     ["x**2", "x**2 + 5", "x**2 + C*x", "2*x**2 + C", "C", "x**2 + C - C", "x**2 + C*0.5*x"]),
    (r"Integrate $\int a\cos(ax)\,dx$.", r"\sin(ax) + C", ["C2 + sin(a*x)"], ["sin(a*x)", "a + C"]),
    (
        "Find an antiderivative of 2x.",
        "x^2 + C",
        ["x**2", "x**2 + 5", "x**2 + K"],
        ["x**2 + C*x", "Matrix([x**2 + C])", "[x**2 + C]"],
    ),
    # sympy integrates 1/x to log(x), which is log(|x|) and a constant on either side of 0.
    (r"Find $\int \frac{dx}{x}$.", r"\ln|x| + C",
     ["log(x) + C", "log(Abs(x)) + K", "log(-2*x) + C", "log(x**2)/2 + C"],
     ["log(x)", "2*log(x) + C", "log(x + 1) + C", "log(x) + floor(x) + C", "C",
      "log(x) + C + sqrt((x - 1)**2)/(x - 1)"]),
    # Constants of the problem, which no other name stands for.
    ("Let c be a real constant. f(0) = c, and f is an antiderivative of 2x. Find f(x).", "x^2 + c",
     ["x**2 + c"], ["x**2", "x**2 + 7*k", "x**2 + 1"]),
    ("f'(x) is equal to the constant 2 for all integral x, and f(0) = k.", "2x + k",
     ["2*x + k"], ["2*x", "2*x + 7*C"]),
    ("Find the antiderivative of 2x, where C is an arbitrary constant.", "x^2 + C",
     ["x**2 + C", "x**2 + K"], ["x**2"]),
    # No integral: C is a number of the problem.
    ("Which line is it?", "A*x + B + C", ["C + B + A*x"], ["A*x + B + K", "A*x + B"]),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "answer", "right", "wrong"), INTEGRALS)
def test_an_integral_with_a_constant_takes_any_name_of_it(
    problem: str, answer: str, right: list[str], wrong: list[str], tmp_path: Path
) -> None:
    one = row(tmp_path, problem, answer)
    for text in right:
        assert ByName().grade(one, text).is_solved, (text, one.meta)
    for text in wrong:
        assert ByName().grade(one, text).kind in (
            *(VerdictKind.WRONG, VerdictKind.REFUTED, VerdictKind.MALFORMED),
        ), text
