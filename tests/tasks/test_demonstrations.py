"""Laws of the scripted attempts: executable, finite, right and wrong in a known share."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from repl_rl.records import Problem, Split, VerdictKind
from repl_rl.tasks.sympy_proofs import SHORT, SympyProofs
from repl_rl.tasks.sympy_proofs.demonstration import MAX_LINES, TABLES, facts_of, played
from repl_rl.tasks.sympy_proofs.family import FAMILIES

pytestmark = pytest.mark.slow

TASK = SympyProofs()
KINDS = [
    (family, name)
    for family in SHORT.families
    for name, rule in FAMILIES[family].rules.items()
    if 1 in rule.tiers
]


@cache
def problems(count: int = 480) -> tuple[Problem, ...]:
    return tuple(itertools.islice(TASK.problems(Split.TRAIN, seed=5), count))


@pytest.fixture(scope="module")
def attempts(interpreter: Any) -> list[tuple[Problem, Any]]:
    """One attempt at each problem; `interpreter` is that of conftest."""
    return [
        (problem, interpreter.play(TASK.demonstrate(problem, random.Random(number))))
        for number, problem in enumerate(problems())
    ]


def is_proved(problem: Problem, submission: str | None) -> bool:
    return submission is not None and (TASK.grade(problem, submission).kind is VerdictKind.PROVED)


def lines_of(problem: Problem, seed: int) -> list[str]:
    """Lines that a script writes when nothing ever answers."""
    script = TASK.demonstrate(problem, random.Random(seed))
    lines = [next(script)]
    with contextlib.suppress(StopIteration):
        while True:
            lines.append(script.send(""))
    return lines


def test_the_same_generator_state_gives_the_same_script() -> None:
    for number, problem in enumerate(problems()[:40]):
        assert lines_of(problem, number) == lines_of(problem, number)


def test_scripts_are_finite_short_and_ascii() -> None:
    for number, problem in enumerate(problems()):
        lines = lines_of(problem, number)
        assert 1 <= len(lines) <= MAX_LINES
        for line in lines:
            assert len(line) <= 100, line
            assert line.isascii()
            assert "\n" not in line


def test_most_attempts_take_two_to_five_lines(attempts: list[tuple[Problem, Any]]) -> None:
    lengths = Counter(len(attempt.lines) for _, attempt in attempts)
    assert sum(lengths[length] for length in range(2, 6)) > 0.75 * len(attempts)


def test_more_than_half_of_the_attempts_are_right(attempts: list[tuple[Problem, Any]]) -> None:
    """In every family: enough to learn from, and much left to learn."""
    right = Counter(
        problem.meta["family"]
        for problem, attempt in attempts
        if is_proved(problem, attempt.submission)
    )
    for family in SHORT.families:
        assert 0.43 < right[family] / 120 < 0.72, (family, right[family])


def test_few_attempts_end_without_a_submission(attempts: list[tuple[Problem, Any]]) -> None:
    missing = sum(attempt.submission is None for _, attempt in attempts)
    assert 0.01 < missing / len(attempts) < 0.08


def test_submissions_can_be_read_or_are_refused_in_words(
    attempts: list[tuple[Problem, Any]],
) -> None:
    for problem, attempt in attempts:
        if attempt.submission is not None:
            verdict = TASK.grade(problem, attempt.submission)
            assert verdict.grader_error is None
            assert verdict.kind is not VerdictKind.UNDECIDED, (problem, attempt)


def test_every_kind_has_a_table() -> None:
    assert {(family, kind) for family, table in TABLES.items() for kind in table} == set(KINDS)


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_the_first_way_of_every_kind_is_common_and_always_right(
    family: str, kind: str, interpreter: Any
) -> None:
    table = TABLES[family][kind]
    assert table[0].weight / sum(strategy.weight for strategy in table) > 0.15
    rng = random.Random(f"{family}/{kind}")
    for problem in of_kind(family, kind, 4):
        attempt = interpreter.play(played(table[0].lines, facts_of(problem), rng))
        assert is_proved(problem, attempt.submission), (problem.statement, attempt)


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_some_way_of_every_kind_is_wrong_more_often_than_not(
    family: str, kind: str, interpreter: Any
) -> None:
    rng = random.Random(f"{family}/{kind}")
    sample = of_kind(family, kind, 2)
    wrong = 0.0
    for strategy in TABLES[family][kind]:
        scripts = (played(strategy.lines, facts_of(problem), rng) for problem in sample)
        solved = [
            is_proved(problem, interpreter.play(script).submission)
            for problem, script in zip(sample, scripts, strict=True)
        ]
        wrong += strategy.weight * solved.count(False) / len(solved)
    assert wrong > 0.4


def of_kind(family: str, kind: str, count: int) -> list[Problem]:
    found = (
        problem
        for problem in TASK.problems(Split.TRAIN, seed=9)
        if (problem.meta["family"], problem.meta["kind"]) == (family, kind)
    )
    return list(itertools.islice(found, count))


def test_scripts_react_to_what_they_see() -> None:
    """One first line, two answers: a claim at once, or a look for the first place."""
    problem = next(p for p in problems() if p.meta["kind"] == "square")
    lines = TABLES["identity"]["square"][0].lines
    holds, fails = (played(lines, facts_of(problem), random.Random(0)) for _ in range(2))
    assert next(holds) == next(fails)
    assert holds.send("0\n") == "submit_final_answer(True)"
    assert "_.subs(x, t) != 0" in fails.send("-x\n")
    assert fails.send("2\n") == "submit_final_answer(_)"
