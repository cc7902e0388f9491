"""Weights of lines where engine and trainer disagree: by hand, and against TRL's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, Loss
from repl_rl.credit.advantages import (
    advantage_rows,
    divergence,
    importance_metrics,
    largest_gap,
    line_ratios,
    load_credit,
    weigh_lines,
)
from repl_rl.engines.base import engine_kind
from repl_rl.errors import ConfigError
from repl_rl.models.precision import Precision
from repl_rl.records import Branch, OutcomeKind, Scored, Thought, Trajectory
from repl_rl.update.grpo import LineGRPOTrainer, pad_right
from repl_rl.update.trainer import weighs_lines
from trainer_kit import Step, difference, largest, model_of

pytestmark = pytest.mark.slow

MakeTrajectory = Callable[..., Trajectory]
OK = OutcomeKind.OK_OUTPUT
SINGLE, HALF = torch.float32, torch.bfloat16
LOSSES = [name for name in get_args(Loss) if name != "vespo"]


@pytest.fixture
def two_lines(make_trajectory: MakeTrajectory) -> Trajectory:
    """Lines at [0, 2) and [4, 7) of 9 tokens; the engine found every sampled one at -1."""
    return make_trajectory([("a\n", OK, "1>"), ("bc\n", OK, "2>")])


#              a     \n    1      >     b     c     \n    2      >
TRAINER_T = (-0.9, -0.8, -50.0, -60.0, -1.5, -1.0, -1.2, -70.0, 4.0)


def test_the_ratio_of_a_line_is_of_its_sampled_tokens_alone(two_lines: Trajectory) -> None:
    expected = [math.exp(0.1 + 0.2), math.exp(-0.5 + 0.0 - 0.2)]
    assert line_ratios(two_lines, TRAINER_T) == pytest.approx(expected, abs=1e-12)


def test_a_line_that_both_find_as_likely_weighs_exactly_one(two_lines: Trajectory) -> None:
    assert line_ratios(two_lines, two_lines.logprobs) == [1.0, 1.0]


def test_a_ratio_beyond_all_numbers_is_a_large_one(two_lines: Trajectory) -> None:
    (first, second) = line_ratios(two_lines, [800.0] * 4 + [-800.0] * 5)
    assert (first > 1e40, math.isfinite(first), second) == (True, True, 0.0)


def test_advantages_are_multiplied_line_by_line_up_to_the_cap(two_lines: Trajectory) -> None:
    advantages_T = [0.5, 0.5, 0.0, 0.0, -1.0, -1.0, -1.0, 0.0, 0.0]
    weighed = weigh_lines(two_lines, advantages_T, [3.0, 0.25], cap=2.0)
    assert weighed == [1.0, 1.0, 0.0, 0.0, -0.25, -0.25, -0.25, 0.0, 0.0]


def test_the_largest_gap_is_that_of_a_sampled_token(two_lines: Trajectory) -> None:
    assert largest_gap(two_lines, TRAINER_T) == pytest.approx(0.5)


def test_a_line_that_is_a_copy_has_no_ratio_and_no_gap(two_lines: Trajectory) -> None:
    """The trainer has no log-probability of it: 0 stands there."""
    branch = replace(two_lines, branch=Branch(sibling_index=0, num_lines=1, seed=0))
    trainer_T = (0.0,) * 4 + TRAINER_T[4:]
    assert line_ratios(branch, trainer_T) == pytest.approx([math.exp(-0.7)])
    assert largest_gap(branch, trainer_T) == pytest.approx(0.5)
    assert divergence(branch, branch.logprobs) == (0.0, 3)
    advantages_T = [0.0] * 4 + [-1.0] * 3 + [0.0] * 2
    assert weigh_lines(branch, advantages_T, [0.5], cap=2.0) == [0.0] * 4 + [-0.5] * 3 + [0.0] * 2


def test_one_that_ended_where_it_left_another_has_neither(two_lines: Trajectory) -> None:
    branch = replace(two_lines, branch=Branch(sibling_index=0, num_lines=2, seed=0))
    assert line_ratios(branch, TRAINER_T) == []
    assert (largest_gap(branch, TRAINER_T), divergence(branch, TRAINER_T)) == (0.0, (0.0, 0))


def test_metrics_tell_how_far_the_two_are_apart() -> None:
    assert importance_metrics([0.5, 1.0, 2.0, 4.5], [0.25, 0.75], cap=2.0) == {
        "importance/ratio_mean": 2.0,
        "importance/ratio_min": 0.5,
        "importance/ratio_max": 4.5,
        "importance/truncated": 0.25,
        "importance/largest_gap": 0.75,
    }


# When lines are weighed


@pytest.mark.parametrize(
    ("importance", "engine", "update", "sampling", "is_weighed"),
    [
        ("auto", "hf", SINGLE, SINGLE, False),
        ("auto", "hf", HALF, HALF, True),
        ("auto", "hf", SINGLE, HALF, True),
        ("auto", "vllm", SINGLE, SINGLE, True),
        ("auto", "vllm-server", HALF, SINGLE, True),
        ("line", "hf", SINGLE, SINGLE, True),
        ("off", "vllm", HALF, HALF, False),
    ],
)
def test_lines_are_weighed_unless_the_engine_computes_as_the_trainer_does(
    importance: Any, engine: str, update: torch.dtype, sampling: torch.dtype, is_weighed: bool
) -> None:
    is_shared = engine_kind(engine).shares_weights
    held = Precision(update=update, sampling=sampling, is_shared=is_shared)
    assert weighs_lines(GRPOConfig(importance=importance), held) is is_weighed


def test_vespo_goes_without() -> None:
    grpo = GRPOConfig(loss_type="vespo")
    assert weighs_lines(grpo, Precision(is_shared=False)) is False
    with pytest.raises(ConfigError, match=r"vespo.*give grpo\.importance = 'off'"):
        Config(grpo=replace(grpo, importance="line"))


# In the update


def score(trainer: LineGRPOTrainer, trajectory: Trajectory) -> list[float]:
    """Log-probabilities of a completion under the trainer's model, on its own."""
    ids = torch.tensor([trajectory.prompt_ids + trajectory.completion_ids])
    with torch.no_grad():
        logps = torch.log_softmax(model_of(trainer)(ids).logits[0, :-1], dim=-1)
    start = len(trajectory.prompt_ids) - 1
    return logps[start:].gather(1, ids[0, start + 1 :, None])[:, 0].tolist()


