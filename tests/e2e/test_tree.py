"""A run whose groups branch, by the commands of a person: rolled out, trained, kept, run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.records import Trajectory
from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
TREE = ("grpo.credit=tree", "grpo.branching=[2, 2, 2]", "grpo.group_size=8", "seed=1")


def test_a_run_whose_groups_branch_is_kept_and_runs_again(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    long = ("sampling.max_lines=8", "sampling.max_line_tokens=6", "sampling.max_tokens=400")
    ended = repl_rl(
        *("train", "--model", str(tiny_model), "--output", "run", *small()),
        *set_words(*TREE, *long),
    )
    assert ended.code == 0, ended.stderr
    assert ended.left_behind == []
    run = tmp_path / "run"
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "group/leaves" in row]
    kept = {
        step: [item.trajectory for item in read_trajectories(path)]
        for step, path in enumerate(sorted((run / "trajectories").glob("step-*.jsonl")))
    }
    assert len(rows) == len(kept) == 2
    for step, row in enumerate(rows):
        leaves = kept[step]
        places: dict[tuple[int, int | None], Trajectory]
        places = {(one.group_index, one.sibling_index): one for one in leaves}
        assert len(places) == len(leaves)
        assert row["active_tokens"] == sum(one.num_sampled for one in leaves)
        assert row["rollout/wasted_tokens"] == 0
        for one in leaves:
            if one.branch is None:
                continue
            other = places[one.group_index, one.branch.sibling_index]
            assert one.completion_ids[: one.num_copied] == other.completion_ids[: one.num_copied]
            assert one.lines[: one.branch.num_lines] == other.lines[: one.branch.num_lines]
            assert one.seed == other.seed
    assert any(one.branch for one in kept[0])
    for command in (("replay", "run", "--execute"), ("reward", "explain", "run", "-n", "2")):
        looked = repl_rl(*command)
        assert looked.code == 0, (command, looked.stderr)
    shown = repl_rl("show", "run/trajectories/step-000000.jsonl", "-n", "1")
    assert (shown.code, shown.stdout.count("its group")) == (0, 1), shown.stderr
    written = repl_rl("replay", "run", "--html", "page.html")
    assert written.code == 0, written.stderr
    assert '"edges":[{"start":0' in (tmp_path / "page.html").read_text()
