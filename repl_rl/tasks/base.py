"""Tasks: problems, a prompt, a grader, and (optionally) scripted demonstrations.

`NumberedProblems` finds a problem by its split and number.

Knows no tokens, no kernel, no training.
"""

from __future__ import annotations

import itertools
import platform
import random
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol, Self, runtime_checkable

from repl_rl.base.concurrency import derive_seed
from repl_rl.base.plugins import load_spec, resolve_spec, users_code
from repl_rl.config.sections import DataConfig, TaskConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Split, Verdict
from repl_rl.tasks.data.names import check_no_file, find_file, is_data, is_file
from repl_rl.transcript.format import PROBLEM_MARKER, Prompt, TranscriptFormat, setup_sources

Script = Generator[str, str, None]
"""Yields source lines without newline; each `yield` gives back what the interpreter answered."""


class Task(Protocol):
    """Problems and their grader. The command line names it by entry point or `module:Class`, or
    names data that become one: see `load_task`.

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
        """One scripted attempt, right or wrong, that reacts to what the interpreter answers.

        Yields at least one line. With `grpo.prefix_share` it may yield none, for a problem that it
        has no script for: its group then begins at the prompt.
        """
        ...


@runtime_checkable
class ReferencedTask(Task, Protocol):
    """A task that knows an answer to each problem; with it the grader finds out who is to blame."""

    def reference(self, problem: Problem) -> str | None:
        """One submission that solves `problem`, as text; None where nobody knows any.

        Graded where a submission could not be: if this one can be in time, that one is malformed.
        For None an empty text is graded in its place, and may be judged in any way.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A family of problems at one tier.

    >>> str(Cell(family="ode", tier=3))
    'ode-3'
    """

    family: str
    tier: int

    def __str__(self) -> str:
        return f"{self.family}-{self.tier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Choice among a task's problems.

    >>> Choice(families=("ode", "sum"), tiers=(1, 2), held_out=("ode",)).families_of(Split.TRAIN)
    ('sum',)
    """

    families: tuple[str, ...]
    tiers: tuple[int, ...]
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative frequency of each family; a family that is not named has 1."""
    held_out: tuple[str, ...] = ()
    """Families that are measured alone: no training problem is one of theirs."""
    is_frozen: bool = False
    """Measured are the problems of a fixed list, whatever the seed."""

    def families_of(self, split: Split) -> tuple[str, ...]:
        apart = self.held_out if split is Split.TRAIN else ()
        return tuple(name for name in self.families if name not in apart)


@runtime_checkable
class TieredTask(Task, Protocol):
    """A task whose problems come in families and tiers, of which a config chooses some."""

    cells: tuple[Cell, ...]
    """All that there are."""
    choice: Choice
    """Choice that `problems` draws from."""

    def with_choice(self, choice: Choice) -> Self:
        """Another task of this kind, whose `problems` draws from `choice`."""
        ...


def baselines_of(task: Task) -> Mapping[str, Mapping[str, float]]:
    """Rates by the name of who has them, such as `guessing`, and by cell, such as `ode-3`.

    The attribute `baselines` of a task that has it.
    """
    baselines: Mapping[str, Mapping[str, float]] = getattr(task, "baselines", {})
    return baselines


def choose(task: Task, config: TaskConfig) -> Task:
    """The task that draws the problems that a config asks for; what it leaves open is as in `task`.

    Raises ConfigError for a family or tier that is not there, and for a choice that leaves nothing
    to train on.
    """
    settings = (config.families, config.tiers, config.weights, config.held_out, config.frozen)
    if not any(settings):
        return task
    if not isinstance(task, TieredTask):
        raise ConfigError(
            f"task {task.name!r} has no families and tiers (cells, choice, problem, with_choice); "
            f"leave out all of [task] but its name"
        )
    known = list(dict.fromkeys(cell.family for cell in task.cells))
    tiers = config.tiers or task.choice.tiers
    families = config.families or task.choice.families
    if families == ("all",):
        families = tuple(dict.fromkeys(cell.family for cell in task.cells if cell.tier in tiers))
    named = {"families": families, "weights": tuple(config.weights), "held_out": config.held_out}
    for key, names in named.items():
        among = known if key == "families" else list(families)
        for name in names:
            if name not in among:
                raise ConfigError(f"task.{key} names {name!r}; expected some of {', '.join(among)}")
    for name, weight in config.weights.items():
        if weight <= 0:
            raise ConfigError(
                f"task.weights.{name} = {weight:g}; expected more than 0, or a task.families "
                f"without {name!r}"
            )
    for family in families:
        own = [cell.tier for cell in task.cells if cell.family == family]
        if not set(own) & set(tiers):
            raise ConfigError(
                f"family {family!r} has no problems of task.tiers = {list(tiers)}; it has tiers "
                f"{', '.join(map(str, own))}"
            )
    if not families:
        raise ConfigError(f"no family has problems of task.tiers = {list(tiers)}")
    choice = Choice(
        families=families,
        tiers=tiers,
        weights=config.weights,
        held_out=config.held_out,
        is_frozen=config.frozen,
    )
    if not choice.families_of(Split.TRAIN):
        raise ConfigError(
            f"task.held_out = {list(config.held_out)} leaves no family to train on; expected fewer "
            f"than task.families"
        )
    return task.with_choice(choice)


class Readable(Protocol):
    """Content that a task has read: see `repl_rl.tasks.data.reading`."""

    @property
    def sides(self) -> Mapping[Split, Sequence[Problem]]:
        """All problems of each split; empty for a task that draws them without end."""
        ...

    @property
    def summary(self) -> str: ...

    @property
    def record(self) -> str: ...


@runtime_checkable
class StoredTask(Task, Protocol):
    """A task whose problems are read from somewhere."""

    def read(self) -> Readable:
        """Read the data once, and sum it up in a line for a person and in one for a run's folder.

        Raises ConfigError where it cannot be read.
        """
        ...


def check_task(name: str) -> None:
    """ConfigError, with the nearest name, for a name of no task and of no file. Imports no task."""
    if is_file(name):
        find_file(name)
    elif not is_data(name):
        check_no_file(name)
        resolve_spec(name, group="repl_rl.tasks")


def load_task(name: str, data: DataConfig | None = None) -> tuple[Task, str]:
    """A task by its name, and the spec that the grader's process imports.

    The name is an entry point, `module:Class`, or data: a file of rows, `hf:owner/name` or
    `reasoning-gym:family`. Raises ConfigError for an unknown name, and for settings of `data` that
    the task does not read.

    >>> load_task("sympy-proofs")[1]
    'repl_rl.tasks.sympy_proofs:SympyProofs'
    """
    if is_data(name):
        from repl_rl.tasks.data.task import open_data

        return open_data(name, data or DataConfig())
    check_no_file(name)
    _check_unread(name, data or DataConfig())
    spec = resolve_spec(name, group="repl_rl.tasks")
    factory = load_spec(spec)
    if not callable(factory):
        raise ConfigError(f"{spec!r} is not a class that makes a task")
    with users_code(f"{spec}()"):
        task = factory()
    missing = [part for part in ("name", "prompt", "problems", "grade") if not hasattr(task, part)]
    if missing:
        raise ConfigError(f"{spec!r} is no task: it lacks {', '.join(missing)}")
    if not isinstance(task.prompt, str):
        raise ConfigError(f"{spec}.prompt is {task.prompt!r}; expected a text")
    with users_code(f"{spec}.problems(split, seed=0)"):
        problems = task.problems(Split.TRAIN, seed=0)
        if not isinstance(problems, Iterator):
            raise ConfigError(
                f"{spec}.problems returns {type(problems).__name__}; expected an iterator of "
                f"Problems, as a function that yields them makes"
            )
        first = next(problems, None)
    if not isinstance(first, Problem | None):
        raise ConfigError(f"{spec}.problems yields {type(first).__name__}; expected Problems")
    return task, spec


def _check_unread(name: str, data: DataConfig) -> None:
    for one in fields(data):
        if (value := getattr(data, one.name)) != one.default:
            raise ConfigError(
                f"data.{one.name} = {value!r} has no effect: task {name!r} reads no rows; "
                f"expected a task such as rows.jsonl or hf:owner/name"
            )


def demonstrable(task: Task) -> DemonstrableTask:
    """The task itself; ConfigError if it has no demonstrations to show."""
    if not isinstance(task, DemonstrableTask):
        raise ConfigError(
            f"task {task.name!r} has no demonstrate(), so no starter can be made; give --model PATH"
        )
    return task


def make_prompt(task: Task, problem: Problem, fmt: TranscriptFormat) -> Prompt:
    """Make the prompt before a policy's first line; the problem's bindings come first."""
    bindings = "\n".join([*problem.setup, PROBLEM_MARKER])
    return fmt.prompt(
        task.prompt.replace(PROBLEM_MARKER, bindings),
        problem.statement,
        python_version=platform.python_version(),
    )


def make_setup(task: Task, fmt: TranscriptFormat) -> tuple[str, ...]:
    """Sources that a kernel runs before the policy's first line."""
    return (*fmt.setup, *setup_sources(task.prompt))


