"""Remains of an update that fails: the last step that ended, or what was there before."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from repl_rl.errors import DivergedError
from repl_rl.records import Scored
from repl_rl.update.grpo import LineGRPOTrainer, last_step_kept
from repl_rl.update.ranks import ALONE, Ranks
from trainer_kit import Step


class Lost(Exception):
    """Anything that ends an update."""


def failing(name: str, at: int, error: type[Exception] = Lost) -> Callable[[LineGRPOTrainer], None]:
    """Fail at a call of this method of the trainer."""

    def change(trainer: LineGRPOTrainer) -> None:
        method, calls = getattr(trainer, name), count(1)

        def fail(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == at:
                raise error
            return method(*args, **kwargs)

        setattr(trainer, name, fail)

    return change


def kept(step: Step, folder: Path, group: list[Scored], ranks: Ranks = ALONE, **how: Any) -> Any:
    """Names of the checkpoints that are there after an update that fails."""
    fail, error = how.pop("fail"), how.pop("error", Lost)
    seen: list[LineGRPOTrainer] = []

    def change(trainer: LineGRPOTrainer) -> None:
        seen.append(trainer)
        fail(trainer)

    def run() -> None:
        try:
            step(group, change=change, steps=4, **how)
        except error as failure:
            with last_step_kept(seen[0], ranks):
                raise failure

    with pytest.raises(error):
        run()
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def test_a_forward_that_fails_leaves_the_step_before_it(
    step: Step, tmp_path: Path, group: list[Scored]
) -> None:
    fail = failing("_compute_loss", 3)
    assert kept(step, tmp_path, group, fail=fail) == ["checkpoint-2"]


def test_a_backward_that_fails_leaves_the_entropy_coefficient_of_the_step_before_it(
    step: Step, tmp_path: Path, group: list[Scored]
) -> None:
    """0.1 before the first step, and each adds 0.05: the loss of step 3 makes it 0.25."""
    adaptive = {"use_adaptive_entropy": True, "entropy_coef": 0.1, "entropy_coef_delta": 0.05}

    def fail(trainer: LineGRPOTrainer) -> None:
        failing("backward", 3)(trainer.accelerator)

    trl = {**adaptive, "entropy_target": 100.0}
    assert kept(step, tmp_path, group, fail=fail, trl=trl) == ["checkpoint-2"]
    state = json.loads((tmp_path / "checkpoint-2" / "entropy_ctrl_state.json").read_text())
    assert state["entropy_coef"] == pytest.approx(0.2)


def test_half_a_step_of_the_optimiser_is_not_kept(
    step: Step, tmp_path: Path, group: list[Scored]
) -> None:
    def fail(trainer: LineGRPOTrainer) -> None:
        make = trainer.create_optimizer

        def broken(*args: Any) -> Any:
            optimiser = make(*args)
            failing("step", 3)(optimiser)  # type: ignore[arg-type]  # anything with methods
            return optimiser

        trainer.create_optimizer = broken  # type: ignore[assignment, method-assign]  # a double

    assert kept(step, tmp_path, group, fail=fail) == []


def test_an_update_within_a_rollout_is_not_kept(
    step: Step, tmp_path: Path, group: list[Scored]
) -> None:
    """A run can go on from updates 2 and 4 alone."""
    fail = failing("_compute_loss", 4)
    assert kept(step, tmp_path, group, fail=fail, passes=2) == []


def test_weights_that_are_lost_are_not_kept(
    step: Step, tmp_path: Path, group: list[Scored]
) -> None:
    fail = failing("_compute_loss", 3, DivergedError)
    assert kept(step, tmp_path, group, fail=fail, error=DivergedError) == []


def test_one_of_several_processes_keeps_nothing_alone(
    step: Step, tmp_path: Path, group: list[Scored]
) -> None:
    """The others wait for it elsewhere: it would hang with them."""
    fail = failing("_compute_loss", 3)
    assert kept(step, tmp_path, group, Ranks(world=2), fail=fail) == []
