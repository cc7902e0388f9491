"""Families of reasoning-gym, where the package is installed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from repl_rl.config import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.grading.grader import Grader
from repl_rl.tasks.base import ReferencedTask, StoredTask, Task, load_task
from repl_rl.types import Problem, Split, VerdictKind

pytest.importorskip("reasoning_gym")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the library's own

gym = pytest.importorskip("repl_rl.tasks.data.gym")

FAMILIES = ("basic_arithmetic", "countdown", "gsm_symbolic", "leg_counting", "polynomial_equations")


def some(family: str, split: Split, *, seed: int = 0, count: int = 30) -> list[Problem]:
    task, _ = load_task(f"reasoning-gym:{family}", DataConfig(held_out=0.25))
    return list(itertools.islice(task.problems(split, seed=seed), count))


@pytest.mark.parametrize("family", FAMILIES)
def test_problems_are_a_function_of_the_seed_and_no_seed_crosses_the_sides(family: str) -> None:
    assert some(family, Split.TRAIN) == some(family, Split.TRAIN)
    assert some(family, Split.TRAIN) != some(family, Split.TRAIN, seed=1)
    held = {one.statement for one in some(family, Split.HELD_OUT, seed=2)}
    assert not held & {one.statement for one in some(family, Split.TRAIN, seed=2, count=100)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_grader_that_starts_from_nothing_solves_each_with_its_own_answer(family: str) -> None:
    task, spec = load_task(f"reasoning-gym:{family}")
    assert isinstance(task, ReferencedTask)
    asked = some(family, Split.TRAIN, count=5)

    async def kinds(submit: Callable[[Problem], str]) -> set[VerdictKind]:
        async with Grader(deadline_s=20.0) as grader:
            return {(await grader.grade(spec, one, submit(one))).kind for one in asked}

    assert asyncio.run(kinds(task.reference)) == {VerdictKind.PROVED}
    assert asyncio.run(kinds(lambda _: "'no such answer'")) <= {
        VerdictKind.WRONG,
        VerdictKind.MALFORMED,
    }


def test_another_form_is_solved_by_the_score_of_the_family() -> None:
    (problem,) = some("countdown", Split.TRAIN, count=1)
    answer = problem.meta["answer"]
    verdict = gym.GymGrader().grade(problem, repr(f"({answer})"))
    assert (verdict.kind, verdict.evidence) == (VerdictKind.SUPPORTED, "score 1")


def test_part_of_a_score_solves_nothing() -> None:
    (problem,) = some("leg_counting", Split.TRAIN, count=1)
    verdict = gym.GymGrader().grade(problem, f"'it is {problem.meta['answer']}, I think'")
    assert verdict.kind is VerdictKind.WRONG
    assert 0 < float(verdict.evidence.removeprefix("score ")) < 1


@pytest.mark.parametrize(
    "text",
    ["__import__('os').getpid()", "[print(1)]", "(lambda: 1)()", "[].append(1)", "x.__class__"],
)
def test_code_reaches_no_family_that_evaluates_answers(text: str) -> None:
    (problem,) = some("countdown", Split.TRAIN, count=1)
    assert gym.GymGrader().grade(problem, repr(text)).kind is VerdictKind.MALFORMED


@pytest.mark.parametrize("text", ["1 + 2*3", "1 2 3", "[[0, 1], [1, 0]]", "x**2/2 + C", "A, B"])
def test_values_are_harmless(text: str) -> None:
    assert gym.is_harmless(text)


def test_what_is_no_family_is_named() -> None:
    with pytest.raises(ConfigError, match="no family 'leg_count'; did you mean 'leg_counting'"):
        load_task("reasoning-gym:leg_count")
    with pytest.raises(ConfigError, match="'composite' of reasoning-gym takes settings"):
        load_task("reasoning-gym:composite")
    with pytest.raises(ConfigError, match=r"takes data\.held_out alone"):
        load_task("reasoning-gym:leg_counting", DataConfig(limit=5))


def test_the_version_of_the_library_is_on_record() -> None:
    task: Task = load_task("reasoning-gym:leg_counting")[0]
    assert isinstance(task, StoredTask)
    assert "leg_counting: made by reasoning-gym 0." in task.read().record
