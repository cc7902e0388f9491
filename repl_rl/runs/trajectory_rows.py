"""The rows of a file of trajectories: bytes in, one row at a time, decoded in full or at a glance.

    NAME.jsonl -> (line number, offset, bytes) -> Row | GlanceRow

Invalid rows and files are refused here. Knows bytes and records. Does not know what a file's rows
mean together.
"""

from __future__ import annotations

import itertools
import logging
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from repl_rl import former
from repl_rl.errors import ConfigError
from repl_rl.plugins import nearest_folder
from repl_rl.types import Branch, Origin, OutcomeKind, Reward, Scored, StopReason, VerdictKind
from repl_sandbox.render import clean

FORMAT = 2
"""Version of the rows that are written."""
FIRST_WITH_ORIGIN = 2
_OLDEST = 1
"""Version of the rows that are still read."""
FOLDER = "trajectories"
"""Of a run, where its files are."""
EXPECTED = f"expected a row as a run writes them to {FOLDER}/*.jsonl"
_MAX_ROW_BYTES = 1 << 28
"""Anything longer is no row: a foreign file may have no end of line at all."""
_HEAD_BYTES = 1 << 16
"""How much is read before it has to look like a row."""
_BEGINNING = b'{"format"'


class _Header(msgspec.Struct, frozen=True):
    """What every version of a row has."""

    format: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """A row holds the origin of the rows below it, or a trajectory."""

    format: int
    origin: Origin | UnsetType | None = UNSET
    """None: the origin of the rows below is not known."""


class Row(_Head, frozen=True, kw_only=True):
    """A row in full."""

    scored: Scored | UnsetType = UNSET


class _Outcome(msgspec.Struct, frozen=True):
    kind: OutcomeKind


class _Line(msgspec.Struct, frozen=True):
    outcome: _Outcome


class _Trajectory(msgspec.Struct, frozen=True):
    problem_id: str
    group_index: int
    sibling_index: int
    policy_version: int
    stop_reason: StopReason
    lines: tuple[_Line, ...]
    branch: Branch | None = None


class _Verdict(msgspec.Struct, frozen=True):
    kind: VerdictKind


class Glance(msgspec.Struct, frozen=True):
    """The part of a trajectory that lists and filters need."""

    trajectory: _Trajectory
    verdict: _Verdict | None
    reward: Reward


class GlanceRow(_Head, frozen=True, kw_only=True):
    """A row at a glance."""

    scored: Glance | UnsetType = UNSET


def rows(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(line number, offset, row); skips blank rows, and a last one that was cut off."""
    offset = 0
    with opened(path) as file:
        for number in itertools.count(1):
            row = read_row(file, f"{path}:{number}")
            if not row.endswith(b"\n"):
                return
            if not row.isspace():
                yield number, offset, row
            offset += len(row)


def read_row(file: BinaryIO, where: str) -> bytes:
    """The next row, without an end of line where it was cut off; empty at the end of the file.

    Raises ConfigError for what cannot be read, and for what has no end and is no part of a row.
    """
    try:
        row = file.readline(_HEAD_BYTES)
        if row.startswith(b"{") and not row.endswith(b"\n"):
            row += file.readline(_MAX_ROW_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {where}: {error.strerror}") from None
    is_cut = len(row) < _MAX_ROW_BYTES and _BEGINNING.startswith(row[: len(_BEGINNING)])
    if row.endswith(b"\n") or is_cut:
        return row
    raise ConfigError(f"{where} is not a trajectory: a row without an end; {EXPECTED}")


def size(path: Path) -> int:
    """In bytes. ConfigError for anything that cannot be read twice: a pipe, a device."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        near = nearest_folder(str(path))
        hint = f"; {near}" if near else ""
        raise ConfigError(f"no such file or run folder: {str(path)!r}{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{str(path)!r} is no regular file; expected a .jsonl file or a run")
    return found.st_size


def opened(path: Path) -> BinaryIO:
    """A file to read rows from; ConfigError as `size`."""
    size(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None


_Kind = TypeVar("_Kind", Row, GlanceRow)


def decode_row(row: bytes, where: str) -> Row:
    """All of it. ConfigError that names `where` for what is no row of a format that is read."""
    return _decode(row, _ROW, where)


def glance_at(row: bytes, where: str) -> GlanceRow:
    """What lists and filters need of it; ConfigError as `decode_row`."""
    return _decode(row, _GLANCE, where)


def _decode(row: bytes, decoder: msgspec.json.Decoder[_Kind], where: str) -> _Kind:
    try:
        if (found := _HEADER.decode(row).format) not in range(_OLDEST, FORMAT + 1):
            raise ConfigError(
                f"{where} has format {found}; this version of repl-rl reads {_OLDEST} to {FORMAT}"
            )
        decoded = _renewed(row, decoder) if former.has_claims(row) else decoder.decode(row)
    except (msgspec.DecodeError, RecursionError) as error:
        # The error may quote the file, which may hold anything.
        why = clean(str(error)).replace("\n", " ")
        raise ConfigError(f"{where} is not a trajectory: {why}; {EXPECTED}") from None
    if decoded.origin is UNSET and decoded.scored is UNSET:
        raise ConfigError(f"{where} is not a trajectory: it has no `scored`; {EXPECTED}")
    return decoded


def _renewed(row: bytes, decoder: msgspec.json.Decoder[_Kind]) -> _Kind:
    _say(former.UNPAID)
    return msgspec.convert(former.without_claims(msgspec.json.decode(row)), decoder.type)


@cache
def _say(text: str) -> None:
    """Print a row on stderr, once: without handlers a logger writes there."""
    logging.getLogger("repl_rl").warning("repl-rl: %s", text)


_HEADER = msgspec.json.Decoder(_Header)
_ROW = msgspec.json.Decoder(Row)
_GLANCE = msgspec.json.Decoder(GlanceRow)
