"""Laws of the words about reruns and rewards: by cause, counted, short, and fit for a terminal."""

from __future__ import annotations

import pytest

from repl_rl.records import Line, LineOutcome, OutcomeKind, Reward, VerdictKind
from repl_rl.viewer.replay.compare import Change, Judgement, difference
from repl_rl.viewer.replay.execute import Mismatch, Rerun
from repl_rl.viewer.replay.jobs import change_rows, rerun_rows

OK, TIMEOUT, NAME_ERROR = OutcomeKind.OK_OUTPUT, OutcomeKind.TIMEOUT, OutcomeKind.NAME_ERROR
CLOCK = "reads the clock"


def mismatch(
    source: str = " x\n",
    *,
    live: str = "3\n",
    kind: OutcomeKind = OK,
    volatile: str | None = None,
    index: int = 1,
) -> Mismatch:
    """Recorded was `2`."""
    recorded = LineOutcome(kind=OK, observation="2\n")
    found = difference(recorded, LineOutcome(kind=kind, observation=live), volatile=volatile)
    assert found is not None
    line = Line(index=index, source=source, start=0, stop=1, outcome=recorded)
    return Mismatch(line=line, difference=found)


def rerun(number: int, *mismatches: Mismatch, num_lines: int = 5) -> Rerun:
    return Rerun(id=f"s:{number}", num_lines=num_lines, mismatches=mismatches)


def change(number: int, before: float | None, after: float | None, *lines: float) -> Change:
    def worth(outcome: float | None, *rewards: float) -> Judgement:
        reward = Reward(line_rewards=rewards, outcome_reward=outcome)
        return Judgement(verdict=VerdictKind.PROVED, reward=reward)

    zeros = [0.0] * len(lines)
    return Change(id=f"s:{number}", before=worth(before, *zeros), after=worth(after, *lines))


# Reruns


def test_where_all_agree_there_is_only_the_sum() -> None:
    assert list(rerun_rows([rerun(1), rerun(2, num_lines=1200)])) == [
        "2 trajectories, 1,205 lines run again: none diverged"
    ]


def test_nothing_run_again_is_told_as_nothing() -> None:
    assert list(rerun_rows([])) == ["0 trajectories, 0 lines run again: none diverged"]


def test_what_may_differ_comes_first_and_says_why() -> None:
    reruns = [
        rerun(1, mismatch(kind=TIMEOUT)),
        rerun(2, mismatch(" time()\n", volatile=CLOCK), mismatch(" t\n", volatile=CLOCK, index=2)),
    ]
    assert list(rerun_rows(reruns)) == [
        f"volatile: s:2, line 2 `time()`: {CLOCK}",
        f"volatile: s:2, line 3 `t`: {CLOCK}",
        "limits: s:1, line 2 `x`: ok_output when recorded, timeout when run again",
        "2 trajectories, 10 lines run again: none diverged, 1 volatile, 1 limits",
    ]


def test_the_first_divergence_is_shown_and_the_others_are_named() -> None:
    diverged = mismatch(live="NameError: x\n", kind=NAME_ERROR)
    reruns = [rerun(1), rerun(2, diverged), rerun(3, mismatch()), rerun(4, mismatch())]
    assert list(rerun_rows(reruns)) == [
        "first divergence: s:2, line 2 `x`",
        "  ok_output -> name_error; 2 -> NameError: x",
        "  (- recorded, + run again)",
        "    -2",
        "    +NameError: x",
        "diverged, too: s:3, s:4",
        "4 trajectories, 20 lines run again: 3 diverged",
    ]


def test_a_divergence_of_the_kind_alone_has_no_rows_to_explain() -> None:
    assert list(rerun_rows([rerun(1, mismatch(live="2\n", kind=NAME_ERROR))])) == [
        "first divergence: s:1, line 2 `x`",
        "  ok_output -> name_error",
        "1 trajectory, 5 lines run again: 1 diverged",
    ]


def test_what_may_differ_is_named_up_to_twenty_lines() -> None:
    reruns = [rerun(n, mismatch(volatile=CLOCK)) for n in range(1, 1300)]
    *named, more, total = rerun_rows(reruns)
    assert len(named) == 20
    assert more == "volatile: and 1,279 more"
    assert total == "1,299 trajectories, 6,495 lines run again: none diverged, 1,299 volatile"


def test_what_diverged_is_named_up_to_twenty() -> None:
    *_, named, total = rerun_rows([rerun(n, mismatch()) for n in range(1, 1300)])
    assert named.startswith("diverged, too: s:2, s:3, ")
    assert named.endswith(", s:21 and 1,278 more")
    assert total == "1,299 trajectories, 6,495 lines run again: 1,299 diverged"


