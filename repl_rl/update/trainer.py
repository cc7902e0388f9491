"""TRL's trainer made from settings: arguments, data, callbacks, shares of the ranks.

    settings, model -> TRL's GRPOConfig -> LineGRPOTrainer
    somebody's arguments of TRL -> sections of a config

One callback samples weights and reports the share that a step moved. Knows TRL's options. Does not
know what the trainer does with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.distributed.tensor import DTensor
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig as TRLConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.base.concurrency import derive_seed
from repl_rl.config.sections import GRPOConfig, Settings
from repl_rl.credit.base import Credit
from repl_rl.errors import ConfigError
from repl_rl.models.loading import pick_device
from repl_rl.models.precision import Precision
from repl_rl.records import Scored
from repl_rl.update.grpo import DROPS_CUT, Ahead, LineGRPOTrainer
from repl_rl.update.options import check_fields, refusals_explained, try_optimiser
from repl_rl.update.ranks import ALONE, Ranks, is_sharding, launched

NUM_ENTRIES = 100_000
"""Weights that are sampled: a share of them is off by less than 0.2 %."""


class WeightSample:
    """Fixed entries of tensors, drawn by a seed, as many of each as its size asks for.

    All of them where they are fewer than are wanted. No copy of a tensor is made. Of a sharded one
    they are of the part that this rank holds.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], *, size: int, seed: int) -> None:
        self._tensors = list(tensors)
        rng = torch.Generator().manual_seed(seed)
        own = [_own(tensor) for tensor in self._tensors]
        total = sum(tensor.numel() for tensor in own)
        self._entries: list[torch.Tensor] = []
        for tensor in own:
            number = max(1, round(tensor.numel() * size / max(size, total)))
            if number < tensor.numel():
                entries = torch.randint(tensor.numel(), (number,), generator=rng)
            else:
                entries = torch.arange(tensor.numel())
            self._entries.append(entries.to(tensor.device))

    def values(self) -> torch.Tensor:
        """Their values, [size], in one type."""
        return self._of(self._tensors)

    def gradients(self) -> torch.Tensor:
        """Their gradients, [size]; 0 where a tensor has none."""
        return self._of([torch.zeros_like(t) if t.grad is None else t.grad for t in self._tensors])

    def _of(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        pairs = zip(map(_own, tensors), self._entries, strict=True)
        return torch.cat([one.reshape(-1)[entries].float() for one, entries in pairs])


def _own(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class MovedWeights(TrainerCallback):
    """Gives `record` at each step the share of sampled weights with a gradient that moved.

    Of those that all ranks have sampled, each from its own.
    """

    def __init__(self, record: Callable[[float], None], *, seed: int, ranks: Ranks = ALONE) -> None:
        self._record = record
        self._seed = seed
        self._ranks = ranks
        self._sample: WeightSample | None = None
        self._before = torch.empty(0)
        self._has_gradient = torch.empty(0)

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        if self._sample is None:
            trained = (one for one in model.parameters() if one.requires_grad)
            self._sample = WeightSample(trained, size=NUM_ENTRIES, seed=self._seed)
        self._before = self._sample.values()
        self._has_gradient = self._sample.gradients() != 0

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self._sample is not None
        moved = (self._sample.values() != self._before)[self._has_gradient]
        counts = self._ranks.gather([(int(moved.sum()), moved.numel())])
        num_moved, num_sampled = map(sum, zip(*counts, strict=True))
        # A step that has nothing to learn from says nothing about rounding.
        if num_sampled:
            self._record(num_moved / num_sampled)


Collect = Callable[[Sequence[int], int], list[Scored]]
"""(problem numbers, each repeated for its group; policy version) -> trajectories, in order."""


def trainer_arguments(
    settings: Settings, *, precision: Precision, folder: Path, device: str, ranks: Ranks
) -> TRLConfig:
    """Return TRL's arguments; raises whatever TRL raises for an option in `settings.trl`."""
    grpo = settings.grpo
    size = rows_per_rank(grpo, num_ranks=ranks.world)
    micro = largest_divisor(size, at_most=grpo.most_rows)
    args = TRLConfig(
        output_dir=str(folder),
        max_steps=grpo.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=size // micro,
        steps_per_generation=size // micro * grpo.updates_per_rollout,
        num_iterations=grpo.passes,
        num_generations=grpo.group_size,
        max_completion_length=settings.sampling.max_tokens,
        temperature=settings.sampling.temperature,
        learning_rate=grpo.learning_rate,
        warmup_steps=grpo.warmup_steps,
        weight_decay=grpo.weight_decay,
        max_grad_norm=grpo.max_grad_norm,
        loss_type=grpo.loss_type,
        epsilon=grpo.epsilon_low,
        # TRL takes this for the highest ratio with `cispo`, else for its distance from 1.
        epsilon_high=grpo.epsilon_high + (grpo.loss_type == "cispo"),
        beta=grpo.kl_beta,
        use_bias_correction_kl=True,
        disable_dropout=True,
        scale_rewards=grpo.scale,
        gradient_checkpointing=grpo.gradient_checkpointing is True,  # "auto": it fits without
        shuffle_dataset=False,
        use_cpu=device == "cpu",
        bf16=precision.update is torch.bfloat16,
        seed=derive_seed(settings.seed, "update") % 2**32,
        save_steps=checkpoint_every(settings),
        save_total_limit=settings.report.keep_checkpoints,
        logging_steps=1,
        # On, it would log the mean of the finite losses in place of one that is not.
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        **_passed_on(settings.trl),
    )
    args._n_gpu = min(args.n_gpu, 1)  # where several are visible, it would split batches over them
    return args


_NEUTRAL: Mapping[str, Any] = {
    "use_vllm": False,
    "fp16": False,
    DROPS_CUT: False,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
}
"""TRL's arguments that would change what is sampled or what is left out, and their defaults."""


def sections_by(args: Any, settings: Settings, *, weights: torch.dtype) -> dict[str, Any]:
    """Sections of `settings` with what somebody's own arguments of TRL say: the way back.

    Any: TRL's GRPOConfig, which has no types. `weights` is the type of the model's. Raises
    ConfigError for arguments that cannot hold where lines are sampled.
    """
    for name, neutral in _NEUTRAL.items():
        if (given := getattr(args, name)) != neutral:
            raise ConfigError(
                f"GRPOConfig({name}={given!r}) does not go with rollouts line by line; leave it "
                f"out, and give overrides=['sampling.engine=vllm'] for vLLM"
            )
    in_single: Any = "mixed" if args.bf16 else "float32"
    length = args.max_completion_length
    return {
        "sampling": replace(settings.sampling, temperature=args.temperature, max_tokens=length),
        "grpo": replace(
            settings.grpo,
            dtype=in_single if weights is torch.float32 else "bfloat16",
            scale=args.scale_rewards,
            loss_type=args.loss_type,
        ),
    }


def by_name(*given: Any, **named: Any) -> dict[str, Any]:
    """Bind arguments of a GRPOTrainer to their names; TypeError where it would raise that."""
    return dict(inspect.signature(GRPOTrainer).bind(*given, **named).arguments)


def make_trainer(
    *,
    model: Any,  # a PreTrainedModel
    tokenizer: Any,  # a PreTrainedTokenizerBase
    collect: Collect,
    settings: Settings,
    credit: Credit,
    precision: Precision,
    folder: Path,
    callbacks: Sequence[TrainerCallback] = (),
    ranks: Ranks | None = None,
    ahead: Ahead | None = None,
    forbidden_ids: Set[int] = frozenset(),
) -> LineGRPOTrainer:
    """A trainer of `settings.grpo.steps` updates that keeps its checkpoints in `folder`.

    One rollout phase makes `problems_per_step * group_size` trajectories for each of the
    `updates_per_rollout` optimiser steps that it feeds, in micro-batches. Where it feeds one, the
    policy that sampled is the policy that is updated, so the ratio of one to the other is exactly
    1. Problem i of the run is prompt `str(i)`: TRL repeats prompts for their groups and hands them
    to the rollout as they are.

    Trajectories are dealt out to `ranks`, those of the launcher unless given. `ahead` has its
    part of each checkpoint. `forbidden_ids` are those that the engine does not sample.
    """
    grpo, ranks = settings.grpo, launched() if ranks is None else ranks
    # A model that is to be sharded waits in the memory of the host.
    device = pick_device(settings.sampling.device) if is_sharding() else model.device
    args = trainer_arguments(
        settings, precision=precision, folder=folder, device=device.type, ranks=ranks
    )
    trainer = LineGRPOTrainer(
        roll_out=lambda prompts, version: collect([int(one) for one in prompts], version),
        line_config=grpo,
        credit=credit,
        weighs_lines=weighs_lines(grpo, precision),
        forbidden_ids=forbidden_ids,
        ranks=ranks,
        ahead=ahead,
        options=settings.trl,
        model=model,
        args=args,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": [str(i) for i in range(num_problems(grpo))]}),
        callbacks=list(callbacks),
    )
    drop_nothing_out(model)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(MovedWeights(trainer.record_moved_share, seed=args.seed, ranks=ranks))
    trainer.add_callback(_Bookkeeping(trainer))
    return trainer


def check_trl_options(
    settings: Settings, *, precision: Precision, device: str, ranks: Ranks = ALONE
) -> None:
    """ConfigError for what TRL would refuse of `settings.trl`, once a model is loaded or before."""
    check_fields(settings.trl, TRLConfig)
    with refusals_explained(settings.trl):
        args = trainer_arguments(
            settings, precision=precision, folder=Path(), device=device, ranks=ranks
        )
        if settings.trl:
            try_optimiser(args)


def _passed_on(options: Mapping[str, Any]) -> dict[str, Any]:
    # TRL takes a trajectory that ends on injected text for truncated: see `collect`.
    kept = {name: value for name, value in options.items() if name != DROPS_CUT}
    return {"lr_scheduler_type": "constant_with_warmup", **kept}


def num_problems(grpo: GRPOConfig) -> int:
    """Problems of a whole run, or of one rollout where there is no step."""
    num_rollouts = max(1, grpo.steps // grpo.num_rollout_updates)
    return num_rollouts * grpo.updates_per_rollout * grpo.problems_per_step


def checkpoint_every(settings: Settings) -> int:
    """Steps between two checkpoints, in whole rollouts: a run goes on with a rollout of its own."""
    span = settings.grpo.num_rollout_updates
    return -(-settings.report.checkpoint_every // span) * span


class _Bookkeeping(TrainerCallback):
    def __init__(self, trainer: LineGRPOTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.save_steps = args.save_steps  # a run that goes on reads the setting of its first part

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.note_step_begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.note_step_end()


def drop_nothing_out(model: torch.nn.Module) -> None:
    """Switch off dropout that is not a layer: a rate that a module passes to its attention."""
    for module in model.modules():
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def weighs_lines(grpo: GRPOConfig, precision: Precision) -> bool:
    """Return whether advantages are weighed by line: engine and trainer may disagree on lines."""
    if grpo.importance != "auto":
        return grpo.importance == "line"
    is_same = precision.is_shared and precision.is_exact and not grpo.staleness
    return not is_same and grpo.loss_type != "vespo"


def rows_per_rank(grpo: GRPOConfig, *, num_ranks: int) -> int:
    """Trajectories of a step that each process trains on; ConfigError if they cannot be dealt."""
    size = grpo.problems_per_step * grpo.group_size
    if size % num_ranks:
        raise ConfigError(
            f"{grpo.problems_per_step} problems of {grpo.group_size} trajectories cannot be dealt "
            f"to {num_ranks} processes; change grpo.problems_per_step or grpo.group_size"
        )
    return size // num_ranks


def check_groups(credit: Credit, *, num_ranks: int) -> None:
    """ConfigError where a group would lie across processes and must not; see `rows_per_rank`."""
    grpo, size = credit.config, rows_per_rank(credit.config, num_ranks=num_ranks)
    whole = {
        f"rerolls = {grpo.rerolls}": grpo.rerolls,
        f"prefix_share = {grpo.prefix_share:g}": grpo.prefix_share,
        f"credit = {grpo.credit!r}": credit.grows,
    }
    if any(whole.values()) and size % grpo.group_size:
        what = next(text for text, is_set in whole.items() if is_set)
        raise ConfigError(
            f"grpo.{what} with groups that lie across {num_ranks} processes; "
            f"expected grpo.problems_per_step to be a multiple of {num_ranks}"
        )


def largest_divisor(number: int, *, at_most: int) -> int:
    """The largest divisor of `number` that is no larger than `at_most`: 96 and 40 give 32."""
    return max(d for d in range(1, min(number, at_most) + 1) if number % d == 0)
