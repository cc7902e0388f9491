"""Laws of the commands that look at a run: which one, and which part of it, the same in all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from repl_rl.commands.cli import cli
from repl_rl.runs.folder import RunFolder
from trajectory_kit import FULL

pytestmark = pytest.mark.slow

Call = Callable[..., tuple[int, str, str]]

LOOKING = [("show",), ("replay",), ("attach",), ("reward", "explain")]


def command(names: tuple[str, ...]) -> click.Command:
    found: click.Command | None = cli
    for name in names:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    assert found is not None
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two steps in runs/, and an older one of nothing."""
    for number, name in enumerate(("older", "newer")):
        folder = RunFolder(tmp_path / "runs" / name)
        folder.append_metrics(0, {"eval_solve_rate": 0.5})
        os.utime(folder.path / "metrics.jsonl", (1e9 + number, 1e9 + number))
    for name in ("eval-000000", "step-000000", "step-000001", "eval-000002"):
        folder.append_trajectories(name, [FULL])
    return folder.path


@pytest.mark.parametrize("names", LOOKING, ids=" ".join)
def test_a_part_is_chosen_by_the_same_options_everywhere(names: tuple[str, ...]) -> None:
    def shown(names: tuple[str, ...]) -> dict[str | None, object]:
        ours = [one for one in command(names).params if one.name in ("step", "held_out")]
        return {one.name: (one.opts, getattr(one, "help", "")) for one in ours}

    assert shown(names) == shown(("show",))
    assert len(shown(names)) == 2


@pytest.mark.parametrize("names", [("show",), ("reward", "explain")], ids=" ".join)
def test_without_a_name_the_newest_run_is_taken_and_said(
    call: Call, run: Path, names: tuple[str, ...]
) -> None:
    code, out, err = call(*names)
    assert (code, err.splitlines()[0]) == (0, "repl-rl: runs/newer, the newest run")
    assert out.startswith("step-000001:1")
    assert call(*names, "runs/newer")[2].count("the newest run") == 0


@pytest.mark.parametrize("names", [*LOOKING, ("plot",), ("eval",), ("audit",)], ids=" ".join)
def test_without_any_run_one_is_asked_for(call: Call, names: tuple[str, ...]) -> None:
    more = ("--line", "1") if names == ("attach",) else ()
    expected = (2, "", "repl-rl: no run in 'runs'; name its folder\n")
    assert call(*names, *more) == expected


@pytest.mark.parametrize("names", [("show",), ("reward", "explain")], ids=" ".join)
@pytest.mark.parametrize(
    ("chosen", "first"),
    [
        ((), "step-000001:1"),
        (("--step", "0"), "step-000000:1"),
        (("--held-out",), "eval-000002:1"),
        (("--held-out", "--step", "0"), "eval-000000:1"),
    ],
)
def test_step_and_held_out_choose(
    call: Call, run: Path, names: tuple[str, ...], chosen: tuple[str, ...], first: str
) -> None:
    code, out, _ = call(*names, str(run), *chosen)
    assert (code, out.split()[0].rstrip(":")) == (0, first)


@pytest.mark.parametrize(
    "names", [("show",), ("reward", "explain"), ("replay", "--execute")], ids=" ".join
)
def test_a_step_that_is_not_there_is_refused(call: Call, run: Path, names: tuple[str, ...]) -> None:
    code, out, err = call(names[0], *names[1:], "runs/newer", "--step", "9")
    assert (code, out) == (2, "")
    assert err == "repl-rl: 'runs/newer' has no training step 9; there are 0, 1\n"


def test_a_golden_file_has_no_steps(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text("=== a\n\n>>> 1\n")
    code, _, err = call("reward", "explain", "a.repl", "--step", "0")
    assert (code, err) == (
        2,
        "repl-rl: 'a.repl' is one file; --step and --held-out choose one in a run's folder\n",
    )


@pytest.mark.parametrize("name", ["eval", "audit"])
def test_a_model_that_is_measured_is_the_argument_alone(call: Call, name: str) -> None:
    """An option of that name would stand beside a run and be passed over."""
    code, _, err = call(name, "--model", "m")
    assert code == 2
    assert "No such option '--model'" in err


@pytest.mark.parametrize("name", ["play", "eval"])
@pytest.mark.parametrize("names", [("plot",), ("eval",), ("audit",)], ids=" ".join)
def test_the_newest_run_that_trained_is_taken_where_training_is_looked_at(
    call: Call, run: Path, names: tuple[str, ...], name: str
) -> None:
    game = RunFolder(run.parent / "game")
    game.append_trajectories(name, [FULL])
    assert call("show")[2].startswith("repl-rl: runs/game, the newest run\n")
    assert call(*names)[2].startswith("repl-rl: runs/newer, the newest run\n")
