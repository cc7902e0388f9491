"""A whole config: its sections, and what they must agree on.

Knows names and types; does not know what anything does, nor where values come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repl_rl.config.foreign_words import idle, refusal
from repl_rl.config.sections import (
    DataConfig,
    EvalConfig,
    GradingConfig,
    GRPOConfig,
    LoraConfig,
    Preset,
    ReportConfig,
    RewardConfig,
    SamplingConfig,
    SandboxConfig,
    TaskConfig,
    WarmstartConfig,
    WorkersConfig,
)
from repl_rl.config.values import checked, hints_of
from repl_rl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole run. Saved as `config.toml` in its folder.

    >>> Config(model="PATH").sampling.engine
    'auto'
    """

    transcript: str = "python"
    """Format of a transcript: `python`, `ipython`, `chat`, `chat-turns`, a name in the entry point
    group `repl_rl.transcripts`, or `module:attribute`."""
    model: str | None = None
    """Folder of a transformers model, a GGUF file, or `owner/name` on the hub. Not set: `preset`
    says which policy it is."""
    preset: Preset = "none"
    """`starter`: without a model, the task's starter policy, with defaults for a small policy that
    learns fast. This is the default if no model is named. `none`: the usual defaults; without a
    model, another program samples the lines."""
    seed: int = 0
    """Seed for problems, rollouts, kernels and update order."""
    task: TaskConfig = field(default_factory=TaskConfig)
    data: DataConfig = field(default_factory=DataConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    grpo: GRPOConfig = field(default_factory=GRPOConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    trl: Mapping[str, Any] = field(default_factory=dict)
    """Options of TRL's GRPOConfig under TRL's names, such as `lr_scheduler_type`, `optim`,
    `entropy_coef` and `sync_ref_model`. An option that has a setting of repl-rl's own is
    refused."""
    warmstart: WarmstartConfig = field(default_factory=WarmstartConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    workers: WorkersConfig = field(default_factory=WorkersConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        # Here, and in no reader: whatever makes a config, from TOML, in Python or by `replace`,
        # comes through here, and a section has its full name only as a part of it.
        for name, hint in hints_of(Config).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), hint))
        if (self.grpo.loss_type, self.grpo.importance) == ("vespo", "line"):
            raise ConfigError(
                "grpo.loss_type = 'vespo' weighs whole trajectories, so lines cannot have weights, "
                "too; give grpo.importance = 'off', or another loss"
            )
        if self.lora.targets and not self.lora.rank:
            raise ConfigError(
                f"lora.targets = {list(self.lora.targets)} has no effect: lora.rank = 0 trains all "
                f"weights; give lora.rank = 16"
            )
        if self.workers.launch and not self.workers.count:
            raise ConfigError(
                f"workers.launch = {list(self.workers.launch)} has no effect: workers.count = 0 "
                f"starts no worker; give workers.count = {len(self.workers.launch)}"
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
            "trl.sync_ref_model = true needs a reference model; expected grpo.kl_beta above 0"
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
    if reward.max_line_charge >= gap:
        raise ConfigError(
            f"reward.max_line_charge = {reward.max_line_charge} would let lines outweigh a correct "
            f"answer; expected less than {gap:g} (the least of reward.verdict for a correct "
            f"answer, minus the most for a wrong one)"
        )
