"""Progress of a job as it reports it: to a terminal, a log, a notebook, or to nobody.

    job -> say, warn, bar, inside, metrics, sample -> whoever shows it

Knows texts, counts and records. Does not know screens: `viewer.show.display.Screen` shows it in a
terminal. The base class is silent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from repl_rl.records import Scored

Note = str | Callable[[], str]
"""A few words beside a bar; a function is asked whenever it is shown."""


class Update(Protocol):
    """Moves a bar."""

    def __call__(self, done: int, note: Note = "", total: int = ...) -> None: ...


def ignore(done: int, note: Note = "", total: int = 0) -> None:
    """Move no bar."""


class Progress:
    """Reports of a running job. Override what you want to show; the rest stays silent.

    >>> class Printed(Progress):
    ...     def say(self, text: str) -> None:
    ...         print(text)
    >>> Printed().say("seed 0")
    seed 0
    """

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def warn(self, text: str) -> None:
        """Show a warning that stays."""

    @contextlib.contextmanager
    def bar(self, description: str, total: int, *, has_metrics: bool = False) -> Iterator[Update]:
        """Show a bar with the time left. Yields the function that moves it: (done, note, total).

        With `has_metrics` each step reports its own `metrics`, and a log needs no more.
        """
        yield ignore

    def inside(self, name: str, total: int) -> Update:
        """Show a second bar below the first, for a part of its work, until the next part begins."""
        return ignore

    def metrics(self, step: int, total: int, row: Mapping[str, float]) -> None:
        """Show the numbers of a step, by their names in `metrics.jsonl`."""

    def sample(
        self, title: str, scored: Scored, decode: Callable[[Sequence[int]], str] | None = None
    ) -> None:
        """Show a trajectory; `decode` turns its token ids into text."""


SILENT = Progress()
