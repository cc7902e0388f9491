"""A run whose groups begin behind solved lines: kept, and gone on with after an end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics
from same_run import differences
from small_run import small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]

TASK = """
import itertools
from repl_rl import Problem, Verdict, VerdictKind

class Sums:
    name = "sums"
    prompt = "# Add.\\n{{problem}}"

    def problems(self, split, *, seed):
        for n in itertools.count(seed % 100):
            yield Problem(id=f"{split}-{n}", statement=f"Add 1 to {n}.", meta={"n": str(n)})

    def demonstrate(self, problem, rng):
        yield f"a = {problem.meta['n']}"
        yield "b = 1"
        yield "a + b"
        yield "submit_final_answer(_)"

    def grade(self, problem, submission):
        is_right = submission == str(int(problem.meta["n"]) + 1)
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)
"""
SETTINGS = small(
    grpo__steps=4,
    grpo__problems_per_step=2,
    grpo__learning_rate=1e-3,
    grpo__prefix_share=0.5,
    report__checkpoint_every=2,
    sampling__max_lines=6,
    sampling__max_line_tokens=32,
    sampling__max_in_flight=1,  # rows of a batch round by what is beside them
    sandbox__preload="[]",
)


def test_a_run_whose_groups_begin_behind_solved_lines_is_kept_and_gone_on_with(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "sums.py").write_text(TASK)
    words = ("train", "--task", "sums:Sums", "--model", str(tiny_model), "--output", "whole")
    ended = repl_rl(*words, *SETTINGS)
    assert ended.code == 0, ended.stderr
    whole = tmp_path / "whole"

    begun = 0
    for file in sorted((whole / "trajectories").glob("step-*.jsonl")):
        for siblings in _groups([one.trajectory for one in read_trajectories(file)]):
            copied = {one.completion_ids[: one.num_copied] for one in siblings}
            assert len(copied) == 1
            assert len({one.branch.num_lines if one.branch else 0 for one in siblings}) == 1
            if siblings[0].branch is not None:
                begun += 1
                sources = [line.source for line in siblings[0].lines[:3]]
                assert sources[1:] == [" b = 1\n", " a + b\n"]
                number = int(sources[0].removeprefix(" a = "))
                assert siblings[0].lines[2].outcome.observation == f"{number + 1}\n"
    rows = [row for row in read_metrics(whole / "metrics.jsonl") if "loss" in row]
    assert begun == sum(row["prefix/groups"] for row in rows) > 0
    assert rows[0]["prefix/left"] == 0.25
    for row in rows:  # two groups of four
        assert row["completions/mean_length"] == row["active_tokens"] / 8
    for file in (whole / "trajectories").glob("eval-*.jsonl"):
        assert all(one.trajectory.branch is None for one in read_trajectories(file))

    again = tmp_path / "again"
    shutil.copytree(whole, again)
    for name in ("final", "checkpoint-4"):
        shutil.rmtree(again / "checkpoints" / name)
    resumed = repl_rl("train", "--resume", "again")
    assert resumed.code == 0, resumed.stderr
    assert differences(whole, again) == []


def _groups(trajectories: list[Any]) -> list[list[Any]]:
    numbers = dict.fromkeys(one.group_index for one in trajectories)
    return [[one for one in trajectories if one.group_index == number] for number in numbers]
