"""Sources of a warm start's transcripts, and what it trains: decided before torch is loaded.

    --from, --whole -> Sources, a config with an adapter

Knows settings and paths. Does not know models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from repl_rl.config import Config
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.sampler import Written
from repl_rl.tasks.base import DemonstrableTask

_LORA_RANK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of transcripts, beside the task's own scripts."""

    written: tuple[Written, ...] = ()
    runs: tuple[Path, ...] = ()
    """Folders of runs and files of trajectories, of which the solved ones count."""


def adapted(config: Config, *, is_whole: bool) -> Config:
    """The config of a warm start: with an adapter, unless all weights are trained."""
    if is_whole and config.lora.rank:
        raise ConfigError(
            f"--whole trains all weights, but lora.rank = {config.lora.rank}; give one of the two"
        )
    if is_whole or config.lora.rank:
        return config
    return replace(config, lora=replace(config.lora, rank=_LORA_RANK))


def check_sources(plan: Plan, sources: Sources) -> None:
    """ConfigError where there is nothing to show a model, before anything is loaded."""
    asks = plan.warmstart.demonstrations
    if asks and not isinstance(plan.task, DemonstrableTask):
        raise ConfigError(
            f"task {plan.task.name!r} has no demonstrate(); give transcripts of your own with "
            f"--from FILE.repl, or solved ones of a run with --from RUN --solved"
        )
    if not (asks or sources.written or sources.runs):
        raise ConfigError("warmstart.demonstrations = 0 and no --from: nothing to show the model")
