"""Laws of rates and shares, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from repl_rl.records import (
    Branch,
    OutcomeKind,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.runs.metrics import farming_metrics, habits, line_metrics, percentiles, rollout_metrics
from repl_rl.runs.summary import (
    is_solved,
    line_shares,
    slow_warning,
    ungraded_warning,
    wilson_interval,
)
from repl_rl.training.evaluate import percent, report

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
KIND = OutcomeKind


@pytest.mark.parametrize(
    ("solved", "total", "interval"),
    [
        (8, 10, (0.4902, 0.9433)),
        (0, 10, (0.0, 0.2775)),
        (10, 10, (0.7225, 1.0)),
        (83, 200, (0.3489, 0.4843)),
        (0, 0, (0.0, 1.0)),
    ],
)
def test_wilsons_interval_by_hand(solved: int, total: int, interval: tuple[float, float]) -> None:
    """8 of 10: (0.8 + 0.19207 -+ 1.96 * sqrt(0.016 + 0.0096039)) / 1.38416."""
    assert wilson_interval(solved, total) == pytest.approx(interval, abs=5e-5)


@pytest.fixture
def four(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Solved, refuted, undecided, silent: 4 trajectories, 6 lines, 2 of them errors."""
    first = make_trajectory(
        [("a\n", KIND.OK_OUTPUT, "1\n>>>"), ("b\n", KIND.SUBMITTED, None)],
        stop_reason=StopReason.SUBMITTED,
    )
    second = make_trajectory(
        [("a\n", KIND.NAME_ERROR, ">>>"), ("b\n", KIND.SUBMITTED, None)],
        stop_reason=StopReason.SUBMITTED,
    )
    third = make_trajectory([("b\n", KIND.SUBMITTED, None)], stop_reason=StopReason.SUBMITTED)
    fourth = make_trajectory([("c\n", KIND.TIMEOUT, None)], stop_reason=StopReason.EOS)
    first, second, third, fourth = (
        replace(one, group_index=number)
        for number, one in enumerate([first, second, third, fourth])
    )
    return [
        make_scored(first, 1.0, verdict=Verdict(kind=VerdictKind.PROVED)),
        make_scored(second, 0.0, verdict=Verdict(kind=VerdictKind.REFUTED)),
        make_scored(third, None, verdict=Verdict(kind=VerdictKind.UNDECIDED)),
        make_scored(fourth, -0.6),
    ]


def test_shares_of_lines_add_up_to_one(four: list[Scored]) -> None:
    assert line_shares(four) == pytest.approx(
        {KIND.SUBMITTED: 1 / 2, KIND.OK_OUTPUT: 1 / 6, KIND.NAME_ERROR: 1 / 6, KIND.TIMEOUT: 1 / 6}
    )