def sampled_with(
    trainer: LineGRPOTrainer, scored: Sequence[Scored], shift: Callable[[int, int], float]
) -> list[Scored]:
    """Trajectories of an engine that finds line k of row i likelier by `shift(i, k)` nats."""
    shifted = []
    for i, item in enumerate(scored):
        logprobs = [0.0] * len(item.trajectory.completion_ids)
        trainer_T = score(trainer, item.trajectory)
        for line in item.trajectory.lines:
            logprobs[line.start : line.stop] = trainer_T[line.start : line.stop]
            logprobs[line.start] += shift(i, line.index)
        trajectory = replace(item.trajectory, logprobs=tuple(logprobs))
        shifted.append(replace(item, trajectory=trajectory))
    return shifted


def shift(i: int, k: int) -> float:
    """Ratios of e^0.5, 1, e^-0.5 and e, of which the cap of 2 cuts the last."""
    return (-0.5, 0.0, 0.5, -1.0)[(i + k) % 4]


def engine_of(shift: Callable[[int, int], float]) -> Callable[[LineGRPOTrainer], None]:
    """Have the trainer's rows come from such an engine."""

    def change(trainer: LineGRPOTrainer) -> None:
        scored = sampled_with(trainer, trainer._roll_out(["0"], 0), shift)
        trainer._roll_out = lambda prompts, version: scored

    return change


def weights_by_hand(scored: Sequence[Scored]) -> torch.Tensor:
    """(B, T): min(2, exp(-shift)) at the tokens of lines, 1 elsewhere."""
    rows = []
    for i, item in enumerate(scored):
        row = [1.0] * len(item.trajectory.completion_ids)
        for line in item.trajectory.lines:
            weight = min(2.0, math.exp(-shift(i, line.index)))
            row[line.start : line.stop] = [weight] * (line.stop - line.start)
        rows.append([w - 1.0 for w in row])
    return pad_right(rows, width=max(map(len, rows))) + 1.0


