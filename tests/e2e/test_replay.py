"""A run that real kernels made, run and scored again from outside: files, words and exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorded_run import plant
from repl_rl.records import Origin, Scored
from repl_rl.runs.folder import files
from repl_rl.runs.trajectory_file import append
from repl_rl.viewer.replay import jobs

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

Call = Callable[..., tuple[int, str, str]]
Command = Callable[..., Any]


# Lines run again


def test_what_was_recorded_is_what_runs_again_and_nothing_is_left(
    repl_rl: Command, run: Path
) -> None:
    ended = repl_rl("replay", "run", "--execute")
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    rows = ended.stdout.splitlines()
    assert rows[-3:] == [
        "volatile: step-000001:1, line 1 `import time; time.time_ns()`: names a clock: time",
        "volatile: step-000001:1, line 2 `_ + 1`: two runs here differ from each other",
        "3 trajectories, 14 lines run again: none diverged, 1 volatile",
    ]


def test_the_first_planted_divergence_is_named_and_shown(call: Call, run: Path) -> None:
    plant(run, name="step-000000", number=2, line=2)
    plant(run, name="step-000001", number=1, line=3)
    code, shown, _ = call("replay", "run", "--execute")
    assert code == 1
    rows = shown.splitlines()
    first = rows.index("first divergence: step-000000:2, line 2 `1/0`")
    assert "    -planted" in rows[first:]
    assert any(row.startswith("    +ZeroDivisionError") for row in rows[first:])
    assert "diverged, too: step-000001:1" in rows
    assert rows[-1].endswith("2 diverged, 1 volatile")


def test_a_filter_picks_what_is_run_again(call: Call, run: Path) -> None:
    plant(run, name="step-000000", number=2, line=2)
    code, shown, _ = call("replay", "run", "--execute", "--id", "step-000000:1")
    assert (code, shown.splitlines()[-1]) == (
        0,
        "1 trajectory, 8 lines run again: none diverged",
    )


def test_how_this_machine_differs_is_said(
    call: Call, made: tuple[Origin, list[Scored]], tmp_path: Path
) -> None:
    origin = replace(made[0], versions={**made[0].versions, "sympy": "1.0"}, isolation="paper")
    append(tmp_path / "a.jsonl", made[1][:1], origin=origin)
    code, _, errors = call("replay", "a.jsonl", "--execute")
    first, second = errors.splitlines()
    assert (code, first[:39]) == (0, "repl-rl: made with sympy 1.0, here it i")
    assert second.startswith("repl-rl: made in kernels of 'paper', here they are ")


def test_a_file_that_was_cut_off_is_run_without_its_last_row_and_that_is_said(
    call: Call, run: Path
) -> None:
    (path,) = files(run / "trajectories" / "step-000000.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    code, shown, errors = call("replay", str(path), "--execute")
    assert (code, shown.splitlines()[-1]) == (
        0,
        "1 trajectory, 8 lines run again: none diverged",
    )
    assert errors == ("repl-rl: step-000000.jsonl ends in the middle of a row, which is left out\n")


# Rewards


def test_the_same_reward_changes_nothing(repl_rl: Command, run: Path) -> None:
    ended = repl_rl("replay", "run", "--rescore")
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    assert ended.stdout.splitlines()[-1].startswith("0 of 3 trajectories changed")


CHEAPER = ("--set", "reward.line.syntax_error=-0.1")


def test_another_price_of_an_error_is_listed_and_no_other(call: Call, run: Path) -> None:
    code, shown, _ = call("replay", "run", "--rescore", *CHEAPER)
    rows = shown.splitlines()
    assert code == 1
    assert rows[-2:-1] == ["step-000000:1  +0.200  line 2 -0.300 -> -0.100"]
    assert rows[-1].startswith("1 of 3 trajectories changed")


# What is refused


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither kernels nor graders may be asked for."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("something was started")

    monkeypatch.setattr(jobs, "pool_of", refuse)
    monkeypatch.setattr(jobs, "open_scorer", refuse)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--execute", "--rescore"), "--execute and --rescore are given"),
        (("run", "--html", "a", "--notebook", "b"), "--notebook and --html are given"),
        (("run", "--execute", "--model", "m"), "--model goes with stepping or --html"),
        (("run",), "stepping needs a terminal"),
        (("run", "--execute", "--id", "no-such"), "no trajectory in 'run' has --id no-such; there"),
        (("run", "--execute", "--id", "step-000000:9"), "there is 'step-000000:1'"),
        (("run", "--execute", "--grep", "no such text"), "has --grep no such text"),
        (("run", "--execute", "--outcome", "memory"), "has --outcome memory"),
        (("run", "--execute", "--outcome", "no-such"), "Invalid value for '--outcome'"),
        (("run", "--execute", "-n", "0"), "Invalid value for '-n'"),
        (("run", "--execute", "--set", "sandbox.no=1"), "unknown key 'sandbox.no'"),
        (("run", "--rescore", "--config", "no.toml"), "cannot read config file 'no.toml'"),
        (("no-such", "--execute"), "no such file or run folder: 'no-such'"),
        (("empty", "--execute"), "no trajectories in 'empty'"),
        (("nothing.jsonl", "--execute"), "'nothing.jsonl' is empty"),
        (("foreign.txt", "--execute"), "foreign.txt:1 is not a trajectory"),
        (("run", "--html", "no/such/a.html"), "cannot write to 'no/such/a.html'"),
        (("run", "--notebook", "no/such/a.ipynb"), "cannot write to 'no/such/a.ipynb'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_started(
    call: Call, run: Path, idle: None, arguments: tuple[str, ...], told: str
) -> None:
    Path("empty").mkdir()
    Path("nothing.jsonl").touch()
    Path("foreign.txt").write_text("dear diary,\n")
    code, _, errors = call("replay", *arguments)
    assert code == 2
    assert told in errors
    assert len([row for row in errors.splitlines() if not is_usage(row)]) == 1


def is_usage(row: str) -> bool:
    return not row or row.startswith(("Usage:", "Try "))


def test_lines_of_another_sampler_are_refused(call: Call, run: Path, idle: None) -> None:
    code, _, errors = call(
        "replay", "run", "--execute", "--set", "sampling.sampler=inline_calls:InlineCalls"
    )
    assert code == 2
    assert errors.startswith("repl-rl: step-000000.jsonl was made by the sampler 'inline_calls:")


@pytest.mark.train
def test_a_page_is_not_scored_by_a_model_of_another_vocabulary(
    call: Call, run: Path, idle: None, tiny_model: Path
) -> None:
    code, _, errors = call(
        *("replay", "run", "--html", "a.html", "--model", str(tiny_model)),
        *("--set", "sampling.device=cpu", "--set", "sampling.max_tokens=400"),
    )
    assert (code, sorted(Path().iterdir())) == (2, [run.relative_to(Path.cwd())])
    assert errors.startswith(f"repl-rl: {str(tiny_model)!r} decodes these tokens to other texts")


def test_an_attach_without_a_line_or_a_run_is_refused(call: Call, run: Path) -> None:
    assert "Missing option '--line'" in call("attach", "run")[2]
    code, _, errors = call("attach", "no-such", "--line", "1")
    assert (code, errors) == (2, "repl-rl: no such file or run folder: 'no-such'\n")


def test_a_run_of_an_older_format_is_read_with_the_config_beside_it(call: Call, run: Path) -> None:
    for path in files(run):
        rows = [json.loads(row) for row in path.read_text().splitlines()[1:]]
        path.write_text("".join(json.dumps({**row, "format": 1}) + "\n" for row in rows))
    assert call("replay", "run", "--execute")[0] == 0
    assert call("replay", "run", "--rescore")[0] == 0


def test_a_copy_without_its_run_needs_nothing_else(call: Call, run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "trajectories" / "step-000000.jsonl", tmp_path / "copy.jsonl")
    shutil.rmtree(run)
    code, _, errors = call("replay", "copy.jsonl", "--execute")
    assert (code, errors) == (0, "")
