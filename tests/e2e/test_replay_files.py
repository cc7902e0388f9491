"""Files of a replay are there whole or not at all, and take the place of nothing of a run's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from repl_rl.records import Origin, Scored
from repl_rl.runs.trajectory_file import append

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

Call = Callable[..., tuple[int, str, str]]


# Views


def test_a_notebook_and_a_page_are_written(call: Call, run: Path) -> None:
    notebook = call("replay", "run", "--notebook", "one.ipynb", "--id", "step-000000:1")
    page = call("replay", "run", "--html", "all.html")
    assert (notebook[0], page[0]) == (0, 0)
    assert notebook[1].splitlines()[-1] == "step-000000:1: one.ipynb"
    assert page[1].splitlines()[-1] == "1 trajectory: all.html"
    assert json.loads(Path("one.ipynb").read_text())["nbformat"] == 4
    assert "time.time_ns()" in Path("all.html").read_text()


def test_a_page_is_of_those_that_were_made_as_the_first_was(
    call: Call, run: Path, made: tuple[Origin, list[Scored]]
) -> None:
    other = replace(made[0], isolation="paper")
    append(run / "trajectories" / "step-000000.jsonl", made[1], origin=other)
    code, shown, errors = call("replay", "run/trajectories/step-000000.jsonl", "--html", "a.html")
    assert (code, shown.splitlines()[-1]) == (0, "2 trajectories: a.html")
    assert "left out: 3 that were made otherwise than 'step-000000:1';" in errors


def test_the_help_says_in_which_files_is_looked(call: Call) -> None:
    _, shown, _ = call("replay", "--help")
    assert (
        "Stepping, --notebook and --html take a run's last training step; --step and --held-out "
        "choose another part. With --id, --outcome, --grep, --execute or --rescore they take the "
        "whole run, unless you choose a part. --best and --worst only sort."
    ) in " ".join(shown.split())


# What is there already


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--html", "run/trajectories/step-000000.jsonl"),  # a page is of the last step alone
        ("--html", "run/versions.json"),
        ("--html", "link.html"),
        ("--notebook", "run/config.toml"),
        ("--notebook", "page.html"),
        ("--notebook", "link.html"),
    ],
)
def test_a_file_of_another_kind_is_never_written_over(
    call: Call, run: Path, flag: str, name: str
) -> None:
    Path("page.html").write_text("a page")
    Path("link.html").symlink_to("run/config.toml")
    before = contents(run.parent)
    code, _, errors = call("replay", "run", flag, name)
    kind = ".html" if flag == "--html" else ".ipynb"
    told = f"repl-rl: {name!r} is there and is no {kind} file; name another file\n"
    assert (code, errors) == (2, told)
    assert contents(run.parent) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("flag", "name"), [("--html", "a.htm"), ("--notebook", "a.ipynb")])
def test_a_file_of_the_kind_that_is_written_is_replaced(
    call: Call, run: Path, flag: str, name: str
) -> None:
    Path(name).write_text("an older one")
    assert call("replay", "run", flag, name)[0] == 0
    assert "time.time_ns()" in Path(name).read_text()


# How it was made


VIEWS = (("--rescore",), ("--notebook", "a.ipynb"), ("--html", "a.html"))


@pytest.mark.parametrize("asked", VIEWS)
def test_what_was_made_with_other_versions_says_so(
    call: Call, made: tuple[Origin, list[Scored]], tmp_path: Path, asked: tuple[str, ...]
) -> None:
    origin = replace(made[0], versions={**made[0].versions, "sympy": "1.0"})
    append(tmp_path / "a.jsonl", made[1], origin=origin)
    _, _, errors = call("replay", "a.jsonl", *asked)
    (row,) = errors.splitlines()
    assert row.startswith("repl-rl: made with sympy 1.0, here it is ")


@pytest.mark.parametrize("asked", VIEWS)
def test_what_does_not_say_how_it_was_made_is_taken_for_the_default_and_that_is_said(
    call: Call, made: tuple[Origin, list[Scored]], tmp_path: Path, asked: tuple[str, ...]
) -> None:
    append(tmp_path / "a.jsonl", made[1], origin=None)
    _, _, errors = call("replay", "a.jsonl", *asked)
    (row,) = errors.splitlines()
    assert row.startswith("repl-rl: a.jsonl does not say how it was made: ")


def test_a_page_says_how_it_was_made_to_whoever_reads_it(
    call: Call, made: tuple[Origin, list[Scored]], tmp_path: Path
) -> None:
    origin = replace(made[0], versions={**made[0].versions, "sympy": "1.0"})
    append(tmp_path / "a.jsonl", made[1], origin=origin)
    call("replay", "a.jsonl", "--html", "a.html")
    assert Path("a.html").read_text().count("made with sympy 1.0, here it is") == 1


# What is scored again


def test_the_folder_of_trajectories_stands_for_its_run(call: Call, run: Path) -> None:
    code, shown, errors = call("replay", "run/trajectories", "--rescore")
    assert (code, errors) == (0, "")
    assert shown.splitlines()[-1].startswith("0 of 3 trajectories changed")
