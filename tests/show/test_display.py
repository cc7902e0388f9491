"""Laws of what a person sees: nothing a policy wrote moves the terminal, and it all fits."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from repl_rl.credit.ledger import ledgers
from repl_rl.progress import Progress
from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.runs.metrics import rollout_metrics
from repl_rl.viewer.show.display import Phase, Screen, trend

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
KIND = OutcomeKind

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x08\x9b2J \u202etxet\u202c \u2066x\u2069"


def shown(scored: Scored) -> str:
    """Text that a terminal of 80 columns gets, colours off: any escape left is not ours."""
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
    assert file.getvalue() == "step 3/80  solved 0.0%  outcome +1.000  errors 0%  6 tok/s\n"


def test_the_longest_line_of_a_step_has_less_than_100_columns() -> None:
    file, now = io.StringIO(), [0.0]
    screen = Screen(Console(file=file, width=80), clock=lambda: now[0])
    row = {"solve_rate": 1.0, "outcome_mean": -0.6, "line/error_share": 1.0, "kl": 10.0}
    with screen.bar("training", 9999) as update:
        now[0] = 36.0
        update(1000)
        screen.metrics(1000, 9999, row | {"rollout/tokens_per_s": 99_999.0, "entropy": 1.0})
    line = file.getvalue().splitlines()[-1]
    assert line == (
        "step 1000/9999  solved 100.0%  outcome -0.600  errors 100%  99,999 tok/s  KL 10.000"
        "  0:05:24 left"
    )
    assert len(line) < 100


def test_no_submission_counts_every_end_without_one(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """A dead kernel, a full context or a time limit submit nothing either."""
    from repl_rl.records import StopReason
    from repl_rl.viewer.show.display import ROWS, _value

    (row,) = (row for row in ROWS if row.label == "no submission")
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


# Bars


class Watched:
    """A screen without a terminal, and a clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._file = io.StringIO()
        self.screen = Screen(Console(file=self._file, width=80), clock=lambda: self.now)

    @property
    def rows(self) -> list[str]:
        return self._file.getvalue().splitlines()


def test_in_a_log_a_long_phase_says_each_tenth_with_the_time_left() -> None:
    log = Watched()
    with log.screen.bar("demonstrations", 4000) as update:
        for done in range(1, 4001):
            log.now = done * 0.05
            update(done, "loss 0.5")
    assert log.rows[:3] == [
        "demonstrations ...",
        "demonstrations  400/4000  loss 0.5  0:03:00 left",
        "demonstrations  800/4000  loss 0.5  0:02:40 left",
    ]
    assert len(log.rows) == 1 + 9


def test_in_a_log_a_short_phase_says_nothing_more() -> None:
    log = Watched()
    with log.screen.bar("scoring", 200) as update:
        for done in range(1, 201):
            log.now = done * 0.02
            update(done)
    assert log.rows == ["scoring ..."]


def test_in_a_log_a_part_of_a_phase_speaks_up_once_a_minute() -> None:
    """25 s a trajectory: the first tenth after 60 s is the fourth."""
    log = Watched()
    with log.screen.bar("training", 100):
        update = log.screen.inside("sampling", 10)
        for done in range(1, 11):
            log.now = done * 20.0
            update(done, lambda: "9 tokens/s")
    assert log.rows[1:] == [
        "sampling  3/10  9 tokens/s  0:02:20 left",
        "sampling  6/10  9 tokens/s  0:01:20 left",
        "sampling  9/10  9 tokens/s  0:00:20 left",
    ]


def test_the_time_left_falls_while_a_long_step_runs() -> None:
    now = [0.0]
    phase = Phase("training", 5, clock=lambda: now[0])
    assert phase.left == "-:--:--"
    now[0] = 90.0
    phase.move(1, "", 5)
    assert phase.left == "0:06:00"
    now[0] = 120.0
    assert phase.left == "0:05:30"
    now[0] = 9000.0
    assert phase.left == "0:00:00"


def test_a_start_is_not_taken_for_the_pace_of_what_follows() -> None:
    """30 s until the first of 101, then 2 s each; the other goes on from 40 of 50."""
    now = [0.0]
    phase, resumed = (Phase("training", 101, clock=lambda: now[0]) for _ in range(2))
    now[0] = 30.0
    phase.move(1, "", 101)
    resumed.move(40, "", 50)
    now[0] = 50.0
    phase.move(11, "", 101)
    resumed.move(42, "", 50)
    assert (phase.left, resumed.left) == ("0:03:00", "0:01:20")


def frame(screen: Screen) -> list[str]:
    """Rows of a terminal of 80 columns below what has been said."""
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=True, color_system=None).print(*screen._rendered())
    return file.getvalue().splitlines()


def test_a_step_has_a_bar_inside_that_of_the_training() -> None:
    screen = Screen(Console(file=io.StringIO(), force_terminal=True), clock=lambda: 0.0)
    counts = iter((1100, 1200))
    with screen.bar("training", 12):
        update = screen.inside("sampling", 96)
        update(37, lambda: f"{next(counts):,} tokens/s")
        above, below = frame(screen)
        assert re.fullmatch(r"training +0/12 -:--:-- *", above)
        assert re.fullmatch(r"  sampling \S+ +37/96 0:00:00 1,100 tokens/s", below)
        assert "1,200 tokens/s" in frame(screen)[1], "asked again whenever it is shown"
        screen.inside("update", 6)(2)
        assert re.fullmatch(r"  update   +\S+ +2/6 0:00:00 *", frame(screen)[1])
    assert list(screen._rendered()) == []


def test_a_phase_and_its_part_fit_80_columns() -> None:
    screen = Screen(Console(file=io.StringIO(), force_terminal=True), clock=lambda: 0.0)
    with screen.bar("starter: running demonstrations", 4000) as update:
        update(3999, "")
        screen.inside("sampling", 10_000)(9999, "9999 solved, 999,999 tokens/s")
        rows = frame(screen)
    assert max(map(len, rows)) <= 80
    assert "9999 solved, 999,999 tokens/s" in rows[1]


def test_a_screen_shows_all_that_a_job_reports() -> None:
    """A screen overrides everything that a job may call, so none of it is lost in a terminal."""
    reports = {name for name in vars(Progress) if not name.startswith("_")}
    assert reports == {"say", "warn", "bar", "inside", "metrics", "sample"}
    assert reports <= set(vars(Screen))
