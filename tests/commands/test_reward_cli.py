"""Laws of `repl-rl reward`: what is printed, and the code it ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from repl_rl.commands.reward import unknown_rows
from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.runs.folder import RunFolder

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
Call = Callable[..., tuple[int, str, str]]
GOLDEN = str(Path(__file__).parents[1] / "golden")

SLIP = """\
=== a slip
>>> y
<- name_error {}
NameError: name 'y' is not defined
"""


@pytest.fixture
def slip(call: Call, tmp_path: Path) -> Callable[[str], str]:
    """Writes a transcript that expects this reward of a name error; its name."""

    def write(reward: str) -> str:
        (tmp_path / "slip.repl").write_text(SLIP.format(reward))
        return "slip.repl"

    return write


def test_transcripts_that_hold_are_counted(call: Call, slip: Callable[[str], str]) -> None:
    shown = "1 transcript in 1 file: all as written\n"
    assert call("reward", "test", slip("-0.1")) == (0, shown, "")


def test_a_miss_is_shown_with_its_line_and_is_exit_code_1(
    call: Call, slip: Callable[[str], str]
) -> None:
    shown = """\
slip.repl:3: a slip
    >>> y
    expected  <- name_error -0.2
    got       <- name_error -0.1

1 transcript in 1 file: 1 not as written
"""
    assert call("reward", "test", slip("-0.2")) == (1, shown, "")


def test_settings_reach_the_reward(call: Call, slip: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[reward.line]\nname_error = -0.2\n")
    assert call("reward", "test", slip("-0.2"), "--config", "mine.toml")[0] == 0
    assert call("reward", "test", slip("-0.3"), "--set", "reward.line.name_error=-0.3")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("test", "no.repl"), "cannot read 'no.repl': No such file or directory"),
        (("test", "."), "no *.repl file in '.'"),
        (("test", "bad.repl"), "bad.repl:2: 'x'; expected `verdict: ...`, `chance: ...`, "),
        (("test", GOLDEN, "--set", "reward.lines=1"), "unknown key 'reward.lines'; did you mean"),
        (("explain", "no-run"), "no such file or run folder: 'no-run'"),
        (("explain", "empty"), "no trajectories in 'empty'; expected a run folder"),
        (("explain", f"{GOLDEN}/cap.repl", "--id", "x"), "no trajectory 'x' in "),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    if "bad.repl" in arguments:
        (tmp_path / "bad.repl").write_text("=== t\nx\n")
    (tmp_path / "empty").mkdir()
    code, out, err = call("reward", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"repl-rl: {message}")


# Mutants


def test_the_projects_own_transcripts_leave_no_survivor(call: Call) -> None:
    code, out, err = call("reward", "mutate", GOLDEN)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert "survived" not in out


def test_survivors_are_named_and_are_exit_code_1(call: Call, slip: Callable[[str], str]) -> None:
    code, out, _ = call("reward", "mutate", slip("-0.1"))
    rows = [row.split() for row in out.splitlines()]
    assert code == 1
    assert ["survived", "line.timeout", "-0.3", "->", "0", "untouched"] in rows
    assert ["survived", "no_submission", "-0.6", "->", "-1.2", "unwritten"] in rows
    assert not any("line.name_error" in row for row in rows)
    assert max(map(len, out.splitlines())) <= 80


def test_constants_can_be_left_out(call: Call, slip: Callable[[str], str]) -> None:
    sections = ("line", "verdict", "max_line_charge", "no_submission", "potential")
    skip = [word for key in sections for word in ("--skip", key)]
    assert call("reward", "mutate", slip("-0.1"), *skip)[:2] == (0, "0 mutants\n")


def test_a_constant_to_leave_out_that_there_is_none_of_is_refused(
    call: Call, slip: Callable[[str], str]
) -> None:
    code, _, err = call("reward", "mutate", slip("-0.1"), "--skip", "reward.line")
    assert code == 2
    assert "no mutant of 'reward.line' to skip; expected a key or section, such as '" in err


def test_transcripts_that_miss_say_nothing_of_mutants(
    call: Call, slip: Callable[[str], str]
) -> None:
    code, _, err = call("reward", "mutate", slip("-0.2"))
    assert code == 2
    assert "mend what `repl-rl reward test` shows" in err


# The ledger


def test_the_transcripts_of_a_file_are_siblings(call: Call) -> None:
    """Outcomes 1, 0, -0.6, -0.6: mean -0.05, so only the first two are above it."""
    code, out, _ = call("reward", "explain", f"{GOLDEN}/cap.repl", "-n", "9")
    assert code == 0
    assert out.count("of the gradient of its group of 4") == 4
    rows = [row.split() for row in out.splitlines() if row.startswith("submit_final_answer")]
    assert [float(row[-3]) > 0 for row in rows] == [True, True]


def test_one_trajectory_is_found_by_its_title(call: Call) -> None:
    title = "those over it are scaled"
    out = call("reward", "explain", f"{GOLDEN}/cap.repl", "--id", title)[1]
    assert out.startswith(f"cap.repl:16 {title}: reward -0.40, wrong ")
    assert out.count("of the gradient") == 1
    assert "\nline/syntax_error -0.400  outcome/wrong +0.000\n" in out


@pytest.fixture
def run(tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored) -> str:
    """A run whose last step holds two groups, their siblings apart."""
    folder = RunFolder(tmp_path / "run")
    scored = [
        make_scored(
            make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)], group_index=group), outcome
        )
        for group, outcome in ((0, 1.0), (1, 0.5), (0, 0.0), (1, 0.5))
    ]
    folder.append_trajectories("step-000000", scored[:1])
    folder.append_trajectories("step-000001", scored)
    folder.append_trajectories("after", scored[:1])
    return "run"


def test_siblings_of_a_run_are_found_wherever_they_stand(call: Call, run: str) -> None:
    """(1 - 0.5) / (0.7071 + 0.0001) = 0.707; the second group's outcomes are equal."""
    out = call("reward", "explain", run, "-n", "9", "--set", "grpo.baseline=mean")[1]
    heads = [row.split()[0] for row in out.splitlines() if row.startswith("step-")]
    assert heads == [f"step-000001:{n}" for n in (1, 3, 2, 4)]
    rows = [row.split() for row in out.splitlines() if row.startswith("x ")]
    assert [row[-3:] for row in rows] == [
        ["+0.707", "3", "50.0%"],
        ["-0.707", "3", "50.0%"],
        ["+0.000", "3", "0.0%"],
        ["+0.000", "3", "0.0%"],
    ]


