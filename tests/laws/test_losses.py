"""Every loss of TRL takes one advantage per token; equal ones make it TRL's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import Qwen3ForCausalLM
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.config.sections import Loss
from repl_rl.records import Scored
from repl_rl.update.grpo import LineGRPOTrainer, outcome_reward
from trainer_kit import Catch, Step, Tensors, byte_tokenizer, difference, largest

pytestmark = [pytest.mark.slow, pytest.mark.train]

LOSSES: tuple[str, ...] = get_args(Loss)
PLAIN = {"line_credit_weight": 0.0}


def step_of_trl(trainer: LineGRPOTrainer, folder: Path) -> Catch:
    """Step of TRL's own trainer with the rows and the arguments of `trainer`."""
    catch = Catch()
    args: Any = trainer.args  # a GRPOConfig
    rows = trainer.collect(["0"] * len(trainer.scored))
    GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(folder),
        args=args,
        reward_funcs=[outcome_reward],
        rollout_func=lambda prompts, _: rows,
        processing_class=byte_tokenizer(),
        train_dataset=trainer.train_dataset,
        callbacks=[catch],
    ).train()
    return catch


Pair = Callable[..., tuple[Catch, Catch]]


@pytest.fixture
def pair(step: Step, model_folder: Path) -> Pair:
    """`pair(scored, length_parts=..., **grpo)`: a step of ours and one of TRL's."""

    def run(
        scored: Sequence[Scored], *, length_parts: int, takes_trees: bool = True, **grpo: Any
    ) -> tuple[Catch, Catch]:
        made: list[LineGRPOTrainer] = []

        def change(trainer: LineGRPOTrainer) -> None:
            trainer.length_parts, trainer.takes_trees = length_parts, takes_trees
            made.append(trainer)

        ours = step(scored, change=change, **grpo)
        return ours, step_of_trl(made[0], model_folder)

    return run


def with_outcomes(group: Sequence[Scored], *outcomes: float) -> list[Scored]:
    return [
        dataclasses.replace(item, reward=dataclasses.replace(item.reward, outcome_reward=outcome))
        for item, outcome in zip(group, outcomes, strict=True)
    ]


def with_prompts(group: Sequence[Scored], *lengths: int) -> list[Scored]:
    return [
        dataclasses.replace(
            item,
            trajectory=dataclasses.replace(item.trajectory, prompt_ids=tuple(b">" * length)),
        )
        for item, length in zip(group, lengths, strict=True)
    ]


