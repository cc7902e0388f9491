"""Laws of rates and shares, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from repl_rl.evaluate import percent, report
from repl_rl.summary import (
    farming_metrics,
    line_shares,
    rollout_metrics,
    solve_counts,
    wilson_interval,
)
from repl_rl.types import OutcomeKind, Scored, StopReason, Trajectory, Verdict, VerdictKind

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
    return [
        make_scored(first, 1.0, verdict=Verdict(kind=VerdictKind.PROVED)),
        make_scored(second, 0.0, verdict=Verdict(kind=VerdictKind.REFUTED)),
        make_scored(third, None, verdict=Verdict(kind=VerdictKind.UNDECIDED)),
        make_scored(fourth, -0.6),
    ]


def test_the_ungraded_are_left_out_of_the_solve_rate(four: list[Scored]) -> None:
    assert solve_counts(four) == {"all": (1, 3)}


def test_counts_are_kept_by_a_key_of_the_problem(four: list[Scored]) -> None:
    assert solve_counts(four, "family") == {"?": (1, 3)}


def test_shares_of_lines_add_up_to_one(four: list[Scored]) -> None:
    assert line_shares(four) == pytest.approx(
        {KIND.SUBMITTED: 1 / 2, KIND.OK_OUTPUT: 1 / 6, KIND.NAME_ERROR: 1 / 6, KIND.TIMEOUT: 1 / 6}
    )


def test_the_numbers_of_a_step_by_hand(four: list[Scored]) -> None:
    """12 sampled tokens (2 a line) and 8 injected ones (5 and 3) in 2 seconds."""
    metrics = rollout_metrics(four, seconds=2.0)
    expected = {
        "solve_rate": 1 / 3,
        "outcome_mean": 0.4 / 3,
        "ungraded_share": 1 / 4,
        "lines/mean": 6 / 4,
        "lines/error_share": 2 / 6,
        "lines/submitted": 3 / 6,
        "lines/blank": 0.0,
        "stop/submitted": 3 / 4,
        "stop/eos": 1 / 4,
        "stop/max_lines": 0.0,
        "rollout/seconds": 2.0,
        "rollout/tokens_per_s": 6.0,
        "rollout/lines_per_s": 3.0,
        "rollout/mask_ratio": 12 / 20,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_farming_shows_by_hand(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> None:
    """Of five lines two are code; of three trajectories one is silent, one submits at once."""
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
        {"lines/code_share": 2 / 5, "silent_share": 1 / 3, "first_line_submit_share": 1 / 3}
    )


def test_every_outcome_and_every_end_has_a_metric(four: list[Scored]) -> None:
    metrics = rollout_metrics(four, seconds=1.0)
    assert {f"lines/{kind}" for kind in OutcomeKind} <= set(metrics)
    assert {f"stop/{reason}" for reason in StopReason} <= set(metrics)


def test_a_report_tells_rate_and_interval(four: list[Scored]) -> None:
    assert str(report(four)) == "33.3 % of 3 (95 % interval 6.1% to 79.2%)"


def test_a_report_without_graded_problems_says_so(four: list[Scored]) -> None:
    found = report([four[2]])
    assert (found.rate, found.total, found.ungraded) == (0.0, 0, 1)
    assert "not graded: 1" in found.table()
    assert percent(0, 0) == "nothing graded"
