"""What marks the folder of a warm start, which no run of GRPO goes on in, and what it was made of.

    RUN/warmstart.json <-> WarmRecord

Knows a run's folder. Does not know how transcripts come about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from repl_rl.disk import replace_file

LESSONS = "lessons"
"""Name of the file of transcripts that the model was shown."""
_MARK = "warmstart.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRecord:
    """What a model was shown."""

    transcripts: int
    steps: int
    learning_rate: float
    taken: Mapping[str, int] = field(default_factory=dict)
    """Transcripts by where they come from."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Transcripts by why they were not shown."""


def write_record(run: Path, record: WarmRecord) -> None:
    """Mark the folder. Raises StorageError where the disk refuses."""
    replace_file(run / _MARK, msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def read_record(run: Path) -> WarmRecord | None:
    """None where the folder holds no warm start."""
    try:
        return msgspec.json.decode((run / _MARK).read_bytes(), type=WarmRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        return WarmRecord(transcripts=0, steps=0, learning_rate=0.0)
