"""The settings of a run that takes seconds with a tiny model."""

from __future__ import annotations

SMALL = {
    "grpo.steps": 2,
    "grpo.problems_per_step": 1,
    "grpo.group_size": 4,
    "grpo.micro_batch_size": 4,
    "grpo.gradient_checkpointing": "false",
    "sampling.max_lines": 3,
    "sampling.max_line_tokens": 12,
    "sampling.max_tokens": 160,
    "sampling.max_in_flight": 4,
    "sampling.device": "cpu",
    "sandbox.standby": 1,
    "eval.problems": 2,
    "report.sample_every": 1,
}


def small(**changes: object) -> list[str]:
    """`--set` for each setting of a tiny run; `grpo__steps=3` changes one."""
    settings = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
