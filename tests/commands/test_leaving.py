"""Laws of what is said of a run that did not end: what is there, what is not, how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from repl_rl.commands.leaving import (
    commands,
    left_by,
    next_after,
    next_after_end,
    question_of,
)
from repl_rl.records import Problem, Split, Verdict


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    return Path("runs/a")


def write(run: Path, *rows: str, checkpoints: tuple[str, ...] = ()) -> None:
    (run / "metrics.jsonl").write_text("".join(rows))
    for name in checkpoints:
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "model.safetensors").touch()


def test_before_there_is_a_run_nothing_was_written(run: Path) -> None:
    assert left_by(run, checkpoint_every=50) == "nothing was written"
    assert next_after(run) == ""


def test_before_the_first_step_a_run_is_begun(run: Path) -> None:
    write(run, '{"step": 0}\n')
    assert left_by(run, checkpoint_every=50) == ("runs/a is begun, and nothing was trained yet")


def test_before_the_first_checkpoint_there_are_steps_and_no_weights(run: Path) -> None:
    write(run, '{"step": 0}\n', '{"step": 3}\n', '{"step": 4')
    assert left_by(run, checkpoint_every=50) == (
        "after step 3: runs/a holds metrics and trajectories, but no weights: the first checkpoint "
        "comes after step 50"
    )
    assert next_after(run) == (
        "next:\n  repl-rl show runs/a --worst\n  repl-rl train --resume runs/a"
    )


def test_after_a_checkpoint_a_command_goes_on_from_it(run: Path) -> None:
    write(run, '{"step": 61}\n', checkpoints=("checkpoint-9", "checkpoint-50"))
    assert left_by(run, checkpoint_every=50) == (
        "after step 61: runs/a holds metrics and trajectories, and whole weights in "
        "checkpoints/checkpoint-50"
    )
    assert next_after(run) == (
        "next:\n"
        "  repl-rl eval runs/a\n"
        "  repl-rl show runs/a --worst\n"
        "  repl-rl train --resume runs/a"
    )


def test_commands_find_the_modules_that_the_run_has_found(run: Path) -> None:
    write(run, '{"step": 9}\n', checkpoints=("final",))
    assert next_after(run, ["--config", "own.toml"]) == (
        "next:\n"
        "  repl-rl eval runs/a --config own.toml\n"
        "  repl-rl show runs/a --worst\n"
        "  repl-rl train --config own.toml --resume runs/a"
    )


def test_a_command_is_quoted_and_fits_a_terminal() -> None:
    assert commands(["repl-rl", "eval", "my run"]) == "next:\n  repl-rl eval 'my run'"
    long = "runs/sympy-proofs-20260101-120000"
    told = commands(["repl-rl", "train", "--config", f"{long}/config.toml", "--seed", "123"])
    assert max(map(len, told.splitlines())) <= 80


# A run that ended


class Some:
    """A task of these problems."""

    name, prompt = "some", "{{problem}}"

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        return iter(self._problems if split is Split.HELD_OUT else ())

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise NotImplementedError


def test_after_its_end_the_best_way_to_look_comes_first() -> None:
    assert next_after_end(Path("runs/a"), question="Solve: x = 1").splitlines() == [
        "next:",
        "  repl-rl replay runs/a --html runs/a/page.html",
        "  repl-rl reward explain runs/a",
        "  repl-rl replay runs/a --worst",
        "  repl-rl eval runs/a",
        "  repl-rl ask 'Solve: x = 1' --model runs/a",
    ]


def test_who_is_logged_in_may_push_in_place_of_asking() -> None:
    told = next_after_end(Path("r"), ["--config", "own.toml"], question="q", may_push=True)
    assert told.splitlines()[-2:] == [
        "  repl-rl eval r --config own.toml",
        "  repl-rl push r OWNER/NAME",
    ]


@pytest.mark.parametrize(
    ("statements", "question"),
    [
        (["What is 1 + 1?"], "What is 1 + 1?"),
        (["Solve: x = 1\nAnswer: a list."], "Solve: x = 1"),
        (["x" * 41, "Two rows\nof a text", "short"], "short"),
        (["Two rows\nAnswer: a list,\nexact."], None),
        ([], None),
    ],
)
def test_a_question_is_a_whole_problem_of_one_row(
    statements: list[str], question: str | None
) -> None:
    assert question_of(Some([Problem(id="p", statement=one) for one in statements]), seed=0) == (
        question
    )


def test_a_problem_that_binds_names_is_no_question() -> None:
    assert question_of(Some([Problem(id="p", statement="a?", setup=("a = 1",))]), seed=0) is None
