"""Sheets over the walk: tokens and help, and how they are put away."""

from pathlib import Path

import pytest

from fixture_types import MakeTrajectory
from repl_rl.runs.trajectory_file import append, places
from stepper_seat import MakeStepper, Seat, WritesLines, after, sit
from tree_kit import three_leaves

pytestmark = pytest.mark.slow


def test_tokens_stand_one_a_row_with_mask_and_log_probability(stepper: MakeStepper) -> None:
    rows = after(stepper(), "n", "n", "t")
    assert "tokens of line 2: 10" in rows[1]  # ` 1+1` and a newline, `2`, a newline and a prompt
    cells = [row.strip("\u2502 ").split() for row in rows[3:13]]
    # Before it stand ` # think`, a newline and a prompt: 12 bytes.
    assert cells[1] == ["13", "'1'", "49", "1", "-1.000", "+0.000"]
    assert cells[4] == ["16", r"'\n'", "10", "1", "-1.000", "+0.000"]
    assert cells[5] == ["17", "'2'", "50", "0"]


def test_tokens_of_a_line_the_policy_wrote_are_its_own(stepper: MakeStepper) -> None:
    rows = after(stepper(policy=WritesLines("1+1")), "n", "m", "t")
    assert "tokens of line 2: 10" in rows[1]
    cells = [row.strip("\u2502 ").split() for row in rows[3:13]]
    assert cells[1] == ["13", "'1'", "49", "1", "-0.500"]  # it was in no update: no advantage


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("n" * 2, "tokens of line 2: 10   ok_output  reward +0.000   Esc goes back"),
        # ` y`, `NameError: y`, each with a newline, and a prompt.
        ("n" * 3, "tokens of line 3: 19   name_error  reward -0.100   Esc goes back"),
        ("m", "tokens of line 1: 19   name_error  reward -0.100   Esc goes back"),
    ],
)
def test_above_its_tokens_stand_outcome_and_reward_of_the_line(
    stepper: MakeStepper, keys: str, told: str
) -> None:
    rows = after(stepper(policy=WritesLines("y")), *keys, "t")
    assert rows[1].strip("\u2502 ") == told


@pytest.mark.parametrize("before", [(), ("m",)])
def test_tokens_of_a_line_by_hand_are_not_told(
    stepper: MakeStepper, before: tuple[str, ...]
) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", *before, "i")
        await seat.write("x = 2")
        await seat.press("escape", "t")
        assert "only lines that a policy sampled have tokens" in seat.text

    sit(stepper(policy=WritesLines("1+1")), act)


@pytest.mark.parametrize(
    ("is_alone", "told"),
    [
        (False, "branches from sibling 0 (s:1) after line 2"),
        (True, "branches from sibling 0 (not in this file)"),
    ],
)
def test_what_is_known_of_a_trajectory_says_whom_it_leaves(
    stepper: MakeStepper, make_trajectory: MakeTrajectory, tmp_path: Path, is_alone: bool, told: str
) -> None:
    leaves = three_leaves(make_trajectory)
    append(tmp_path / "s.jsonl", leaves[1:2] if is_alone else leaves)
    app = stepper()
    app._trajectories = [
        one for one in places(tmp_path / "s.jsonl") if one.glance.trajectory.branch
    ]
    assert any(told in row for row in after(app, "s", size=(80, 60)))


def test_a_sheet_is_put_away_by_its_key_and_by_escape(stepper: MakeStepper) -> None:
    for key in ("escape", "s", "q"):
        rows = after(stepper(), "s", key)
        assert "line 0/5" in rows[0]


def test_help_names_every_key_on_one_screen(stepper: MakeStepper) -> None:
    rows = after(stepper(), "question_mark")
    assert len(rows) == 24
    assert any("n  space  down" in row for row in rows)
    assert any("q  Ctrl-C" in row for row in rows)
    assert any("a line of a branch" in row for row in rows)
