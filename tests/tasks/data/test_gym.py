"""Families of reasoning-gym, where the package is installed."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import psutil
import pytest

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.grading.grader import Grader
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.base import ReferencedTask, StoredTask, Task, load_task

pytest.importorskip("reasoning_gym")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the library's own

gym = pytest.importorskip("repl_rl.tasks.data.gym")
draws = pytest.importorskip("repl_rl.tasks.data.gym")

EVERY = sorted(set(draws.library().factory.DATASETS) - {"composite"})
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

    async def kinds(submit: Callable[[Problem], str | None]) -> set[VerdictKind]:
        async with Grader(deadline_s=20.0) as grader:
            return {(await grader.grade(spec, one, submit(one) or "")).kind for one in asked}

    assert asyncio.run(kinds(task.reference)) == {VerdictKind.PROVED}
    assert asyncio.run(kinds(lambda _: "'no such answer'")) <= {
        VerdictKind.WRONG,
        VerdictKind.MALFORMED,
    }


def test_another_form_is_solved_by_the_score_of_the_family() -> None:
    (problem,) = some("countdown", Split.TRAIN, count=1)
    answer = problem.meta["answer"]
    verdict = gym.GymGrader("countdown").grade(problem, repr(f"({answer})"))
    assert (verdict.kind, verdict.evidence) == (VerdictKind.SUPPORTED, "score 1")


def test_part_of_a_score_solves_nothing() -> None:
    (problem,) = some("leg_counting", Split.TRAIN, count=1)
    verdict = gym.GymGrader("leg_counting").grade(
        problem, f"'it is {problem.meta['answer']}, I think'"
    )
    assert verdict.kind is VerdictKind.WRONG
    assert 0 < float(verdict.evidence.removeprefix("score ")) < 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "__import__('os').getpid()",
            "[print(1)]",
            "(lambda: 1)()",
            "[].append(1)",
            "x.__class__",
        ),
        "\"__import__('os').getpid()\"",  # sympy evaluates a text in a text
    ],
)
def test_code_reaches_no_family_that_evaluates_answers(text: str) -> None:
    (problem,) = some("countdown", Split.TRAIN, count=1)
    assert gym.GymGrader("countdown").grade(problem, repr(text)).kind is VerdictKind.MALFORMED


@pytest.mark.parametrize("text", ["1 + 2*3", "1 2 3", "[[0, 1], [1, 0]]", "x**2/2 + C", "A, B"])
def test_values_are_harmless(text: str) -> None:
    assert gym.is_harmless(text)


@pytest.mark.parametrize(
    "text", ["((0x3cff + 0xa8e9) << 3)", "[['a', 'b'], ['c', 'd']]", "(6*4) * 1"]
)
def test_what_only_computes_is_harmless(text: str) -> None:
    assert gym.is_harmless(text)


# The same problem in another process


DRAWS = """
import itertools, sys, msgspec
from repl_rl.tasks.base import load_task
from repl_rl.records import Split
for family in sys.argv[1:]:
    task, _ = load_task(f"reasoning-gym:{family}")
    drawn = itertools.islice(task.problems(Split.TRAIN, seed=3), 3)
    sys.stdout.buffer.write(msgspec.json.encode(list(drawn)) + b"\\n")
