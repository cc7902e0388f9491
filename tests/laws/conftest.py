"""One small model, one group of siblings, one step: what the laws of the update are tried on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repl_rl.records import OutcomeKind, Scored, Trajectory

if TYPE_CHECKING:  # it imports trl, which the laws of credit do without
    from trainer_kit import Step

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OK, ERROR = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of two layers: TRL loads its reference policy from where a model came from."""
    from trainer_kit import byte_tokenizer, random_qwen

    path: Path = tmp_path_factory.mktemp("model")
    random_qwen().save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def group(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Four siblings of different lengths, errors and outcomes; each ends on injected text."""
    parts = [
        [(" a+1\n", OK, "2\n>>>"), (" f(2)\n", OK, "[3]\n>>>")],
        [(" q\n", ERROR, "NameError\n>>>"), (" a\n", OK, "1\n>>>"), (" b\n", OK, ">>>")],
        [(" longer line\n", OK, "a long answer\n>>>")],
        [(" x\n", ERROR, "E\n>>>")],
    ]
    rewards = [(1.0, (0.0, 0.0)), (0.0, (-0.1, 0.0, 0.0)), (0.0, (0.0,)), (-0.6, (-0.1,))]
    return [
        make_scored(make_trajectory(lines, sibling_index=i), outcome, line_rewards)
        for i, (lines, (outcome, line_rewards)) in enumerate(zip(parts, rewards, strict=True))
    ]


@pytest.fixture
def step(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """`step(scored, **grpo)`: see `trainer_kit.take_step`."""
    from trainer_kit import take_step

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return partial(take_step, model_folder, tmp_path)


@pytest.fixture(scope="module")
def three_groups(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Four siblings each: two processes take six rows, so the second group lies in both; of four
    processes each parts a group.

    Half of a group has another mean than the whole. The engine is said to have found all tokens at
    -5.5, near which the model has them.
    """
    scored = []
    for number in range(12):
        group, sibling = divmod(number, 4)
        lines = [(f" x{sibling}\n", ERROR, "E\n>>>"), (" y" * (sibling + 1) + "\n", OK, "1\n>>>")]
        trajectory = make_trajectory(
            lines[sibling % 2 :], prompt=">" * (group + 1), group_index=group, sibling_index=sibling
        )
        trajectory = dataclasses.replace(
            trajectory, logprobs=tuple(-5.5 * is_sampled for is_sampled in trajectory.loss_mask)
        )
        line_rewards = [-0.1, 0.0][sibling % 2 :]
        scored.append(make_scored(trajectory, (0.0, 0.2, 1.0, 0.7)[sibling] * group, line_rewards))
    return scored
