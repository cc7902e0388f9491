r"""Laws of golds: LaTeX is read whole, as all that it may mean, or refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from repl_rl.errors import ConfigError
from repl_rl.grading.parse import parse
from repl_rl.tasks.data import golds
from repl_rl.tasks.data.golds import Gold, Refused, plain, read_golds

pytestmark = pytest.mark.slow

pytest.importorskip("pylatexenc")


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        (r"$\frac{40 \sqrt{3}}{39}$", ["40*sqrt(3)/39"]),
        (r"\dfrac12", ["1/2"]),
        (r"\tfrac34", ["3/4"]),
        (r"\frac{-1+\sqrt{17}}{2}", ["-1/2 + sqrt(17)/2"]),
        ("0.10", ["1/10"]),
        ("3.14159265358979323846", ["157079632679489661923/50000000000000000000"]),
        ("2^{-1.5}", ["sqrt(2)/4"]),
        (r"\$5", ["5"]),
        (r"\sqrt[3]{2}", ["2**(1/3)"]),
        (r"e^{2}", ["exp(2)"]),
        (r"\log_2 3", ["log(3)/log(2)"]),
        ("3i+2", ["2 + 3*I"]),
        (r"10^{-2}", ["1/100"]),
        ("10 000", ["10000"]),
        ("1{,}000", ["1000"]),
        ("2x+3", ["2*x + 3"]),
        ("2xy + ab", ["2*x*y + a*b"]),
        ("n(n+1)/2", ["n*(n + 1)/2"]),
        ("x**2 - 2*x", ["x**2 - 2*x"]),
        ("sqrt(2)/2", ["sqrt(2)/2"]),
        ("y = 2x", ["2*x", "Eq(y, 2*x)"]),
        ("f(x) = 2x", ["2*x"]),
        (r"\pm 2", ["{-2, 2}"]),
        (r"\{1, 2\}", ["{1, 2}"]),
        (r"\emptyset", ["set()"]),
        (r"\left(\frac{1}{2}, 1\right)", ["(1/2, 1)", "Interval(1/2, 1, True, True)"]),
        (r"\left(1, \frac{1}{2}\right)", ["(1, 1/2)"]),
        (r"(-\infty, 2)", ["Interval(-oo, 2, True, True)", "(-oo, 2)"]),
        ("[1, 2)", ["Interval(1, 2, False, True)"]),
        (
            r"(-\infty, 3]\cup[5, \infty)",
            ["Union(Interval(-oo, 3, True, False), Interval(5, oo, False, True))"],
        ),
        ("1, 2", ["[1, 2]", "{1, 2}"]),
        ("6, 6, 7", ["[6, 6, 7]"]),
        (r"0, \pm i \sqrt{6}", ["[0, sqrt(6)*I, -sqrt(6)*I]", "{0, sqrt(6)*I, -sqrt(6)*I}"]),
        (r"x = 1 \text{ or } x = 2", ["[1, 2]", "{1, 2}"]),
        ("(1, 2), (3, 4)", ["[(1, 2), (3, 4)]", "{(1, 2), (3, 4)}"]),
        ("98,118,122", ["98118122", "[98, 118, 122]", "{98, 118, 122}"]),
        (r"50\%", ["50", "(50)/100"]),
        (r"12 \text{ cm}^2", ["12"]),
        (r"5\,\mathrm{km}", ["5"]),
        ("7 square units", ["7"]),
        (r"30^\circ", ["30"]),
    ],
)
def test_a_gold_is_read_as_all_that_it_may_mean(text: str, meanings: list[str]) -> None:
    found = golds.meanings(text)
    names = golds.names_in(f"[{', '.join(meanings)}]")
    assert [parse(one, symbols=names) for one in found] == [
        parse(one, symbols=names) for one in meanings
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "$$", ".", r"\frac{1", "x +", ")", "(1, 2"),
        r"0, 3, 6, \ldots, 6048",
        r"$p=5$ and all primes $p \equiv \pm 1(\bmod 5)$",
        "All positive integers $n$ such that $n \\neq 1$",
        *("the answer is 5", "5 or so", r"\text{Yes, it is}", "AB", "3 4", "12_8"),
        r"\frac{4^{2024}}{\binom{4048}{2024}}-2",
        r"\frac{1}{0}",
        r"\int_0^1 x^x dx",
        r"\sum_{k=1}^{\infty} \frac{1}{k^k}",
        r"x^2 = 4",
    ],
)
def test_what_has_no_one_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        golds.meanings(text)


# What needs no parser


@pytest.mark.parametrize(
    ("answer", "grader", "gold"),
    [
        ("72", "auto", Gold("integer", "72")),
        ("$-1{,}234$", "auto", None),
        ("1,000,567", "auto", Gold("math", "1000567")),
        ("98,118", "auto", Gold("math", "98118\n[98, 118]\n{98, 118}")),
        ("118,118", "math", Gold("math", "118118\n[118, 118]")),
        ("1,234", "integer", Gold("integer", "1234")),
        ("-07", "math", Gold("math", "-7")),
        ("1/2", "integer", Refused("no integer")),
        ("(B)", "auto", Gold("exact", "(B)")),
        ("C", "auto", Gold("exact", "C")),
        (r"\text{(A)}", "auto", Gold("exact", r"\text{(A)}")),
        (r"\textbf{B}", "auto", Gold("exact", r"\textbf{B}")),
        (r"$\mathrm{(D)}$", "auto", Gold("exact", r"$\mathrm{(D)}$")),
        ("A, C", "auto", Gold("exact", "A, C")),
        ("2023-10-11", "auto", Gold("exact", "2023-10-11")),
        (r"\textbf{(C)}\ 12", "auto", None),
        ("Yes", "auto", Gold("exact", "Yes")),
        ("c", "auto", None),
        ("Paris", "auto", None),
        ("Paris", "exact", Gold("exact", "Paris")),
        ("1/2", "exact", Gold("exact", "1/2")),
    ],
)
def test_integers_and_words_are_taken_as_they_are(
    answer: str, grader: str, gold: Gold | Refused | None
) -> None:
    assert plain(answer, grader) == gold


def test_a_gold_that_is_too_large_is_refused_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(golds, "DEADLINE_S", 60.0)
    large = ("9^{9^{9^{9}}}", "auto")
    found = read_golds([large, ("\\frac12", "auto"), ("x - x_1", "auto")])
    assert found[large] == Refused("an exponent above 4096")
    assert found["\\frac12", "auto"] == Gold("math", "1/2")
    assert found["x - x_1", "auto"] == Gold("math", "x - x_1", "x x_1")


def test_golds_are_read_where_a_loop_is_at_work_too() -> None:
    async def inside() -> object:
        return read_golds([("\\frac12", "auto")])["\\frac12", "auto"]

    assert asyncio.run(inside()) == Gold("math", "1/2")


def test_without_the_parser_an_answer_that_takes_it_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(golds, "_PARSER", "no_such_parser")
    assert read_golds([("7", "auto")]) == {("7", "auto"): Gold("integer", "7")}
    with pytest.raises(ConfigError, match=r"needs the package pylatexenc.*'\.\[data\]'"):
        read_golds([("7", "auto"), (r"\frac12", "auto")])


def test_what_reads_golds_is_loaded_before_any_gold_is_asked_for() -> None:
    code = (
        "from repl_rl.tasks.data.golds import GoldReader; import sys; GoldReader(); "
        "print({'sympy', 'pylatexenc', 'repl_rl.tasks.data.latex'} <= sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
