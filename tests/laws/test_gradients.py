"""Tokens that the update learns from, checked on the trainer class that trains: one real step
each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fixture_types import Part
from repl_rl.records import Branch, OutcomeKind, Reward, Scored, Trajectory
from repl_rl.update.grpo import LineGRPOTrainer
from repl_rl.update.trainer import largest_divisor
from trainer_kit import Step, Tensors, difference, drop_env_mask, largest, model_of

pytestmark = [pytest.mark.slow, pytest.mark.train]

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OK = OutcomeKind.OK_OUTPUT
IMPOSSIBLE = ord("~")


def rewrite_injected_end(scored: Scored) -> Scored:
    """The trajectory with other ids after its last line."""
    trajectory = scored.trajectory
    end = trajectory.lines[-1].stop
    ids = trajectory.completion_ids[:end] + (ord("Z"),) * (len(trajectory.completion_ids) - end)
    changed = dataclasses.replace(trajectory, completion_ids=ids)
    return dataclasses.replace(scored, trajectory=changed)


# Who is trained


def trained_tokens(
    step: Step, scored: Sequence[Scored], change: Callable[[LineGRPOTrainer], None], **grpo: Any
) -> set[tuple[bool, ...]]:
    """Tokens of each row that moved the loss, (T) a row. TRL shuffles rows, so it is a set."""
    seen: list[torch.Tensor] = []

    def watch(trainer: LineGRPOTrainer) -> None:
        change(trainer)
        score = trainer._get_per_token_logps_and_entropies

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = score(*args, **kwargs)
            if result[0].requires_grad:
                result[0].retain_grad()
                seen.append(result[0])
            return result

        trainer._get_per_token_logps_and_entropies = watched  # type: ignore[method-assign]  # a double

    step(scored, change=watch, **grpo)
    (logprobs,) = seen
    assert logprobs.grad is not None
    return {tuple(row) for row in (logprobs.grad != 0).tolist()}


def sampled_tokens(scored: Sequence[Scored]) -> set[tuple[bool, ...]]:
    masks = [item.trajectory.loss_mask for item in scored]
    width = max(map(len, masks))
    return {(*mask, *[False] * (width - len(mask))) for mask in masks}


def leave_the_reference(trainer: LineGRPOTrainer) -> None:
    """Move the policy away from what it is pulled to."""
    with torch.no_grad():
        model_of(trainer).lm_head.weight.mul_(1.5)


@pytest.mark.parametrize("kl_beta", [0.0, 1.0])
def test_injected_tokens_get_exactly_no_gradient_and_sampled_ones_get_some(
    step: Step, group: list[Scored], kl_beta: float
) -> None:
    trained = trained_tokens(step, group, leave_the_reference, kl_beta=kl_beta)
    assert trained == sampled_tokens(group)


def test_without_the_mask_injected_tokens_get_a_gradient(step: Step, group: list[Scored]) -> None:
    """The check above can fail: a KL pulls at every token that is said to be sampled."""

    def change(trainer: LineGRPOTrainer) -> None:
        drop_env_mask(trainer)
        leave_the_reference(trainer)

    trained = trained_tokens(step, group, change, kl_beta=1.0)
    assert trained != sampled_tokens(group)
    assert {sum(row) for row in trained} == {len(x.trajectory.completion_ids) for x in group}


def test_the_ids_of_injected_tokens_at_the_end_do_not_matter(
    step: Step, group: list[Scored]
) -> None:
    rewritten = [rewrite_injected_end(item) for item in group]
    assert difference(step(group).gradients, step(rewritten).gradients) < 1e-7


def test_without_the_mask_the_update_would_be_another(step: Step, group: list[Scored]) -> None:
    """The check above can fail: the mask is what keeps injected tokens out."""
    plain = step(group).gradients
    assert difference(plain, step(group, change=drop_env_mask).gradients) > 1e-3 * largest(plain)


def test_without_the_mask_the_ids_at_the_end_would_matter(step: Step, group: list[Scored]) -> None:
    """With a KL, unmasked injected tokens are pulled to the reference: their ids count."""

    def both(trainer: LineGRPOTrainer) -> None:
        drop_env_mask(trainer)
        leave_the_reference(trainer)

    rewritten = [rewrite_injected_end(item) for item in group]
    one, other = (step(scored, kl_beta=1.0, change=both) for scored in (group, rewritten))
    assert difference(one.gradients, other.gradients) > 1e-4


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo"])
def test_a_group_behind_a_prefix_learns_as_if_its_prompt_held_those_lines(
    step: Step, make_trajectory: MakeTrajectory, make_scored: MakeScored, loss: str
) -> None:
    """Nothing is learned from lines that are copied, and no divisor counts them."""
    behind = Branch(sibling_index=None, num_lines=1, seed=0)
    tails: list[tuple[list[Part], float]] = [
        ([(" f(2)\n", OK, "[3]\n>>>"), (" b\n", OK, None)], 1.0),
        ([(" q\n", OK, None)], 0.0),
        ([(" a longer line\n", OK, "1\n>>>"), (" c\n", OK, None)], 0.0),
    ]
    begun, whole = [], []
    for at, (lines, outcome) in enumerate(tails):
        copied = make_trajectory([(" a+1\n", OK, "2\n>>>"), *lines], sibling_index=at)
        begun.append(make_scored(dataclasses.replace(copied, branch=behind), outcome))
        prompt = ">>> a+1\n2\n>>>"
        whole.append(make_scored(make_trajectory(lines, prompt=prompt, sibling_index=at), outcome))
    one = step(begun, loss_type=loss, credit="outcome").gradients
    other = step(whole, loss_type=loss, credit="outcome").gradients
    assert difference(one, other) < 1e-5 * largest(other)


# What is learned


def test_equal_returns_give_no_gradient(step: Step, group: list[Scored]) -> None:
    equal = [
        dataclasses.replace(
            item,
            reward=dataclasses.replace(
                item.reward,
                outcome_reward=0.8,
                line_rewards=(-0.1, *[0.0] * (len(item.trajectory.lines) - 1)),
            ),
        )
        for item in group
    ]
    assert largest(step(equal).gradients) == 0.0


def test_unscorable_trajectories_alone_give_no_gradient(step: Step, group: list[Scored]) -> None:
    unscorable = [
        dataclasses.replace(item, reward=dataclasses.replace(item.reward, outcome_reward=None))
        for item in group
    ]
    assert largest(step(unscorable).gradients) == 0.0


@pytest.mark.parametrize("loss", ["dapo", "grpo", "bnpo"])
def test_an_unscorable_trajectory_has_no_part_in_the_update(
    step: Step, group: list[Scored], loss: str
) -> None:
    """Neither in the divisor, nor in the divergence."""
    last = dataclasses.replace(group[3].reward, outcome_reward=None)
    scored = [*group[:3], dataclasses.replace(group[3], reward=last)]
    settings: dict[str, Any] = {"loss_type": loss, "kl_beta": 0.1, "change": leave_the_reference}
    beside = step(scored, group_size=4, **settings).gradients
    alone = step(group[:3], group_size=3, **settings).gradients
    assert difference(beside, alone) < 1e-5 * largest(alone)


def test_the_credit_of_lines_changes_the_update(step: Step, group: list[Scored]) -> None:
    plain = step(group, line_credit_weight=0.0).gradients
    assert difference(plain, step(group, line_credit_weight=0.5).gradients) > 1e-4


def test_no_forward_pass_sees_padding_where_rows_are_few(step: Step, group: list[Scored]) -> None:
    """There are as many parts as rows: no token is forwarded that no trajectory holds."""
    widths: list[int] = []

    def watch(trainer: LineGRPOTrainer) -> None:
        trainer.takes_trees = False
        model_of(trainer).base_model.register_forward_pre_hook(
            lambda _module, _args, kwargs: widths.append(kwargs["input_ids"].numel()),
            with_kwargs=True,
        )

    step(group, change=watch)
    trajectories = [item.trajectory for item in group]
    assert widths == sorted(len(t.prompt_ids) + len(t.completion_ids) for t in trajectories)


def test_the_sampling_policy_is_the_policy_that_is_updated(step: Step, group: list[Scored]) -> None:
    """Nothing is clipped: the importance ratio is exactly 1."""
    logs = step(group, micro_batch_size=1).logs
    assert logs["clip_ratio/region_mean"] == 0.0


# The reference


@pytest.fixture
def pair(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Two short siblings; the first is answered by `~`, which nothing else holds."""
    parts = [[("a\n", OK, "~>"), ("b\n", OK, None)], [("c\n", OK, "d>"), ("e\n", OK, None)]]
    return [
        make_scored(make_trajectory(lines, prompt=">", sibling_index=i), float(i))
        for i, lines in enumerate(parts)
    ]


