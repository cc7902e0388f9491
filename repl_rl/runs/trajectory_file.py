"""The file format of trajectories: write, read, glance at, select.

    Origin, Scored, Scored, ... <-> NAME.jsonl -> StoredTrajectory -> Scored

docs/files.md has the format, field by field. Files are read row by row, never whole, and a row is
decoded in full or at a glance. Invalid rows and files are refused here.
Does not know kernels, nor how rewards come about.
"""

from __future__ import annotations

import itertools
import logging
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from repl_rl import former
from repl_rl.base.disk import append_whole, check_writable, is_there
from repl_rl.base.plugins import no_such
from repl_rl.errors import ConfigError
from repl_rl.records import Branch, Origin, OutcomeKind, Reward, Scored, StopReason, VerdictKind
from repl_sandbox.render import clean

FORMAT = 2
"""Version of the rows that are written."""
FIRST_WITH_ORIGIN = 2
_OLDEST = 1
"""Version of the rows that are still read."""
FOLDER = "trajectories"
"""Name of the folder, in a run, of its files."""
EXPECTED = f"expected a row as a run writes them to {FOLDER}/*.jsonl"
_MAX_ROW_BYTES = 1 << 28
"""Anything longer is no row: a foreign file may have no end of line at all."""
_HEAD_BYTES = 1 << 16
"""Bytes that are read before they have to look like a row."""
_BEGINNING = b'{"format"'


class _Header(msgspec.Struct, frozen=True):
    """Header that every version of a row has."""

    format: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """A row holds the origin of the rows below it, or a trajectory."""

    format: int
    origin: Origin | UnsetType | None = UNSET
    """None: the origin of the rows below is not known."""


class StoredRow(_Head, frozen=True, kw_only=True):
    """A row in full."""

    scored: Scored | UnsetType = UNSET


class _GlanceOutcome(msgspec.Struct, frozen=True):
    kind: OutcomeKind


class _GlanceLine(msgspec.Struct, frozen=True):
    outcome: _GlanceOutcome


class _GlanceTrajectory(msgspec.Struct, frozen=True):
    problem_id: str
    group_index: int
    sibling_index: int
    policy_version: int
    stop_reason: StopReason
    lines: tuple[_GlanceLine, ...]
    branch: Branch | None = None


class _GlanceVerdict(msgspec.Struct, frozen=True):
    kind: VerdictKind


class Glance(msgspec.Struct, frozen=True):
    """The part of a trajectory that lists and filters need."""

    trajectory: _GlanceTrajectory
    verdict: _GlanceVerdict | None
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
    """Size in bytes. ConfigError for anything that cannot be read twice: a pipe, a device."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise no_such("file or run folder", path) from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{str(path)!r} is no regular file; expected a .jsonl file or a run")
    return status.st_size


def opened(path: Path) -> BinaryIO:
    """A file to read rows from; ConfigError as `size`."""
    size(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None


_Kind = TypeVar("_Kind", StoredRow, GlanceRow)


def decode_row(row: bytes, where: str) -> StoredRow:
    """All of it. ConfigError that names `where` for what is no row of a format that is read."""
    return _decode(row, _ROW, where)


def glance_at(row: bytes, where: str) -> GlanceRow:
    """Read what lists and filters need of a row; ConfigError as `decode_row`."""
    return _decode(row, _GLANCE, where)


def _decode(row: bytes, decoder: msgspec.json.Decoder[_Kind], where: str) -> _Kind:
    try:
        if (version := _HEADER.decode(row).format) not in range(_OLDEST, FORMAT + 1):
            raise ConfigError(
                f"{where} has format {version}; this version of repl-rl reads {_OLDEST} to {FORMAT}"
            )
        decoded = _renewed(row, decoder) if former.has_claims(row) else decoder.decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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
_ROW = msgspec.json.Decoder(StoredRow)
_GLANCE = msgspec.json.Decoder(GlanceRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrajectory:
    """Place of a stored trajectory, and what a glance at its row shows."""

    path: Path
    number: int
    """Number of the trajectory in its file, from 1."""
    offset: int
    """Offset of its row, in bytes."""
    origin: Origin | None
    """None where the file does not say: format 1, or rows put together by hand."""
    part: int
    """Offset of `origin` in the file, in bytes: one file may hold parts of several runs."""
    glance: Glance

    @property
    def id(self) -> str:
        """Name of the trajectory: `step-000012:5`."""
        return f"{self.path.stem}:{self.number}"

    @property
    def step(self) -> tuple[Path, int, int]:
        """Key that the trajectories of one update share."""
        return self.path, self.part, self.glance.trajectory.policy_version

    @property
    def group(self) -> tuple[Path, int, int, int, str]:
        """Key that siblings share."""
        trajectory = self.glance.trajectory
        return *self.step, trajectory.group_index, trajectory.problem_id

    @property
    def run(self) -> Path | None:
        """The folder of the run that its file lies in; None for a file elsewhere."""
        folder = self.path.absolute().parent
        return folder.parent if folder.name == FOLDER else None

    def read(self) -> Scored:
        """The record itself. ConfigError where its row has changed since the glance."""
        where = f"{self.id} of {self.path}"
        with opened(self.path) as file:
            file.seek(self.offset)
            row = read_row(file, where)
        if glance_at(row, where).scored != self.glance:
            raise changed(self.path)
        scored = decode_row(row, where).scored
        assert scored is not UNSET, "a glance has seen it"
        return scored


def changed(path: Path) -> ConfigError:
    """The error for a file that has changed."""
    return ConfigError(f"{path} was changed while it was read; try again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selection of trajectories: all that meet every condition."""

    id: str | None = None
    """`FILE:NUMBER`, or that of a problem."""
    which: Literal["best", "worst"] | None = None
    """Highest or lowest reward first; in the order of the file otherwise."""
    outcome: OutcomeKind | None = None
    """Outcome of at least one of its lines."""
    grep: str | None = None
    """In a statement, a source, an observation or a submission."""


