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
    "report.curve": "false",
}


INLINE = ("transcript=inline_calls:PROSE", "sampling.sampler=inline_calls:InlineCalls")
"""Settings of the example that brings a loop of its own."""


def small(**changes: object) -> list[str]:
    """`--set` for each setting of a tiny run; `grpo__steps=3` changes one."""
    return set_words(*small_settings(**changes))


def small_settings(**changes: object) -> list[str]:
    """The same as `key=value` alone."""
    settings = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    return [f"{key}={value}" for key, value in settings.items()]


def set_words(*settings: str) -> list[str]:
    """`--set` before each."""
    return [word for setting in settings for word in ("--set", setting)]
