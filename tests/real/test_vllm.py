"""A pretrained model sampled by vLLM: two steps of GRPO, in process and by a server."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from repl_rl.records import Trajectory
from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics
from small_run import set_words, small
from vllm_serve import documented_server, serving
from watched_command import Command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
EXACT = 1e-4
"""Nats, on average over tokens. Two computations in float32 through thirty layers differ by 8e-6;
weights of one step before are off by 2e-2."""
SHORT = (
    *("sampling.max_line_tokens=16", "sampling.max_tokens=100", "eval.problems=1"),
    *("grpo.warmup_steps=0", "reward.function=lengths:by_length"),
)
REWARD = """
from repl_rl.records import Reward


def by_length(trajectory, verdict, config):
    length = sum(len(line.source) for line in trajectory.lines)
    return Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=length / 100)
"""
"""No two siblings earn the same, so each step moves the weights: the model solves nothing."""


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the model, which several runs give their weights to, one after another."""
    log = tmp_path_factory.mktemp("served") / "log"
    with serving(documented_server(folder, log)) as (url,):
        yield url


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """Words that choose it."""
    if request.param == "vllm":
        return ("--engine", "vllm")
    (tmp_path / "weights").mkdir()
    servers = f'sampling.servers=["{request.getfixturevalue("server")}"]'
    return ("--engine", "vllm-server", *set_words(servers, "sampling.weights_dir=weights"))


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"], indirect=True)
@pytest.mark.parametrize("rank", [8, 0], ids=["lora", "whole"])
def test_a_run_samples_from_each_update_and_is_clean_when_audited(
    repl_rl: Command, gguf: Path, folder: Path, engine: tuple[str, ...], rank: int, tmp_path: Path
) -> None:
    (tmp_path / "lengths.py").write_text(REWARD)
    rate = 1e-3 if rank else 1e-5
    learns = (f"lora.rank={rank}", f"grpo.learning_rate={rate}", *SHORT)
    given = ("train", "--model", str(gguf), "--output", "run", *engine)
    ended = repl_rl(*given, *small(), *set_words(*learns), cold=True)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert ended.left_behind == []
    assert list(tmp_path.glob("weights/*")) == []
    by_itself = "the servers get the adapter alone, 9." in ended.stdout
    assert by_itself == (rank > 0 and "vllm-server" in engine)

    run = tmp_path / "run"
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "rollout/sync_gap" in row]
    assert [row["step"] for row in rows] == [1, 2]
    assert max(row["rollout/sync_gap"] for row in rows) < EXACT
    sampled = {name: stored(run, name) for name in ("step-000000", "step-000001", "eval-000002")}
    versions = [{one.policy_version for one in items} for items in sampled.values()]
    assert versions == [{0}, {1}, {2}]
    # So far off, at the least, would be an engine that had kept the weights it began with.
    base: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert mean_gap(base, sampled["step-000000"]) < EXACT
    assert mean_gap(base, sampled["step-000001"]) > 10 * EXACT
    assert mean_gap(base, sampled["eval-000002"]) > 10 * EXACT

    audited = repl_rl("audit", "run", "-n", "2", cold=True)
    assert (audited.code, "!!" in audited.stdout) == (0, False), audited.stdout + audited.stderr
    assert re.search(r"^ok  gap elsewhere ", audited.stdout, re.M), audited.stdout
    assert audited.left_behind == []


def stored(run: Path, name: str) -> list[Trajectory]:
    """Trajectories that a run has kept of a rollout or an evaluation."""
    return [one.trajectory for one in read_trajectories(run / "trajectories" / f"{name}.jsonl")]


@torch.no_grad()
def mean_gap(model: Any, trajectories: list[Trajectory]) -> float:
    """Between the log-probabilities of sampled tokens, as they are stored and as a model's are."""
    gaps: list[torch.Tensor] = []
    for one in trajectories:
        ids = torch.tensor([*one.prompt_ids, *one.completion_ids])
        scores = torch.log_softmax(model(ids[None]).logits[0, :-1], -1)
        found = scores.gather(-1, ids[1:, None])[-len(one.completion_ids) :, 0]
        gaps.append((found - torch.tensor(one.logprobs)).abs()[torch.tensor(one.loss_mask)])
    return float(torch.cat(gaps).mean())
