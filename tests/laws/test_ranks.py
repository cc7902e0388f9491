"""Several processes train as one: a group may have siblings in two of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from repl_rl.config import Config, GRPOConfig, Loss
from repl_rl.credit.advantages import advantage_rows
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan
from repl_rl.show.display import Screen
from repl_rl.training.grpo import rows_per_rank
from repl_rl.training.train import train
from repl_rl.types import OutcomeKind, Scored, Trajectory
from trainer_kit import Step, Tensors, difference
from warm_python import Forked, WarmPython

SUPPORT = Path(__file__).parents[1] / "support"
OK, ERROR = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR
DEADLINE_S = 300
pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
STEPS = {
    "steps": 2,
    "problems_per_step": 3,
    "group_size": 4,
    "micro_batch_size": 3,
    "warmup_steps": 0,
    "learning_rate": 1e-4,
}
RUNS: dict[str, dict[str, Any]] = {
    **{loss_type: {"loss_type": loss_type} for loss_type in get_args(Loss) if loss_type != "bnpo"},
    "grpo of weighed lines, scaled by batch": {
        "scale": "batch",
        "loss_type": "grpo",
        "importance": "line",
        "gradient_checkpointing": True,
    },
}

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


@pytest.fixture(scope="module")
def three_groups(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Four siblings each: two processes take six rows, so the second group lies in both.

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


Ended = list[tuple[Tensors, dict[str, float]]]


@pytest.fixture(scope="module")
def two_ranks(
    model_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    three_groups: list[Scored],
    warm_python: WarmPython,
) -> list[Ended]:
    """Of two processes: weights and logs of a run for each of RUNS."""
    output: Path = tmp_path_factory.mktemp("ranks")
    rows = output / "rows.pickle"
    rows.write_bytes(pickle.dumps(three_groups))
    runs = [STEPS | run for run in RUNS.values()]
    words = (str(model_folder), str(rows), str(output), json.dumps(runs))
    run_ranks(2, warm_python, output, *words)
    return [torch.load(output / f"{rank}.pt") for rank in range(2)]


def run_ranks(num_ranks: int, python: WarmPython, folder: Path, *arguments: str) -> None:
    """Processes of `one_rank.py` that find each other on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        **python.environment,
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(num_ranks),
    }

    def start(rank: int) -> Forked:
        with open(os.devnull) as nothing, (folder / f"{rank}.said").open("w") as said:
            return python.start(
                *(str(SUPPORT / "one_rank.py"), *arguments),
                cwd=folder,
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                streams=(nothing, said, said),
            )

    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(start(rank)) for rank in range(num_ranks)]
        for rank, process in enumerate(ranks):
            assert process.wait(DEADLINE_S) == 0, (folder / f"{rank}.said").read_text()


@pytest.mark.train
@pytest.mark.parametrize("number", range(len(RUNS)), ids=list(RUNS))
def test_two_processes_train_as_one(
    step: Step, two_ranks: list[Ended], three_groups: list[Scored], number: int
) -> None:
    one = step(three_groups, **(STEPS | list(RUNS.values())[number]))
    for weights, logs in (ended[number] for ended in two_ranks):
        assert difference(one.weights, weights) < 1e-6
        for name in ("loss", "reward", *filter(is_of_importance, one.logs)):
            assert logs[name] == pytest.approx(one.logs[name], abs=1e-6), name


def is_of_importance(name: str) -> bool:
    return name.startswith("importance/")


def test_half_a_group_would_have_another_baseline(three_groups: list[Scored]) -> None:
    """Why rewards are gathered: the check above can fail."""
    config = GRPOConfig()
    apart = advantage_rows(three_groups[:6], config) + advantage_rows(three_groups[6:], config)
    together = advantage_rows(three_groups, config)
    assert [i for i in range(12) if apart[i] != together[i]] == [4, 5, 6, 7]


def test_a_step_that_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 problems of 4 trajectories .* to 5 processes"):
        rows_per_rank(GRPOConfig(problems_per_step=3, group_size=4), num_ranks=5)


def test_the_main_job_runs_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started, and with its output folder left free."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="in one process; start it without a launcher"):
        train(make_plan(Config()), tmp_path / "run", Screen())
    assert not (tmp_path / "run").exists()