"""


def drawn_elsewhere(*families: str, hash_seed: int) -> dict[str, list[Problem]]:
    """Three problems of each family, drawn in a process with that hash seed."""
    done = subprocess.run(
        [sys.executable, "-c", DRAWS, *families],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        check=True,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith(b"[{")]
    return {
        family: msgspec.json.decode(row, type=list[Problem])
        for family, row in zip(families, rows, strict=True)
    }


def check_two_processes(families: Sequence[str]) -> None:
    """Own answers are proved; where there is none, what is no answer is wrong and has a price."""

    async def check(family: str, problems: Sequence[Problem]) -> None:
        task, spec = load_task(f"reasoning-gym:{family}")
        assert isinstance(task, ReferencedTask)
        async with Grader(deadline_s=20.0) as grader:
            for problem in problems:
                own = task.reference(problem)
                found = {
                    (await grader.grade(spec, problem, one)).kind
                    for one in (["'('", "0", "[0]"] if own is None else [own])
                }
                priced = {VerdictKind.WRONG, VerdictKind.MALFORMED}
                assert found <= ({VerdictKind.PROVED} if own else priced), (family, problem.id)

    for family, problems in drawn_elsewhere(*families, hash_seed=1).items():
        asyncio.run(check(family, problems))


SETS = ("ransom_note", "isomorphic_strings", "polynomial_multiplication", "codeio")
"""Families that walk over sets, or ask generators that nobody seeds."""
NO_ANSWER = ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")


@pytest.mark.timeout(300)
def test_a_problem_of_one_process_is_graded_in_another() -> None:
    check_two_processes([*SETS, *NO_ANSWER, "knights_knaves", "word_ladder"])


def test_a_submission_that_lasts_too_long_has_a_price_where_no_answer_is_known() -> None:
    task, spec = load_task("reasoning-gym:rubiks_cube")
    problem = next(task.problems(Split.TRAIN, seed=0))

    async def verdict() -> Verdict:
        async with Grader(deadline_s=5.0) as grader:
            return await grader.grade(spec, problem, "'R99999999'")

    found = asyncio.run(verdict())
    assert (found.kind, found.grader_error) in {
        (VerdictKind.MALFORMED, None),
        (VerdictKind.WRONG, None),
    }


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_problem_of_one_process_is_graded_in_another_whatever_the_family() -> None:
    check_two_processes(EVERY)


def test_problems_are_a_function_of_the_seed_in_every_process() -> None:
    assert drawn_elsewhere(*SETS, hash_seed=1) == drawn_elsewhere(*SETS, hash_seed=2)


def test_nobody_waits_for_those_who_draw() -> None:
    """The process ends with the last problem that is asked for."""
    task, _ = load_task("reasoning-gym:leg_counting")
    problems = task.problems(Split.TRAIN, seed=0)
    next(problems)
    (process,) = psutil.Process().children()
    del problems
    assert not process.is_running()


def test_an_entry_stays_small_and_a_kernel_never_sees_it() -> None:
    for family in (*SETS, "knight_swap", "zebra_puzzles"):
        (problem,) = some(family, Split.TRAIN, count=1)
        assert len(problem.meta["scored"]) < 10_000
        assert problem.meta["scored"] not in problem.statement
        assert problem.setup == ()


def test_a_problem_of_a_run_that_stored_no_entry_is_made_again() -> None:
    (problem,) = some("leg_counting", Split.TRAIN, count=1)
    meta = {key: value for key, value in problem.meta.items() if key != "scored"}
    grader = gym.GymGrader("leg_counting")
    assert grader.grade(replace(problem, meta=meta), meta["answer"]).is_solved
    with pytest.raises(RuntimeError, match="makes another problem of the seed"):
        grader.grade(replace(problem, meta={**meta, "question": "0" * 32}), meta["answer"])


def test_a_stored_entry_that_could_call_something_is_never_scored() -> None:
    """A file of trajectories may be a stranger's."""
    (problem,) = some("simple_integration", Split.TRAIN, count=1)
    scored = problem.meta["scored"]
    integrand = ast.literal_eval(scored)["integrand"]
    meta = {**problem.meta, "scored": scored.replace(integrand, '__import__("os").getpid()')}
    with pytest.raises(RuntimeError, match="could call something"):
        gym.GymGrader("simple_integration").grade(replace(problem, meta=meta), "x")


# What a family takes for right


VALUES: dict[str, Callable[[str], object]] = {
    "group_anagrams": json.loads,
    "jugs": json.loads,
    "palindrome_partitioning": json.loads,
    "game_of_life": json.loads,
    "number_sorting": ast.literal_eval,
    "binary_matrix": lambda text: [[int(one) for one in row.split()] for row in text.split("\n")],
    "spiral_matrix": lambda text: [int(one) for one in text.split()],
    "word_sorting": lambda text: text.split(", "),
    "word_ladder": lambda text: text.split(","),
    "syllogism": lambda text: text == "Yes",
    "cryptarithm": lambda text: dict(pair.split("=") for pair in text.split(",")),
    "complex_arithmetic": lambda text: complex(text.replace(" ", "").replace("i", "j")),
}
"""What a policy has in its hand when it is right, from the text of a family's own answer."""


@pytest.mark.parametrize("family", VALUES)
def test_a_right_answer_is_right_as_the_value_that_a_policy_has(family: str) -> None:
    grader = gym.GymGrader(family)
    for problem in entries_of(family, 4):
        value = repr(VALUES[family](problem.meta["answer"]))
        assert grader.grade(problem, value).is_solved, (problem.meta["answer"], value)


