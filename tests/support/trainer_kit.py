"""A small model, and what one update of it does: the trainer that trains, on rows made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
)

from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.engines.hf import HF
from repl_rl.models.precision import precision
from repl_rl.records import Scored
from repl_rl.update.grpo import LineGRPOTrainer
from repl_rl.update.trainer import make_trainer

Tensors = dict[str, torch.Tensor]
EOS = 256


def byte_tokenizer(end: str = "<|end|>") -> Any:
    """Bytes as ids, and an end of text."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: i for i, symbol in enumerate(symbols)} | {end: EOS}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end, pad_token=end)


def random_qwen(context_tokens: int = 128) -> Any:
    """Two layers, 35 thousand parameters."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=257,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=8,
            max_position_embeddings=context_tokens,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=EOS,
            pad_token_id=EOS,
        )
    )


class Catch(TrainerCallback):
    """Keeps the gradients that the optimiser is about to use, the weights and the logs after it."""

    def __init__(self) -> None:
        self.gradients: Tensors = {}
        self.weights: Tensors = {}
        self.logs: dict[str, float] = {}
        self.rows: list[dict[str, float]] = []
        """The logs of each step."""

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        self.gradients = {
            name: parameter.grad.clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        self.logs = {**(logs or {}), **self.logs}
        if logs and "loss" in logs:
            self.rows.append(dict(logs))


def config_of(
    size: int, *, trl: Mapping[str, Any] | None = None, temperature: float = 1.0, **grpo: Any
) -> Config:
    """One step on one group, nothing clipped: the gradients are the loss's own."""
    values: dict[str, Any] = {
        "steps": 1,
        "problems_per_step": 1,
        "group_size": size,
        "micro_batch_size": size,
        "max_grad_norm": 1e9,
        "gradient_checkpointing": False,
    }
    return Config(
        model="m",
        sampling=SamplingConfig(max_tokens=64, device="cpu", temperature=temperature),
        grpo=GRPOConfig(**(values | grpo)),
        trl=trl or {},
    )


def model_of(trainer: LineGRPOTrainer) -> Any:
    """Its model: transformers types it as one that may be missing, with tensors for layers."""
    return trainer.model


class Step(Protocol):
    def __call__(
        self,
        scored: Sequence[Scored],
        *,
        change: Callable[[LineGRPOTrainer], object] = lambda _: None,
        **grpo: Any,
    ) -> Catch: ...


def take_step(
    folder: Path,
    output: Path,
    scored: Sequence[Scored],
    *,
    change: Callable[[LineGRPOTrainer], object] = lambda _: None,
    checkpoint: str | None = None,
    forbidden_ids: frozenset[int] = frozenset(),
    device: str = "cpu",
    **grpo: Any,
) -> Catch:
    """Catch of one real update of the model in `folder`; `change` may alter its trainer first.

    Every step trains on `scored`, which is a group unless `group_size` says otherwise. It goes on
    from a `checkpoint` in `output`.
    """
    catch = Catch()
    config = config_of(len(scored), **grpo)
    trainer = make_trainer(
        model=_on(device, Qwen3ForCausalLM.from_pretrained(folder)),
        tokenizer=byte_tokenizer(),
        collect=lambda numbers, _: list(scored),
        settings=config,
        credit=load_credit(config.grpo),
        precision=precision(config, HF(), device="cpu"),
        folder=output,
        callbacks=[catch],
        forbidden_ids=forbidden_ids,
    )
    change(trainer)
    trainer.train(resume_from_checkpoint=str(output / checkpoint) if checkpoint else None)
    return catch


def _on(device: str, model: Any) -> Any:
    return model.to(device)


def largest(tensors: Tensors) -> float:
    return max(tensor.abs().max().item() for tensor in tensors.values())


def difference(one: Tensors, other: Tensors) -> float:
    assert one.keys() == other.keys()
    assert one
    return max((one[name] - other[name]).abs().max().item() for name in one)


def drop_env_mask(trainer: LineGRPOTrainer) -> None:
    """Say of every token that it was sampled."""
    collect = trainer.collect

    def maskless(prompts: Sequence[str]) -> dict[str, Any]:
        rows = collect(prompts)
        return {**rows, "env_mask": [[1] * len(mask) for mask in rows["env_mask"]]}

    trainer.collect = maskless  # type: ignore[method-assign]  # a double
