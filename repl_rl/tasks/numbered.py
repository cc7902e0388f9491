"""Problems of a task by split and number, for whoever asks for a certain one.

    task, seed -> NumberedProblems;  split, index -> Problem

Knows a task's sequences. Does not know who asks.
"""

from __future__ import annotations

import itertools
import sys
import threading

from repl_rl.base.concurrency import derive_seed
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Split
from repl_rl.tasks.base import Task

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
