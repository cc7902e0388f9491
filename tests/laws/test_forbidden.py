"""Ids that are never sampled have no probability in the update: the policy is the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.advantages import advantage_rows, load_credit
from repl_rl.errors import ConfigError
from repl_rl.models import loading
from repl_rl.models.policy import check_trainable, forbidding_bias, head_biased
from repl_rl.models.precision import Precision
from repl_rl.records import Scored, Trajectory
from trainer_kit import Step, Tensors, difference, random_qwen

FORBIDDEN = frozenset({0, *b"[]", *range(123, 256)})
"""Most of the vocabulary; interpreters may write it, and the group's do."""
TEMPERATURE = 0.7
SETTINGS: dict[str, Any] = {"temperature": TEMPERATURE, "forbidden_ids": FORBIDDEN}


def logprobs(model: Any, trajectory: Trajectory) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability (T,) of each token of a completion, and the entropy (T,) of its place."""
    ids = torch.tensor(trajectory.prompt_ids + trajectory.completion_ids)
    logits = model(ids[None]).logits[0, :-1]
    logits[:, sorted(FORBIDDEN)] = -torch.inf
    scores = torch.log_softmax(logits / TEMPERATURE, -1)
    entropy = -(scores.exp() * scores.clamp_min(-1e9)).sum(-1)
    start = len(trajectory.prompt_ids) - 1
    return scores.gather(1, ids[1:, None])[start:, 0], entropy[start:]


@pytest.fixture
def model(model_folder: Path) -> Any:
    return type(random_qwen()).from_pretrained(model_folder)


@pytest.fixture
def sampled(model: Any, group: list[Scored]) -> list[Scored]:
    """The group, as an engine would give it that forbids the same ids."""

    def told(trajectory: Trajectory) -> Trajectory:
        pairs = zip(logprobs(model, trajectory)[0].tolist(), trajectory.loss_mask, strict=True)
        return replace(trajectory, logprobs=tuple(x if mask else 0.0 for x, mask in pairs))

    with torch.no_grad():
        return [replace(item, trajectory=told(item.trajectory)) for item in group]


def expected_gradients(model: Any, scored: Sequence[Scored]) -> Tensors:
    """Gradients of minus the mean of advantage times log-probability over all sampled tokens."""
    terms: list[torch.Tensor] = []
    rows = advantage_rows(scored, load_credit(GRPOConfig()))
    for item, row in zip(scored, rows, strict=True):
        mask = torch.tensor(item.trajectory.loss_mask)
        found, _ = logprobs(model, item.trajectory)
        terms.append(-torch.tensor(row)[mask] * found[mask])
    loss: Any = torch.cat(terms).mean()
    loss.backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_the_update_climbs_what_is_left_of_the_policy(
    step: Step, model: Any, sampled: list[Scored], loss: str
) -> None:
    catch = step(sampled, loss_type=loss, **SETTINGS)
    assert difference(catch.gradients, expected_gradients(model, sampled)) < 1e-6


def test_the_head_learns_nothing_of_forbidden_ids(step: Step, sampled: list[Scored]) -> None:
    rows = sorted(FORBIDDEN)
    catch = step(sampled, kl_beta=0.1, trl={"entropy_coef": 0.1}, **SETTINGS)
    gradient = catch.gradients["lm_head.weight"]
    assert gradient[rows].abs().max() == 0.0
    assert gradient.abs().max() > 0.0
    free = step(sampled, temperature=TEMPERATURE).gradients["lm_head.weight"]
    assert free[rows].abs().amax(dim=-1).min() > 0.0


def test_trainer_reference_and_engine_hold_the_same_policy(
    step: Step, model: Any, sampled: list[Scored]
) -> None:
    """Ratios are 1, the divergence from the reference is 0, and entropy is of what is left."""
    logs = step(sampled, kl_beta=0.1, importance="line", **SETTINGS).logs
    with torch.no_grad():
        found = [logprobs(model, s.trajectory)[1][list(s.trajectory.loss_mask)] for s in sampled]
    assert logs["importance/ratio_min"] == pytest.approx(1.0, abs=1e-5)
    assert logs["importance/ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert logs["importance/largest_gap"] < 1e-5
    assert logs["kl"] == pytest.approx(0.0, abs=1e-7)
    assert logs["entropy"] == pytest.approx(torch.cat(found).mean().item(), abs=1e-5)


def test_a_trainer_that_forbids_nothing_is_far_from_an_engine_that_does(
    step: Step, sampled: list[Scored]
) -> None:
    logs = step(sampled, importance="line", temperature=TEMPERATURE).logs
    assert logs["importance/largest_gap"] > 0.1


def test_no_weight_is_added_or_lost(step: Step, model: Any, sampled: list[Scored]) -> None:
    assert step(sampled, **SETTINGS).weights.keys() == model.state_dict().keys()


# The head


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_head_has_its_own_bias_back(has_bias: bool) -> None:
    head: Any = torch.nn.Linear(2, 4, bias=has_bias)
    own = head.bias
    bias = forbidding_bias({1, 3}, head)
    with head_biased(head, bias):
        logits = head(torch.ones(2))
    assert torch.softmax(logits, -1)[[1, 3]].tolist() == [0.0, 0.0]
    logits[0].backward()
    assert head.bias is own
    assert own is None or own.grad.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert list(dict(head.named_parameters())) == ["weight", "bias"][: 1 + has_bias]


def test_where_nothing_is_forbidden_a_head_is_left_alone() -> None:
    assert forbidding_bias(frozenset(), torch.nn.Linear(2, 4)) is None


def test_a_model_that_bounds_its_logits_is_not_trained() -> None:
    from transformers import Gemma2Config

    check_trainable(frozenset(), Gemma2Config())
    check_trainable({5}, Gemma2Config(final_logit_softcapping=None))
    with pytest.raises(ConfigError, match=r"gemma2 model, which bounds its logits to 30.*'allow'"):
        check_trainable({5}, Gemma2Config())


def test_what_was_injected_is_scored_as_if_nothing_were_forbidden(
    model: Any, group: list[Scored]
) -> None:
    """The interpreter may write what no policy samples: its answers stay finite."""
    trajectory = group[0].trajectory
    loaded = SimpleNamespace(model=model, precision=Precision(), forbidden_ids=FORBIDDEN)
    ids = [*trajectory.prompt_ids, *trajectory.completion_ids]
    found = loading.logprobs(
        cast(loading.LoadedModel, loaded),
        ids,
        len(trajectory.prompt_ids),
        temperature=TEMPERATURE,
        is_sampled=trajectory.loss_mask,
    )
    with torch.no_grad():
        by_policy, _ = logprobs(model, trajectory)
        logits = model(torch.tensor([ids])).logits[0, len(trajectory.prompt_ids) - 1 : -1]
        free = torch.log_softmax(logits / TEMPERATURE, -1)
    injected = free.gather(1, torch.tensor(trajectory.completion_ids)[:, None])[:, 0]
    mask = torch.tensor(trajectory.loss_mask)
    assert torch.tensor(found).isfinite().all()
    assert not by_policy[~mask].isfinite().all()
    torch.testing.assert_close(torch.tensor(found), torch.where(mask, by_policy, injected))
