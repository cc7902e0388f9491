"""A run of an adapter from outside: what it leaves, and what takes that for a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from repl_rl.models.loading import load_model
from repl_rl.models.precision import Precision
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
LORA = set_words(
    *("lora.rank=4", "grpo.learning_rate=1e-2", "grpo.warmup_steps=0"),
    # Trajectories with two errors would all be charged the same.
    *("reward.max_line_charge=0.75", "reward.no_submission=-0.9"),
)


def test_a_run_of_an_adapter_is_measured_audited_replayed_and_merged(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    given = ("train", "--model", str(tiny_model), "--output", "run", "--merge")
    ended = repl_rl(*given, *small(grpo__gradient_checkpointing="true"), *LORA)
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    checkpoints = tmp_path / "run" / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"checkpoint-2", "final", "merged"}
    for name in ("checkpoint-2", "final"):
        assert (checkpoints / name / "adapter_model.safetensors").is_file()
        assert not (checkpoints / name / "model.safetensors").exists()
    merged = AutoModelForCausalLM.from_pretrained(checkpoints / "merged")
    check_moved(checkpoints, merged)

    ended = repl_rl("audit", "run", "-n", "4")
    assert ended.code == 0, ended.stdout
    assert re.search(r"^ok  drifted tokens +0 of ", ended.stdout, re.M)
    assert "!!" not in ended.stdout
    for command in (
        ("eval", "run"),
        ("eval", "run/checkpoints/checkpoint-2"),
        ("rollout", "--model", "run/checkpoints/final", *small()),
        ("replay", "run", "--execute"),
    ):
        ended = repl_rl(*command)
        assert ended.code == 0, (command, ended.stderr)

    assert repl_rl("merge", "run", "--output", "again").code == 0
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (
            checkpoints / "merged" / name
        ).read_bytes()
    refused = repl_rl("merge", "run", "--output", "again")
    assert (refused.code, "'again' is there already" in refused.stderr) == (2, True)


def check_moved(checkpoints: Path, merged: Any) -> None:
    """Check that `final` holds what was trained, and that `merged` computes it."""
    loaded = load_model(
        str(checkpoints / "final"), device=torch.device("cpu"), precision=Precision()
    )
    trained = loaded.model.state_dict()
    assert any(one.any() for name, one in trained.items() if "lora_B" in name)
    ids = torch.tensor([[62, 62, 62, 1, 7]])
    with torch.no_grad():
        gap = (loaded.model.eval()(ids).logits - merged.eval()(ids).logits).abs().max()
    assert gap < 1e-5


def test_an_adapter_is_trained_on_with_its_own_settings_alone(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    """In half precision, in which the model is held, but not the adapter."""
    steps = small(grpo__steps=1, grpo__kl_beta=0.1, grpo__dtype="bfloat16")
    first = ("train", "--model", str(tiny_model), "--output", "one", *steps, *LORA)
    assert repl_rl(*first).code == 0
    final = ("--model", "one/checkpoints/final", "--output", "two")
    refused = repl_rl("train", *final, *steps)
    assert refused.code == 2
    assert "give lora.rank = 4, or merge it first: repl-rl merge" in refused.stderr
    assert not (tmp_path / "two").exists()
    ended = repl_rl("train", *final, *steps, *LORA)
    assert ended.code == 0, ended.stderr
    assert "rounded away" not in ended.stdout
    weights = load_file(tmp_path / "two" / "checkpoints" / "final" / "adapter_model.safetensors")
    assert {one.dtype for one in weights.values()} == {torch.float32}
    assert repl_rl("eval", "two").code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--merge",), "--merge needs an adapter; give --set lora.rank=16"),
        (set_words("lora.rank=4", 'lora.targets=["wq"]'), "lora.targets names 'wq', which is no"),
    ],
)
def test_what_no_adapter_can_do_is_refused_before_a_starter_is_made(
    repl_rl: Command, given: tuple[str, ...], said: str
) -> None:
    ended = repl_rl("train", *given)
    assert (ended.code, ended.left_behind) == (2, [])
    assert said in ended.stderr