def is_equal(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Without line credit


@pytest.mark.parametrize("loss_type", LOSSES)
def test_without_line_credit_three_steps_are_those_of_trl_bit_for_bit(
    pair: Pair, group: list[Scored], loss_type: str
) -> None:
    """With rows left as they come, and outcomes whose advantages need no rounding."""
    ours, stock = pair(
        with_outcomes(group, 1.0, 0.0, 0.5, 0.0),
        length_parts=1,
        loss_type=loss_type,
        micro_batch_size=2,
        steps=3,
        warmup_steps=0,
        learning_rate=1e-3,
        **PLAIN,
    )
    assert is_equal(ours.weights, stock.weights)
    assert ours.logs["loss"] == stock.logs["loss"]
    assert largest(stock.gradients) > 1e-3


@pytest.mark.parametrize(
    ("loss_type", "credit"),
    [*((loss_type, PLAIN) for loss_type in LOSSES), ("dapo", {"credit": "outcome"})],
)
def test_without_line_credit_the_update_is_that_of_trl(
    pair: Pair, group: list[Scored], loss_type: str, credit: dict[str, Any]
) -> None:
    """Rows of like length are forwarded together, so sums are taken in another order: 1e-6.

    The same goes for TRL's mean and deviation, taken in float32 and here in double.
    """
    ours, stock = pair(group, length_parts=4, loss_type=loss_type, **credit)
    assert ours.logs["loss"] == pytest.approx(stock.logs["loss"], abs=1e-6)
    assert difference(ours.gradients, stock.gradients) < 1e-6 * max(1.0, largest(stock.gradients))
    assert largest(stock.gradients) > 1e-3


@pytest.mark.parametrize("loss_type", ["dapo", "sapo"])
def test_rows_of_a_model_that_takes_no_tree_make_that_update_too(
    pair: Pair, group: list[Scored], loss_type: str
) -> None:
    ours, stock = pair(group, length_parts=4, takes_trees=False, loss_type=loss_type, **PLAIN)
    assert ours.logs["loss"] == pytest.approx(stock.logs["loss"], abs=1e-6)
    assert difference(ours.gradients, stock.gradients) < 1e-6


def test_where_prompts_differ_in_length_positions_are_all_that_differs(
    pair: Pair, group: list[Scored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL counts padding on the left: to rotary models the same sequence, in other bits."""
    scored = with_prompts(with_outcomes(group, 1.0, 0.0, 0.5, 0.0), 3, 1, 7, 2)
    ours, stock = pair(scored, length_parts=1, **PLAIN)
    assert 0.0 < difference(ours.gradients, stock.gradients) < 1e-6
    monkeypatch.setattr("repl_rl.update.forward.partial", lambda model, **_: model)
    ours, stock = pair(scored, length_parts=1, **PLAIN)
    assert is_equal(ours.weights, stock.weights)


# What a loss divides by


@pytest.mark.parametrize("loss_type", [name for name in LOSSES if name != "bnpo"])
@pytest.mark.parametrize("micro_batch_size", [1, 2])
def test_the_update_does_not_depend_on_the_micro_batch(
    step: Step, group: list[Scored], loss_type: str, micro_batch_size: int
) -> None:
    whole = step(group, loss_type=loss_type).gradients
    parts = step(group, loss_type=loss_type, micro_batch_size=micro_batch_size).gradients
    assert difference(whole, parts) < 1e-6 * max(1.0, largest(whole))


def test_under_bnpo_it_does(step: Step, group: list[Scored]) -> None:
    whole = step(group, loss_type="bnpo").gradients
    parts = step(group, loss_type="bnpo", micro_batch_size=1).gradients
    assert difference(whole, parts) > 0.01 * largest(whole)


@pytest.mark.parametrize(
    ("one", "other", "factor"),
    [("cispo", "dapo", 1), ("vespo", "dapo", 1), ("sapo", "grpo", 1), ("luspo", "dr_grpo", 64)],
)
def test_on_the_policy_that_sampled_losses_differ_by_what_they_divide_by(
    step: Step, group: list[Scored], one: str, other: str, factor: int
) -> None:
    """64 is sampling.max_tokens: what dr_grpo divides by."""
    gradients = step(group, loss_type=one).gradients
    expected = {
        name: gradient * factor for name, gradient in step(group, loss_type=other).gradients.items()
    }
    assert difference(gradients, expected) < 1e-6 * max(1.0, largest(expected))


def test_a_ratio_of_whole_sequences_would_spread_the_credit_of_lines(
    step: Step, group: list[Scored]
) -> None:
    """Reason why there is no GSPO: each token would get its trajectory's mean advantage."""

    def by_sequence(trainer: LineGRPOTrainer) -> None:
        trainer.importance_sampling_level = "sequence"

    def flatten(trainer: LineGRPOTrainer) -> None:
        rows = trainer._advantage_rows

        def means() -> list[list[float]]:
            masks = [item.trajectory.loss_mask for item in trainer.scored]
            return [
                [sum(row) / sum(mask)] * len(row) for row, mask in zip(rows(), masks, strict=True)
            ]

        trainer._advantage_rows = means  # type: ignore[method-assign]  # a double

    by_line = step(group, loss_type="grpo").gradients
    of_gspo = step(group, loss_type="grpo", change=by_sequence).gradients
    of_means = step(group, loss_type="grpo", change=flatten).gradients
    assert difference(of_gspo, of_means) < 1e-6
    assert difference(of_gspo, by_line) > 1e-3
