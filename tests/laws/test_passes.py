"""Laws of a rollout that feeds several updates: who is trained when, and what is clipped."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig as TRLConfig

from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.advantages import advantage_rows, load_credit
from repl_rl.errors import ConfigError
from repl_rl.models.precision import Precision
from repl_rl.records import Scored
from repl_rl.update.grpo import LineGRPOTrainer
from repl_rl.update.ranks import launched
from repl_rl.update.trainer import checkpoint_every, trainer_arguments
from trainer_kit import Step, Tensors, difference, largest, take_step

pytestmark = pytest.mark.train


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


FAST: dict[str, Any] = {"learning_rate": 1e-2, "warmup_steps": 0}
"""Two such steps of AdamW carry many ratios out of the band."""


@pytest.fixture
def two_groups(group: list[Scored]) -> list[Scored]:
    """The group, and one like it whose first trajectory fails."""
    reward = dataclasses.replace(group[0].reward, outcome_reward=-0.3)
    other = [dataclasses.replace(group[0], reward=reward), *group[1:]]
    return [
        *group,
        *(
            dataclasses.replace(
                item, trajectory=dataclasses.replace(item.trajectory, group_index=1)
            )
            for item in other
        ),
    ]


# Who is trained when


class Watch:
    """Watch over the rollouts that were asked for and the rows that each micro-batch trained."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], int]] = []
        self.trained: list[Counter[tuple[float, ...]]] = []

    def __call__(self, trainer: LineGRPOTrainer) -> None:
        roll_out, loss = trainer._roll_out, trainer._compute_loss

        def asked(prompts: Sequence[str], version: int) -> list[Scored]:
            self.asked.append(([int(prompt) for prompt in prompts], version))
            return roll_out(prompts, version)

        def seen(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            self.trained.append(Counter(map(tuple, inputs["advantages"].tolist())))
            return loss(model, inputs)

        trainer._roll_out = asked
        trainer._compute_loss = seen  # type: ignore[method-assign]  # a double


def test_each_trajectory_is_trained_once_in_each_pass(step: Step, two_groups: list[Scored]) -> None:
    """Two updates of four trajectories each, gone through twice."""
    watch = Watch()
    settings: dict[str, Any] = {
        "group_size": 4,
        "micro_batch_size": 4,
        "updates_per_rollout": 2,
        "passes": 2,
    }
    step(two_groups, change=watch, steps=8, **settings)
    numbers = [[0] * 4 + [1] * 4, [2] * 4 + [3] * 4]
    assert watch.asked == list(zip(numbers, [0, 4], strict=True))
    assert [rows.total() for rows in watch.trained] == [4] * 8
    passes = [sum(watch.trained[i : i + 2], Counter()) for i in range(0, 8, 2)]
    assert passes == [passes[0]] * 4
    assert passes[0].total() == 8


# What is clipped


class Weights(TrainerCallback):
    """Weights after each step."""

    def __init__(self) -> None:
        self.after: list[Tensors] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.after.append({name: value.clone() for name, value in model.state_dict().items()})


def logprobs(model: Any, item: Scored) -> torch.Tensor:
    """Log-probabilities of the completion, (T), one forward without padding."""
    trajectory = item.trajectory
    ids = torch.tensor([[*trajectory.prompt_ids, *trajectory.completion_ids]])
    start = len(trajectory.prompt_ids)
    found: torch.Tensor = model(ids).logits[0].log_softmax(dim=-1)[start - 1 : -1]
    return found.gather(1, ids[0, start:, None])[:, 0]


def by_hand(
    folder: Path, now: Tensors, scored: Sequence[Scored], grpo: GRPOConfig
) -> tuple[Tensors, float]:
    """Gradients of PPO's clipped objective at the weights `now`, and the share that is clipped.

    The trajectories were sampled by the model in `folder`. Sums go over sampled tokens and are
    divided by how many there are: the loss `dapo`.
    """
    old, new = (Qwen3ForCausalLM.from_pretrained(folder) for _ in range(2))
    new.load_state_dict(now)
    num_tokens = sum(sum(item.trajectory.loss_mask) for item in scored)
    num_clipped = 0
    low, high = 1 - grpo.epsilon_low, 1 + grpo.epsilon_high
    for item, row in zip(scored, advantage_rows(scored, load_credit(grpo)), strict=True):
        with torch.no_grad():
            before = logprobs(old, item)
        ratio = (logprobs(new, item) - before).exp()
        gain, is_sampled = torch.tensor(row), torch.tensor(item.trajectory.loss_mask)
        is_clipped = ((ratio > high) & (gain > 0)) | ((ratio < low) & (gain < 0))
        num_clipped += int((is_clipped & is_sampled).sum())
        kept: Any = (ratio * gain)[is_sampled & ~is_clipped]  # torch has no types for backward
        (-kept.sum() / num_tokens).backward()
    grads = {name: one.grad for name, one in new.named_parameters() if one.grad is not None}
    return grads, num_clipped / num_tokens


def test_the_second_pass_clips_what_has_left_the_band(
    model_folder: Path, tmp_path: Path, group: list[Scored]
) -> None:
    weights = Weights()
    settings: dict[str, Any] = {**FAST, "steps": 2, "passes": 2}
    catch = take_step(
        model_folder,
        tmp_path,
        group,
        change=lambda trainer: trainer.add_callback(weights),
        **settings,
    )
    expected, share = by_hand(model_folder, weights.after[0], group, GRPOConfig(**settings))
    assert difference(catch.gradients, expected) < 1e-5 * largest(expected)
    rows = [row for row in catch.rows if "loss" in row]
    assert [row["clip_ratio/region_mean"] for row in rows] == [0.0, pytest.approx(share)]
    assert 0.2 < share < 0.9
    unclipped, _ = by_hand(
        model_folder, weights.after[0], group, GRPOConfig(epsilon_low=1e9, epsilon_high=1e9)
    )
    assert difference(catch.gradients, unclipped) > 0.1 * largest(unclipped)


def test_lines_are_weighed_by_the_policy_that_sampled_them_in_every_pass(
    step: Step, group: list[Scored]
) -> None:
    """One forward more would find other ratios in the second pass; the batch keeps the first."""
    settings: dict[str, Any] = {**FAST, "importance": "line", "importance_cap": 1e30}
    once = step(group, **settings).rows[0]
    twice = step(group, steps=2, passes=2, **settings).rows
    names = [name for name in once if name.startswith("importance/")]
    assert len(names) == 5
    assert [twice[0][name] for name in names] == pytest.approx([once[name] for name in names])
    assert not any(name in twice[1] for name in names)


def test_where_a_rollout_feeds_several_updates_losses_are_what_they_bound(
    step: Step, group: list[Scored]
) -> None:
    """With one update these equal each other: see `test_losses`."""
    settings: dict[str, Any] = {**FAST, "steps": 2, "passes": 2}
    found = {name: step(group, loss_type=name, **settings).gradients for name in ("dapo", "cispo")}
    assert difference(*found.values()) > 0.1 * largest(found["dapo"])


# Groups that teach nothing


@pytest.fixture
def with_dead(two_groups: list[Scored]) -> list[Scored]:
    """Two groups, of which the second is dead."""
    reward = two_groups[0].reward
    dead = [
        dataclasses.replace(
            item,
            reward=dataclasses.replace(
                reward, line_rewards=(0.0,) * len(item.trajectory.lines), outcome_reward=0.5
            ),
        )
        for item in two_groups[4:]
    ]
    return [*two_groups[:4], *dead]


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo", "luspo", "sapo"])
def test_with_rerolls_a_dead_group_leaves_the_loss_and_its_denominator(
    step: Step, with_dead: list[Scored], loss: str
) -> None:
    """Without them its tokens, or rows, still count, and a KL still pulls at them."""
    settings: dict[str, Any] = {"group_size": 4, "micro_batch_size": 8, "problems_per_step": 2}
    settings["loss_type"] = loss
    alone = step(with_dead[:4], loss_type=loss).gradients
    beside = step(with_dead, rerolls=1, **settings).gradients
    assert difference(alone, beside) < 1e-6
    counted = step(with_dead, **settings).gradients
    assert difference({name: grad / 2 for name, grad in alone.items()}, counted) < 1e-6


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_a_group_that_is_left_out_moves_no_column_on_tokens_in_the_loss(
    step: Step, with_dead: list[Scored], rows: int
) -> None:
    """It may have micro-batches of its own, of which TRL logs an entropy of 0."""
    settings: dict[str, Any] = {**FAST, "steps": 2, "kl_beta": 0.1, "group_size": 4}
    alone = step(with_dead[:4], **settings).rows[-1]
    settings |= {"problems_per_step": 2, "micro_batch_size": rows, "rerolls": 1}
    beside = step(with_dead, **settings).rows[-1]
    assert alone["kl"] > 0
    for name in ("entropy", "kl", "mean_kl_penalty", "mean_adv_loss"):
        assert beside[name] == pytest.approx(alone[name], rel=1e-2)
    lengths = [sum(item.trajectory.loss_mask) for item in with_dead]
    assert beside["completions/min_length"] == min(lengths)
    assert beside["completions/mean_length"] == sum(lengths) / 8


# Checkpoints


def test_a_run_goes_on_from_a_whole_rollout_bit_for_bit(
    model_folder: Path, tmp_path: Path, two_groups: list[Scored]
) -> None:
    """The second rollout is shuffled by the random state that the checkpoint holds."""
    settings: dict[str, Any] = {**FAST, "group_size": 4, "updates_per_rollout": 2, "passes": 2}
    whole = take_step(model_folder, tmp_path / "whole", two_groups, steps=8, **settings)
    folder = tmp_path / "parts"
    take_step(model_folder, folder, two_groups, steps=4, **settings)
    again = take_step(
        model_folder, folder, two_groups, steps=8, checkpoint="checkpoint-4", **settings
    )
    assert difference(whole.weights, again.weights) == 0


def test_checkpoints_are_between_rollouts() -> None:
    grpo = GRPOConfig(updates_per_rollout=3, passes=2, steps=60)
    assert checkpoint_every(Config(model="m", grpo=grpo)) == 54
    assert checkpoint_every(Config(model="m")) == 50


def test_a_run_that_would_end_within_a_rollout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^grpo\.steps = 70 would end within a rollout, which "):
        resolve(overrides=["grpo.passes=3"])


def test_one_process_trains_on_one_gpu_however_many_it_sees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else transformers would split batches over them, which TRL refuses."""
    made: Any = TRLConfig.__post_init__

    def sees_two(self: Any) -> None:
        made(self)
        self._n_gpu = 2

    monkeypatch.setattr(TRLConfig, "__post_init__", sees_two)
    arguments = trainer_arguments(
        Config(model="m"), precision=Precision(), folder=tmp_path, device="cpu", ranks=launched()
    )
    assert arguments.n_gpu == 1
