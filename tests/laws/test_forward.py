"""Forwards of the policy in the update: in which types, over which tokens, at what cost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl.trainer import utils as heads

from repl_rl.engines.memory import TORCH_TILE_WIDTH
from repl_rl.records import Scored
from repl_rl.update.grpo import LineGRPOTrainer
from trainer_kit import Step, difference, largest, model_of, take_step

pytestmark = [pytest.mark.slow, pytest.mark.train]


# What it computes in


def computed_in(trainer: LineGRPOTrainer, seen: set[torch.dtype]) -> None:
    model_of(trainer).model.layers[0].mlp.register_forward_hook(
        lambda _module, _inputs, output: seen.add(output.dtype)
    )


@pytest.mark.parametrize(
    ("dtype", "held", "computed"),
    [
        ("auto", torch.float32, torch.float32),
        ("mixed", torch.float32, torch.bfloat16),
        ("float32", torch.float32, torch.float32),
    ],
)
def test_weights_and_gradients_are_single_whatever_a_forward_computes_in(
    step: Step, group: list[Scored], dtype: str, held: torch.dtype, computed: torch.dtype
) -> None:
    seen: set[torch.dtype] = set()
    caught = step(group, dtype=dtype, change=lambda trainer: computed_in(trainer, seen))
    assert {x.dtype for x in (*caught.weights.values(), *caught.gradients.values())} == {held}
    assert seen == {computed}


def test_computing_in_half_changes_the_update_by_rounding_only(
    step: Step, group: list[Scored]
) -> None:
    single = step(group, importance="off").gradients
    half = step(group, importance="off", dtype="mixed").gradients
    assert 0 < difference(single, half) < 0.05 * largest(single)


# What is dropped out


def test_dropout_is_off_in_the_update_as_it_is_in_sampling(
    model_folder: Path, tmp_path: Path, step: Step, group: list[Scored]
) -> None:
    """The policy that sampled, which engines run without it, is the policy that is updated."""
    dropping = Path(shutil.copytree(model_folder, tmp_path / "dropping"))
    shape = json.loads((dropping / "config.json").read_text())
    (dropping / "config.json").write_text(json.dumps({**shape, "attention_dropout": 0.5}))
    with_dropout = take_step(dropping, tmp_path / "run", group)
    assert difference(with_dropout.gradients, step(group).gradients) == 0.0


# Padding


def test_padding_to_a_multiple_changes_nothing(step: Step, group: list[Scored]) -> None:
    """Rows end at 22 tokens, so at 32."""

    def pad_to_16(trainer: LineGRPOTrainer) -> None:
        trainer.pad_to_multiple_of = 16

    padded = step(group, change=pad_to_16, importance="line").gradients
    assert difference(padded, step(group, importance="line").gradients) < 1e-7


# What goes through the head


@pytest.mark.parametrize("kl_beta", [0.0, 0.1])
def test_only_sampled_tokens_go_through_the_head(
    step: Step, group: list[Scored], kl_beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of the update, of what lines weigh, and of the reference."""
    seen: list[int] = []
    head: Any = vars(heads)["_ChunkedLogProbFunction"]

    def watched(hidden: torch.Tensor, *rest: Any) -> Any:
        seen.append(len(hidden))
        assert rest[4] == TORCH_TILE_WIDTH  # as much as is counted
        return head.apply(hidden, *rest)

    monkeypatch.setattr(heads, "_ChunkedLogProbFunction", SimpleNamespace(apply=watched))
    step(group, kl_beta=kl_beta, importance="line")
    num_sampled = sum(sum(item.trajectory.loss_mask) for item in group)
    assert sum(seen) == (3 if kl_beta else 2) * num_sampled


# What is kept for the backward


def kept_bytes(trainer: LineGRPOTrainer, length_parts: int) -> int:
    """Bytes of storages that a forward over four rows keeps beside the weights."""
    trainer.length_parts, trainer.takes_trees = length_parts, False
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.arange(64).reshape(4, 16)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        alive = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, torch.ones_like(ids), 12
        )
    assert alive[0].requires_grad
    weights = {one.untyped_storage().data_ptr() for one in model_of(trainer).parameters()}
    return sum(x.untyped_storage().nbytes() for at, x in kept.items() if at not in weights)


def test_forwards_in_parts_keep_one_copy_of_the_weights_in_half(
    step: Step, group: list[Scored]
) -> None:
    """The layers have 18 thousand weights: three more copies would be 108 KiB."""
    seen: list[int] = []

    def change(trainer: LineGRPOTrainer) -> None:
        seen.extend(kept_bytes(trainer, parts) for parts in (1, 4))

    step(group, dtype="mixed", change=change)
    assert seen[1] - seen[0] < 20_000