@pytest.mark.parametrize(
    ("family", "answer", "value"),
    [
        ("fraction_simplification", "$131/319$", "Fraction(131, 319)"),
        ("coin_flip", "0.125", "Fraction(1, 8)"),
        ("decimal_arithmetic", "0.10", "Decimal('0.1')"),
        ("complex_arithmetic", "4.0 - 7.0i", "4 - 7*I"),
        ("rotate_matrix", "1 2\n3 4", "Matrix([[1, 2], [3, 4]])"),
        ("prime_factorization", "3 \u00d7 3 \u00d7 71", "[3, 3, 71]"),
    ],
)
def test_a_right_answer_is_right_as_an_object_of_a_library(
    family: str, answer: str, value: str
) -> None:
    (problem,) = entries_of(family, 1)
    scored = {
        "fraction_simplification": {"simplified_numerator": 131, "simplified_denominator": 319},
        "complex_arithmetic": {"result": (4, -7)},
    }
    meta = {**problem.meta, "answer": answer, "scored": repr(scored.get(family, {}))}
    assert gym.GymGrader(family).grade(replace(problem, meta=meta), value).is_solved


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_literal_of_an_answer_is_right_and_nonsense_wrong_whatever_the_family() -> None:
    for family in set(EVERY) - {"game_of_life_halting", "coin_flip"}:
        grader = gym.GymGrader(family)
        for problem in entries_of(family, 2):
            own = problem.meta.get("answer")
            for value in values_of(own or ""):
                assert grader.grade(problem, repr(value)).is_solved, (family, own)
            for nonsense in ("'('", "'words'", "[[1, 2], [3]]", "{'a': 1}", "[1, 2]"):
                assert not is_solved(grader, problem, nonsense), (family, own, nonsense)


def values_of(text: str) -> Iterator[object]:
    for read in (ast.literal_eval, json.loads):
        with contextlib.suppress(SyntaxError, ValueError):
            yield read(text)


def is_solved(judge: Any, problem: Problem, submission: str) -> bool:
    try:
        return bool(judge.grade(problem, submission).is_solved)
    except Exception:  # noqa: BLE001 which the grader calls malformed
        return False


def entries_of(family: str, count: int) -> list[Problem]:
    entries = [draws.entry_at(family, seed=5, index=index) for index in range(count)]
    return [gym.problem_of(family, one) for one in entries]


def test_elements_are_not_run_together_into_another_number() -> None:
    problem = Problem(id="p", statement="?", meta={"seed": "0", "index": "0", "scored": "{}"})
    meta = {**problem.meta, "answer": "12"}
    grader = gym.GymGrader("leg_counting")
    assert grader.grade(replace(problem, meta=meta), "12").kind is VerdictKind.PROVED
    assert grader.grade(replace(problem, meta=meta), "[1, 2]").kind is VerdictKind.WRONG


@pytest.mark.parametrize(
    ("family", "taken"),
    [("game_of_life_halting", "("), ("coin_flip", "0"), ("puzzle24", "1*3*5 + 9")],
)
def test_a_score_that_takes_nonsense_for_right_is_named_before_anything_begins(
    family: str, taken: str
) -> None:
    task = load_task(f"reasoning-gym:{family}")[0]
    assert isinstance(task, StoredTask)
    assert task.read().summary.endswith(f"; its score takes {taken!r} for right where it is wrong")


def test_a_score_that_calls_its_own_answers_wrong_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = load_task("reasoning-gym:leg_counting")[0]
    assert isinstance(task, StoredTask)
    made = type(draws.dataset("leg_counting", 0))
    monkeypatch.setattr(made, "score_answer", lambda *_: 0.5)
    with pytest.raises(ConfigError, match="leg_counting cannot be trained on: its score calls its"):
        task.read()


def test_what_is_no_family_is_named() -> None:
    with pytest.raises(ConfigError, match="no family 'leg_count'; did you mean 'leg_counting'"):
        load_task("reasoning-gym:leg_count")
    with pytest.raises(ConfigError, match="'composite' of reasoning-gym needs settings"):
        load_task("reasoning-gym:composite")
    with pytest.raises(ConfigError, match=r"reads data\.held_out alone"):
        load_task("reasoning-gym:leg_counting", DataConfig(limit=5))


def test_the_version_of_the_library_is_on_record() -> None:
    task: Task = load_task("reasoning-gym:leg_counting")[0]
    assert isinstance(task, StoredTask)
    assert "leg_counting: made by reasoning-gym 0." in task.read().record
