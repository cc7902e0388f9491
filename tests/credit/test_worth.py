"""Worth of lines, by outcomes worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from repl_rl.credit.ledger import Value, worths
from repl_rl.records import Branch, OutcomeKind, Scored, Trajectory

OK = OutcomeKind.OK_OUTPUT
MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
LEFT = Branch(sibling_index=0, num_lines=1, seed=1)


def test_a_value_is_a_mean_with_its_standard_error() -> None:
    """1, 0, 1, 1: mean 3/4, deviation 1/2, error 1/4."""
    assert Value.of([1.0, 0.0, 1.0, 1.0]) == Value(mean=0.75, error=0.25, count=4)
    assert Value.of([-1.0]) == Value(mean=-1.0, error=None, count=1)


def test_one_sample_before_a_line_tells_no_error(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Though what comes after it, the end, is known."""
    plain = make_scored(make_trajectory([("a\n", OK, None)]), 1.0)
    (only,) = worths(plain, [make_scored(replace(plain.trajectory, group_index=0), 0.0)])
    assert only.gain == Value(mean=1.0, error=None, count=1)


def test_a_line_is_worth_what_the_state_after_it_has_more(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Three lines, right at the end. Nothing came of the state before the third."""
    plain = make_trajectory([("a\n", OK, None), ("b\n", OK, None), ("c\n", OK, None)])

    def made(at: int, outcome: float | None, branch: Branch | None = LEFT) -> Scored:
        trajectory = replace(plain, group_index=at, branch=branch)
        return make_scored(trajectory, outcome)

    first, second, third = worths(
        make_scored(plain, 1.0),
        [
            *(made(0, outcome, None) for outcome in (0.0, 1.0)),
            *(made(1, outcome) for outcome in (1.0, 1.0, 1.0, 0.0)),
            made(1, None),  # could not be scored
            made(2, 0.0, None),  # lost its stem
        ],
    )
    assert first.gain is not None
    assert first.gain.mean == pytest.approx(0.25)
    assert first.gain.error == pytest.approx(math.hypot(0.5, 0.25))
    assert (second.before, second.after, second.gain) == (first.after, None, None)
    assert (third.before, third.after) == (None, Value(mean=1.0, error=0.0, count=1))
    assert [worth.line.source for worth in (first, second, third)] == ["a\n", "b\n", "c\n"]


def test_what_could_not_be_scored_has_no_value_at_its_end(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    (only,) = worths(make_scored(make_trajectory([("a\n", OK, None)]), None), [])
    assert (only.before, only.after, only.gain) == (None, None, None)
