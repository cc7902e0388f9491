"""`benchmarks/dense_scripts.py`: the same work in more lines."""

from __future__ import annotations

import importlib
import itertools
import random
from pathlib import Path
from types import ModuleType

import pytest

from repl_rl.records import Split
from repl_rl.tasks.base import Script

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("dense_scripts")


@pytest.mark.parametrize(
    ("line", "extra", "expected"),
    [
        ("f(g(x) + 1)", 2, ["u1 = g(x)", "u1", "f(u1 + 1)"]),
        ("f(g(x) + 1)", 4, ["u1 = g(x)", "u1", "u2 = u1 + 1", "u2", "f(u2)"]),
        ("d = a(b(x)).c(0)", 2, ["u1 = b(x)", "u1", "d = a(u1).c(0)"]),
        ("pow(3, 7)", 2, ["u1 = pow(3, 7)", "u1", "u1"]),
        ("f = x", 2, ["f = x"]),
        ("# a thought", 2, ["# a thought"]),
        ("submit_final_answer(f(g(x)))", 2, ["submit_final_answer(f(g(x)))"]),
        ("f(g(x)))", 2, ["f(g(x)))"]),
    ],
)
def test_a_step_is_taken_apart_from_the_inside(
    dense: ModuleType, line: str, extra: int, expected: list[str]
) -> None:
    assert dense.steps(line, extra) == expected


@pytest.mark.parametrize(
    "source", ["(x + 1)**2 - x*(x + 2)", "max(min(x, 2), x - 1)", "divmod(x, 3)"]
)
@pytest.mark.parametrize("extra", [2, 6])
def test_the_last_line_has_the_value_of_the_whole(
    dense: ModuleType, source: str, extra: int
) -> None:
    names = {"x": 5}
    *before, last = dense.steps(source, extra)
    assert len(before) == extra
    for line in before:
        exec(line, names)
    assert eval(last, names) == eval(source, {"x": 5})


def test_scripts_have_about_as_many_lines_as_their_name_says(dense: ModuleType) -> None:
    means = []
    for kind in (dense.Two, dense.Four, dense.Eight):
        task = kind()
        problems = itertools.islice(task.problems(Split.TRAIN, seed=0), 200)
        lengths = [num_lines(task.demonstrate(one, random.Random(0))) for one in problems]
        means.append(sum(lengths) / len(lengths))
    assert means == sorted(means)
    assert means[2] > means[0] + 3


def num_lines(script: Script) -> int:
    """Number of lines of a script whose lines all print nothing."""
    count = 1
    try:
        next(script)
        while True:
            script.send("")
            count += 1
    except StopIteration:
        return count
