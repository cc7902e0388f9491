"""Rows with claims of lemmas, which nothing writes: they are read as what their lines do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repl_rl import former
from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import shaped
from repl_rl.errors import ConfigError
from repl_rl.records import GRADING, Problem
from repl_rl.rollout.builder import fault
from repl_rl.rollout.episode import Session
from repl_rl.rollout.runner import kernel_for
from repl_rl.runs import trajectory_file
from repl_rl.runs.trajectory_file import append, places, read_trajectories
from repl_rl.transcript.format import PYTHON
from repl_sandbox.host.pool import KernelPool

STORED = Path(__file__).parents[1] / "corpus" / "rows_with_claims.jsonl"
"""A solution with two claims, both paid; and a wrong claim, a second and a third that fail."""
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _said_by_nobody() -> Iterator[None]:
    """It is said once in a process."""
    trajectory_file._say.cache_clear()
    yield
    trajectory_file._say.cache_clear()


def test_a_claim_is_read_as_a_line_that_printed_nothing() -> None:
    right, wrong = read_trajectories(STORED)
    assert [str(line.outcome.kind) for line in right.trajectory.lines] == [
        *("ok_silent", "ok_silent", "ok_silent", "ok_silent", "ok_silent", "ok_silent"),
        "submitted",
    ]
    assert [str(line.outcome.kind) for line in wrong.trajectory.lines] == [
        *("ok_silent", "runtime_error", "name_error", "submitted")
    ]
    assert [fault(one.trajectory) for one in (right, wrong)] == [None, None]


def test_stored_rewards_are_as_they_were_and_others_pay_no_claim() -> None:
    """0.15 of 0.3 for each of two claims, proved and used; -0.15 for a wrong one."""
    right, wrong = read_trajectories(STORED)
    assert right.reward.terms == {"lemmas": 0.3, "outcome/proved": 1.0}
    assert right.reward.line_rewards == (0.0, 0.0, 0.15, 0.0, 0.0, 0.15, 0.0)
    anew = [shaped(one.trajectory, one.verdict, RewardConfig()) for one in (right, wrong)]
    assert anew[0].line_rewards == (0.0,) * 7
    assert anew[1].line_rewards == (0.0, -0.1, -0.1, 0.0)


def test_it_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert [place.read().problem.id for place in places(STORED)]
    assert capsys.readouterr().err == f"repl-rl: {former.UNPAID}\n"


def test_rows_that_are_written_again_need_no_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(read_trajectories(STORED))
    capsys.readouterr()
    append(tmp_path / "a.jsonl", found)
    assert list(read_trajectories(tmp_path / "a.jsonl")) == found
    assert not former.has_claims((tmp_path / "a.jsonl").read_bytes())
    assert capsys.readouterr().err == ""


def test_spaces_between_the_parts_of_a_row_change_nothing(tmp_path: Path) -> None:
    rows = [json.dumps(json.loads(row)) for row in STORED.read_text().splitlines()]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, ""]))
    assert list(read_trajectories(tmp_path / "a.jsonl")) == list(read_trajectories(STORED))


def test_a_text_that_speaks_of_lemmas_is_no_claim() -> None:
    assert not former.has_claims(json.dumps({"statement": '"lemmas":[{"name":"a"}]'}).encode())


SPOILED: list[Callable[[Any], object]] = [
    lambda scored: scored["problem"].update(lemmas=[{"no": 1}]),
    lambda scored: scored["problem"].update(setup=7),
    lambda scored: scored["trajectory"].update(lines=[{"outcome": {"kind": ["claimed"]}}]),
    lambda scored: scored["trajectory"].update(lines=[7]),
    lambda scored: scored["trajectory"]["lines"][0]["outcome"].update(kind="clamed"),
    lambda scored: scored.update(trajectory=[]),
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_row_that_makes_no_sense_is_refused_like_any_other(
    spoil: Callable[[Any], object], tmp_path: Path
) -> None:
    row = json.loads(STORED.read_text().splitlines()[1])
    spoil(row["scored"])
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=r"a\.jsonl:1 is not a trajectory: "):
        list(read_trajectories(tmp_path / "a.jsonl"))


# Kernels


@pytest.mark.kernel
def test_lines_of_such_a_row_do_what_they_did(
    replay_loop: asyncio.Runner, real_kernels: KernelPool
) -> None:
    """A first claim of a name is silent and leaves `_` alone; any other call raises."""
    row = {
        "scored": {
            "problem": {"setup": ["n = 85"], "lemmas": [{"name": "a"}, {"name": "b'"}]},
            "trajectory": {"lines": []},
        }
    }
    setup = former.without_claims(row)["scored"]["problem"]["setup"]
    problem = Problem(id="p", statement="s", setup=tuple(setup))
    lines = ["n", 'have("a", n)', "_", 'have("a", 3)', 'have("b\'", z)', 'have("b\'", 1)']
    lines += ['have("c", 1)', 'have("b", value=1)']

    async def run() -> list[tuple[str, str]]:
        kernel = await kernel_for(problem, real_kernels, seed=7)
        session = Session(kernel, PYTHON)
        outcomes = [await session.run(line) for line in lines]
        await kernel.aclose()
        return [(str(one.kind), one.observation) for one in outcomes]

    found = replay_loop.run(run())
    assert [kind for kind, _ in found] == [
        *("ok_output", "ok_silent", "ok_output", "runtime_error", "name_error", "ok_silent"),
        *("runtime_error", "runtime_error"),
    ]
    assert found[2][1] == "85\n"
    raised = "RuntimeError: write have('name', value) alone on a line, once for each lemma"
    assert found[3][1].splitlines()[-1] == raised


@pytest.mark.kernel
def test_such_a_file_is_shown_run_again_and_scored_anew(call: Call) -> None:
    """Lines with a traceback are left out: versions of Python write it in their own ways."""
    code, shown, said = call("show", str(STORED))
    first, second = said.splitlines()
    assert (code, first) == (0, f"repl-rl: {former.UNPAID}")
    assert f"was graded by version 2 of the grader, here it is {GRADING}" in second
    assert re.search(r"have\('b', b\) +\+ +ok_silent +\+0\.15", shown)
    code, shown, _ = call("replay", str(STORED), "--execute", "--id", "rows_with_claims:1")
    assert (code, shown.splitlines()[-1]) == (0, "1 trajectory, 7 lines run again: none diverged")
    code, shown, _ = call("replay", str(STORED), "--rescore")
    assert code == 1
    assert "line 3 +0.150 -> +0.000; line 6 +0.150 -> +0.000" in shown
