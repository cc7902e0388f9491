"""The messages between a grader and its worker: one JSON object a line, in both directions.

    Request  {"task_spec", "problem" | null, "submission" | null}   problem null: only load the task
    Reply    {"verdict" | null, "failure"}                     failure: the task could not be loaded

Types alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from repl_rl.types import Problem, Verdict

MAX_MESSAGE_BYTES = 1 << 20
MAX_TEXT_CHARS = 1 << 16
"""The longest submission that is sent, and the longest text in a verdict that comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    task_spec: str
    """`module:Class`, a task with `grade(problem, submission)`."""
    problem: Problem | None = None
    submission: str | None = None
    """None: the task's own reference answer. If it has none, the verdict is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    verdict: Verdict | None = None
    failure: str = ""
