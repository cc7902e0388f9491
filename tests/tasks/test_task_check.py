"""Laws of the check of a task: each fault is found before a training would meet it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Call = Callable[..., tuple[int, str, str]]

TASKS = """
import os

from repl_rl.records import Problem, Split, Verdict, VerdictKind

class Good:
    name = "good"
    prompt = "# Answer with a number.\\n{{problem}}"

    def problems(self, split, *, seed):
        yield Problem(id=f"{split}-{seed}", statement="1 + 1?")

    def grade(self, problem, submission):
        kind = VerdictKind.PROVED if submission == "0" else VerdictKind.WRONG
        return Verdict(kind=kind)

class OneSided(Good):
    def problems(self, split, *, seed):
        if split is Split.TRAIN:
            yield from super().problems(split, seed=seed)

class Empty(Good):
    def problems(self, split, *, seed):
        return iter(())

class Evaluating(Good):
    def grade(self, problem, submission):
        eval(submission)
        return super().grade(problem, submission)

class Dying(Good):
    def grade(self, problem, submission):
        os._exit(3)

class Halves(Good):
    chance = 0.0

    def problems(self, split, *, seed):
        for number in range(40):
            meta = {"answer": "'yes'" if number % 2 else "'no'"}
            yield Problem(id=f"{number}", statement="?", meta=meta, chance=self.chance)

    def grade(self, problem, submission):
        is_right = submission == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)

class Priced(Halves):
    chance = 0.5

class Counting(Good):
    # Ten problems, each with its number as its answer.
    def problems(self, split, *, seed):
        for number in range(10):
            yield Problem(id=f"{number}", statement=f"{split} {number}?")

    def reference(self, problem):
        return problem.id

    def grade(self, problem, submission):
        kind = VerdictKind.PROVED if self.is_right(problem, submission) else VerdictKind.WRONG
        return Verdict(kind=kind)

    def is_right(self, problem, submission):
        return submission == problem.id

class Refuted(Counting):
    def is_right(self, problem, submission):
        return submission == problem.id and problem.id not in "37"

class Prefixed(Counting):
    def is_right(self, problem, submission):
        return submission in ("0", problem.id)

class Tolerant(Counting):
    def is_right(self, problem, submission):
        return bool(submission)

class Unmarked(Good):
    prompt = "# Answer with a number."
"""


@pytest.fixture
def check(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`repl-rl tasks checked_tasks:NAME`."""
    (tmp_path / "checked_tasks.py").write_text(TASKS)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "checked_tasks", raising=False)
    return lambda name: call("tasks", f"checked_tasks:{name}")


def test_a_task_that_can_be_trained_on_passes(check: Call) -> None:
    code, out, _ = check("Good")
    assert code == 0
    assert out.startswith(
        "train-0  1 + 1?\n\nthe prompt of train-0, as a policy sees it:\n\n    Python 3."
    )
    assert out.endswith(
        "    >>> # Answer with a number.\n    >>> # 1 + 1?\n    >>>\n\nok  problems    in both "
        "splits; those above are for training\nok  grader      0 right, True wrong, 'words' wrong, "
        "[1, 2] wrong, ( wrong\nok  starter     no demonstrate(), so training needs --model PATH\n"
    )


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("OneSided", "!!  problems    none in split held_out"),
        ("Empty", "!!  problems    none in split train and held_out"),
        ("Evaluating", "!!  grader      submit_final_answer((): SyntaxError"),
        ("Dying", "!!  grader      submit_final_answer(0): worker died"),
        (
            "Refuted",
            "!!  reference   6 of 8 own answers are right; not those of 3 wrong, 7 wrong",
        ),
        (
            "Prefixed",
            "!!  constant    0 solves 10 of 10 problems and earns +1.00; `chance` says 0%",
        ),
        ("Tolerant", "!!  nonsense    submit_final_answer('words') solves 100% of the problems"),
    ],
)
def test_a_fault_is_named_and_the_exit_code_is_1(check: Call, name: str, row: str) -> None:
    code, out, _ = check(name)
    assert code == 1
    assert f"\n{row}" in out


def test_a_constant_that_beats_chance_is_named(check: Call) -> None:
    code, out, _ = check("Halves")
    assert code == 1
    row = "'yes' solves 20 of 40 problems and earns +0.50; `chance` says 0%"
    assert f"\n!!  constant    {row}\n" in out


def test_a_constant_that_is_priced_by_chance_earns_nothing(check: Call) -> None:
    # 20 right answers get 1 each, 20 wrong ones lose 0.5 / (1 - 0.5) = 1 each.
    code, out, _ = check("Priced")
    assert code == 0
    assert "solves 20 of 40 problems and earns +0.00; `chance` says 50%\n" in out


def test_a_grader_that_solves_own_answers_and_nothing_else_passes(check: Call) -> None:
    code, out, _ = check("Counting")
    assert code == 0
    assert "\nok  reference   8 of 8 own answers are right\n" in out
    assert "nonsense" not in out


def test_a_prompt_without_its_marker_is_refused(check: Call) -> None:
    code, _, err = check("Unmarked")
    assert code == 2
    assert err.startswith("repl-rl: a task's prompt needs {{problem}} alone on exactly one line")


def test_the_task_that_is_installed_passes(call: Call) -> None:
    code, out, _ = call("tasks", "sympy-proofs", "-n", "2")
    assert code == 0
    assert "\nok  starter     it has demonstrate()\n" in out