def test_the_numbers_of_a_step_by_hand(four: list[Scored]) -> None:
    """12 sampled tokens (2 a line) and 8 injected ones (5 and 3) in 2 seconds."""
    metrics = rollout_metrics(four, seconds=2.0)
    expected = {
        "solve_rate": 1 / 4,
        "outcome_mean": 0.4 / 3,
        "ungraded_share": 1 / 4,
        "line/per_trajectory": 6 / 4,
        "line/error_share": 2 / 6,
        "line/submitted/share": 3 / 6,
        "line/submitted/tokens": 6,
        "line/blank/share": 0.0,
        "line/recovery_share": 1 / 2,
        "stop/submitted": 3 / 4,
        "stop/eos": 1 / 4,
        "stop/max_lines": 0.0,
        "kernel/timeouts": 1,
        "kernel/kills": 0,
        "grader/undecided_share": 1 / 3,
        "grader/error_share": 0.0,
        "rollout/seconds": 2.0,
        "rollout/tokens_per_s": 6.0,
        "rollout/lines_per_s": 3.0,
        "active_tokens": 12,
        "mask_ratio": 12 / 20,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_a_line_that_siblings_share_counts_once(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """A comment and an error are shared: of five lines two are code, and the error is mended once.
    One that was not left stands for twice as much of a rollout as each of the two that share lines.
    """
    shared = [("# x\n", KIND.COMMENT, None), ("y\n", KIND.NAME_ERROR, None)]
    first = make_trajectory([*shared, ("1\n", KIND.OK_OUTPUT, None)], sibling_index=0)
    branch = Branch(sibling_index=0, num_lines=2, seed=0)
    second = make_trajectory([*shared, ("# z\n", KIND.COMMENT, None)], sibling_index=1)
    third = make_trajectory([("\n", KIND.BLANK, None)], sibling_index=2)
    proved = Verdict(kind=VerdictKind.PROVED)
    scored = [
        make_scored(first, 1.0, verdict=proved),
        make_scored(replace(second, branch=branch), 0.0),
        make_scored(third, 1.0, verdict=proved),
    ]
    metrics = rollout_metrics(scored, seconds=1.0, weights=[0.5, 0.5, 1.0])
    expected = {
        "solve_rate": 1.5 / 2,
        "outcome_mean": 1.5 / 2,
        "line/code_share": 2 / 5,
        "line/recovery_share": 1.0,
        "line/per_trajectory": 5 / 3,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_farming_shows_by_hand(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> None:
    """Two of five lines are code; of three trajectories one is silent, one submits at once."""
    parts = [
        [KIND.COMMENT, KIND.OK_OUTPUT],
        [KIND.BLANK, KIND.FAKE_OUTPUT],
        [KIND.SUBMITTED],
    ]
    scored = [
        make_scored(make_trajectory([("x\n", kind, None) for kind in kinds]), 0.0)
        for kinds in parts
    ]
    assert farming_metrics(scored) == pytest.approx(
        {
            "line/code_share": 2 / 5,
            "trajectory/silent_share": 1 / 3,
            "trajectory/first_line_submit_share": 1 / 3,
        }
    )


@pytest.mark.parametrize(("sibling", "share"), [(None, 1.0), (0, 0.0)])
def test_lines_of_a_solution_hide_no_silence(
    make_trajectory: MakeTrajectory, make_scored: MakeScored, sibling: int | None, share: float
) -> None:
    """A line copied from a sibling was written in this group; one of a solution was not."""
    kinds = (KIND.OK_OUTPUT, KIND.COMMENT), (KIND.OK_OUTPUT, KIND.SUBMITTED)
    silent, submits = (
        make_scored(
            replace(
                make_trajectory([("x\n", kind, None) for kind in pair]),
                branch=Branch(sibling_index=sibling, num_lines=1, seed=1),
            ),
            0.0,
        )
        for pair in kinds
    )
    assert farming_metrics([silent])["trajectory/silent_share"] == share
    assert farming_metrics([submits])["trajectory/first_line_submit_share"] == share


def test_lines_with_text_behind_a_newline_are_counted(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Two of five: a blank line and an indented one came with a newline of the same token."""
    sources = [[" x\n", " x\n\n", "\n"], [" if x:\n    y\n", " cut"]]
    scored = [
        make_scored(make_trajectory([(source, KIND.OK_OUTPUT, None) for source in each]), 0.0)
        for each in sources
    ]
    assert line_metrics(scored)["line/run_on_share"] == 2 / 5


def test_habits_by_hand(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> None:
    """One of three lines with code ran; one of two trajectories submitted."""
    kinds = [(KIND.COMMENT, KIND.OK_OUTPUT, KIND.NAME_ERROR), (KIND.CUT,)]
    stops = [StopReason.SUBMITTED, StopReason.MAX_TOKENS]
    scored = [
        make_scored(make_trajectory([("x\n", one, None) for one in some], stop_reason=stop), 0.0)
        for some, stop in zip(kinds, stops, strict=True)
    ]
    assert habits(scored) == {"submit_share": 1 / 2, "ran_share": 1 / 3}


def test_every_outcome_and_every_end_has_a_metric(four: list[Scored]) -> None:
    metrics = rollout_metrics(four, seconds=1.0)
    assert {f"line/{kind}/share" for kind in OutcomeKind} <= set(metrics)
    assert {f"stop/{reason}" for reason in StopReason} <= set(metrics)


def test_an_error_is_mended_by_a_later_line_that_goes_well(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """The first two of four errors are mended: a comment and a repetition mend nothing."""
    parts = [
        [KIND.NAME_ERROR, KIND.SYNTAX_ERROR, KIND.COMMENT, KIND.OK_SILENT],
        [KIND.OK_OUTPUT, KIND.TIMEOUT, KIND.DUPLICATE, KIND.BAD_SUBMIT],
    ]
    scored = [
        make_scored(make_trajectory([("x\n", kind, None) for kind in kinds]), 0.0)
        for kinds in parts
    ]
    assert line_metrics(scored)["line/recovery_share"] == 2 / 4
    calm = make_scored(make_trajectory([("x\n", KIND.OK_OUTPUT, None)]), 0.0)
    assert "line/recovery_share" not in line_metrics([calm])


def test_percentiles_are_times_that_were_measured() -> None:
    """The 20th, the 38th and the 40th of 1 ... 40; of one time, that time."""
    assert percentiles("x", [float(time) for time in range(40, 0, -1)]) == {
        "x_p50_ms": 20.0,
        "x_p95_ms": 38.0,
        "x_p99_ms": 40.0,
    }
    assert percentiles("x", [7.0]) == {"x_p50_ms": 7.0, "x_p95_ms": 7.0, "x_p99_ms": 7.0}
    assert percentiles("x", []) == {}


def test_what_was_not_measured_has_no_number(four: list[Scored]) -> None:
    """Nothing is scored, nothing is submitted, no line ran."""
    bare = [replace(four[3], reward=replace(four[3].reward, outcome_reward=None))]
    absent = {"outcome_mean", "grader/error_share", "kernel/line_p50_ms"}
    assert absent.isdisjoint(rollout_metrics(bare, seconds=1.0))


def test_a_report_tells_rate_and_interval(four: list[Scored]) -> None:
    """One of the three that are graded: (1/3 + 0.64027 -+ 0.83331) / 2.28053."""
    graded = [four[0], four[1], four[3]]
    assert str(report(graded)) == "33.3 % of 3 (95 % interval 6.1% to 79.2%)"


def test_a_report_tells_the_rate_of_all_and_of_the_graded(four: list[Scored]) -> None:
    """One of four, of which one could not be graded: (1/4 + 0.48020 -+ 0.69370) / 1.96040."""
    found = report(four)
    assert (found.rate, found.all.solved, found.all.total, found.all.ungraded) == (0.25, 1, 4, 1)
    assert str(found) == (
        "25.0 % of 4 (95 % interval 4.6% to 69.9%); not graded: 1, of the graded 33.3 % of 3"
    )


def test_what_is_solved_is_graded_though_a_reward_does_not_count_it(four: list[Scored]) -> None:
    solved = next(one for one in four if is_solved(one))
    found = report([replace(solved, reward=replace(solved.reward, outcome_reward=None))])
    assert (found.all.solved, found.all.ungraded) == (1, 0)


def test_a_report_in_which_nothing_is_graded_says_so(four: list[Scored]) -> None:
    found = report([four[2]] * 2)
    assert (found.rate, found.all.total, found.all.ungraded) == (0.0, 2, 2)
    assert str(found).endswith("not graded: 2, of the graded none")
    assert percent(0, 0) == "none"


@pytest.mark.parametrize(("ungraded", "is_warned"), [(0, False), (3, False), (4, True)])
def test_more_than_three_ungraded_in_a_hundred_are_warned_of(
    four: list[Scored], ungraded: int, is_warned: bool
) -> None:
    scored = [four[2]] * ungraded + [four[1]] * (100 - ungraded)
    assert (ungraded_warning(scored) is not None) is is_warned


@pytest.mark.parametrize(("slow", "is_warned"), [(0, False), (3, False), (4, True)])
def test_more_than_three_in_a_hundred_that_run_out_of_time_are_warned_of(
    four: list[Scored], slow: int, is_warned: bool
) -> None:
    ended = replace(
        four[1], trajectory=replace(four[1].trajectory, stop_reason=StopReason.TIME_LIMIT)
    )
    warning = slow_warning([ended] * slow + [four[1]] * (100 - slow))
    assert (warning is not None) is is_warned
    if warning is not None:
        assert warning.startswith("4 of 100 trajectories ended at sampling.time_limit_s and count")


def test_the_warning_names_the_most_frequent_reason_and_an_answer(four: list[Scored]) -> None:
    late = Verdict(kind=VerdictKind.UNDECIDED, grader_error="deadline of 5 s")
    hard = replace(four[2].trajectory, submission="re(\n" + "x" * 70)
    scored = [four[2], *[replace(four[2], verdict=late, trajectory=hard)] * 2, four[0]]
    assert ungraded_warning(scored) == (
        "3 of 4 trajectories could not be graded and count as not solved; look at problem p with "
        f"the answer re(\\n{'x' * 55}; the grader says: deadline of 5 s"
    )
