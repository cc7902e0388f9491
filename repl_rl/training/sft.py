"""Supervised training on transcripts: TRL's SFTTrainer with labels on sampled tokens alone.

Knows token ids. Does not know tasks, kernels or screens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from repl_rl.training.muon import Muon

IGNORED = -100
"""The label of a token that is not trained."""

_BATCHES_SORTED = 16
_WARMUP_STEPS = 20
_FINAL_SHARE = 0.03


def fit(
    model: Any,  # a PreTrainedModel
    tokenizer: Any,  # a PreTrainedTokenizerBase
    examples: Sequence[tuple[list[int], list[int]]],
    *,
    steps: int,
    batch_size: int,
    matrix_learning_rate: float,
    learning_rate: float,
    seed: int,
    scratch: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> None:
    """Train `model` in place on (input_ids, labels) pairs of equal length, from fresh weights."""
    args = SFTConfig(
        output_dir=str(scratch),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        max_length=None,
        train_sampling_strategy="sequential",  # the order is made here
        gradient_checkpointing=False,
        use_cpu=model.device.type == "cpu",
        bf16=model.device.type == "cuda",
        seed=seed,
        save_strategy="no",
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
    )
    args._n_gpu = 1  # where several are visible, transformers would split batches over them
    optimizer = MuonAdamW(
        model, matrix_learning_rate=matrix_learning_rate, learning_rate=learning_rate
    )
    ordered = batch_order(examples, batch_size=batch_size, count=steps * batch_size, seed=seed)
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(
            {
                "input_ids": [ids for ids, _ in ordered],
                "labels": [labels for _, labels in ordered],
            }
        ),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, _schedule(steps))),
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def batch_order(
    examples: Sequence[tuple[list[int], list[int]]], *, batch_size: int, count: int, seed: int
) -> list[tuple[list[int], list[int]]]:
    """`count` examples, epoch after epoch, so that batches hold like lengths in random order.

    Transformers' own grouping runs from long to short within 50 batches, and the model forgets
    the long ones meanwhile.
    """
    rng = random.Random(seed)
    ordered: list[tuple[list[int], list[int]]] = []
    while len(ordered) < count:
        epoch = rng.sample(examples, len(examples))
        pool = batch_size * _BATCHES_SORTED
        batches = []
        for start in range(0, len(epoch), pool):
            part = sorted(epoch[start : start + pool], key=lambda example: len(example[0]))
            batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
        rng.shuffle(batches)
        ordered += [example for batch in batches for example in batch]
    return ordered[:count]


class MuonAdamW(torch.optim.Optimizer):
    """Muon on the matrices inside the layers, AdamW on embeddings and norms, as one optimizer.

    A model from scratch learns to copy (to attend to what followed the same tokens before) in a
    third of the steps that AdamW alone needs; at a million weights that is most of the wait.
    """

    def __init__(
        self, model: torch.nn.Module, *, matrix_learning_rate: float, learning_rate: float
    ) -> None:
        matrices: list[torch.nn.Parameter] = []
        others: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            is_matrix = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
            (matrices if is_matrix else others).append(parameter)
        self._parts: tuple[torch.optim.Optimizer, ...] = (
            Muon(matrices, lr=matrix_learning_rate, weight_decay=0.01),
            torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
        )
        super().__init__([dict(group) for group in self._inner_groups()], {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        assert closure is None
        # Schedulers and accelerate see and replace the groups out here; the rates are theirs.
        for inner, outer in zip(self._inner_groups(), self.param_groups, strict=True):
            inner["lr"] = outer["lr"]
        for part in self._parts:
            part.step()

    def _inner_groups(self) -> list[dict[str, Any]]:
        return [group for part in self._parts for group in part.param_groups]


def _schedule(steps: int) -> Callable[[int], float]:
    """Warm up, hold for half of the steps, fall in a straight line."""

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / _WARMUP_STEPS)
        fall = min(1.0, 2 * (steps - step) / steps)
        return rise * max(_FINAL_SHARE, fall)

    return factor
