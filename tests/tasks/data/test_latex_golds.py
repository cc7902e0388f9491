r"""Known answers in LaTeX with what solves them and what does not: `benchmarks/latex_golds.jsonl`.

A row without right submissions is a text that has no value, or several that exclude each other.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sympy

from repl_rl.grading.equality import compare
from repl_rl.grading.parse import parse
from repl_rl.records import Problem
from repl_rl.tasks.data.golds import Gold, Refused, is_python, meanings, names_in, plain
from repl_rl.tasks.data.graders import ByName

pytestmark = pytest.mark.slow

pytest.importorskip("pylatexenc")

FILE = Path(__file__).parents[3] / "benchmarks" / "latex_golds.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text().splitlines()]
READ = [row for row in ROWS if row["right"]]
REFUSED = [row["gold"] for row in ROWS if not row["right"]]
SEED = "0123456789abcdef"


def gold_of(answer: str) -> Gold:
    found = plain(answer, "auto")
    if found is None:
        texts = meanings(answer)
        names = sorted({name for text in texts for name in names_in(text)})
        found = Gold("math", "\n".join(texts), " ".join(names))
    if isinstance(found, Refused):
        raise ValueError(found.why)
    return found


def is_solved(answer: str, submission: str) -> bool:
    gold = gold_of(answer)
    meta = {"grader": gold.grader, "answer": answer, "value": gold.value, "points": SEED}
    problem = Problem(id="p", statement="?", meta={**meta, "symbols": gold.symbols})
    return ByName().grade(problem, submission).is_solved


def test_there_are_many_kinds_of_golds() -> None:
    assert len(READ) >= 200
    assert len(REFUSED) >= 100
    assert len({row["kind"] for row in ROWS}) >= 15


@pytest.mark.parametrize("row", READ, ids=lambda row: f"{row['kind']}: {row['gold']}")
def test_what_is_right_solves_it_and_what_is_wrong_does_not(row: dict[str, list[str]]) -> None:
    gold = str(row["gold"])
    assert [text for text in row["right"] if not is_solved(gold, text)] == []
    assert [text for text in row["wrong"] if is_solved(gold, text)] == []


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_one_meaning_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        gold_of(text)


@pytest.mark.parametrize("row", READ, ids=lambda row: f"{row['kind']}: {row['gold']}")
def test_the_reference_solves_its_problem(row: dict[str, str]) -> None:
    gold = gold_of(row["gold"])
    is_text = gold.grader == "exact"
    assert is_solved(row["gold"], repr(gold.value) if is_text else gold.value.split("\n")[0])


# Laws

DRESSES: dict[str, Callable[[str], str]] = {
    "dollars": lambda text: f"${text}$",
    "two dollars": lambda text: f"$${text}$$",
    "brackets": lambda text: rf"\({text}\)",
    "a display": lambda text: rf"\[ {text} \]",
    "a box": lambda text: rf"\boxed{{{text}}}",
    "braces": lambda text: f"{{{text}}}",
    "spaces": lambda text: rf"\quad {text}\ ",
    "a style": lambda text: rf"\displaystyle {text}",
    "larger brackets": lambda text: re.sub(
        r"(?<![A-Za-z])([()])", lambda found: _large(found[1]), text
    ),
}


def _large(bracket: str) -> str:
    return rf"\left{bracket}" if bracket == "(" else rf"\right{bracket}"


@pytest.mark.parametrize("dress", DRESSES)
def test_what_dresses_an_answer_changes_none_of_its_meanings(dress: str) -> None:
    differing = []
    for row in READ:
        gold = row["gold"]
        is_half_open = "[" in gold or "]" in gold or r"\left" in gold or r"\text" in gold
        if "$" in gold or (gold[0] == "\\" and gold[1] in "([") or gold.endswith("."):
            continue
        if dress == "larger brackets" and (is_half_open or r"\math" in gold):
            continue
        is_latex = plain(gold, "auto") is None and not is_python(gold)
        if is_latex and meanings(DRESSES[dress](gold)) != meanings(gold):
            differing.append(gold)
    assert differing == []


SYMBOLS = sympy.symbols("x y a n theta x_1")
ONE_ARGUMENT = (sympy.sin, sympy.cos, sympy.tan, sympy.exp, sympy.log, sympy.atan, sympy.asinh)


def drawn(rng: random.Random, depth: int) -> sympy.Expr:
    if depth == 0:
        numbers = sympy.Integer(rng.randint(-9, 9)), sympy.Rational(rng.randint(1, 9), 7)
        return rng.choice([*SYMBOLS, *numbers, sympy.pi, sympy.E, sympy.I])
    left, right = drawn(rng, depth - 1), drawn(rng, depth - 1)
    made = (
        lambda: left + right,
        lambda: left * right,
        lambda: left / right,
        lambda: left ** rng.choice([2, 3, -1]),
        lambda: sympy.sqrt(left),
        lambda: rng.choice(ONE_ARGUMENT)(left),
        lambda: sympy.Abs(left),
        lambda: left + sympy.factorial(SYMBOLS[3]) + sympy.binomial(SYMBOLS[3], 2),
    )
    return rng.choice(made)()


def test_what_sympy_writes_is_read_as_what_it_wrote() -> None:
    wrong, num_read = [], 0
    for seed in range(150):
        expression = drawn(random.Random(seed), depth=3)
        if expression.has(sympy.zoo, sympy.nan, sympy.oo, sympy.re, sympy.im):
            continue
        try:
            texts = meanings(sympy.latex(expression))
        except ValueError:  # such as too large a power
            continue
        values = [parse(text, symbols=names_in(text)) for text in texts]
        num_read += 1
        if not any(compare(value, expression, seed=SEED).is_solved for value in values):
            wrong.append((sympy.latex(expression), texts))
    assert wrong == []
    assert num_read > 120


def test_each_letter_of_a_product_is_in_its_meaning() -> None:
    rng = random.Random(0)
    letters = "abcghkmnprstuvwxyz"  # d, f, e, i, j, l, o, q have uses of their own
    for _ in range(200):
        chosen = rng.sample(letters, rng.randint(1, 5))
        parts = [rng.choice(("{}", "{}^2", "{}_1", r"\mathit{{{}}}")).format(one) for one in chosen]
        text = rng.choice((" ", r" \, ", r" \cdot ", " + ")).join([r"2\pi", *parts])
        (meaning,) = meanings(text)
        assert {name[0] for name in names_in(meaning)} == set(chosen), (text, meaning)


PIECES = (
    *r"\{}()[]^_$,.+-=<>|!'~& 02xyei",
    *(r"\frac", r"\text{", r"\left", r"\\", r"\begin{pmatrix}", r"\end{pmatrix}", r"\pm ", "{,}"),
)


def test_a_broken_text_is_read_or_refused_and_raises_nothing_else() -> None:
    rng = random.Random(0)
    outcomes = set()
    for _ in range(400):
        text = rng.choice(ROWS)["gold"]
        for _ in range(3):
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(PIECES) + text[at + rng.randint(0, 2) :]
        try:
            outcomes.add(bool(meanings(text)))
        except ValueError:
            outcomes.add(False)
    assert outcomes == {True, False}


def test_the_deadline_of_the_first_answer_counts_no_import() -> None:
    program = (
        "import sys; from repl_rl.tasks.data.golds import GoldReader, meanings; GoldReader();"
        "before = set(sys.modules); meanings(r'\\frac{1}{2}');"
        "print(set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
