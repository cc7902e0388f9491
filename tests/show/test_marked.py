"""Laws of a transcript beside its columns: every row has its writer, each line what it earned."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from fixture_types import MakeScored, MakeTrajectory
from repl_rl.records import OutcomeKind, Scored, Verdict, VerdictKind
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.marked import marked_trajectory

KIND = OutcomeKind
README = Path(__file__).resolve().parents[2] / "README.md"


def texts(scored: Scored) -> list[str]:
    """Rows without what stands beside them."""
    rows = marked_trajectory(scored, ByteCodec().decode, width=80).plain.splitlines()
    return [re.sub(r" +(?:prompt|\.|\+(?: {3}.*)?)$", "", row) for row in rows]


def in_a_terminal(scored: Scored, *, width: int = 80, no_color: bool = False) -> list[str]:
    """Rows on the screen: below the heading, above the legend."""
    file = io.StringIO()
    environment = {"NO_COLOR": "1"} if no_color else {}
    console = Console(
        file=file, width=width, force_terminal=True, color_system="standard", _environ=environment
    )
    Screen(console).sample("title", scored)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()[1:-1]


@pytest.fixture
def short(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Scored:
    parts = [(" 1+1\n", KIND.OK_OUTPUT, "2\n>>>"), (" y\n", KIND.BLANK, None)]
    return make_scored(make_trajectory(parts), 1.0)


def test_a_trajectory_reads_as_its_transcript(short: Scored) -> None:
    assert texts(short) == [">>> 1+1", "2", ">>> y"]


def test_an_open_statement_shows_the_secondary_prompt(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" f(\n", KIND.INCOMPLETE, "..."), (" )\n", KIND.OK_SILENT, None)]
    assert texts(make_scored(make_trajectory(parts), 1.0)) == [">>> f(", "... )"]


def test_no_prompt_is_shown_that_was_never_there(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" 1+1\n", KIND.OK_OUTPUT, "Out[1]: 2\nIn [2]:"), (" y\n", KIND.BLANK, None)]
    scored = make_scored(make_trajectory(parts, prompt="In [1]:"), 1.0)
    assert texts(scored) == ["In [1]: 1+1", "Out[1]: 2", "In [2]: y"]


def test_a_blank_row_of_an_output_is_injected(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" f()\n", KIND.OK_OUTPUT, "a\n\nb\n>>>"), (" y\n", KIND.BLANK, None)]
    rows = marked_trajectory(make_scored(make_trajectory(parts), 1.0), width=80).plain
    assert [row[54:].strip() for row in rows.splitlines()] == [
        "+   ok_output", ".", ".", ".", "+   blank",
    ]  # fmt: skip


@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_has_outcome_and_reward_beside_each_line(
    make_trajectory: MakeTrajectory, make_scored: MakeScored, *, no_color: bool
) -> None:
    parts = [(" q\n", KIND.NAME_ERROR, "NameError\n>>>"), (" 1\n", KIND.SUBMITTED, None)]
    verdict = Verdict(kind=VerdictKind.WRONG, evidence="not 2")
    scored = make_scored(make_trajectory(parts), -0.6, [-0.1, 0.0], verdict)
    assert in_a_terminal(scored, no_color=no_color) == [
        f"{'>>> q':54}+   name_error    -0.10",
        f"{'NameError':54}.",
        f"{'>>> 1':54}+   submitted     wrong",
    ]


def test_in_a_terminal_a_long_text_gives_way_and_not_the_columns(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """80 columns leave 53 for a text, the prompt's four included."""
    parts = [(f" {'y' * 90}\n", KIND.NAME_ERROR, f"{'z' * 60}\n>>>"), (" 1\n", KIND.BLANK, None)]
    scored = make_scored(make_trajectory(parts), 0.0, [-0.1, 0.0])
    assert in_a_terminal(scored) == [
        f">>> {'y' * 49} +   name_error    -0.10",
        f"{'y' * 41:54}+",
        f"{'z' * 53} .",
        f"{'z' * 7:54}.",
        f"{'>>> 1':54}+   blank",
    ]


def test_a_wide_character_takes_two_columns(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" '" + "\u4e2d" * 30 + "'\n", KIND.OK_SILENT, None)]
    first, second = in_a_terminal(make_scored(make_trajectory(parts), 0.0))
    assert first == f">>> '{chr(0x4E2D) * 24} +   ok_silent"
    assert second == f"{chr(0x4E2D) * 6}'{' ' * 41}+"


