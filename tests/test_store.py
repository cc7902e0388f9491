"""Laws of a run's folder: what is written is read back, and what is foreign is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from repl_rl.errors import ConfigError
from repl_rl.store import (
    RunFolder,
    check_output,
    new_run_path,
    read_metrics,
    read_trajectories,
    read_versions,
    select_trajectories,
    total_reward,
)
from repl_rl.types import (
    Line,
    LineOutcome,
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]

FULL = Scored(
    trajectory=Trajectory(
        problem_id="p-1",
        group_index=2,
        sibling_index=3,
        policy_version=4,
        seed=2**62 + 1,
        prompt_text=">>> # Solve \u4e2d\n>>>",
        prompt_ids=(1, 2),
        completion_ids=(5, 6, 7),
        loss_mask=(True, True, False),
        logprobs=(-0.1234567890123, -1e-9, 0.0),
        lines=(
            Line(
                index=0,
                source=" x\u0000\n",
                start=0,
                stop=2,
                outcome=LineOutcome(
                    kind=OutcomeKind.OK_OUTPUT,
                    observation="\u001b[31m[red]\n",
                    wall_ms=1.5,
                    cpu_ms=0.25,
                    is_truncated=True,
                ),
            ),
        ),
        stop_reason=StopReason.TIME_LIMIT,
        submission="[2, 3]",
    ),
    problem=Problem(id="p-1", statement="Solve \u4e2d", meta={"family": "f", "answer": "2"}),
    verdict=Verdict(
        kind=VerdictKind.REFUTED, method="witness", evidence="x = 1", ms=2.5, grader_error="E"
    ),
    reward=Reward(line_rewards=(-0.3,), outcome_reward=None, terms={"line/timeout": -0.3}),
)


def test_a_record_is_read_back_equal_in_every_field(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append_trajectories("step", [FULL])
    assert list(read_trajectories(tmp_path / "trajectories" / "step.jsonl")) == [FULL]


def test_records_are_appended(
    tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    other = make_scored(make_trajectory([("x\n", OutcomeKind.BLANK, None)]), 1.0)
    folder = RunFolder(tmp_path)
    folder.append_trajectories("step", [FULL])
    folder.append_trajectories("step", [other])
    assert list(read_trajectories(tmp_path / "trajectories" / "step.jsonl")) == [FULL, other]


def test_metrics_are_one_row_a_step(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append_metrics(1, {"loss": 0.5})
    folder.append_metrics(2, {"loss": -0.25})
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": -0.25}]


def test_versions_name_what_the_run_was_made_with(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_config("seed = 0\n", policy="p", device="cuda", isolation="process")
    versions = json.loads((tmp_path / "versions.json").read_text())
    assert {"repl_rl", "python", "torch", "trl", "sympy", "isolation"} <= set(versions)
    assert read_versions(tmp_path) == versions
    assert versions["device"] == "cuda"
    assert (tmp_path / "config.toml").read_text() == "seed = 0\n"


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run")
    with pytest.raises(ConfigError, match="already holds a run; give another --output"):
        RunFolder(tmp_path / "run")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to '.*file/run': Not a directory"):
        RunFolder(tmp_path / "file" / "run")


def test_a_file_in_place_of_the_folder_is_not_called_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="cannot write to"):
        RunFolder(tmp_path / "run")


@pytest.mark.parametrize("name", ["", "run", "deep/down/run"])
def test_a_free_output_is_left_as_it_was(tmp_path: Path, name: str) -> None:
    check_output(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_holds_a_run_is_refused_beforehand(tmp_path: Path) -> None:
    RunFolder(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run; give another --output"):
        check_output(tmp_path)


@pytest.mark.parametrize("place", ["/proc", "/proc/deep"])
def test_a_place_that_takes_no_file_is_refused_beforehand(place: str) -> None:
    """/proc refuses even root."""
    with pytest.raises(ConfigError, match=f"cannot write to '{place}/run'"):
        check_output(Path(place) / "run")


ROW = {"format": 1, "scored": msgspec.to_builtins(FULL)}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"{not json", r"rows\.jsonl:2 is not a trajectory"),
        (b'{"a": 1}', r"rows\.jsonl:2 is not a trajectory"),
        (b'{"format": 1, "scored": {}}', r"rows\.jsonl:2 is not a trajectory"),
        (b'{"format": 1, "scored": "\xff"}', r"rows\.jsonl:2 is not a trajectory"),
        (b"", r"rows\.jsonl:2 is not a trajectory"),
        (json.dumps(ROW | {"format": 2}).encode(), r"rows\.jsonl:2 has format 2; .* reads 1"),
        (json.dumps(ROW)[:-40].encode(), r"rows\.jsonl:2 is not a trajectory"),
        (b'{"format": 2, "records": []}', r"rows\.jsonl:2 has format 2; .* reads 1"),
    ],
)
def test_a_foreign_row_is_refused_with_its_number(tmp_path: Path, row: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n" + row + b"\n")
    with pytest.raises(ConfigError, match=message):
        list(read_trajectories(path))


def test_rows_before_a_foreign_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n{\n")
    assert next(read_trajectories(path)) == FULL


@pytest.fixture
def three(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Total rewards 0.7, -0.6 and 0.0 (unscorable)."""
    trajectory = make_trajectory([("x\n", OutcomeKind.BLANK, None)])
    return [
        make_scored(trajectory, 1.0, [-0.3]),
        make_scored(trajectory, -0.6),
        make_scored(trajectory, None),
    ]


