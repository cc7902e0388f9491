"""Edges of trees that are small enough to work out by hand."""

from __future__ import annotations

import pytest

from credit_kit import sibling
from repl_rl.credit.trees import Edge, tree_edges
from repl_rl.records import Branch, Reward, Scored


def twig(
    index: int, num_lines: int, outcome: float | None, *, leaves: tuple[int, int] | None = None
) -> Scored:
    """`leaves`: whom, and after how many lines."""
    branch = (
        None if leaves is None else Branch(sibling_index=leaves[0], num_lines=leaves[1], seed=0)
    )
    reward = Reward(line_rewards=(0.0,) * num_lines, outcome_reward=outcome)
    return sibling(index, branch, reward)


def numbers(edges: list[Edge]) -> list[tuple[int, int, float | None, float | None, float]]:
    return [(one.start, one.stop, one.before, one.after, one.advantage) for one in edges]


def weights(twigs: list[Scored], *, as_scored: bool = False) -> list[list[float]]:
    return [[edge.weight for edge in own] for own in tree_edges(twigs, as_scored=as_scored)]


def test_three_leaves_have_four_edges() -> None:
    """1 leaves 0 after two of its three lines. Outcomes 1, 0, 0.

    The state that they share is worth 1/2, and the prompt the mean of that and 0, which is 1/4.
    Each of the two is held against the other and against 2: 1 - (0 + 0) / 2, and 0 - (1 + 0) / 2.
    """
    found = tree_edges([twig(0, 3, 1.0), twig(1, 4, 0.0, leaves=(0, 2)), twig(2, 1, 0.0)])
    assert list(map(numbers, found)) == [
        [(0, 2, 0.25, 0.5, 0.5), (2, 3, 0.5, 1.0, 1.0)],
        [(2, 4, 0.5, 0.0, -0.5)],
        [(0, 1, 0.25, 0.0, -0.5)],
    ]


def test_the_rest_of_the_group_counts_as_one_more() -> None:
    """1 left 0, 3 left 2, and nobody left 4. The trees are worth 1/2, 1/2 and 1.

    To 0 and 1 the rest is worth (1/2 + 1) / 2, as it is to 2 and 3: from where it is left 0 has
    0 - (1 + 3/4) / 2, and 1 has 1 - (0 + 3/4) / 2.
    """
    found = tree_edges(
        [
            *[twig(0, 2, 0.0), twig(1, 2, 1.0, leaves=(0, 1))],
            *[twig(2, 2, 1.0), twig(3, 2, 0.0, leaves=(2, 1)), twig(4, 1, 1.0)],
        ]
    )
    advantages = [[edge.advantage for edge in edges] for edges in found]
    assert advantages == [
        pytest.approx([-1 / 4, -7 / 8]),
        pytest.approx([5 / 8]),
        pytest.approx([-1 / 4, 5 / 8]),
        pytest.approx([-7 / 8]),
        pytest.approx([1 / 2]),
    ]


def test_who_is_left_twice_has_three_edges() -> None:
    """1 leaves 0 after a line, 2 leaves it after two. Outcomes 1, 0, 0.

    The later state is worth 1/2, and the earlier one the mean of that and 0. Nobody else begins at
    the prompt, so the first line is held against nothing.
    """
    found = tree_edges(
        [twig(0, 3, 1.0), twig(1, 2, 0.0, leaves=(0, 1)), twig(2, 3, 0.0, leaves=(0, 2))]
    )
    assert list(map(numbers, found)) == [
        [(0, 1, 0.25, 0.25, 0.0), (1, 2, 0.25, 0.5, 0.5), (2, 3, 0.5, 1.0, 1.0)],
        [(1, 2, 0.25, 0.0, -0.5)],
        [(2, 3, 0.5, 0.0, -1.0)],
    ]


