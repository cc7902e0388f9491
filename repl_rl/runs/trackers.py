"""Trackers that a run reports to: their names, and which rows of metrics each has been given.

    report.trackers -> names;  RUN/trackers.json <-> Given

Knows names and a file. Does not know how a tracker is reached.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from repl_rl.disk import replace_file
from repl_rl.errors import ConfigError

TENSORBOARD, WANDB, TRACKIO = "tensorboard", "wandb", "trackio"
TRACKERS = (TENSORBOARD, WANDB, TRACKIO)


def check_trackers(names: Sequence[str]) -> None:
    """ConfigError for a tracker that is unknown, or not installed."""
    for name in names:
        if name not in TRACKERS:
            near = difflib.get_close_matches(name, TRACKERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TRACKERS)}"
            raise ConfigError(f"report.trackers: unknown tracker {name!r}; {hint}")
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a tracker's own folder of logs has no origin
            raise ConfigError(f"report.trackers: {name} is not installed: pip install {name}")


class Given(msgspec.Struct, kw_only=True):
    """What trackers have of a run: its file `trackers.json`."""

    id: str
    """Of the run, for services that keep it."""
    name: str
    """The same with the folder's name, for people. No other run has it."""
    rows: dict[str, int] = {}
    """How many rows of metrics each tracker has been given at least."""
    dropped: list[str] = []
    """Those that failed: they have `rows` and no more. The others have all rows of the file."""

    @classmethod
    def of(cls, run: Path) -> Given:
        """What the file of a run says; a new id where there is none that can be read."""
        try:
            return msgspec.json.decode((run / _FILE).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            made = secrets.token_hex(4)
            return cls(id=made, name=f"{run.absolute().name}-{made}")

    def write(self, run: Path) -> None:
        """Raises StorageError where the disk refuses."""
        content = json.dumps(msgspec.to_builtins(self), indent=2)
        replace_file(run / _FILE, content.encode() + b"\n")

    def has_all(self, tracker: str) -> bool:
        """Whether it was given every row that the run has written."""
        return tracker in self.rows and tracker not in self.dropped


_FILE = "trackers.json"


def note_rows(run: Path, num_rows: int) -> None:
    """Keep how many rows there are, before some of them are cut."""
    if not (run / _FILE).exists():
        return
    given = Given.of(run)
    for tracker, known in given.rows.items():
        if given.has_all(tracker):
            given.rows[tracker] = max(known, num_rows)
    given.write(run)