def append(path: Path, scored: Iterable[Scored], *, origin: Origin | None = None) -> None:
    """Add whole rows to a file; an origin that differs from the last one's is written before them.

    Raises ConfigError for a file that is there and holds no trajectories, or ends in half of one.
    """
    added = rows_of(scored)
    if not added:
        return
    if origin != _last_origin(path):
        added = head_of(origin) + added
    append_whole(path, added)


def head_of(origin: Origin | None) -> bytes:
    """The row that says where the rows below it come from."""
    return msgspec.json.encode(StoredRow(format=FORMAT, origin=origin)) + b"\n"


def rows_of(scored: Iterable[Scored]) -> bytes:
    """One row for each."""
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(StoredRow(format=FORMAT, scored=item)) + b"\n" for item in scored)


def check_appendable(path: Path) -> None:
    """ConfigError unless `append` can add rows to it. Leaves nothing there."""
    try:
        _last_origin(path)
    except OSError as error:
        raise ConfigError(f"cannot write to {str(path)!r}: {error.strerror}") from None
    check_writable(path)


def _last_origin(path: Path) -> Origin | UnsetType | None:
    """That of a row at the end of a file; UNSET where it has no row."""
    if not is_there(path) or not size(path):
        return UNSET
    if is_cut_off(path):
        raise ConfigError(f"{path} ends in the middle of a row; remove that, or give another file")
    last: Origin | UnsetType | None = UNSET
    for number, _, row in rows(path):
        # Most rows cost no decoding: within a text the quotes would be escaped.
        if last is UNSET or b'"origin"' in row:
            origin = glance_at(row, f"{path}:{number}").origin
            if origin is not UNSET or last is UNSET:
                last = None if origin is UNSET else origin
    return last


def read_trajectories(path: Path) -> Iterator[Scored]:
    """The records of one file, one at a time.

    Raises ConfigError, with the line's number, for a line that is no record of a format that is
    read here.
    """
    for number, _, row in rows(path):
        scored = decode_row(row, f"{path}:{number}").scored
        if scored is not UNSET:
            yield scored


def places(path: Path) -> Iterator[StoredTrajectory]:
    """Places of the trajectories of one file, in order; ConfigError as `read_trajectories`."""
    return (stored for stored, _ in _placed_rows(path))


def _placed_rows(path: Path) -> Iterator[tuple[StoredTrajectory, bytes]]:
    number, part = 0, 0
    origin: Origin | None = None
    for line, offset, row in rows(path):
        glance = glance_at(row, f"{path}:{line}")
        if glance.origin is not UNSET:
            origin, part = glance.origin, offset
        if glance.scored is UNSET:
            continue
        number += 1
        stored = StoredTrajectory(
            path=path,
            number=number,
            offset=offset,
            origin=origin if glance.format >= FIRST_WITH_ORIGIN else None,
            part=part,
            glance=glance.scored,
        )
        yield stored, row


def select(paths: Iterable[Path], selection: Selection) -> Iterator[StoredTrajectory]:
    """The trajectories of these files that are wanted."""
    matches = (
        stored
        for file in paths
        for stored, row in _placed_rows(file)
        if _matches(stored, selection) and _has_text(stored, row, selection.grep)
    )
    if selection.which is None:
        return matches
    sign = -1 if selection.which == "best" else 1
    return iter(sorted(matches, key=lambda stored: sign * stored.glance.reward.total))


def _matches(stored: StoredTrajectory, selection: Selection) -> bool:
    trajectory = stored.glance.trajectory
    if selection.id not in (None, stored.id, trajectory.problem_id):
        return False
    kinds = {line.outcome.kind for line in trajectory.lines}
    return selection.outcome is None or selection.outcome in kinds


def _has_text(stored: StoredTrajectory, row: bytes, text: str | None) -> bool:
    if text is None:
        return True
    scored = decode_row(row, f"{stored.id} of {stored.path}").scored
    assert scored is not UNSET, "a glance has seen it"
    trajectory = scored.trajectory
    return (
        text in scored.problem.statement
        or text in (trajectory.submission or "")
        or any(text in line.source or text in line.outcome.observation for line in trajectory.lines)
    )


def is_cut_off(path: Path) -> bool:
    """True where a file ends in the middle of a row: its run was ended while it wrote."""
    with opened(path) as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"
