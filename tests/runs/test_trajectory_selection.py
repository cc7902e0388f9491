"""Ways to find trajectories again: the places of records, and selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from repl_rl.records import OutcomeKind, Scored, Trajectory, VerdictKind
from repl_rl.runs.trajectory_file import append, places
from trajectory_kit import FULL, HERE, ROW, full_with, row, titles

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


@pytest.fixture
def three(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Total rewards 0.7, -0.6 and 0.0 (unscorable)."""
    trajectory = make_trajectory([("x\n", OutcomeKind.BLANK, None)])
    return [
        make_scored(trajectory, 1.0, [-0.3]),
        make_scored(trajectory, -0.6),
        make_scored(trajectory, None),
    ]


# Places


def test_a_place_reads_its_own_record(tmp_path: Path, three: list[Scored]) -> None:
    append(tmp_path / "s.jsonl", [FULL, *three], origin=HERE)
    assert [place.read() for place in places(tmp_path / "s.jsonl")] == [FULL, *three]


def test_a_glance_tells_what_lists_and_filters_need(tmp_path: Path) -> None:
    append(tmp_path / "s.jsonl", [FULL])
    (place,) = places(tmp_path / "s.jsonl")
    trajectory, verdict = place.glance.trajectory, place.glance.verdict
    assert verdict is not None
    assert verdict.kind is VerdictKind.REFUTED
    assert (trajectory.problem_id, trajectory.group_index, trajectory.policy_version) == (
        "p-1", 2, 4,
    )  # fmt: skip
    assert [line.outcome.kind for line in trajectory.lines] == [OutcomeKind.OK_OUTPUT]
    assert place.glance.reward.total == pytest.approx(-0.3)


# Folders


def test_a_place_knows_the_run_it_lies_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trajectories").mkdir()
    append(tmp_path / "trajectories" / "after.jsonl", [FULL])
    monkeypatch.chdir(tmp_path / "trajectories")
    (place,) = places(Path("after.jsonl"))
    assert place.run == tmp_path


def test_a_file_elsewhere_lies_in_no_run(tmp_path: Path) -> None:
    append(tmp_path / "s.jsonl", [FULL])
    (place,) = places(tmp_path / "s.jsonl")
    assert place.run is None


# Selection


def test_lines_and_outcome_make_the_total(three: list[Scored]) -> None:
    assert [item.reward.total for item in three] == pytest.approx([0.7, -0.6, 0.0])


@pytest.mark.parametrize(
    ("which", "found"),
    [
        (None, ["s:1", "s:2", "s:3"]),
        ("best", ["s:1", "s:3", "s:2"]),
        ("worst", ["s:2", "s:3", "s:1"]),
    ],
)
def test_the_best_or_the_worst_come_first(
    tmp_path: Path, three: list[Scored], which: str | None, found: list[str]
) -> None:
    append(tmp_path / "s.jsonl", three)
    assert titles(tmp_path / "s.jsonl", which=which) == found


@pytest.mark.parametrize("which", ["best", "worst"])
def test_equal_rewards_keep_their_order(tmp_path: Path, three: list[Scored], which: str) -> None:
    for name in "ba":
        append(tmp_path / f"{name}.jsonl", three[1:2] * 2)
    found = titles(tmp_path / "b.jsonl", tmp_path / "a.jsonl", which=which)
    assert found == ["b:1", "b:2", "a:1", "a:2"]


@pytest.mark.parametrize(
    ("id", "found"), [("s:2", ["s:2"]), ("p-1", ["s:1", "s:3"]), ("s:4", []), ("p", ["s:2"])]
)
def test_a_place_or_a_problem_is_named(
    tmp_path: Path, three: list[Scored], id: str, found: list[str]
) -> None:
    append(tmp_path / "s.jsonl", [FULL, three[0], FULL])
    assert titles(tmp_path / "s.jsonl", id=id) == found


def test_an_outcome_is_that_of_any_line(tmp_path: Path, three: list[Scored]) -> None:
    append(tmp_path / "s.jsonl", [FULL, three[0]])
    assert titles(tmp_path / "s.jsonl", outcome=OutcomeKind.OK_OUTPUT) == ["s:1"]
    assert titles(tmp_path / "s.jsonl", outcome=OutcomeKind.BLANK) == ["s:2"]
    assert titles(tmp_path / "s.jsonl", outcome=OutcomeKind.TIMEOUT) == []


def test_all_conditions_are_met_at_once(tmp_path: Path, three: list[Scored]) -> None:
    append(tmp_path / "s.jsonl", [FULL, *three])
    assert titles(tmp_path / "s.jsonl", id="p", outcome=OutcomeKind.BLANK, which="best") == [
        "s:2", "s:4", "s:3",
    ]  # fmt: skip
    assert titles(tmp_path / "s.jsonl", id="p", grep="Solve") == []


SAID = 'f("a\\n", 3/4) <= b\u00e9 \u4e2d'


@pytest.mark.parametrize(
    "text",
    ["f(", '"a', "\\n", "3/4", "<=", "b\u00e9", "\u4e2d", SAID, "a line\nand", "", "=", "1 + 1?"],
)
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_text_is_found_whoever_wrote_the_row(
    tmp_path: Path,
    make_trajectory: MakeTrajectory,
    make_scored: MakeScored,
    text: str,
    is_ours: bool,
) -> None:
    path = tmp_path / "s.jsonl"
    trajectory = make_trajectory(
        [(f" {SAID}\n", OutcomeKind.OK_OUTPUT, "a line\nand one\n>>>")], submission="[2, 3]"
    )
    scored = make_scored(trajectory, 1.0)
    if is_ours:
        append(path, [scored])
    else:
        path.write_bytes(row({"format": 2, "scored": msgspec.to_builtins(scored)}))
    assert titles(path, grep=text) == ["s:1"]


def test_a_text_is_found_where_every_letter_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(row(ROW).replace(b'"Solve', b'"\\u0053olve').replace(b"# Solve", b"#"))
    assert titles(path, grep="Solve") == ["s:1"]


@pytest.mark.parametrize("place", ["statement", "source", "observation", "submission"])
def test_a_text_is_looked_for_where_a_person_would_see_it(tmp_path: Path, place: str) -> None:
    line = FULL.trajectory.lines[0]
    found = {
        "statement": replace(FULL, problem=replace(FULL.problem, statement="needle")),
        "source": full_with(lines=(replace(line, source=" needle\n"),)),
        "observation": full_with(
            lines=(replace(line, outcome=replace(line.outcome, observation="needle\n")),)
        ),
        "submission": full_with(submission="needle"),
    }[place]
    append(tmp_path / "s.jsonl", [FULL, found])
    assert titles(tmp_path / "s.jsonl", grep="needle") == ["s:2"]


@pytest.mark.parametrize("text", ["witness", "family", "observation", "p-1", "strict"])
def test_a_text_is_looked_for_nowhere_else(tmp_path: Path, text: str) -> None:
    append(tmp_path / "s.jsonl", [FULL], origin=HERE)
    assert titles(tmp_path / "s.jsonl", grep=text) == []
