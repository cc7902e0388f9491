"""Laws of what is said while a run is at work: each part of a step shows before it ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from repl_rl.base.concurrency import Interrupts
from repl_rl.progress import Note
from repl_rl.records import OutcomeKind, Scored, Trajectory, Verdict, VerdictKind
from repl_rl.training.evaluate import run_counted
from repl_rl.training.steps import StepCallback

pytestmark = pytest.mark.slow

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


class Heard:
    """A bar that is asked for its note as soon as it moves."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def __call__(self, done: int, note: Note = "", total: int = 0) -> None:
        self.rows.append((done, note() if callable(note) else note))


def test_rollouts_say_how_fast_they_come_before_the_first_has_ended(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)])
    solved = make_scored(trajectory, 1.0, [0.0], Verdict(kind=VerdictKind.PROVED))
    failed = make_scored(trajectory, -0.6)
    bar = Heard()

    def run(attempts: Any, *, on_sampled: Callable[[], None], on_scored: Any, **_: Any) -> Any:
        assert bar.rows == [(0, "0 solved, 0 tokens/s")]
        on_sampled()
        on_scored(solved)
        on_sampled()
        on_sampled()
        on_scored(failed)
        on_scored(solved)
        return [solved, failed, solved]

    runtime: Any = SimpleNamespace(run=run, engine=SimpleNamespace(num_sampled=7))
    attempts: Any = ["a", "b", "c"]
    assert run_counted(runtime, attempts, bar) == [solved, failed, solved]
    assert bar.rows[1:] == [
        (1, "1 solved, 0 tokens/s"),
        (2, "1 solved, grading"),
        (3, "2 solved, grading"),
    ]


def test_each_micro_batch_moves_the_bar_of_the_update_and_a_step_that_of_the_training() -> None:
    moves: list[object] = []
    training: Any = SimpleNamespace(
        micro_batch_done=lambda: moves.append("micro-batch"),
        runtime=SimpleNamespace(interrupts=Interrupts()),
    )
    update: Any = moves.append
    callback: Any = StepCallback(training, update)
    state = SimpleNamespace(global_step=3)
    callback.on_substep_end(None, state, None)
    callback.on_step_end(None, state, None)
    assert moves == ["micro-batch", "micro-batch", 3]
