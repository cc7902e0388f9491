"""Laws of the file of trajectories: read back equal, whose rows they are, never held whole."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from repl_rl.config.sections import GRPOConfig
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.runs.trajectory_file import Selection, append, places, read_trajectories, select
from repl_rl.viewer.replay.annotated import annotate
from trajectory_kit import FULL, HERE, ROW, THERE, full_with, row, titles

# What is written is read


def test_a_record_is_read_back_equal_in_every_field(tmp_path: Path) -> None:
    append(tmp_path / "s.jsonl", [FULL], origin=HERE)
    assert list(read_trajectories(tmp_path / "s.jsonl")) == [FULL]


def test_nothing_to_append_leaves_no_file(tmp_path: Path) -> None:
    append(tmp_path / "s.jsonl", [], origin=HERE)
    assert not (tmp_path / "s.jsonl").exists()


# Where rows come from


def test_an_origin_stands_once_at_the_head_and_counts_for_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [FULL, FULL], origin=HERE)
    append(path, [FULL], origin=HERE)
    heads = [json.loads(line).keys() for line in path.read_text().splitlines()]
    assert heads == [{"format", "origin"}, *[{"format", "scored"}] * 3]
    assert [place.origin for place in places(path)] == [HERE] * 3


def test_rows_of_another_origin_begin_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for origin in (HERE, THERE, None, None, HERE):
        append(path, [FULL], origin=origin)
    assert [place.origin for place in places(path)] == [HERE, THERE, None, None, HERE]
    assert len(path.read_text().splitlines()) == 5 + 4


def test_files_put_together_keep_the_origin_of_each_part(tmp_path: Path) -> None:
    parts = [tmp_path / name for name in "abc"]
    for path, origin in zip(parts, (HERE, None, THERE), strict=True):
        append(path, [FULL], origin=origin)
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(path.read_bytes() for path in parts))
    assert [place.origin for place in places(whole)] == [HERE, None, THERE]


def test_siblings_of_two_parts_are_no_siblings(tmp_path: Path) -> None:
    append(tmp_path / "s.jsonl", [FULL, FULL], origin=HERE)
    append(tmp_path / "s.jsonl", [FULL], origin=THERE)
    first, second, other = (place.group for place in places(tmp_path / "s.jsonl"))
    assert first == second != other


def test_format_1_is_read_and_has_no_origin(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(row(ROW) * 2)
    assert [(place.id, place.origin) for place in places(path)] == [("s:1", None), ("s:2", None)]
    assert list(read_trajectories(path)) == [FULL, FULL]


def test_rows_of_format_1_have_no_origin_below_one_either(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [FULL], origin=HERE)
    path.write_bytes(path.read_bytes() + row(ROW))
    assert [place.origin for place in places(path)] == [HERE, None]


def test_a_file_of_format_1_takes_rows_with_an_origin(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(row(ROW))
    append(path, [FULL], origin=HERE)
    assert [place.origin for place in places(path)] == [None, HERE]


def test_numbers_count_trajectories_and_not_rows(tmp_path: Path) -> None:
    path = tmp_path / "step-000012.jsonl"
    append(path, [FULL], origin=HERE)
    append(path, [FULL], origin=THERE)
    assert titles(path) == ["step-000012:1", "step-000012:2"]


def test_blank_rows_are_passed_over_and_counted_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [FULL], origin=HERE)
    path.write_bytes(b"\n" + path.read_bytes() + b" \r\n\n" + row(ROW) + b"\n")
    assert [place.read() for place in places(path)] == [FULL, FULL]
    assert list(read_trajectories(path)) == [FULL, FULL]
    assert titles(path) == ["s:1", "s:2"]
    path.write_bytes(path.read_bytes() + b"x\n")
    with pytest.raises(ConfigError, match=r"s\.jsonl:8 is not a trajectory"):
        titles(path)


def test_rows_below_a_blank_one_keep_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n")
    for _ in range(2):
        append(path, [FULL], origin=HERE)
    assert [place.origin for place in places(path)] == [HERE, HERE]
    assert path.read_bytes().count(b'"origin"') == 1 + 2  # a problem has one, too


# Size


@pytest.mark.slow
def test_files_are_read_row_by_row(tmp_path: Path) -> None:
    """60 MB in rows of 100 KB."""
    path = tmp_path / "s.jsonl"
    append(path, [full_with(submission="x" * 100_000)], origin=HERE)
    head, encoded = path.read_bytes().splitlines(keepends=True)
    with path.open("wb") as file:
        file.write(head)
        for _ in range(60):
            file.write(encoded * 10)
    tracemalloc.start()
    assert sum(1 for _ in select([path], Selection(grep="needle"))) == 0
    assert sum(1 for _ in select([path], Selection(grep="x", outcome=OutcomeKind.OK_OUTPUT))) == 600
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_rows_of_any_length_are_told_apart(tmp_path: Path, more: int) -> None:
    """A row is begun with a read of 65,536 bytes."""
    empty = len(row({"format": 1, "scored": msgspec.to_builtins(full_with(submission=""))}))
    long = full_with(submission="x" * (65_536 + more - empty))
    (tmp_path / "s.jsonl").write_bytes(
        row({"format": 1, "scored": msgspec.to_builtins(long)}) + row(ROW)
    )
    assert list(read_trajectories(tmp_path / "s.jsonl")) == [long, FULL]


def test_a_trajectory_of_ten_thousand_lines_goes_all_the_way(
    tmp_path: Path, make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> None:
    parts = [(f" x = {n}\n", OutcomeKind.OK_OUTPUT, f"{n}\n>>>") for n in range(10_000)]
    scored = make_scored(make_trajectory(parts), 1.0)
    path = tmp_path / "s.jsonl"
    append(path, [scored], origin=replace(HERE, tokenizer=None))
    (place,) = places(path)
    (item,) = annotate([place], GRPOConfig())
    assert item.ledger.scored == scored
    assert item.token_texts is not None
    assert "".join(item.token_texts[-18:]) == " x = 9999\n9999\n>>>"