def test_a_long_source_is_shortened() -> None:
    (row, _) = rerun_rows([rerun(1, mismatch(f" {'x' * 99}\n", volatile=CLOCK))])
    assert row == f"volatile: s:1, line 2 `{'x' * 57}...`: {CLOCK}"


HOSTILE = "\x1b]0;title\x07\x1b[2J\u202ex\x9b\x00\r\b"


@pytest.mark.parametrize("volatile", [None, CLOCK])
def test_nothing_reaches_the_terminal_that_it_obeys(volatile: str | None) -> None:
    found = mismatch(f" {HOSTILE}\n", live=f"{HOSTILE}\n", volatile=volatile)
    hostile = Rerun(id=f"{HOSTILE}:1", num_lines=1, mismatches=(found,))
    assert all(row.isprintable() for row in rerun_rows([hostile, hostile]))


def test_a_source_cannot_forge_a_row() -> None:
    forged = mismatch(" x\n9 trajectories: none diverged\n", volatile=CLOCK)
    (row, _) = rerun_rows([rerun(1, forged)])
    assert row == rf"volatile: s:1, line 2 `x\n9 trajectories: none diverged`: {CLOCK}"


def test_markup_is_text() -> None:
    rows = list(rerun_rows([rerun(1, mismatch(" [red]x[/]\n", live="<b>[/]</b>\n"))]))
    assert rows[:2] == [
        "first divergence: s:1, line 2 `[red]x[/]`",
        "  2 -> <b>[/]</b>",
    ]


# Changes


def test_a_change_is_a_row_and_the_sum_is_the_last() -> None:
    assert list(change_rows([change(1, 1.0, 1.0), change(10, 1.0, 0.0), change(2, 0.0, 0.5)])) == [
        "s:10  -1.000  outcome +1.000 -> +0.000",
        "s:2   +0.500  outcome +0.000 -> +0.500",
        "2 of 3 trajectories changed, mean reward +0.667 -> +0.500",
    ]


def test_no_change_is_told_as_none() -> None:
    assert list(change_rows([change(1, 1.0, 1.0)])) == [
        "0 of 1 trajectories changed, mean reward +1.000 -> +1.000"
    ]


def test_nothing_scored_again_is_told_as_nothing() -> None:
    assert list(change_rows([])) == ["0 of 0 trajectories changed"]


def test_what_could_not_be_graded_is_counted() -> None:
    assert list(change_rows([change(1, 1.0, None), change(2, None, None)]))[-1] == (
        "1 of 2 trajectories changed; 2 could not be graded"
    )


def test_what_is_not_scored_is_in_no_mean_and_gains_nothing() -> None:
    """With zeros in their place the means would be -0.133 and +0.417."""
    changes = [change(1, -0.9, None), change(2, 0.5, 0.5), change(3, None, 1.0, -0.25)]
    assert list(change_rows(changes)) == [
        "s:1    none  outcome -0.900 -> none",
        "s:3    none  outcome none -> +1.000; line 1 +0.000 -> -0.250",
        "2 of 3 trajectories changed, mean reward of the 1 scored both times +0.500 -> +0.500; "
        "1 could not be graded",
    ]


def test_changes_are_listed_up_to_twenty() -> None:
    *listed, more, total = change_rows([change(n, 0.0, 1.0) for n in range(1300)])
    assert len(listed) == 20
    assert more == "and 1,280 more"
    assert total.startswith("1,300 of 1,300 trajectories changed")


def test_differences_of_one_trajectory_are_listed_up_to_six() -> None:
    row, _ = change_rows([change(1, 1.0, 1.0, *[-0.1] * 2000)])
    assert row.startswith("s:1  -200.000  line 1 +0.000 -> -0.100; line 2 ")
    assert row.endswith("; line 6 +0.000 -> -0.100; and 1,994 more")


def test_a_change_of_a_file_with_a_hostile_name_is_clean() -> None:
    bad = change(1, 0.0, 1.0)
    renamed = Change(id=f"{HOSTILE}:1", before=bad.before, after=bad.after)
    assert all(row.isprintable() for row in change_rows([renamed]))


def test_one_is_told_as_one() -> None:
    assert list(rerun_rows([rerun(1, num_lines=1)])) == [
        "1 trajectory, 1 line run again: none diverged"
    ]


def test_huge_rewards_are_told_in_a_few_digits() -> None:
    assert list(change_rows([change(1, 0.0, 1e100)])) == [
        "s:1  +1e+100  outcome +0.000 -> +1e+100",
        "1 of 1 trajectories changed, mean reward +0.000 -> +1e+100",
    ]
