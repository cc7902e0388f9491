"""Laws of where a step's gradient goes, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from repl_rl.credit.ledger import advantage_metrics, advantage_sums
from repl_rl.records import OutcomeKind, Scored, Trajectory

KIND = OutcomeKind


@pytest.fixture
def scored(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> list[Scored]:
    """Two lines of two tokens each: an error, then one that runs."""
    lines = [("a\n", KIND.NAME_ERROR, None), ("b\n", KIND.OK_SILENT, None)]
    return [make_scored(make_trajectory(lines, sibling_index=i), 1.0) for i in range(2)]


def test_the_share_of_an_outcome_counts_both_signs(scored: list[Scored]) -> None:
    """|A|: errors 1 + 1 and 2 + 0, the rest 1 + 1 and 0 + 2. Sum of A: -2 + 2, and -2 + 2 - 4."""
    rows = [[-1.0, -1.0, 1.0, 1.0], [-2.0, 0.0, 0.0, -2.0]]
    found = advantage_metrics([advantage_sums(scored, rows)])
    assert found["line/name_error/adv_mass"] == 4 / 8
    assert found["line/ok_silent/adv_mass"] == 4 / 8
    assert found["line/timeout/adv_mass"] == 0.0
    assert found["mean_adv_loss"] == 4 / 8


def test_one_that_stands_again_counts_once(scored: list[Scored]) -> None:
    rows = [[-1.0, -1.0, 1.0, 1.0], [-2.0, 0.0, 0.0, -2.0]]
    again = advantage_sums([*scored, scored[0]], [*rows, [0.0] * 4])
    assert again == advantage_sums(scored, rows)


def test_processes_add_up(scored: list[Scored]) -> None:
    rows = [[-1.0, -1.0, 1.0, 1.0], [-2.0, 0.0, 0.0, -2.0]]
    parts = [advantage_sums([item], [row]) for item, row in zip(scored, rows, strict=True)]
    assert advantage_metrics(parts) == advantage_metrics([advantage_sums(scored, rows)])


def test_a_step_without_advantages_reports_zeros(scored: list[Scored]) -> None:
    found = advantage_metrics([advantage_sums(scored, [[0.0] * 4, [0.0] * 4])])
    assert set(found.values()) == {0.0}
