"""The main job with vLLM in the trainer's process: where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
Command = Callable[..., Any]
SETTINGS = (
    "sampling.max_lines=4",
    "sampling.max_line_tokens=12",
    "sampling.max_tokens=96",
    "sampling.max_in_flight=8",
    "sampling.device=cpu",
    "sandbox.standby=2",
    "grpo.steps=3",
    "grpo.problems_per_step=2",
    "grpo.group_size=4",
    "grpo.learning_rate=1e-3",
    "grpo.warmup_steps=0",
    "eval.problems=4",
)


@pytest.mark.train
def test_a_run_samples_from_each_update_and_is_clean_when_audited(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    settings = [word for one in SETTINGS for word in ("--set", one)]
    run = tmp_path / "run"
    ended = repl_rl(
        *("train", "--engine", "vllm", "--model", str(tiny_model), "--output", "run", *settings),
        cold=True,  # vLLM comes before torch
    )
    assert ended.code == 0, ended.stderr
    assert ended.left_behind == []
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "rollout/sync_gap" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert max(row["rollout/sync_gap"] for row in rows) < 1e-5
    last = read_trajectories(run / "trajectories" / "step-000002.jsonl")
    assert {item.trajectory.policy_version for item in last} == {2}
    audited = repl_rl("audit", "run", "-n", "4", cold=True)
    assert audited.code == 0, audited.stdout
