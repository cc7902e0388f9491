"""The update: TRL's GRPOTrainer, fed with line-interleaved trajectories and per-token advantages.

    rollout_func -> TRL pads, masks, scores -> advantages swapped for (B, T) -> TRL's loss

Injected tokens enter as `env_mask` 0: TRL leaves them out of the loss, the KL, the entropy, the
clip metrics and the token count, and still attends to them. Everything else is TRL's own code.
All ranks write a checkpoint together; a run that fails keeps one of its last whole step.
Does not know kernels, tasks or screens.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy
import torch
from torch.nn.functional import pad
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.base.disk import remove, written_aside
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit import advantages, ledger
from repl_rl.credit.advantages import (
    divergence,
    importance_metrics,
    largest_gap,
    line_ratios,
    weigh_lines,
)
from repl_rl.credit.base import Credit
from repl_rl.errors import ConfigError, DivergedError, RankError, StorageError
from repl_rl.models.policy import forbidding_bias, head_biased
from repl_rl.models.weights import inner_model, whole_state
from repl_rl.records import Scored
from repl_rl.runs.folder import COMPLETE, numbered_checkpoints
from repl_rl.update.forward import as_rows, as_tree, in_parts, takes_trees
from repl_rl.update.options import refusals_explained
from repl_rl.update.ranks import ALONE, Ranks
from repl_rl.update.token_tree import in_use, siblings_together


def rollout_rows(
    scored: Sequence[Scored], is_left_out: Sequence[bool] | None = None
) -> dict[str, Any]:
    """Return TRL's lists for trajectories, one row each. A token of `env_mask` 0 has no loss.

    Those are the injected ones, those that another branch has already, and all of rows that are
    left out.
    """
    trajectories = [item.trajectory for item in scored]
    left_out = [False] * len(scored) if is_left_out is None else is_left_out
    return {
        "prompt_ids": [list(t.prompt_ids) for t in trajectories],
        "completion_ids": [list(t.completion_ids) for t in trajectories],
        "logprobs": [list(t.logprobs) for t in trajectories],
        "env_mask": [
            [int(is_own and not is_out) for is_own in t.own_mask]
            for t, is_out in zip(trajectories, left_out, strict=True)
        ],
        "outcome_reward": [item.reward.outcome_reward for item in scored],
    }


@contextmanager
def written_by_all(folder: Path, name: str, ranks: Ranks) -> Iterator[Path]:
    """Yield a folder whose `name` all ranks write to; then its files are in `folder / name`.

    After the block all ranks find it there. Raises StorageError where the disk refuses.
    """
    path = folder / name
    with written_aside(path) if ranks.is_first else nullcontext(path) as own:
        aside = ranks.from_first(own)
        yield aside
        ranks.barrier()
        if ranks.is_first:
            for file in (aside / name).iterdir():
                file.rename(aside / file.name)
            (aside / name).rmdir()
            (aside / COMPLETE).touch()
    ranks.barrier()


def check_shards_of(checkpoint: Path, *, is_sharding: bool) -> None:
    """ConfigError where one of whole weights is to go on in shards, or the other way round."""
    if (checkpoint / _SHARDS).is_dir() == is_sharding:
        return
    was, other = ("whole", "in shards")[:: 1 if is_sharding else -1]
    raise ConfigError(
        f"the weights in {str(checkpoint)!r} are {was}, but accelerate's config wants them "
        f"{other}; resume the run as it began, or begin a new one with --model {checkpoint}"
    )


class RandomState:
    """The generators that an update may draw from, as they are when it is made."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = numpy.random.get_state()  # what transformers keeps
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self) -> None:
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        torch.cuda.set_rng_state_all(self._cuda)


@contextmanager
def last_step_kept(trainer: LineGRPOTrainer, ranks: Ranks) -> Iterator[None]:
    """However the block fails, a checkpoint of the last whole step is there if one can be made."""
    try:
        yield
    except (DivergedError, RankError, StorageError):
        raise  # there is nothing left to keep, nobody to keep it with, or nowhere
    except BaseException as error:
        # All ranks stop at an interrupt. At a failure of one the others wait for it elsewhere.
        if isinstance(error, KeyboardInterrupt) or not ranks.are_several:
            trainer.save_last_step()
        raise


class Ahead(Protocol):
    """Rollouts that may be under way when a checkpoint is written; all ranks call its methods."""

    def can_go_on(self, step: int) -> bool:
        """Say whether a checkpoint of this step can be gone on from."""

    def save(self, step: int, checkpoint: Path) -> None:
        """Write into a checkpoint what it takes."""