def test_an_edge_that_leads_to_nothing_scored_has_no_value() -> None:
    """Both that go on from the line of 0 were not scored, so 2 is alone."""
    twigs = [twig(0, 2, None), twig(1, 2, None, leaves=(0, 1)), twig(2, 1, 1.0)]
    assert list(map(numbers, tree_edges(twigs))) == [
        [(0, 1, 1.0, None, 0.0), (1, 2, None, None, 0.0)],
        [(1, 2, None, None, 0.0)],
        [(0, 1, 1.0, 1.0, 0.0)],
    ]
    assert weights(twigs) == [[0.0, 0.0], [0.0], [1.0]]
    assert weights(twigs, as_scored=True) == [[1.0, 0.5], [0.5], [1.0]]


def test_those_that_leave_one_who_is_not_there_are_held_against_each_other() -> None:
    """A file may lack it. 1 and 2 left it after the same line, 3 after another, which is alone."""
    twigs = [
        twig(1, 2, 1.0, leaves=(0, 1)),
        twig(2, 3, 0.0, leaves=(0, 1)),
        twig(3, 3, 0.0, leaves=(0, 2)),
    ]
    assert list(map(numbers, tree_edges(twigs))) == [
        [(1, 2, 0.5, 1.0, 1.0)],
        [(1, 3, 0.5, 0.0, -1.0)],
        [(2, 3, 0.0, 0.0, 0.0)],
    ]


def test_who_ended_as_soon_as_it_was_left_is_held_against_those_that_left_it() -> None:
    """0 ran out of time after the line behind which 1 left it: an edge of no lines is worth 0."""
    twigs = [twig(0, 1, 0.0), twig(1, 2, 1.0, leaves=(0, 1)), twig(2, 1, 0.0)]
    assert list(map(numbers, tree_edges(twigs))) == [
        [(0, 1, 0.25, 0.5, 0.5), (1, 1, 0.5, 0.0, -0.5)],
        [(1, 2, 0.5, 1.0, 1.0)],
        [(0, 1, 0.25, 0.0, -0.5)],
    ]
    assert weights(twigs) == [[1.0, 0.5], [0.5], [1.0]]


def test_one_without_a_line_of_its_own_is_left_nowhere() -> None:
    """A file may say so: 1 ended where it left 0, and 2 says that it left 1 right there."""
    twigs = [twig(0, 3, 1.0), twig(1, 3, 0.0, leaves=(0, 3)), twig(2, 5, 1.0, leaves=(1, 3))]
    assert list(map(numbers, tree_edges(twigs)))[1:] == [
        [(3, 3, 0.5, 0.0, -1.0)],
        [(3, 5, 1.0, 1.0, 0.0)],
    ]


def test_a_line_that_the_other_does_not_have_is_no_place_to_leave_it() -> None:
    found = tree_edges([twig(0, 1, 1.0), twig(1, 3, 0.0, leaves=(0, 2))])
    assert list(map(numbers, found)) == [[(0, 1, 1.0, 1.0, 0.0)], [(2, 3, 0.0, 0.0, 0.0)]]


def test_a_tree_may_have_any_depth() -> None:
    """Each leaves the one before it, a line later; only the last is right."""
    n = 3000
    twigs = [
        twig(at, at + 2, float(at == n - 1), leaves=None if at == 0 else (at - 1, at))
        for at in range(n)
    ]
    edges = tree_edges(twigs)
    assert numbers(edges[-1]) == [(n - 1, n + 1, 0.5, 1.0, 1.0)]
    assert numbers(edges[0])[0] == (0, 1, 2.0 ** (1 - n), 2.0 ** (1 - n), 0.0)
    assert numbers(edges[-3])[0] == (n - 3, n - 2, 0.125, 0.25, 0.25)


def test_those_that_leave_each_other_are_left_out() -> None:
    """A file may hold anything: 0 leaves 1, and 1 leaves 0."""
    twigs = [twig(0, 5, 1.0, leaves=(1, 2)), twig(1, 5, 0.0, leaves=(0, 3)), twig(2, 1, 0.0)]
    assert list(map(numbers, tree_edges(twigs))) == [[], [], [(0, 1, 0.0, 0.0, 0.0)]]
