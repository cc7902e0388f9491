"""The ledger adds up: shares of one group's gradient mass, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import Console

from repl_rl.credit.ledger import ledgers
from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.viewer.show.display import ledger_table

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


@pytest.fixture
def two(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Two siblings: lines of 2 and 4 tokens with 4 injected between them, and one line of 6."""
    kind = OutcomeKind
    first = make_trajectory(
        [("a\n", kind.NAME_ERROR, ">>>\n"), ("bcd\n", kind.OK_OUTPUT, None)], sibling_index=0
    )
    second = make_trajectory([("efghi\n", kind.OK_SILENT, None)], sibling_index=1)
    return [make_scored(first, 1.0, [-0.1, 0.0]), make_scored(second, 0.0)]


ADVANTAGES = [[0.5] * 2 + [0.0] * 4 + [1.0] * 4, [-2.5] * 6]
"""Masses 1, 4 and 15 of 20."""


def test_a_line_has_its_share_of_the_groups_gradient(two: list[Scored]) -> None:
    first, second = ledgers(two, ADVANTAGES)
    assert [entry.share for entry in first.entries] == [0.05, 0.2]
    assert [entry.share for entry in second.entries] == [0.75]
    assert (first.share, second.share, first.num_siblings) == (0.25, 0.75, 2)


def test_a_row_holds_the_lines_reward_advantage_and_tokens(two: list[Scored]) -> None:
    rows = ledgers(two, ADVANTAGES)[0].entries
    assert [(row.reward, row.advantage, row.num_tokens) for row in rows] == [
        (-0.1, 0.5, 2),
        (0.0, 1.0, 4),
    ]


def test_shares_are_those_of_ones_own_group(
    two: list[Scored], make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    stranger = make_trajectory([("j\n", OutcomeKind.BLANK, None)], group_index=1)
    found = ledgers([*two, make_scored(stranger, 1.0)], [*ADVANTAGES, [9.0, 9.0]])
    assert [ledger.share for ledger in found] == [0.25, 0.75, 1.0]
    assert [ledger.num_siblings for ledger in found] == [2, 2, 1]


def test_a_group_without_a_gradient_has_no_shares(two: list[Scored]) -> None:
    assert [ledger.share for ledger in ledgers(two, [[0.0] * 10, [0.0] * 6])] == [0.0, 0.0]


def test_the_table_fits_80_columns_however_long_a_line(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([("x" * 200 + "\n", OutcomeKind.SYNTAX_ERROR, None)] * 2)
    (ledger,) = ledgers([make_scored(trajectory, 1.0)], [[-1.25] * 402])
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(ledger_table(ledger))
    head, *rows = captured.get().splitlines()
    assert head.split() == ["line", "outcome", "reward", "advantage", "tokens", "share"]
    assert [row.split() for row in rows] == [
        ["x" * 25 + "...", "syntax_error", "+0.000", "-1.250", "201", "50.0%"]
    ] * 2


def test_what_a_policy_wrote_is_no_markup(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([(" [red]\x1b[1m[/]\n", OutcomeKind.OK_SILENT, None)])
    (ledger,) = ledgers([make_scored(trajectory, 1.0)], [[0.0] * 15])
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(ledger_table(ledger))
    assert captured.get().splitlines()[1].startswith("[red][/] ")
