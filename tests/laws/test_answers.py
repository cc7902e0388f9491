"""What the interpreter answered, as a second loss of the update: worked out row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from repl_rl.records import Branch, Scored
from repl_rl.rollout.observations import Answers
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update.grpo import LineGRPOTrainer
from trainer_kit import Step, Tensors, difference, largest, model_of

pytestmark = [pytest.mark.slow, pytest.mark.train]

MASK = Answers(Encoding(PYTHON, ByteCodec()), setup=()).mask
WEIGHT = 0.5
NUM_ANSWERS = 2 + 4 + 10 + 2 + 14 + 2
"""Bytes that the group of `conftest.py` was answered, without prompts."""


def expected(trainer: LineGRPOTrainer, scored: Sequence[Scored], num: int) -> tuple[Tensors, float]:
    """(gradients, mean nats): cross entropy of the answers, row by row, unpadded; by `num`."""
    trained = model_of(trainer)
    model = type(trained)(trained.config)
    model.load_state_dict(trained.state_dict())
    total = torch.zeros(())
    for item in scored:
        row = item.trajectory
        ids, start = torch.tensor([row.prompt_ids + row.completion_ids]), len(row.prompt_ids)
        logps = torch.log_softmax(model(ids).logits[0, start - 1 : -1], -1)
        chosen = logps.gather(1, ids[0, start:, None])[:, 0]
        total = total - chosen.where(torch.tensor(MASK(item)), 0.0).sum()
    loss: Any = WEIGHT * total / num
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return gradients, total.item() / num


def plus(one: Tensors, other: Tensors) -> Tensors:
    return {name: one[name] + other[name] for name in one}


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "luspo"])
@pytest.mark.parametrize("micro_batch_size", [4, 1])
@pytest.mark.parametrize("takes_trees", [True, False])
def test_the_gradient_is_that_of_rl_and_of_the_mean_cross_entropy_of_all_answers(
    step: Step,
    group: list[Scored],
    loss_type: str,
    micro_batch_size: int,
    takes_trees: bool,
) -> None:
    """However rows are dealt to micro-batches, and whatever divides the other loss."""
    by_hand: list[tuple[Tensors, float]] = []

    def change(trainer: LineGRPOTrainer) -> None:
        trainer.takes_trees = takes_trees
        by_hand.append(expected(trainer, group, NUM_ANSWERS))

    settings: dict[str, Any] = {"loss_type": loss_type, "micro_batch_size": micro_batch_size}
    plain = step(group, **settings)
    found = step(group, change=change, answer_mask=MASK, observation_weight=WEIGHT, **settings)
    gradients, nats = by_hand[0]
    assert sum(sum(MASK(item)) for item in group) == NUM_ANSWERS
    assert difference(found.gradients, plus(plain.gradients, gradients)) < 1e-6
    assert largest(gradients) > 1e-2
    assert found.logs["line/surprise"] == pytest.approx(nats, rel=1e-5)


def test_with_a_weight_of_0_an_update_is_what_it_is_without_answers_bit_for_bit(
    step: Step, group: list[Scored]
) -> None:
    settings: dict[str, Any] = {"steps": 3, "learning_rate": 1e-3, "warmup_steps": 0}
    plain = step(group, **settings)
    found = step(group, answer_mask=MASK, observation_weight=0.0, **settings)
    assert found.weights.keys() == plain.weights.keys()
    assert all(torch.equal(found.weights[name], plain.weights[name]) for name in plain.weights)
    assert [row["loss"] for row in found.rows] == [row["loss"] for row in plain.rows]
    assert "line/surprise" not in found.logs


def test_answers_are_learned_where_rewards_teach_nothing(step: Step, group: list[Scored]) -> None:
    """Outcomes are equal. Only what follows an answered token is moved, and its surprise falls."""
    equal = [
        dataclasses.replace(item, reward=dataclasses.replace(item.reward, outcome_reward=1.0))
        for item in group
    ]
    found = step(
        equal,
        answer_mask=MASK,
        observation_weight=1.0,
        line_credit_weight=0.0,
        steps=5,
        learning_rate=3e-3,
        warmup_steps=0,
    )
    nats = [row["line/surprise"] for row in found.rows]
    assert nats == sorted(nats, reverse=True)
    assert nats[-1] < nats[0] - 0.5


def test_other_numbers_of_trl_do_not_see_answers(step: Step, group: list[Scored]) -> None:
    """Entropy, KL and clipping are of sampled tokens, whatever else goes through the head."""
    plain = step(group, kl_beta=0.1)
    found = step(group, kl_beta=0.1, answer_mask=MASK, observation_weight=WEIGHT)
    for name in ("entropy", "kl", "clip_ratio/region_mean", "completions/mean_length"):
        assert found.logs[name] == pytest.approx(plain.logs[name], abs=1e-6), name


def test_a_copied_answer_counts_once(step: Step, group: list[Scored]) -> None:
    """The second row is a branch of the first that begins with its first line and its answer."""
    first, *others = group
    branch = dataclasses.replace(
        first,
        trajectory=dataclasses.replace(
            first.trajectory,
            sibling_index=4,
            branch=Branch(sibling_index=0, num_lines=1, seed=1),
        ),
    )
    rows, found = [first, branch, *others[1:]], []

    def change(trainer: LineGRPOTrainer) -> None:
        found.append(expected(trainer, rows, 2 + 4 + 4 + 14 + 2))

    settings: dict[str, Any] = {"change": change, "answer_mask": MASK}
    one = step(rows, observation_weight=WEIGHT, **settings)
    assert one.logs["line/surprise"] == pytest.approx(found[0][1], rel=1e-5)


def test_a_token_that_is_never_sampled_is_no_answer(step: Step, group: list[Scored]) -> None:
    """`[` has no probability in the policy: the rest of its answer counts, and it does not."""
    bracket = frozenset({ord("[")})
    settings: dict[str, Any] = {"forbidden_ids": bracket, "observation_weight": WEIGHT}
    caught = step(group, answer_mask=MASK, **settings)

    def without(item: Scored) -> list[bool]:
        ids = item.trajectory.completion_ids
        return [is_it and id_ != ord("[") for is_it, id_ in zip(MASK(item), ids, strict=True)]

    same = step(group, answer_mask=without, **settings)
    assert caught.logs["line/surprise"] == same.logs["line/surprise"] < 10
    assert difference(caught.gradients, same.gradients) == 0.0