def test_lines_and_outcome_make_the_total(three: list[Scored]) -> None:
    assert [total_reward(item) for item in three] == pytest.approx([0.7, -0.6, 0.0])


@pytest.mark.parametrize(
    ("which", "count", "titles"),
    [
        (None, 2, ["s.jsonl:1", "s.jsonl:2"]),
        ("best", 2, ["s.jsonl:1", "s.jsonl:3"]),
        ("worst", 1, ["s.jsonl:2"]),
        ("best", 9, ["s.jsonl:1", "s.jsonl:3", "s.jsonl:2"]),
    ],
)
def test_the_first_the_best_or_the_worst_are_selected(
    tmp_path: Path, three: list[Scored], which: str | None, count: int, titles: list[str]
) -> None:
    RunFolder(tmp_path).append_trajectories("s", three)
    path = tmp_path / "trajectories" / "s.jsonl"
    chosen = select_trajectories(path, which=which, count=count)
    assert [title for title, _ in chosen] == titles


def test_equal_rewards_are_selected_in_their_order(tmp_path: Path, three: list[Scored]) -> None:
    RunFolder(tmp_path).append_trajectories("s", [three[1]] * 3)
    chosen = select_trajectories(tmp_path, which="best", count=2)
    assert [title for title, _ in chosen] == ["s.jsonl:1", "s.jsonl:2"]


def test_a_run_shows_its_last_file(tmp_path: Path, three: list[Scored]) -> None:
    folder = RunFolder(tmp_path)
    folder.append_trajectories("step-000001", three)
    folder.append_trajectories("after", three[:1])
    os.utime(tmp_path / "trajectories" / "step-000001.jsonl", (1, 1))
    assert [title for title, _ in select_trajectories(tmp_path, which=None, count=9)] == [
        "after.jsonl:1"
    ]


@pytest.mark.parametrize(
    ("name", "message"), [("", "no trajectories in"), ("x.jsonl", "no such file")]
)
def test_nothing_to_select_from_is_a_config_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        select_trajectories(tmp_path / name, which=None, count=1)


def test_a_run_path_holds_no_separator_of_the_task(tmp_path: Path) -> None:
    path = new_run_path("my.tasks/x:Task", tmp_path)
    assert path.parent == tmp_path
    assert path.name.startswith("my.tasks-x-Task-")
