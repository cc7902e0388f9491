"""Progress of the work under way: how much is done, how fast, and how long the rest takes.

    name, total; done, done, ... -> a bar for a terminal | a line at each tenth for a log

Knows numbers and names. Does not know what they are about, nor who shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from repl_rl.progress import Note

Clock = Callable[[], float]
"""Seconds, as `time.monotonic`."""


class Phase:
    """One piece of work under way; `move` records its progress."""

    def __init__(self, name: str, total: int, *, clock: Clock, note: Note = "") -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._note = note
        self._clock = clock
        self._began = self._moved = clock()

    def move(self, done: int, note: Note, total: int) -> None:
        self.done, self._note, self.total = done, note, total
        self._moved = self._clock()

    @property
    def note(self) -> str:
        return self._note() if callable(self._note) else self._note

    @property
    def count(self) -> str:
        return f"{self.done}/{self.total}"

    @property
    def left(self) -> str:
        """Time that the rest takes at the mean pace so far, as `1:02:03`; unknown: `-:--:--`.

        What has passed since the last move is taken off, so it falls while a long step runs.
        """
        if not self.done:
            return "-:--:--"
        spent = self._moved - self._began
        rest = spent / self.done * (self.total - self.done) - (self._clock() - self._moved)
        minutes, seconds = divmod(round(max(0.0, rest)), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def bars(phases: Sequence[Phase]) -> Table:
    """A row for each phase; the parts of a phase are indented below it."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, min_width=len("  sampling"))  # so that parts do not move it
    table.add_column(ratio=1)
    for _ in ("count", "left", "note"):
        table.add_column(no_wrap=True, justify="right")
    for depth, phase in enumerate(phases):
        table.add_row(
            Text("  " * depth + phase.name),
            ProgressBar(total=max(1, phase.total), completed=phase.done, pulse=False),
            Text(phase.count, "progress.download"),
            Text(phase.left, "progress.remaining"),
            Text(phase.note),
        )
    return table


class Tenths:
    """Reports a phase at each tenth of its work, but never twice within `quiet_s` seconds."""

    def __init__(self, say: Callable[[str], None], *, quiet_s: float, clock: Clock) -> None:
        self._say = say
        self._quiet_s = quiet_s
        self._clock = clock
        self._tenth = 0
        self._said = clock()

    def hear(self, phase: Phase) -> None:
        """Report a phase that has passed a tenth. Its end is not reported: its result is."""
        tenth = 10 * phase.done // max(1, phase.total)
        if not self._tenth < tenth < 10 or self._clock() - self._said < self._quiet_s:
            return
        self._tenth, self._said = tenth, self._clock()
        cells = (phase.name, phase.count, phase.note, f"{phase.left} left")
        self._say("  ".join(filter(None, cells)))