def keep_outputs(trainer: LineGRPOTrainer, kept: list[dict[str, Any]]) -> None:
    generate = trainer._generate_and_score_completions

    def keeping(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        kept.append(generate(inputs))
        return kept[-1]

    trainer._generate_and_score_completions = keeping  # type: ignore[method-assign]  # a double


@pytest.mark.train
def test_the_update_trains_a_thought_by_the_outcome_of_its_trajectory(
    step: Step, group: list[Scored]
) -> None:
    """Each row begins with a thought of one token; line rewards are none of its business."""
    kept: list[dict[str, Any]] = []
    thoughtful = [replace(item, trajectory=after_a_thought(item.trajectory)) for item in group]
    step(thoughtful, change=lambda trainer: keep_outputs(trainer, kept), scale="none")
    outcomes = [item.reward.outcome_reward or 0.0 for item in group]
    mean = sum(outcomes) / len(outcomes)
    assert kept[0]["advantages"][:, 0].tolist() == pytest.approx([one - mean for one in outcomes])
    assert any(outcomes)


def after_a_thought(trajectory: Trajectory) -> Trajectory:
    lines = [replace(one, start=one.start + 1, stop=one.stop + 1) for one in trajectory.lines]
    return replace(
        trajectory,
        completion_ids=(trajectory.completion_ids[0], *trajectory.completion_ids),
        loss_mask=(True, *trajectory.loss_mask),
        logprobs=(-1.0, *trajectory.logprobs),
        lines=tuple(lines),
        thought=Thought(source="a", stop=1, shown=""),
    )


@pytest.mark.train
def test_advantages_are_folded_by_line(step: Step, group: list[Scored]) -> None:
    kept: list[dict[str, Any]] = []

    def change(trainer: LineGRPOTrainer) -> None:
        engine_of(shift)(trainer)
        keep_outputs(trainer, kept)

    logs = step(group, change=change, importance="line").logs
    rows = advantage_rows(group, load_credit(GRPOConfig()))
    plain = pad_right(rows, width=max(map(len, rows)))
    expected = plain * weights_by_hand(group)
    torch.testing.assert_close(kept[0]["advantages"], expected, atol=1e-5, rtol=0)
    # Of the seven lines, the third of row 1 and the one of row 3 have the ratio e.
    assert logs["importance/ratio_max"] == pytest.approx(math.e, abs=1e-4)
    assert logs["importance/ratio_min"] == pytest.approx(math.exp(-0.5), abs=1e-4)
    assert logs["importance/truncated"] == pytest.approx(2 / 7)
    assert logs["importance/largest_gap"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.train
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_an_engine_that_agrees_weighs_every_line_as_one(
    step: Step, group: list[Scored], dropout: float
) -> None:
    """The model may be trained with dropout, too: engines drop nothing."""

    def change(trainer: LineGRPOTrainer) -> None:
        engine_of(lambda i, k: 0.0)(trainer)
        for layer in model_of(trainer).model.layers:
            layer.self_attn.attention_dropout = dropout

    logs = step(group, change=change, importance="line").logs
    assert logs["importance/ratio_min"] == pytest.approx(1.0, abs=1e-6)
    assert logs["importance/ratio_max"] == pytest.approx(1.0, abs=1e-6)
    assert logs["importance/truncated"] == 0.0


@pytest.mark.train
def test_without_weights_it_does_not_matter_what_the_engine_said(
    step: Step, group: list[Scored]
) -> None:
    """Bit for bit, and with no forward more than there are without it."""
    forwards: list[int] = []

    def change(trainer: LineGRPOTrainer) -> None:
        engine_of(shift)(trainer)
        trainer.takes_trees = False
        model_of(trainer).base_model.register_forward_pre_hook(lambda *_: forwards.append(1))

    plain, shifted = step(group), step(group, change=change)
    assert all(torch.equal(plain.weights[name], shifted.weights[name]) for name in plain.weights)
    assert len(forwards) == LineGRPOTrainer.length_parts
    assert not any(name.startswith("importance/") for name in shifted.logs)


def old_policy(trainer: LineGRPOTrainer) -> None:
    """Have ratios to an older policy on both sides of the clip range: all its tokens at -5.5."""
    generate = trainer._generate_and_score_completions

    def older(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        out = generate(inputs)
        return {**out, "old_per_token_logps": torch.full(out["completion_ids"].shape, -5.5)}

    trainer._generate_and_score_completions = older  # type: ignore[method-assign]  # a double


def weigh_in_the_loss(trainer: LineGRPOTrainer, weights: torch.Tensor) -> None:
    """Have TRL multiply every token's term of the loss, as it does for its own use of vLLM."""
    generate, loss = trainer._generate_and_score_completions, trainer._compute_loss

    def with_weights(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        return {**generate(inputs), "importance_sampling_ratio": weights}

    def weighed(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        trainer.use_vllm = True
        try:
            return loss(model, inputs)
        finally:
            trainer.use_vllm = False

    trainer._generate_and_score_completions = with_weights  # type: ignore[method-assign]  # a double
    trainer._compute_loss = weighed  # type: ignore[method-assign]  # a double
    trainer.vllm_importance_sampling_correction = True


@pytest.mark.train
@pytest.mark.parametrize("kl_beta", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", LOSSES)
def test_weighing_advantages_is_weighing_the_loss(
    step: Step, group: list[Scored], loss_type: str, kl_beta: float
) -> None:
    """Both are alike where ratios are clipped on both sides, too."""

    def ours(trainer: LineGRPOTrainer) -> None:
        engine_of(shift)(trainer)
        old_policy(trainer)

    def theirs(trainer: LineGRPOTrainer) -> None:
        old_policy(trainer)
        weigh_in_the_loss(trainer, weights_by_hand(group))

    settings = {"loss_type": loss_type, "kl_beta": kl_beta, "micro_batch_size": 2}
    folded = step(group, change=ours, importance="line", **settings)
    weighed = step(group, change=theirs, importance="off", **settings)
    plain = step(group, change=old_policy, importance="off", **settings)
    if "clip_ratio/low_mean" in folded.logs:
        assert min(folded.logs["clip_ratio/low_mean"], folded.logs["clip_ratio/high_mean"]) > 0
    assert folded.logs["loss"] == pytest.approx(weighed.logs["loss"], abs=1e-5)
    scale = largest(weighed.gradients)
    assert difference(folded.gradients, weighed.gradients) < 1e-5 * scale
    assert difference(folded.gradients, plain.gradients) > 1e-2 * scale


@pytest.mark.train
def test_a_line_that_siblings_share_is_no_disagreement(
    step: Step, make_trajectory: MakeTrajectory, make_scored: Callable[..., Scored]
) -> None:
    """The trainer scores it for one of them, and the other has it with the engine's scores."""
    shared = (" a+1\n", OK, "2\n>>>")
    branch = Branch(sibling_index=0, num_lines=1, seed=3)
    first = make_trajectory([shared, (" f(2)\n", OK, "[3]\n>>>")], sibling_index=0)
    second = make_trajectory([shared, (" g\n", OK, ">>>")], sibling_index=1)
    third = make_trajectory([(" b\n", OK, None)], sibling_index=2)
    group = [
        make_scored(first, 1.0, (0.0, 0.0)),
        make_scored(replace(second, branch=branch), 0.0, (0.0, 0.0)),
        *[make_scored(third, 0.0, (0.0,))] * 2,
    ]
    tree: dict[str, Any] = {"credit": "tree", "branching": (2, 2)}
    logs = step(group, change=engine_of(lambda *_: 0.0), importance="line", **tree).logs
    assert logs["importance/ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert logs["importance/ratio_min"] == pytest.approx(1.0, abs=1e-4)
    assert logs["importance/largest_gap"] < 1e-4
    assert logs["inf_kld"] < 1e-6
