"""A whole config: its sections, and what they must agree on.

Knows names and types; does not know what anything does, nor where values come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from repl_rl.bounds import ABOVE_ZERO, LEAST, LONGEST, MOST
from repl_rl.errors import ConfigError
from repl_rl.sections import USUAL_MICRO_BATCH as USUAL_MICRO_BATCH
from repl_rl.sections import Baseline as Baseline
from repl_rl.sections import Checkpointing as Checkpointing
from repl_rl.sections import DataConfig as DataConfig
from repl_rl.sections import EvalConfig as EvalConfig
from repl_rl.sections import GraderName as GraderName
from repl_rl.sections import GradingConfig as GradingConfig
from repl_rl.sections import GRPOConfig as GRPOConfig
from repl_rl.sections import LoraConfig as LoraConfig
from repl_rl.sections import Loss as Loss
from repl_rl.sections import ReportConfig as ReportConfig
from repl_rl.sections import RewardConfig as RewardConfig
from repl_rl.sections import RunOn as RunOn
from repl_rl.sections import SamplingConfig as SamplingConfig
from repl_rl.sections import SandboxConfig as SandboxConfig
from repl_rl.sections import Scale as Scale
from repl_rl.sections import TaskConfig as TaskConfig
from repl_rl.sections import WarmstartConfig as WarmstartConfig
from repl_rl.trl_options import idle, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole run. Saved as `config.toml` in its folder.

    >>> Config(model="PATH").sampling.engine
    'hf'
    """

    transcript: str = "python"
    """What a transcript looks like: `python`, `ipython`, `chat`, `chat-turns`, another name in the
    entry point group `repl_rl.transcripts`, or `module:attribute`."""
    model: str | None = None
    """Folder of a transformers model, or a GGUF file; None stands for the task's starter policy."""
    seed: int = 0
    """Of everything random: problems, rollouts, kernels, the order of the update."""
    task: TaskConfig = field(default_factory=TaskConfig)
    data: DataConfig = field(default_factory=DataConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    grpo: GRPOConfig = field(default_factory=GRPOConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    trl: Mapping[str, Any] = field(default_factory=dict)
    """Options of TRL's GRPOConfig by their names there, such as `lr_scheduler_type`, `optim`,
    `entropy_coef` and `sync_ref_model`. What has a setting of its own is refused."""
    warmstart: WarmstartConfig = field(default_factory=WarmstartConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        for name, value in _numbers(self, ""):
            # Before all else: a longer integer may have no float, nor digits that Python prints.
            if isinstance(value, int) and abs(value) > LONGEST:
                raise ConfigError(f"{name} is beyond 2**63; expected a number that fits 64 bits")
            if not math.isfinite(value):
                raise ConfigError(f"{name} = {value}; expected a finite number")
            if name in ABOVE_ZERO and value <= 0:
                raise ConfigError(f"{name} = {value}; expected more than 0")
            if value < LEAST.get(name, value):
                raise ConfigError(f"{name} = {value}; expected at least {LEAST[name]}")
            if value > MOST.get(name, value):
                raise ConfigError(f"{name} = {value}; expected at most {MOST[name]}")
        if (self.grpo.loss_type, self.grpo.importance) == ("vespo", "line"):
            raise ConfigError(
                "grpo.loss_type = 'vespo' weighs whole trajectories, so it takes no weights of "
                "lines; give grpo.importance = 'off', or another loss"
            )
        if self.lora.targets and not self.lora.rank:
            raise ConfigError(
                f"lora.targets = {list(self.lora.targets)} has no effect: lora.rank = 0 trains all "
                f"weights; give lora.rank = 16"
            )
        if self.grpo.steps % self.grpo.num_rollout_updates:
            raise ConfigError(
                f"grpo.steps = {self.grpo.steps} would end within a rollout, which feeds "
                f"{self.grpo.num_rollout_updates} updates (grpo.updates_per_rollout times "
                f"grpo.passes); expected a multiple of that"
            )
        _check_trl(self.trl, self.grpo)
        _check_prices(self.reward)


def _check_trl(options: Mapping[str, Any], grpo: GRPOConfig) -> None:
    """ConfigError for an option that this project sets itself, or that would have no effect."""
    for name in options:
        if (why := refusal(name)) is not None:
            raise ConfigError(f"trl.{name} is not taken; {why}")
        is_on_policy = grpo.num_rollout_updates == 1
        why = idle(name, options, loss=grpo.loss_type, is_on_policy=is_on_policy)
        if why is not None:
            raise ConfigError(f"trl.{name} would have no effect; {why}")
    if options.get("sync_ref_model") and not grpo.kl_beta:
        raise ConfigError(
            "trl.sync_ref_model = true without a reference; expected grpo.kl_beta above 0"
        )


def _check_prices(reward: RewardConfig) -> None:
    """ConfigError unless errors cost less than answers pay, and silence costs more."""
    for line, price in reward.line.items():
        if price > 0:
            raise ConfigError(
                f"reward.line.{line} = {price} would pay for each such line, and lines are cheap; "
                f"expected at most 0"
            )
    worst = min(0.0, *reward.verdict.values()) - reward.max_line_charge
    if reward.no_submission >= worst:
        raise ConfigError(
            f"reward.no_submission = {reward.no_submission} would make silence a better deal "
            f"than an attempt with errors; expected less than {worst:g} (the least of "
            f"reward.verdict, minus reward.max_line_charge)"
        )
    solved = [price for kind, price in reward.verdict.items() if kind.is_solved]
    failed = [price for kind, price in reward.verdict.items() if kind.is_failed]
    gap = min(solved, default=math.inf) - max(failed, default=-math.inf)
    for name, price in (("max_line_charge", reward.max_line_charge), ("lemma", reward.lemma)):
        if price >= gap:
            raise ConfigError(
                f"reward.{name} = {price} would let lines outweigh a correct answer; expected less "
                f"than {gap:g} (the least of reward.verdict for a correct answer, minus the most "
                f"for a wrong one)"
            )


def _numbers(section: Any, prefix: str) -> Iterator[tuple[str, float]]:
    """Every number of a section and of those below it, with its full name."""
    if not isinstance(section, Mapping):
        section = {one.name: getattr(section, one.name) for one in fields(section)}
    for name, value in section.items():
        if isinstance(value, Mapping) or is_dataclass(value):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value
