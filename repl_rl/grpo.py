"""The update: TRL's GRPOTrainer, fed with line-interleaved trajectories and per-token advantages.

    rollout_func -> TRL pads, masks, scores -> advantages swapped for (B, T) -> TRL's loss

Floor 5. Imports trl, as `sft` alone does beside it. Does not know kernels, tasks or screens.

Injected tokens enter as `env_mask` 0: TRL leaves them out of the loss, the KL, the entropy, the
clip metrics and the token count, and still attends to them. Everything else is TRL's own code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.nn.functional import pad
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig as TRLConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.batch import advantage_rows, pad_right
from repl_rl.config import Config, GRPOConfig
from repl_rl.errors import ConfigError
from repl_rl.seeds import derive_seed
from repl_rl.types import Scored

Collect = Callable[[Sequence[int], int], list[Scored]]
"""(problem numbers, each repeated for its group; policy version) -> trajectories, in order."""

_MASKED_REFERENCE = -1e4
"""Stands for the reference's log-probability of an injected token. TRL multiplies the KL by the
mask, so a token that is next to impossible would make inf * 0 = NaN; exp(-1e4 - x) is a plain 0."""

_LENGTH_PARTS = 4
"""Forward passes a micro-batch is cut into, by length: more of them, less padding."""


class LineGRPOTrainer(GRPOTrainer):
    """GRPO with one advantage per token. Collects its own rollouts through `collect`."""

    def __init__(self, *, collect: Collect, line_config: GRPOConfig, **kwargs: Any) -> None:
        self._collect = collect
        self._line_config = line_config
        self.scored: list[Scored] = []
        """The trajectories behind the current update, in the order of the batch."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError("repl-rl trains in one process; start it without a launcher")
        super().__init__(rollout_func=_rollout, reward_funcs=[outcome_reward], **kwargs)

    def collect(self, prompts: Sequence[str]) -> dict[str, Any]:
        """TRL's rollout contract: ids, masks and log-probabilities as lists, one row a prompt."""
        self.scored = self._collect([int(prompt) for prompt in prompts], self.state.global_step)
        trajectories = [item.trajectory for item in self.scored]
        assert len(trajectories) == len(prompts)
        return {
            "prompt_ids": [list(t.prompt_ids) for t in trajectories],
            "completion_ids": [list(t.completion_ids) for t in trajectories],
            "logprobs": [list(t.logprobs) for t in trajectories],
            "env_mask": [[int(is_sampled) for is_sampled in t.loss_mask] for t in trajectories],
            "outcome_reward": [item.reward.outcome_reward for item in self.scored],
        }

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        advantages = pad_right(advantage_rows(self.scored, self._line_config))
        out["advantages"] = advantages.to(out["completion_ids"].device)
        if "ref_per_token_logps" in out:
            out["ref_per_token_logps"] = out["ref_per_token_logps"].masked_fill(
                out["tool_mask"] == 0, _MASKED_REFERENCE
            )
        return out

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,  # (B, P + T), prompts padded on the left
        attention_mask: torch.Tensor,  # (B, P + T)
        logits_to_keep: int,  # T
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, with rows of like length together and cut to the longest of them.

        TRL pads to the longest trajectory of the whole batch; where some give up early and some
        run into their budget, most of that is padding. Cut positions get 0, which the mask drops.
        It leaves positions to the model, which counts padding on the left among them: harmless
        where only distances matter, another sequence for a model that knows where it is (GPT-2).
        """
        num_prompt = input_ids.shape[1] - logits_to_keep
        order = attention_mask.sum(dim=1).argsort()
        rows_per_part = -(-min(len(order), batch_size or len(order)) // _LENGTH_PARTS)
        parts = []
        for rows in torch.split(order, rows_per_part):
            used = attention_mask[rows].any(dim=0).nonzero()
            start, stop = int(used[0]), max(int(used[-1]) + 1, num_prompt + 1)
            seen = attention_mask[rows, start:stop]
            found = super()._get_per_token_logps_and_entropies(
                partial(model, position_ids=(seen.cumsum(dim=1) - 1).clamp(min=0)),
                input_ids[rows, start:stop],
                seen,
                stop - num_prompt,
                **kwargs,
            )
            missing = logits_to_keep - (stop - num_prompt)
            parts.append([x if x is None or x.dim() == 0 else pad(x, (0, missing)) for x in found])
        back = order.argsort()
        logps, entropies, aux_losses = zip(*parts, strict=True)
        return (
            torch.cat(logps)[back],
            None if entropies[0] is None else torch.cat(entropies)[back],
            None if aux_losses[0] is None else torch.stack(aux_losses).mean(),
        )


def make_trainer(
    *,
    model: Any,  # a PreTrainedModel
    tokenizer: Any,  # a PreTrainedTokenizerBase
    collect: Collect,
    config: Config,
    folder: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> LineGRPOTrainer:
    """A trainer of `config.grpo.steps` updates that keeps its checkpoints in `folder`.

    One rollout phase makes `problems_per_step * group_size` trajectories and feeds one optimiser
    step, in micro-batches: the policy that sampled is the policy that is updated, so the
    importance ratio is exactly 1. Problem i of the run is prompt `str(i)`: TRL repeats prompts for
    their groups and hands them to the rollout as they are.
    """
    grpo = config.grpo
    size = grpo.problems_per_step * grpo.group_size
    micro = largest_divisor(size, at_most=grpo.micro_batch_size)
    on_gpu = model.device.type == "cuda"
    args = TRLConfig(
        output_dir=str(folder),
        max_steps=grpo.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=size // micro,
        steps_per_generation=size // micro,
        num_generations=grpo.group_size,
        max_completion_length=config.sampling.max_tokens,
        temperature=config.sampling.temperature,
        learning_rate=grpo.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=grpo.warmup_steps,
        weight_decay=grpo.weight_decay,
        max_grad_norm=grpo.max_grad_norm,
        loss_type=grpo.loss_type,
        epsilon=grpo.epsilon_low,
        epsilon_high=grpo.epsilon_high,
        beta=grpo.kl_beta,
        scale_rewards=grpo.scale,
        gradient_checkpointing=grpo.gradient_checkpointing,
        # A trajectory may end on injected text: TRL would take it for truncated and drop it.
        mask_truncated_completions=False,
        shuffle_dataset=False,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        seed=derive_seed(config.seed, "update") % 2**32,
        save_steps=config.report.checkpoint_every,
        save_total_limit=config.report.keep_checkpoints,
        # Nothing resumes from an optimiser's state, which is twice the size of the weights.
        save_only_model=True,
        logging_steps=1,
        # On, it would log the mean of the finite losses in place of one that is not.
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = LineGRPOTrainer(
        collect=collect,
        line_config=grpo,
        model=model,
        args=args,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(
            {"prompt": [str(i) for i in range(max(1, grpo.steps) * grpo.problems_per_step)]}
        ),
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def largest_divisor(number: int, *, at_most: int) -> int:
    """The largest divisor of `number` that is no larger than `at_most`: 96 and 40 give 32."""
    return max(d for d in range(1, min(number, at_most) + 1) if number % d == 0)


def outcome_reward(*, outcome_reward: list[float | None], **_: Any) -> list[float | None]:
    """What TRL logs as the reward. The update does not read it: its advantages are ours."""
    return outcome_reward


def _rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    assert isinstance(trainer, LineGRPOTrainer)
    return trainer.collect(prompts)
