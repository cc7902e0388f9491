"""Laws of an update of an adapter: the whole model's gradient, through two small matrices alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from repl_rl.config.sections import LoraConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.engines.hf import HF
from repl_rl.models.loading import load_weights, read_files, to_train
from repl_rl.models.precision import precision
from repl_rl.models.weights import save_merged
from repl_rl.records import Scored
from repl_rl.update.trainer import make_trainer
from trainer_kit import Catch, Step, Tensors, byte_tokenizer, config_of, difference, take_step

pytestmark = pytest.mark.train


@dataclass(frozen=True)
class Stepped:
    before: Tensors
    caught: Catch
    whole: Path
    """The merged model from before the step."""


AdapterStep = Callable[..., Stepped]


@pytest.fixture
def adapter_step(
    step: Step, model_folder: Path, tmp_path: Path, group: list[Scored]
) -> AdapterStep:
    """One update of an adapter that has learnt something before."""

    def take(**grpo: Any) -> Stepped:
        config, catch = config_of(len(group), **grpo), Catch()
        held = precision(config, HF(), device="cpu")
        files = to_train(read_files(str(model_folder)), LoraConfig(rank=4))
        torch.manual_seed(0)
        model = load_weights(files, device=torch.device("cpu"), precision=held).model
        for name, one in model.named_parameters():
            if "lora_B" in name:
                one.data.normal_(std=0.05)
        save_merged(model, tmp_path / "whole")
        before = {name: one.clone() for name, one in model.state_dict().items()}
        trainer = make_trainer(
            model=model,
            tokenizer=byte_tokenizer(),
            collect=lambda numbers, _: list(group),
            settings=config,
            credit=load_credit(config.grpo),
            precision=held,
            folder=tmp_path / "checkpoints",
            callbacks=[catch],
        )
        trainer.train()
        return Stepped(before, catch, tmp_path / "whole")

    return take


def of_adapter(tensors: Tensors) -> set[str]:
    return {name for name in tensors if ".lora_" in name and ".default." in name}


def test_an_update_moves_the_adapter_and_nothing_else(adapter_step: AdapterStep) -> None:
    done = adapter_step(learning_rate=1e-2, warmup_steps=0)
    after = done.caught.weights
    moved = {name for name in done.before if not torch.equal(done.before[name], after[name])}
    assert moved == of_adapter(done.before)
    assert set(done.caught.gradients) == of_adapter(done.before)


def test_an_adapters_gradients_are_those_of_the_whole_by_the_chain_rule(
    adapter_step: AdapterStep, tmp_path: Path, group: list[Scored]
) -> None:
    """W = W0 + s B A: dB = s dW A', dA = s B' dW, with s = alpha / rank = 8."""
    done = adapter_step()
    whole = take_step(done.whole, tmp_path / "other", group).gradients
    before, found = done.before, done.caught.gradients
    expected = {}
    for name in of_adapter(before):
        layer, _, which = name.rpartition(".lora_")
        gradient = whole[f"{layer.removeprefix('base_model.model.')}.weight"]
        a, b = (before[f"{layer}.lora_{one}.default.weight"] for one in "AB")
        expected[name] = 8 * (gradient @ a.T if which.startswith("B") else b.T @ gradient)
    assert difference(found, expected) < 1e-6


def test_checkpointing_reaches_an_adapter_below_weights_without_gradients(
    adapter_step: AdapterStep,
) -> None:
    plain = adapter_step(gradient_checkpointing=False).caught.gradients
    checkpointed = adapter_step(gradient_checkpointing=True).caught.gradients
    assert difference(plain, checkpointed) < 1e-6


def test_the_reference_is_the_policy_that_the_run_started_from(adapter_step: AdapterStep) -> None:
    """The adapter as it was, not the model below it: the first step sees no divergence."""
    done = adapter_step(kl_beta=0.1, learning_rate=1e-2, warmup_steps=0, steps=2)
    assert done.caught.logs["kl"] == pytest.approx(0, abs=1e-7)
    after = done.caught.weights
    for name in of_adapter(done.before):
        assert torch.equal(after[name.replace(".default.", ".ref.")], done.before[name])
        assert not torch.equal(after[name], done.before[name])