def make_impossible(trainer: LineGRPOTrainer, scored: Sequence[Scored]) -> None:
    """Give `~` the logit -300 where it was injected, and 0 everywhere else."""
    model, hidden = model_of(trainer), []
    logits: list[float] = []
    for item in scored:
        trajectory = item.trajectory
        ids = trajectory.prompt_ids + trajectory.completion_ids
        with torch.no_grad():
            hidden.append(model.model(torch.tensor([ids])).last_hidden_state[0, :-1])
        logits.extend(-300.0 if token == IMPOSSIBLE else 0.0 for token in ids[1:])
    solved = torch.linalg.lstsq(torch.cat(hidden), torch.tensor(logits)[:, None], driver="gelsd")
    with torch.no_grad():
        model_of(trainer).lm_head.weight[IMPOSSIBLE] = solved.solution[:, 0]


@pytest.mark.parametrize("is_corrected", [True, False])
def test_an_injected_token_that_is_next_to_impossible_leaves_the_loss_finite(
    step: Step, pair: list[Scored], is_corrected: bool
) -> None:
    """With TRL's importance correction of the KL, and without."""

    def change(trainer: LineGRPOTrainer) -> None:
        make_impossible(trainer, pair)
        args: Any = trainer.args  # a GRPOConfig
        args.use_bias_correction_kl = is_corrected

    caught = step(pair, kl_beta=0.1, change=change)
    assert math.isfinite(caught.logs["loss"])
    assert math.isfinite(caught.logs["kl"])
    assert math.isfinite(largest(caught.gradients))


