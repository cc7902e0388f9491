"""What is no file of trajectories is refused, with its place and in words that tell what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from repl_rl.errors import ConfigError
from repl_rl.runs.folder import files
from repl_rl.runs.trajectory_file import (
    append,
    check_appendable,
    is_cut_off,
    places,
    read_trajectories,
)
from trajectory_kit import FULL, HERE, ROW, row, titles

# What is no row


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (b"{not json\n", "is not a trajectory: JSON is malformed"),
        (b'{"a": 1}\n', "is not a trajectory: .*missing required field `format`"),
        (b"step,loss\n0,0.5\n", "is not a trajectory: JSON is malformed"),
        (b"[1, 2]\n", "is not a trajectory: Expected `object`, got `array`"),
        (b"\x7fELF\x02\x01\x00\n\xff\xfe\n", "is not a trajectory: JSON is malformed"),
        (b"\x1f\x8b" * 200_000, "is not a trajectory: a row without an end"),
        (b'{"cells": [], "metadata": {}, "nbformat": 4}', "is not a trajectory: a row without"),
        (b'{\n "cells": [],\n "nbformat": 4\n}\n', "is not a trajectory: Input data was truncated"),
        (b'{"format": 1, "scored": {}}\n', "is not a trajectory: .*missing required field"),
        (b'{"format": 1, "scored": null}\n', "is not a trajectory: Expected `object`, got `null`"),
        (b'{"format": 1, "scored": "\xff"}\n', "is not a trajectory"),
        (b'{"format": 2, "records": []}\n', "is not a trajectory: it has no `scored`"),
        (
            row(ROW).replace(b'"p-1"', b'"p-\xff"'),
            "is not a trajectory: 'utf-8' codec can't decode",
        ),
        (b'{"format": 2, "origin": {}}\n', "is not a trajectory: .*missing required field"),
        (b'{"format": 1, "x": ' + b"[" * 99_999 + b"\n", "is not a trajectory"),
        (row(ROW)[:-40] + b"\n", "is not a trajectory: Input data was truncated"),
        (row(ROW | {"format": 3}), "has format 3; this version of repl-rl reads 1 to 2"),
        (b'{"format": 3, "records": []}\n', "has format 3; this version of repl-rl reads 1 to 2"),
    ],
)
@pytest.mark.parametrize("read", [read_trajectories, places])
def test_a_foreign_row_is_refused_with_its_line(
    tmp_path: Path, read: Callable[[Path], Iterable[object]], foreign: bytes, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(row(ROW) + foreign)
    with pytest.raises(ConfigError, match=rf"rows\.jsonl:2 {message}"):
        list(read(path))


def test_a_foreign_file_is_told_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("step,loss\n")
    with pytest.raises(ConfigError, match=r"x\.csv:1 .*expected a row as a run writes them to"):
        list(places(tmp_path / "x.csv"))


def test_a_refusal_holds_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    hostile = msgspec.to_builtins(FULL) | {"verdict": {"kind": "\u001b[2J\nall is well"}}
    (tmp_path / "s.jsonl").write_bytes(row({"format": 2, "scored": hostile}))
    with pytest.raises(ConfigError) as refusal:
        list(places(tmp_path / "s.jsonl"))
    assert str(refusal.value).isprintable()


def test_rows_before_a_foreign_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(row(ROW) + b"{\n")
    assert next(read_trajectories(tmp_path / "s.jsonl")) == FULL


def test_a_last_row_that_was_cut_off_is_passed_over_and_told(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [FULL, FULL], origin=HERE)
    whole = path.read_bytes()
    assert not is_cut_off(path)
    start = whole[:-1].rindex(b"\n") + 1
    for end in range(start + 1, len(whole), 97):
        path.write_bytes(whole[:end])
        assert is_cut_off(path)
        assert titles(path) == ["s:1"]
        assert list(read_trajectories(path)) == [FULL]


def test_nothing_is_appended_to_half_a_row(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(row(ROW)[:-9])
    with pytest.raises(ConfigError, match=r"ends in the middle of a row; .*give another file"):
        append(path, [FULL])


@pytest.mark.parametrize("foreign", [b"a note\n", b'{"cells": []}\n'])
def test_nothing_is_appended_to_a_foreign_file(tmp_path: Path, foreign: bytes) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(foreign)
    with pytest.raises(ConfigError, match=r"note\.txt:1 is not a trajectory"):
        append(path, [FULL])
    assert path.read_bytes() == foreign


def test_nothing_is_appended_to_what_is_foreign_below_blank_rows(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"\n\na note\n")
    with pytest.raises(ConfigError, match=r"note\.txt:3 is not a trajectory"):
        append(tmp_path / "note.txt", [FULL])


# What rows cannot be added to


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/s.jsonl", "cannot write to .*: No such file or directory"),
        ("note.txt/s.jsonl", "cannot write to .*: Not a directory"),
        ("ring", "cannot write to .*: Too many levels of symbolic links"),
        ("x" * 300, "cannot write to .*: File name too long"),
        ("pipe", "pipe' is no regular file"),
        ("folder", "folder' is no regular file"),
        ("note.txt", r"note\.txt:1 is not a trajectory"),
        ("half.jsonl", "ends in the middle of a row"),
    ],
)
def test_what_nothing_can_be_added_to_is_known_before_there_is_anything(
    tmp_path: Path, name: str, message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "note.txt").write_text("a note\n")
    (tmp_path / "half.jsonl").write_bytes(row(ROW)[:-9])
    with pytest.raises(ConfigError, match=message):
        check_appendable(tmp_path / name)


def test_asking_leaves_nothing_there_and_changes_nothing(tmp_path: Path) -> None:
    there, link, empty = (tmp_path / name for name in ("there.jsonl", "link", "empty"))
    there.write_bytes(row(ROW))
    link.symlink_to("missing")
    empty.touch()
    for path in (there, link, empty, tmp_path / "none.jsonl"):
        check_appendable(path)
    assert sorted(tmp_path.iterdir()) == [empty, link, there]
    assert (there.read_bytes(), link.is_symlink()) == (row(ROW), True)


# Size


def test_a_huge_file_without_an_end_of_line_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(1 << 34)  # sparse
    tracemalloc.start()
    with pytest.raises(ConfigError, match=r"zeros:1 is not a trajectory: a row without an end"):
        list(places(path))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


# What is no file


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").touch()
    with pytest.raises(ConfigError, match=r"s\.jsonl' is empty; expected a row"):
        files(tmp_path / "s.jsonl")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (files, lambda path: list(places(path)), is_cut_off):
        with pytest.raises(ConfigError, match="pipe' is no regular file"):
            read(tmp_path / "pipe")


def test_a_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="'/dev/zero' is no regular file"):
        files(Path("/dev/zero"))


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no regular file"):
        list(places(tmp_path))


def test_what_fails_as_it_is_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot read /proc/self/mem:1: Input/output error"):
        list(places(Path("/proc/self/mem")))


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot read 'xxx.*File name too long"):
        files(Path("x" * 5000))


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    """As nobody, for root may read everything."""
    closed = tmp_path / "closed.jsonl"
    closed.touch(mode=0o000)
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from repl_rl.errors import ConfigError\nfrom repl_rl.runs.trajectory_file import places\n"
        f"folder = os.open({str(tmp_path)!r}, os.O_RDONLY)\n"
        "os.fchdir(folder)\n"
        "os.getuid() or os.setuid(65534)\n"
        "try:\n    list(places(Path('closed.jsonl')))\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "cannot read 'closed.jsonl': Permission denied\n"


@pytest.mark.parametrize(
    ("name", "message"), [("", "no trajectories in"), ("x.jsonl", "no such file or run folder")]
)
def test_nothing_to_read_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        files(tmp_path / name)


def test_a_file_that_was_changed_is_not_read_for_another(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [FULL])
    (place,) = places(path)
    path.unlink()
    append(path, [replace(FULL, verdict=None)])
    with pytest.raises(ConfigError, match="was changed while it was read; try again"):
        place.read()