@pytest.mark.parametrize("width", [80, 100, 200])
def test_nothing_is_wider_than_its_terminal(
    make_trajectory: MakeTrajectory, make_scored: MakeScored, width: int
) -> None:
    parts = [
        *((f" {'y' * 300}\n", kind, f"{'z' * 300}\n>>>") for kind in KIND),
        (" 1\n", KIND.SUBMITTED, None),
    ]
    for kind in VerdictKind:
        scored = make_scored(make_trajectory(parts), 0.0, verdict=Verdict(kind=kind))
        assert max(map(len, in_a_terminal(scored, width=width))) <= width


def test_in_a_log_a_row_too_long_for_its_mark_is_not_cut(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(f" {'y' * 90}\n", KIND.OK_SILENT, None)]
    rows = marked_trajectory(make_scored(make_trajectory(parts), 0.0), width=80).plain
    assert rows == f">>> {'y' * 90} +   ok_silent\n"


def test_a_line_that_is_a_newline_alone_is_shown_and_repeats_are_counted(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Ten sampled newlines in an open bracket: each is trained, so each has its mark."""
    parts = [
        (" f(\n", KIND.INCOMPLETE, "..."),
        *[("\n", KIND.INCOMPLETE, "...")] * 10,
        (" \n", KIND.INCOMPLETE, "..."),
        (" 1)\n", KIND.OK_SILENT, None),
    ]
    rows = marked_trajectory(make_scored(make_trajectory(parts), 0.0), width=80).plain
    assert rows.splitlines() == [
        f"{'>>> f(':54}+   incomplete",
        f"{'... (empty) x 11':54}+   incomplete",
        f"{'... 1)':54}+   ok_silent",
    ]


def test_lines_that_say_something_are_never_folded(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" # (empty)\n", KIND.COMMENT, ">>>")] * 3 + [("\n", KIND.BLANK, None)]
    assert texts(make_scored(make_trajectory(parts), 0.0)) == [
        *[">>> # (empty)"] * 3, ">>> (empty)",
    ]  # fmt: skip


def test_newlines_that_cost_something_else_are_not_folded(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [("\n", KIND.DUPLICATE, ">>>")] * 3
    scored = make_scored(make_trajectory(parts), 0.0, [0.0, -0.05, -0.05])
    assert texts(scored)[:2] == [">>> (empty)", ">>> (empty) x 2"]


@pytest.fixture
def in_readme(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Scored:
    """The trajectory that the README begins with."""
    statements = (
        "from sympy import *",
        "x, n, k = symbols('x n k')",
        "# Work in steps; the last line is submit_final_answer(...).",
        "# Solve over the reals: 2*x**2 + 7*x + 3 = 0",
        "# Answer: a list of all solutions, exact.",
    )
    refused = (
        '  File "<stdin>", line 1\n'
        "    solve(2*x**2 + 7*x + 3, x))\n"
        "                              ^\n"
        "SyntaxError: unmatched ')'\n>>>"
    )
    parts = [
        (" # all roots\n", KIND.COMMENT, ">>>"),
        (" solve(2*x**2 + 7*x + 3, x))\n", KIND.SYNTAX_ERROR, refused),
        (" solve(2*x**2 + 7*x + 3, x)\n", KIND.OK_OUTPUT, "[-3, -1/2]\n>>>"),
        (" submit_final_answer(_)\n", KIND.SUBMITTED, None),
    ]
    prompt = PYTHON.render_prompt(statements, python_version="3.11.7")
    trajectory = make_trajectory(parts, prompt=prompt)
    return make_scored(trajectory, 1.0, [0.0, -0.3, 0.0, 0.0], Verdict(kind=VerdictKind.PROVED))


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"COLORTERM": "truecolor"}])
def test_the_readme_shows_what_a_terminal_and_a_log_have(
    in_readme: Scored, environment: dict[str, str]
) -> None:
    file = io.StringIO()
    console = Console(
        file=file, width=92, force_terminal=bool(environment), _environ={**environment}
    )
    Screen(console).sample("step-000099:40", in_readme)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    block = re.findall(r"(?:^    .*\n)+", README.read_text(), re.MULTILINE)[0]
    assert shown[0].startswith("step-000099:40: reward +0.70, right (exact)")
    assert shown[1:-1] == [row[4:] for row in block.splitlines()]
    assert shown[-1].startswith("+ sampled, trained   . injected")


def test_marks_fit_a_terminal_of_80_columns(in_readme: Scored) -> None:
    rows = in_a_terminal(in_readme)
    assert rows[8] == f"{'>>> solve(2*x**2 + 7*x + 3, x))':54}+   syntax_error  -0.30"
    assert max(map(len, rows)) <= 80
    assert len(rows) == 16, "the prompt's long row has room beside its mark"