def test_the_largest_gradient_comes_first_and_groups_without_one_are_counted(
    call: Call, tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Per token, undivided: 0, 0; -0.25, 0.25; -0.25, -0.25, 0.5; 0, 0."""
    outcomes = [(0.5, 0.5), (0.0, 0.5), (0.0, 0.0, 0.75), (1.0, 1.0)]
    scored = [
        make_scored(
            make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)], group_index=group), outcome
        )
        for group, siblings in enumerate(outcomes)
        for outcome in siblings
    ]
    RunFolder(tmp_path / "run").append_trajectories("step-000000", scored)
    shape = ("--set", "grpo.scale=none", "-n", "9")
    code, out, err = call("reward", "explain", "run", *shape)
    assert (code, err) == (0, "repl-rl: 2 of 4 groups have no signal\n")
    heads = [row.split()[0] for row in out.splitlines() if row.startswith("step-")]
    assert heads == [f"step-000000:{n}" for n in (7, 5, 6, 3, 4, 1, 2, 8, 9)]


def test_a_run_brings_its_own_credit(call: Call, run: str, tmp_path: Path) -> None:
    """Undivided by a deviation: 1 - 0.5."""
    (tmp_path / "run" / "config.toml").write_text('[grpo]\nscale = "none"\n')
    assert "+0.500" in call("reward", "explain", run)[1]


def test_a_model_without_branches_is_refused(call: Call, run: str) -> None:
    code, out, err = call("reward", "explain", run, "--model", "tiny")
    assert (code, out) == (2, "")
    assert "--model tiny has no effect without --branches K" in err


def test_nobody_goes_on_from_a_transcript_by_hand(call: Call, slip: Callable[[str], str]) -> None:
    code, out, err = call("reward", "explain", slip("-0.1"), "--branches", "4")
    assert (code, out) == (2, "")
    assert "--branches needs trajectories that a model sampled; expected a run or a .jsonl" in err


def test_branches_take_a_model(
    call: Call, make_trajectory: MakeTrajectory, make_scored: MakeScored, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "away")
    line = make_trajectory([(" x\n", OutcomeKind.OK_OUTPUT, None)])
    folder.append_trajectories("step-000000", [make_scored(line, 1.0)])
    found = call("reward", "explain", "away/trajectories/step-000000.jsonl", "--branches", "4")
    assert found[0] == 2
    assert "lies in no run, so give --model PATH" in found[2]


def test_states_without_a_value_say_why_those_with_one_reason_in_one_row() -> None:
    cut = "the output of line 1 was cut"
    assert list(unknown_rows([None, cut, None])) == [f"-  before line 2: {cut}"]
    assert list(unknown_rows([None, cut, cut, "line 3 is timeout"])) == [
        f"-  before lines 2 to 3: {cut}",
        "-  before line 4: line 3 is timeout",
    ]