_SEQUENCE = {Split.TRAIN: "train", Split.HELD_OUT: "held-out"}


class NumberedProblems:
    """The first problems of each split: those that a run of this seed trains on and measures.

    They are drawn when they are asked for, and once. Several threads may ask.

        problems = NumberedProblems(task, seed=0, most=1000)
        problems.get("held_out", 7).statement
    """

    def __init__(self, task: Task, *, seed: int, most: int) -> None:
        self._sources = {
            split: itertools.islice(task.problems(split, seed=derive_seed(seed, name)), most)
            for split, name in _SEQUENCE.items()
        }
        self._drawn: dict[Split, list[Problem]] = {split: [] for split in Split}
        self._lock = threading.Lock()

    def count(self, split: str) -> int:
        """Count the problems, up to `most`; draws them all. Raises ConfigError for no split."""
        return len(self._first(_split(split), None))

    def all(self, split: str) -> list[Problem]:
        """All of them, at most `most`. Raises ConfigError where there are none."""
        if not self.count(split):
            raise ConfigError(f"there are no problems in the split {split!r}; expected some")
        return list(self._drawn[_split(split)])

    def get(self, split: str, index: int) -> Problem:
        """The problem of this number, from 0 on. Raises ConfigError where there is none."""
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ConfigError(f"index = {index!r}; expected a whole number from 0 on")
        problems = self._first(_split(split), min(index + 1, sys.maxsize))
        if index >= len(problems):
            raise ConfigError(
                f"there is no problem {index} in the split {split!r}, which has {len(problems)}; "
                f"expected less than that"
            )
        return problems[index]

    def _first(self, split: Split, num: int | None) -> list[Problem]:
        """Draw at least `num` problems of a split, or all; fewer where it ends."""
        drawn = self._drawn[split]
        with self._lock:
            missing = None if num is None else max(0, num - len(drawn))
            drawn += itertools.islice(self._sources[split], missing)
        return drawn


def _split(name: str) -> Split:
    try:
        return Split(name)
    except ValueError:
        names = ", ".join(Split)
        raise ConfigError(f"there is no split {name!r}; expected one of {names}") from None
