"""Laws of what a person sees: nothing a policy wrote moves the terminal, and it all fits."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from repl_rl.display import Screen, render_trajectory, trend
from repl_rl.ledger import ledgers
from repl_rl.summary import rollout_metrics
from repl_rl.tokens import ByteCodec
from repl_rl.types import OutcomeKind, Scored, Trajectory

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
KIND = OutcomeKind

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x08\x9b2J \u202etxet\u202c \u2066x\u2069"


def shown(scored: Scored) -> str:
    """What a terminal of 80 columns gets, colours off: any escape left is not ours."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    Screen(console).sample("title", scored)
    return file.getvalue()


@pytest.fixture
def sampled(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> Callable[[str, str], Scored]:
    """A trajectory of one line and its observation."""

    def build(source: str, observation: str) -> Scored:
        parts = [(source, KIND.OK_OUTPUT, observation + ">>>"), (" y\n", KIND.BLANK, None)]
        return make_scored(make_trajectory(parts), 1.0)

    return build


Sampled = Callable[[str, str], Scored]
MOVES = ("\x1b", "\x07", "\x08", "\x9b", "\u202e", "\u202c", "\u2066", "\u2069")


def test_what_a_policy_wrote_never_moves_the_terminal(sampled: Sampled) -> None:
    text = shown(sampled(f" # {HOSTILE}\n", ""))
    assert [mark for mark in MOVES if mark in text] == []


def test_what_a_stored_observation_holds_never_moves_the_terminal(sampled: Sampled) -> None:
    text = shown(sampled(" x\n", f"{HOSTILE}\n"))
    assert [mark for mark in MOVES if mark in text] == []


@pytest.mark.parametrize("markup", ["[red]x[/red]", "[link=file:///]", "[/]", "[bold", ":smile:"])
def test_markup_is_shown_as_it_was_written(sampled: Sampled, markup: str) -> None:
    text = shown(sampled(f" {markup}\n", f"{markup}\n"))
    assert text.count(markup) == 2


@pytest.mark.parametrize("title", ["[red]a[/red]", "step [1]", "[/]"])
def test_a_title_is_shown_as_it_was_written(sampled: Sampled, title: str) -> None:
    file = io.StringIO()
    Screen(Console(file=file, width=80)).sample(title, sampled(" x\n", ""))
    assert title in file.getvalue()


@pytest.mark.parametrize("text", ["runs/[red]/x", "a [/] b", ":smile:"])
def test_what_is_said_is_shown_as_it_was_written(text: str) -> None:
    file = io.StringIO()
    Screen(Console(file=file, width=80)).say(text)
    assert file.getvalue() == f"{text}\n"


def test_a_trajectory_reads_as_its_transcript(sampled: Sampled) -> None:
    assert render_trajectory(sampled(" 1+1\n", "2\n")).plain == ">>> 1+1\n2\n>>> y\n"


def test_an_open_statement_shows_the_secondary_prompt(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" f(\n", KIND.INCOMPLETE, "..."), (" )\n", KIND.OK_SILENT, None)]
    text = render_trajectory(make_scored(make_trajectory(parts), 1.0)).plain
    assert text == ">>> f(\n... )\n"


def test_no_prompt_is_shown_that_was_never_there(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    parts = [(" 1+1\n", KIND.OK_OUTPUT, "Out[1]: 2\nIn [2]:"), (" y\n", KIND.BLANK, None)]
    scored = make_scored(make_trajectory(parts, prompt="In [1]:"), 1.0)
    shown = render_trajectory(scored, ByteCodec().decode).plain
    assert shown == "In [1]: 1+1\nOut[1]: 2\nIn [2]: y\n"


def test_an_error_shows_its_kind_and_its_price(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([(" q\n", KIND.NAME_ERROR, None)])
    text = render_trajectory(make_scored(trajectory, 0.0, [-0.1])).plain
    assert text == ">>> q   <- name_error -0.10\n"


def test_a_wide_character_is_shown(sampled: Sampled) -> None:
    assert "\u4e2d\u6587" in shown(sampled(" '\u4e2d\u6587'\n", "'\u4e2d\u6587'\n"))


@pytest.mark.parametrize("num_steps", [1, 2, 200])
def test_the_table_fits_80_columns(sampled: Sampled, num_steps: int) -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    screen = Screen(console)
    metrics = rollout_metrics([sampled(" x\n", "")] * 3, seconds=0.001)
    for step in range(num_steps):
        screen._history.append({**metrics, "kl": 0.05 * step, "entropy": 1.0})
    console.print(screen._table())
    rows = file.getvalue().splitlines()
    assert max(map(len, rows)) <= 80
    assert [row for row in rows if "\u2026" in row] == []


def test_every_row_of_the_table_has_its_numbers(sampled: Sampled) -> None:
    """13 rows with their header; without a reference policy there is no KL to show."""
    file = io.StringIO()
    screen = Screen(Console(file=file, width=80))
    row = {**rollout_metrics([sampled(" x\n", "")], seconds=1.0), "kl": 0.1, "entropy": 0.2}
    screen._history.append(row)
    Console(file=file, width=80).print(screen._table())
    assert len(file.getvalue().splitlines()) == 13
    screen._history = [{key: value for key, value in row.items() if key != "kl"}]
    assert screen._table().row_count == 11


def test_without_a_terminal_a_step_is_one_line(sampled: Sampled) -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file, width=80))
    screen.metrics(3, 80, rollout_metrics([sampled(" x\n", "")], seconds=1.0))
    text = file.getvalue()
    assert text.startswith("step 3/80  solve rate 0.0%")
    assert text.count("\n") == 1


def test_no_submission_counts_every_end_without_one(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """A dead kernel, a full context or a time limit submit nothing either."""
    from repl_rl.display import _ROWS, _value
    from repl_rl.types import StopReason

    (row,) = (row for row in _ROWS if row.label == "no submission")
    ends = [reason for reason in StopReason if reason is not StopReason.SUBMITTED]
    parts = [("x\n", KIND.BLANK, None)]
    scored = [make_scored(make_trajectory(parts, stop_reason=end), -0.6) for end in ends]
    assert _value(row, rollout_metrics(scored, seconds=1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ""),
        ([1.0], ""),
        ([1.0, 1.0, 1.0], "..."),
        ([0.0, 1.0], ".#"),
        ([1.0, 0.0], "#."),
        ([0.0, 3.0, 6.0], ".=#"),
    ],
)
def test_a_trend_goes_from_its_least_to_its_most(values: list[float], expected: str) -> None:
    assert trend(values) == expected


def test_a_long_trend_is_averaged_to_its_width() -> None:
    assert trend([float(i) for i in range(1000)], width=4) == ".-+#"


def ledger_of(scored: Scored) -> str:
    file = io.StringIO()
    (ledger,) = ledgers([scored], [[0.0] * len(scored.trajectory.completion_ids)])
    Screen(Console(file=file, width=80)).ledger(f"s:1 {HOSTILE}\n", ledger)
    return file.getvalue()


def test_a_foreign_name_moves_no_terminal(sampled: Sampled) -> None:
    scored = sampled(" x\n", "")
    terms = {f"{HOSTILE}\nforged": 1.0}
    text = ledger_of(replace(scored, reward=replace(scored.reward, terms=terms)))
    assert [mark for mark in MOVES if mark in text] == []
    assert not any(row.startswith("forged") for row in text.splitlines())


def test_a_title_is_one_row(sampled: Sampled) -> None:
    file = io.StringIO()
    Screen(Console(file=file, width=80)).sample("a\nb", sampled(" x\n", ""))
    assert file.getvalue().startswith("a\\nb: ")
