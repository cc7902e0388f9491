"""What a task is: problems, a prompt, a grader, and (optionally) scripted demonstrations.

Knows no tokens, no kernel, no training.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Generator, Iterator
from typing import Protocol, runtime_checkable

from repl_rl.errors import ConfigError
from repl_rl.plugins import load_spec, resolve_spec
from repl_rl.transcript.format import Prompt, TranscriptFormat, setup_sources
from repl_rl.types import Problem, Split, Verdict

Script = Generator[str, str, None]
"""Yields source lines without newline; each `yield` gives back what the interpreter answered."""


class Task(Protocol):
    """Problems and their grader. The command line names it by entry point or `module:Class`.

    >>> task, _ = load_task("sympy-proofs")
    >>> problem = next(task.problems(Split.TRAIN, seed=0))
    >>> str(task.grade(problem, "no answer").kind)
    'malformed'
    """

    name: str
    prompt: str
    """Source lines after the banner, `{{problem}}` among them. Its code runs before the policy."""

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Problems of one side, endless or not; the same seed gives the same sequence."""
        ...

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """Judge a submission: untrusted text, never to be evaluated.

        Runs in the grader's process under a deadline. What it raises is a grader's error.
        """
        ...


@runtime_checkable
class DemonstrableTask(Task, Protocol):
    """A task that can show a model what transcripts look like; `repl-rl warmstart` needs one.

    >>> isinstance(load_task("sympy-proofs")[0], DemonstrableTask)
    True
    """

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        """One scripted attempt, right or wrong, that reacts to what the interpreter answers."""
        ...


@runtime_checkable
class ReferencedTask(Task, Protocol):
    """A task that knows an answer to each problem; with it the grader finds out who is to blame."""

    def reference(self, problem: Problem) -> str:
        """One submission that solves `problem`, as text.

        Graded where a submission could not be: if this one can be in time, that one is malformed.
        """
        ...


def load_task(name: str) -> tuple[Task, str]:
    """A task by entry point or `module:Class`, and the spec that the grader's process imports.

    >>> load_task("sympy-proofs")[1]
    'repl_rl.tasks.sympy_proofs:SympyProofs'
    """
    spec = resolve_spec(name, group="repl_rl.tasks")
    factory = load_spec(spec)
    if not callable(factory):
        raise ConfigError(f"{spec!r} is not a class that makes a task")
    task = factory()
    missing = [part for part in ("name", "prompt", "problems", "grade") if not hasattr(task, part)]
    if missing:
        raise ConfigError(f"{spec!r} is no task: it lacks {', '.join(missing)}")
    return task, spec


def demonstrable(task: Task) -> DemonstrableTask:
    """The task itself; ConfigError if it has no demonstrations to show."""
    if not isinstance(task, DemonstrableTask):
        raise ConfigError(
            f"task {task.name!r} has no demonstrate(), so no starter can be made; give --model PATH"
        )
    return task


def make_prompt(task: Task, problem: Problem, fmt: TranscriptFormat) -> Prompt:
    """What a policy sees of a problem before its first line."""
    return fmt.prompt(task.prompt, problem.statement, python_version=platform.python_version())


def make_setup(task: Task, fmt: TranscriptFormat) -> tuple[str, ...]:
    """What a kernel runs before the policy's first line."""
    return (*fmt.setup, *setup_sources(task.prompt))
