"""A pretrained model in a script of TRL: two steps on rollouts line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

import repl_rl as rr
from repl_rl.trl import ReplSpec

pytestmark = [pytest.mark.train, pytest.mark.kernel]


@pytest.mark.parametrize("transcript", ["python", "chat"])
@pytest.mark.parametrize("is_stock", [False, True], ids=["lines", "stock"])
def test_two_steps_are_trained(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transcript: str, is_stock: bool
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    spec = ReplSpec(
        "sympy-proofs",
        transcript=transcript,
        overrides=["sampling.max_lines=3", "sampling.max_line_tokens=16", "sandbox.standby=1"],
        output=tmp_path / "run",
    )
    kind: Any = GRPOTrainer if is_stock else spec.trainer_class
    trainer = kind(
        model=str(folder),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=100,
            learning_rate=1e-4,
            use_cpu=True,
            bf16=transcript == "python",
            report_to="none",
            save_strategy="no",
        ),
        train_dataset=spec.train_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
    )
    before = trainer.model.get_input_embeddings().weight.detach().clone()
    trainer.train()
    assert len(list(rr.load_run(tmp_path / "run"))) == 8
    for item in rr.load_run(tmp_path / "run"):
        sampled = item.trajectory.loss_mask
        assert len(item.trajectory.logprobs) == len(sampled)
        assert any(sampled)
    gap = (trainer.model.get_input_embeddings().weight - before).abs().max()
    # Lines differ in what they earn. Where no outcome does, a stock trainer has nothing to learn.
    assert torch.isfinite(gap)
    assert is_stock or gap > 0