RollOut = Callable[[Sequence[str], int], list[Scored]]
"""(prompts, each repeated for its group; policy version) -> trajectories, in order."""


_UNTRUE = (
    "completions/clipped_ratio",
    *(f"completions/{which}_terminated_length" for which in ("mean", "min", "max")),
    "policy_loss",
)
"""Columns of TRL. It takes any completion without an end of sequence for cut; the rollouts'
`stop/...` say why trajectories ended. Where `loss` is a sum over micro-batches, `policy_loss` is
the mean of their parts."""

_LENGTHS: Mapping[str, Callable[[Sequence[int]], float]] = {
    "completions/mean_length": statistics.fmean,
    "completions/min_length": min,
    "completions/max_length": max,
}
"""Columns on rows. To TRL one that is left out of the loss has none, and where trajectories share
lines a row may be a part of one."""


def _mean(parts: Sequence[tuple[float, int]]) -> float:
    """Mean over all tokens, of (mean, number of tokens) of their parts."""
    return sum(mean * count for mean, count in parts) / sum(count for _, count in parts)


_OVER_MICRO_BATCHES: Mapping[str, Callable[[Sequence[tuple[float, int]]], float]] = {
    **dict.fromkeys(("kl", "entropy", "cispo_clip_ratio", "vespo/phi_seq_mean"), _mean),
    **{f"clip_ratio/{which}_mean": _mean for which in ("low", "high", "region")},
    "clip_ratio/low_min": lambda parts: min(least for least, _ in parts),
    "clip_ratio/high_max": lambda parts: max(most for most, _ in parts),
}
"""Columns on the tokens in the loss of a micro-batch, 0 without any, by what makes one of several.
TRL logs the mean of all micro-batches."""

_DIVIDED_BY_TOKENS = ("dapo", "cispo")
"""Losses that TRL divides by the tokens of a step. A token of several rollouts stands for more than
one, so it is to count by its weight; TRL counts each once."""
_MEANS_OF_ROWS = ("grpo", "sapo", "dr_grpo", "luspo")
"""Losses that TRL divides by rows, those without a token in the loss included."""

DROPS_CUT = "mask_truncated_completions"
"""The option of TRL that this module does the work of."""

_SHARDS = "pytorch_model_fsdp_0"
"""Folder of a checkpoint that accelerate fills."""

_REFERENCE = "reference.pt"
"""Weights of a reference that moves, in a checkpoint."""


