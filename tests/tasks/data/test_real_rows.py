"""256 problems of AIME 2024 and 2025 and of HMMT, where a copy of them is given.

REPL_RL_COMPMATH names `compmath_test.jsonl`, which the wheel of nemo-gym 0.4.0 holds under
`resources_servers/ns_tools/data`. Nothing of it is kept here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sympy

from repl_rl.grading.parse import parse
from repl_rl.records import Problem, Split
from repl_rl.tasks.base import StoredTask, load_task
from repl_rl.tasks.data.graders import ByName

pytest.importorskip("pylatexenc")
PATH = os.environ.get("REPL_RL_COMPMATH", "")
pytestmark = [
    pytest.mark.skipif(not PATH, reason="REPL_RL_COMPMATH names no file"),
    pytest.mark.slow,
]

WITHOUT_A_VALUE = 6
"""Four descriptions in words, a sequence with dots, and a fraction of 1,200 digits."""


@pytest.fixture(scope="module")
def task() -> StoredTask:
    found, _ = load_task(str(Path(PATH).absolute()))
    assert isinstance(found, StoredTask)
    return found


@pytest.fixture(scope="module")
def problems(task: StoredTask) -> list[Problem]:
    return [problem for split in Split for problem in task.problems(split, seed=0)]


def test_every_row_is_taken_or_named(task: StoredTask, problems: list[Problem]) -> None:
    assert len(problems) == 256 - WITHOUT_A_VALUE
    assert task.read().record.endswith(f"{len(problems)} of 256 rows taken, 6 refused")
    assert "; refused answers 6: compmath_test.jsonl:" in task.read().summary


def test_no_statement_asks_for_a_box(problems: list[Problem]) -> None:
    assert [problem.id for problem in problems if "boxed" in problem.statement] == []


def test_each_answer_solves_its_problem(problems: list[Problem]) -> None:
    assert missed(problems, lambda problem: [ByName().reference(problem) or ""]) == []


def test_an_equivalent_answer_solves_it(problems: list[Problem]) -> None:
    assert missed(problems, equivalents) == []


def test_a_near_miss_does_not(problems: list[Problem]) -> None:
    solved = [
        (problem.meta["answer"], text)
        for problem in problems
        for text in near_misses(problem)
        if ByName().grade(problem, text).is_solved
    ]
    assert solved == []


def missed(problems: list[Problem], texts: object) -> list[tuple[str, str, str]]:
    assert callable(texts)
    return [
        (problem.meta["answer"], text, str(verdict.kind))
        for problem in problems
        for text in texts(problem)
        if not (verdict := ByName().grade(problem, text)).is_solved
    ]


def equivalents(problem: Problem) -> Iterator[str]:
    """Other spellings of the same value; the elements of a list, if it is one."""
    value = parse(ByName().reference(problem) or "")
    if isinstance(value, list | tuple):
        opening, closing = "[]" if isinstance(value, list) else "()"
        yield f"{opening}{', '.join(f'{one} + sqrt(2) - sqrt(8)/2' for one in value)}{closing}"
        return
    yield f"(({value})*3 - 6)/3 + 2"
    if problem.meta["grader"] == "math":
        yield str(sympy.radsimp(sympy.expand(value)))
        yield f"sqrt(2)*({value})/sqrt(2)"


def near_misses(problem: Problem) -> Iterator[str]:
    value = parse(ByName().reference(problem) or "")
    if isinstance(value, list | tuple):
        yield str(list(value[:-1]))
        yield str([*value[:-1], value[-1] + 1])
        yield str([value[0]] * len(value)) if len(set(value)) > 1 else "[0]"
        return
    yield from (f"{value} + 1", f"{value} - 10**-30", f"({value})*(1 + 10**-12)" if value else "1")
    yield f"[{value}]"
    if value:
        yield f"-({value})"
    if not value.is_Rational:
        yield str(sympy.N(value, 15))
    if value.is_real and not value.is_Rational:
        yield str(sympy.Rational(str(sympy.N(value, 40))))