def test_scored_as_a_sampled_one_that_token_would_break_the_loss(
    step: Step, pair: list[Scored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above can fail: the KL of such a token is infinite, and inf * 0 is no number."""
    monkeypatch.setattr("repl_rl.update.forward.on_sampled", lambda model, _: model)
    caught = step(pair, kl_beta=0.1, change=lambda trainer: make_impossible(trainer, pair))
    assert caught.logs["kl"] is None  # transformers logs a number that is none as None


@pytest.mark.parametrize(
    ("number", "at_most", "expected"), [(96, 40, 32), (8, 8, 8), (7, 3, 1), (12, 100, 12)]
)
def test_the_micro_batch_divides_the_batch(number: int, at_most: int, expected: int) -> None:
    assert largest_divisor(number, at_most=at_most) == expected


# What moves


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [(torch.float32, 0.99, 1.0), (torch.bfloat16, 0.0, 0.2)]
)
def test_a_small_step_moves_single_weights_and_hardly_any_half_ones(
    step: Step, group: list[Scored], dtype: torch.dtype, least: float, most: float
) -> None:
    """AdamW in the trainer; random weights are normal with 0.02."""
    caught = step(
        group,
        learning_rate=1e-6,
        warmup_steps=0,
        change=lambda trainer: model_of(trainer).to(dtype),
    )
    assert least <= caught.logs["update/moved_share"] <= most


def test_a_step_of_no_length_moves_nothing(step: Step, group: list[Scored]) -> None:
    assert step(group, learning_rate=0.0).logs["update/moved_share"] == 0.0


# The divergence


def kl_gradients(trainer: LineGRPOTrainer, scored: Sequence[Scored], *, weighed: bool) -> Tensors:
    """Gradients of 0.1 x k3, weighed by the ratio or not, over all sampled tokens: row by row,
    unpadded."""
    trained = model_of(trainer)
    reference: Any = trainer.ref_model
    model = type(trained)(trained.config)
    model.load_state_dict(trained.state_dict())
    total = torch.zeros(())
    for item in scored:
        row = item.trajectory
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        start, mask = len(row.prompt_ids), torch.tensor(row.loss_mask)
        ours, theirs = (
            torch.log_softmax(one(ids).logits[0, start - 1 : -1], -1)
            .gather(1, ids[0, start:, None])[:, 0]
            .where(mask, 0.0)
            for one in (model, reference)
        )
        gap = theirs.detach() - ours
        k3 = gap.exp() - gap - 1
        total = total + (k3 * (ours - ours.detach()).exp() if weighed else k3).sum()
    loss: Any = 0.1 * total / sum(sum(x.trajectory.loss_mask) for x in scored)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_the_divergence_is_k3_weighed_by_the_ratio(step: Step, group: list[Scored]) -> None:
    """Advantages of 0 leave the divergence alone; without the ratio the gradient is another."""
    equal = [
        dataclasses.replace(
            item,
            reward=Reward(outcome_reward=0.8, line_rewards=(0.0,) * len(item.trajectory.lines)),
        )
        for item in group
    ]
    expected: dict[bool, Tensors] = {}

    def change(trainer: LineGRPOTrainer) -> None:
        leave_the_reference(trainer)
        for weighed in (True, False):
            expected[weighed] = kl_gradients(trainer, equal, weighed=weighed)

    found = step(equal, kl_beta=0.1, change=change).gradients
    assert difference(found, expected[True]) < 1e-4 * largest(found)
    assert difference(found, expected[False]) > 1e-2 * largest(found)


# What is said of it


def test_no_column_tells_of_ends_that_trajectories_do_not_have(
    step: Step, group: list[Scored]
) -> None:
    """To TRL a completion ends in an end of sequence or is cut; here it ends in neither."""
    logs = step(group).logs
    assert [name for name in logs if "terminated" in name or "clipped_ratio" in name] == []
    assert logs["completions/max_length"] == max(sum(x.trajectory.loss_mask) for x in group)
