"""Supervised training on transcripts: TRL's SFTTrainer with labels on sampled tokens alone.

    Trajectory -> (input_ids, labels) -> batches of like lengths -> SFTTrainer, in place

Rows are forwarded as a tree where a model allows it, else as they are; none but labels go through
the head. AdamW trains pretrained weights; fresh ones
get Muon on matrices and AdamW on the rest. Knows token ids. Does not know tasks, kernels or
screens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from repl_rl.errors import DivergedError
from repl_rl.models.loading import keep_freed_memory
from repl_rl.models.weights import inner_model
from repl_rl.progress import Update
from repl_rl.records import Trajectory
from repl_rl.update.forward import as_rows, as_tree, takes_trees
from repl_rl.update.token_tree import IGNORED, in_use

MOMENTUM = 0.95
NUM_ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that drives singular values towards 1. It is steep at 0, and ends
around 1."""
EPSILON = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon, for matrices alone; up to rounding it computes what `torch.optim.Muon` does.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], *, lr: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        assert closure is None
        for group in self.param_groups:
            rate, decay = group["lr"], group["weight_decay"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum"] = torch.zeros_like(matrix)
                momentum: torch.Tensor = state["momentum"]
                momentum.lerp_(matrix.grad, 1 - MOMENTUM)
                ahead = matrix.grad.lerp(momentum, MOMENTUM)  # Nesterov's
                num_rows, num_columns = matrix.shape
                matrix.mul_(1 - rate * decay)
                length = rate * math.sqrt(max(1.0, num_rows / num_columns))
                matrix.add_(orthogonal(ahead), alpha=-length)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """`matrix` (rows, columns) with all its singular values moved to between 0.7 and 1.2."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    moved = matrix.T if is_tall else matrix
    moved = moved / moved.norm().clamp(min=EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(NUM_ITERATIONS):
        gram = moved @ moved.T
        moved = torch.addmm(moved, torch.addmm(gram, gram, gram, beta=b, alpha=c), moved, beta=a)
    return moved.T if is_tall else moved


Example = tuple[list[int], list[int]]
"""(input_ids, labels), of equal length."""
_BATCHES_SORTED = 16
_WARMUP_STEPS = 20
_FINAL_SHARE = 0.03


def fit(
    model: Any,  # a PreTrainedModel, or an Adapted one
    tokenizer: Any,  # a PreTrainedTokenizerBase
    examples: Sequence[Example],
    *,
    steps: int,
    batch_size: int,
    optimizer: torch.optim.Optimizer,
    is_mixed: bool,
    seed: int,
    scratch: Path,
    micro_batch_size: int | None = None,
    gradient_checkpointing: bool = False,
    as_trees: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> None:
    """Train what `optimizer` holds of `model`, in place, on (input_ids, labels) of equal length.

    With `is_mixed` forwards compute in bfloat16. `micro_batch_size` divides `batch_size`; it is all
    of it by default. With `as_trees`, and a model that takes them, what rows of a micro-batch begin
    with is forwarded once: of a tiny model the branches cost more than that saves.
    """
    if model.device.type == "cpu":
        keep_freed_memory()
    micro = micro_batch_size or batch_size
    args = SFTConfig(
        output_dir=str(scratch),
        max_steps=steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=batch_size // micro,
        max_length=None,
        train_sampling_strategy="sequential",  # the order is made here
        gradient_checkpointing=gradient_checkpointing,
        use_cpu=model.device.type == "cpu",
        bf16=is_mixed,
        seed=seed,
        save_strategy="no",
        logging_steps=max(1, min(10, steps // 10)),
        report_to="none",
        disable_tqdm=True,
    )
    args._n_gpu = 1  # where several are visible, transformers would split batches over them
    ordered = batch_order(examples, batch_size=batch_size, count=steps * batch_size, seed=seed)
    trainer = _LabelTrainer(
        is_tree=as_trees and takes_trees(inner_model(model)),
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
    # Forwards as they were: without autocast, and without what the loss alone asks for.
    trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_fp32_wrapper=False)


class Reported(TrainerCallback):
    """Moves a bar at each step, with the newest loss, and hands numbers to `write`.

    Raises DivergedError where they are not finite; `rate` is what to lower then.
    """

    def __init__(
        self,
        update: Update,
        write: Callable[[int, dict[str, float]], None] = lambda *_: None,
        *,
        rate: str,
    ) -> None:
        self._update = update
        self._write = write
        self._rate = rate
        self._note = ""

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            refuse_divergence(state.global_step, logs, self._rate)
            self._note = f"loss {logs['loss']:.3f}"
            names = ("loss", "grad_norm", "learning_rate")
            self._write(state.global_step, {name: logs[name] for name in names})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._update(state.global_step, self._note, state.max_steps)


def refuse_divergence(step: int, logs: Mapping[str, float | None], rate: str) -> None:
    """DivergedError where the numbers of a step are not finite; `rate` is what to lower."""
    for name in ("loss", "grad_norm"):
        value = logs.get(name, 0.0)
        # transformers logs None for a number that is not finite.
        if value is None or not math.isfinite(value):
            raise DivergedError(
                f"training diverged at step {step}: the {name} is not finite; lower {rate}"
            )


class _LabelTrainer(SFTTrainer):
    """TRL's, with none but labels through the head. With `is_tree` rows are forwarded as a tree."""

    def __init__(self, *, is_tree: bool, **kwargs: Any) -> None:
        self._is_tree = is_tree
        super().__init__(**kwargs)

    def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.aux_loss_enabled:  # the loss of routers counts every token of every row
            forward = as_tree if self._is_tree else as_rows
            model = forward(model, inner_model(self.model))
        return super().compute_loss(model, *args, **kwargs)  # type: ignore  # TRL has no types

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's; a backward may forward layers again, with the attention that they had."""
        with in_use(inner_model(self.model)) if self._is_tree else nullcontext():
            return super().training_step(*args, **kwargs)  # type: ignore  # TRL has no types


def adamw(model: torch.nn.Module, *, learning_rate: float) -> torch.optim.AdamW:
    """AdamW on what of a pretrained model has a gradient."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)


def example_of(trajectory: Trajectory, answer_mask: Sequence[bool] | None = None) -> Example:
    """Return the tokens, prompt first, with labels on the sampled ones.

    With `answer_mask` answers of the interpreter have labels, too. Prompts never have.
    """
    completion, sampled = trajectory.completion_ids, trajectory.loss_mask
    answers = [False] * len(completion) if answer_mask is None else answer_mask
    labels = [
        token if is_sampled or is_answer else IGNORED
        for token, is_sampled, is_answer in zip(completion, sampled, answers, strict=True)
    ]
    ids = [*trajectory.prompt_ids, *trajectory.completion_ids]
    return ids, [IGNORED] * len(trajectory.prompt_ids) + labels


def batch_order(
    examples: Sequence[Example], *, batch_size: int, count: int, seed: int
) -> list[Example]:
    """`count` examples, epoch after epoch, so that batches hold like lengths in random order.

    Transformers' own grouping runs from long to short within 50 batches, and the model forgets
    the long ones meanwhile.
    """
    rng = random.Random(seed)
    ordered: list[Example] = []
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
        rise = min(1.0, (step + 1) / min(_WARMUP_STEPS, max(1, steps // 5)))
        fall = min(1.0, 2 * (steps - step) / steps)
        return rise * max(_FINAL_SHARE, fall)

    return factor
