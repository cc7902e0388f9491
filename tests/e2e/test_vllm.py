"""The main job with vLLM, in the trainer's process or as a server: where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics
from vllm_serve import ADAPTERS, LOADER, PROCESSED, serving, small_server

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
LONGER = ("--max-model-len", "1024", "--max-num-batched-tokens", "1024")
"""As the prompts of the default task are."""


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
    assert_follows(run)
    audited = repl_rl("audit", "run", "-n", "4", cold=True)
    assert audited.code == 0, audited.stdout


def assert_follows(run: Path) -> None:
    """Assert that all three steps were sampled from their own weights."""
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "rollout/sync_gap" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert max(row["rollout/sync_gap"] for row in rows) < 1e-5
    last = read_trajectories(run / "trajectories" / "step-000002.jsonl")
    assert {item.trajectory.policy_version for item in last} == {2}


@pytest.mark.train
@pytest.mark.timeout(400)  # the server takes half a minute
def test_an_adapter_goes_to_a_server_by_itself_after_each_update(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    flags = (*PROCESSED, *LOADER, *ADAPTERS, *LONGER)
    server = small_server(tiny_model, tmp_path / "log", flags=flags)
    (tmp_path / "weights").mkdir()
    with serving(server) as (url,):
        given = ("sampling.weights_dir=weights", f'sampling.servers=["{url}"]', "lora.rank=4")
        settings = [word for one in (*SETTINGS, *given) for word in ("--set", one)]
        model = ("--engine", "vllm-server", "--model", str(tiny_model), "--output", "run")
        ended = repl_rl("train", *model, *settings, cold=True)  # vLLM comes before torch
        assert ended.code == 0, ended.stderr
        assert f"engine: vllm-server: {url}; the servers get the adapter alone, " in ended.stdout
        assert list(tmp_path.glob("weights/*")) == []
        assert_follows(tmp_path / "run")
        audited = repl_rl("audit", "run", "-n", "4", cold=True)
        assert audited.code == 0, audited.stdout