class LineGRPOTrainer(GRPOTrainer):
    """GRPO with one advantage per token. Rolls out by `roll_out`.

    In several processes each collects its own rows; a group may have siblings in two of them.
    """

    length_parts = 4
    """Forward passes a micro-batch is cut into, by length: more of them, less padding. With 1, rows
    stay as TRL has them, and so does what goes through the head on a CPU. A model that takes trees
    forwards a micro-batch at once, unless this is 1. It is where ranks hold shards: each forward
    then gathers all layers, and all ranks have to make the same."""

    def __init__(
        self,
        *,
        roll_out: RollOut,
        line_config: GRPOConfig,
        credit: Credit,
        weighs_lines: bool = False,
        forbidden_ids: Set[int] = frozenset(),
        ranks: Ranks = ALONE,
        ahead: Ahead | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        self._roll_out = roll_out
        self._ahead = ahead
        self._line_config = line_config
        self._credit = credit
        self._weighs_lines = weighs_lines
        self._ranks = ranks
        self._drops_cut = bool(options.get(DROPS_CUT))
        """True where trajectories that met a limit leave the loss."""
        self._aside: Path | None = None
        """Folder into which a checkpoint is being written."""
        self._at_step_end: tuple[RandomState, int, tuple[float, float]] | None = None
        """Generators, the number of tokens seen, and coefficient and value of an adaptive entropy,
        as they belong into a checkpoint of the last step. None unless weights are as that step
        left them and a run can go on from there."""
        self.scored: list[Scored] = []
        """This process's trajectories behind the current update, in the order of the batch."""
        self._is_left_out: list[bool] = []
        """True where a trajectory is out of the loss, its denominators included."""
        self._rows_per_kept = 1.0
        """Trajectories of the step, by those of them that are in the loss."""
        self._num_in_loss: list[int] = []
        """Tokens in the loss of each micro-batch since the last row of metrics, of all ranks."""
        self.sampled: torch.Tensor | None = None
        """(B, T): 0 at injected tokens of the rows that are scored next. None: all were sampled."""
        with refusals_explained(options):
            super().__init__(rollout_func=_rollout, reward_funcs=[outcome_reward], **kwargs)
        self._bias = forbidding_bias(forbidden_ids, self._head(self.model))
        """(V,) or None: what takes the probability of ids that are never sampled."""
        if self.is_fsdp_enabled:
            self.length_parts = 1
        self.takes_trees = self.length_parts > 1 and takes_trees(inner_model(self.model))
        """True where rows are forwarded as a tree: see `forward`."""

    def _head(self, model: Any) -> torch.nn.Module:
        head: torch.nn.Module = self.accelerator.unwrap_model(model).get_output_embeddings()
        return head

    def collect(self, prompts: Sequence[str]) -> dict[str, Any]:
        """TRL's rollout contract: ids, masks and log-probabilities as lists, one row a prompt."""
        self.scored = self._roll_out(prompts, self.state.global_step)
        assert len(self.scored) == len(prompts)
        self._is_left_out = self._left_out()
        if not self._credit.grows:  # else a line's weight stands for all rows that share it
            everyones = self._ranks.gather(self._is_left_out)
            self._rows_per_kept = len(everyones) / max(1, everyones.count(False))
        return rollout_rows(self.scored, self._is_left_out)

    def _left_out(self) -> list[bool]:
        """Mark trajectories in which no token counts. Those with an outcome reward stay in their
        siblings' baselines."""
        rerolls, grows = self._line_config.rerolls, self._credit.grows
        dead = advantages.dead_groups(self.scored, self._credit) if rerolls else set[int]()
        seen = set[tuple[int, int]]()
        left_out = []
        for item in self.scored:
            t = item.trajectory
            sibling = t.group_index, t.sibling_index
            is_cut = self._drops_cut and t.stop_reason.is_limit
            # Where groups grow, its first lines are those of scored siblings, too.
            is_unscored = item.reward.outcome_reward is None and not grows
            left_out.append(t.group_index in dead or is_cut or is_unscored or sibling in seen)
            seen.add(sibling)
        return left_out

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's, but a checkpoint gets its name once it is whole and loses it before deletion."""
        save: Any = super()._save_checkpoint  # TRL has no types for it
        folder, name = Path(str(self.args.output_dir)), f"checkpoint-{self.state.global_step}"
        with written_by_all(folder, name, self._ranks) as self._aside:
            save(model, trial)
            # Beside the shards, for all that reads a checkpoint and does not train.
            state = whole_state(self.model, is_kept=self._ranks.is_first)
            if state:
                save_whole: Any = self._save
                save_whole(str(self._aside / name), state_dict=state)
            if (reference := self._moving_reference()) is not None and self._ranks.is_first:
                torch.save(reference.state_dict(), self._aside / _REFERENCE)
            if self._ahead is not None:
                self._ahead.save(self.state.global_step, self._aside)
        self._aside = None
        limit = self.args.save_total_limit
        for old in numbered_checkpoints(folder)[:-limit] if limit and self._ranks.is_first else ():
            remove(old)

    def note_step_begin(self) -> None:
        """The optimiser is about to change the weights: see `save_last_step`."""
        self._at_step_end = None

    def note_step_end(self) -> None:
        """Note the step that `save_last_step` may keep."""
        if self.state.global_step % self._line_config.num_rollout_updates == 0:
            entropy = self.entropy_coef, self._last_world_entropy  # a loss steps them itself
            self._at_step_end = RandomState(), self.state.num_input_tokens_seen, entropy

    def save_last_step(self) -> None:
        """Keep a checkpoint of the last step that ended, as if the next one had not begun.

        There is none to keep within an optimiser's step, between two updates of one rollout, and
        where rollouts that older weights made have failed.
        """
        ended, name = self._at_step_end, f"checkpoint-{self.state.global_step}"
        is_there = (Path(str(self.args.output_dir)) / name).exists()
        if ended is None or not self.state.global_step or self._ranks.from_first(is_there):
            return
        if self._ahead is not None and not self._ahead.can_go_on(self.state.global_step):
            return
        generators, self.state.num_input_tokens_seen, entropy = ended
        generators.restore()
        self.entropy_coef, self._last_world_entropy = entropy
        self._save_checkpoint(self.model, trial=None)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if (reference := self._moving_reference()) is not None:
            state = torch.load(Path(resume_from_checkpoint) / _REFERENCE, weights_only=True)
            reference.load_state_dict(state)

    def _moving_reference(self) -> torch.nn.Module | None:
        """The reference, where it follows the policy, so that a checkpoint must hold it."""
        args: Any = self.args  # a TRLConfig
        return self.ref_model if args.sync_ref_model else None

    def load_weights(self, checkpoint: Path) -> None:
        """Load the weights of a checkpoint after which there is nothing left to train."""
        load: Any = self._load_from_checkpoint
        if self.is_fsdp_enabled:  # shards are read into shards
            shard: Any = self._prepare_for_training
            shard(self.args.max_steps, None, None)
        load(str(checkpoint), self.model)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._aside or super()._get_output_dir(trial))

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: TRL's knows neither the model nor what was trained."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rows = self._advantage_rows()
        if self._weighs_lines:
            rows = self._weigh(rows, out)
        in_loss = [not is_left_out for is_left_out in self._is_left_out]
        sums = ledger.advantage_sums(
            list(compress(self.scored, in_loss)), list(compress(rows, in_loss))
        )
        self._record(ledger.advantage_metrics(self._ranks.gather([sums])))
        lengths = self._ranks.gather([one.trajectory.num_sampled for one in self.scored])
        for name, of in _LENGTHS.items():
            self._metrics["train"][name] = [of(lengths)]
        ids = out["completion_ids"]
        out["advantages"] = pad_right(rows, width=ids.shape[1]).to(ids.device)
        return out

    def _advantage_rows(self) -> list[list[float]]:
        """Advantages of this process's rows; their siblings are gathered from the others."""
        scored, credit = self._ranks.gather(self.scored), self._credit
        rows = self._ranks.share(advantages.advantage_rows(scored, credit))
        if not credit.grows or self._line_config.loss_type not in _DIVIDED_BY_TOKENS:
            return rows
        weights = self._ranks.share(advantages.weight_rows(scored, credit))
        counts = [(sum(w > 0 for w in weights_T), math.fsum(weights_T)) for weights_T in weights]
        num_tokens, weighed = map(math.fsum, zip(*self._ranks.gather(counts), strict=True))
        scale = num_tokens / weighed if weighed else 1.0
        return [[scale * value for value in row_T] for row_T in rows]

    def _weigh(self, rows: list[list[float]], out: dict[str, Any]) -> list[list[float]]:
        """Advantages weighed by the trainer's ratio of each line: see `weigh_lines`."""
        cap, weighed, ratios, gaps = self._line_config.importance_cap, [], [], []
        divergences = []
        old_BT = out.get("old_per_token_logps")  # there where a rollout feeds several updates
        logprobs_BT = (self._score(out) if old_BT is None else old_BT).tolist()
        for item, row, padded, is_left_out in zip(
            self.scored, rows, logprobs_BT, self._is_left_out, strict=True
        ):
            trajectory, trainer_T = item.trajectory, padded[: len(row)]
            if is_left_out:
                weighed.append(row)
                continue
            ratios_L = line_ratios(trajectory, trainer_T)
            weighed.append(weigh_lines(trajectory, row, ratios_L, cap=cap, trainer_T=trainer_T))
            ratios.extend(ratios_L)
            gaps.append(largest_gap(trajectory, trainer_T))
            divergences.append(divergence(trajectory, trainer_T))
        gather = self._ranks.gather
        ratios, gaps, divergences = gather(ratios), gather(gaps), gather(divergences)
        if ratios:
            self._record(importance_metrics(ratios, gaps, cap=cap))
            nats, counts = zip(*divergences, strict=True)
            self._record({"inf_kld": sum(nats) / sum(counts)})
        return weighed

    def _record(self, numbers: Mapping[str, float]) -> None:
        """Let TRL log these with the step's own numbers."""
        mode = "train" if self.model.training else "eval"  # type: ignore[union-attr]
        for name, value in numbers.items():
            self._metrics[mode][name].append(value)

    def record_moved_share(self, share: float) -> None:
        """Record the share that `MovedWeights` has found."""
        self._record({"update/moved_share": share})

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.sampled = inputs["tool_mask"]
        loss: torch.Tensor = super()._compute_loss(model, inputs)  # type: ignore  # TRL has no types
        in_loss = (inputs["completion_mask"] * inputs["tool_mask"]).sum().float()
        self._num_in_loss.append(int(self.accelerator.reduce(in_loss, reduction="sum").item()))
        return loss * self._rows_per_kept if self.loss_type in _MEANS_OF_ROWS else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's, without columns that are not true here: see `_UNTRUE`, `_OVER_MICRO_BATCHES`."""
        metrics, counts = self._metrics["train"], self._num_in_loss
        for name in (*_UNTRUE, *(_LENGTHS if self._credit.grows else ())):
            metrics.pop(name, None)
        if self.scale_rewards == "batch":
            metrics.pop("frac_reward_zero_std", None)  # it would be of the batch, not of groups
        for name, of in _OVER_MICRO_BATCHES.items():
            if name not in metrics:
                continue
            if values := [one for one in zip(metrics[name], counts, strict=True) if one[1]]:
                metrics[name] = [of(values)]
            else:
                del metrics[name]
        for nats in metrics.get("kl", ()):
            self._record({"mean_kl_penalty": self.beta * nats})
        self._num_in_loss = []
        super().log(logs, start_time)

    @torch.no_grad()
    def _score(self, out: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities (B, T) of a batch under the weights that sampled it."""
        model: Any = self.model
        self.sampled = out["tool_mask"]
        was_training = model.training
        model.eval()  # engines drop nothing out
        try:
            logps, _, _ = self._get_per_token_logps_and_entropies(
                model,
                torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1),
                torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1),
                out["completion_ids"].shape[1],
                batch_size=self.args.per_device_train_batch_size,
            )
        finally:
            model.train(was_training)
        return logps

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,  # (B, P + T), prompts padded on the left
        attention_mask: torch.Tensor,  # (B, P + T)
        logits_to_keep: int,  # T
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, by a forward that spares what it can: see `forward`.

        Injected tokens get 0 as well, and never go through the head.
        """
        score = super()._get_per_token_logps_and_entropies
        sampled = torch.ones(len(input_ids), logits_to_keep, dtype=torch.bool)
        if self.sampled is not None:
            sampled = pad(self.sampled != 0, (0, logits_to_keep - self.sampled.shape[1]))
        inner, head = inner_model(self.accelerator.unwrap_model(model)), self._head(model)
        num_parts = self.length_parts
        # The loss of routers counts every token of every row.
        if self._forwards_trees and not kwargs.get("compute_aux_loss"):
            model, num_parts = as_tree(model, inner), 1
        elif num_parts > 1:
            model = as_rows(model, inner)
        # One context for all parts: each would keep its own copy of the weights for the backward.
        with self.accelerator.autocast(), head_biased(head, self._bias):
            return in_parts(
                score,
                model,
                input_ids,
                attention_mask,
                sampled.to(input_ids.device),
                num_parts=num_parts,
                batch_size=batch_size,
                **kwargs,
            )

    @property
    def _forwards_trees(self) -> bool:
        return self.takes_trees and self.length_parts > 1

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """TRL's micro-batch, in which siblings stand together where rows may be forwarded so."""
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        rollout, size = self._buffered_inputs, self.args.gradient_accumulation_steps
        if rollout is before or not self._forwards_trees or not self._is_cut_freely:
            return inputs
        self._buffered_inputs = [
            batch
            for at in range(0, len(rollout), size)
            for batch in siblings_together(rollout[at : at + size])
        ]
        return self._buffered_inputs[self._step % len(rollout)]

    @property
    def _is_cut_freely(self) -> bool:
        """True where an update is the same however its rows are dealt out to micro-batches."""
        takes_means = self._entropy_bonus_enabled or self.top_entropy_quantile < 1.0
        return self.loss_type != "bnpo" and not takes_means

    def training_step(self, model: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's; a backward may forward layers again, with the attention that they had."""
        inner = inner_model(self.model)
        with in_use(inner) if self._forwards_trees else nullcontext():
            return super().training_step(model, *args, **kwargs)  # type: ignore  # TRL has no types


def outcome_reward(*, outcome_reward: list[float | None], **_: Any) -> list[float | None]:
    """Return the reward that TRL logs. The update does not read it: its advantages are ours."""
    return outcome_reward


def _rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    assert isinstance(trainer, LineGRPOTrainer)
    rows = trainer.collect(prompts)
    width = max(map(len, rows["env_mask"]))
    trainer.sampled = pad_right(rows["env_mask"], width=width)  # the reference scores them first
    return rows


def pad_right(rows: Sequence[Sequence[float]], *, width: int) -> torch.Tensor:
    """Rows of different lengths as one float tensor (B, `width`), zeros after the end of each."""
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows])
