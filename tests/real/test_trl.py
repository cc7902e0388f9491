"""A pretrained model in a script of TRL: two steps on rollouts line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig, GRPOTrainer

import repl_rl as rr
from repl_rl.trl import ReplSpec

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]


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
            logging_steps=1,
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
    stored = list(rr.load_run(tmp_path / "run"))
    for item in stored:
        sampled = item.trajectory.loss_mask
        assert len(item.trajectory.logprobs) == len(sampled)
        assert any(sampled)
    outcomes: list[list[float]] = [[], []]
    for item in stored:
        outcomes[item.trajectory.policy_version].append(item.reward.outcome_reward or 0.0)
    assert [len(one) for one in outcomes] == [4, 4]
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    assert rewards == pytest.approx([sum(one) / 4 for one in outcomes])
    gap = (trainer.model.get_input_embeddings().weight - before).abs().max()
    # Lines differ in what they earn. A stock trainer has outcomes alone: alike, they move nothing.
    assert (gap > 0) == (not is_stock or any(len(set(one)) > 1 for one in outcomes))
