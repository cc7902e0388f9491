"""Results of `benchmarks/noise.py`, with numbers worked out by hand."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest

from benchmark_module import benchmark_module
from repl_rl.records import Branch


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark_module("noise", monkeypatch)


def test_the_noise_of_two_rollouts_of_one_line(script: ModuleType) -> None:
    """g is 1/2 where one of the two is right, half of the time: mean 1/4, mean square 1/8. So N is
    (1/8 - 1/16) / (1/16), times two lines.
    """
    world = script.World(name="", chances=[0.5], counts=[True])
    assert world.gradient() == [0.25]
    roll = partial(script.group, world=world, size=2)
    assert script.noise(world, roll, 4000) == pytest.approx(2.0, rel=0.05)


def test_rows_by_the_state_alone_and_by_each_other_trajectory(script: ModuleType) -> None:
    """1 leaves 0 after two lines, and they have half a weight each behind these. Outcomes 1, 0, 0
    and, of two more, 0. The trees are worth 1/2, 0 and 0.
    """
    world = script.World(name="", chances=[0.5] * 3, counts=[True] * 3)
    branch = Branch(sibling_index=0, num_lines=2, seed=0)
    leaves = [
        script.Leaf(slot=0, lines=[True, True, True]),
        script.Leaf(slot=1, lines=[True, True, False], branch=branch),
        *(script.Leaf(slot=slot, lines=[False, True, True]) for slot in (2, 4)),
    ]
    by_state = script.other_rows(world, leaves, 1, "state")
    assert by_state[0] == pytest.approx([1 / 2, 1 / 2, 1 / 2])
    assert by_state[1] == pytest.approx([0, 0, -1 / 2])
    assert by_state[2] == pytest.approx([-1 / 4] * 3)
    by_each = script.other_rows(world, leaves, 1, "each")
    assert by_each[0] == pytest.approx([1 / 2, 1 / 2, 1 / 2])
    assert by_each[1] == pytest.approx([0, 0, -1 / 6])
    as_is = script.tree_rows(world, leaves, ())
    assert as_is[1] == pytest.approx([0, 0, -1 / 4])


@pytest.mark.parametrize("baseline", ["state", "as is", "each"])
def test_a_tree_has_as_many_lines_as_it_sampled(script: ModuleType, baseline: str) -> None:
    """A coin always falls to heads, so each is left after the first line that it may be left at: 4
    of 4 lines, 4 more of 3, 8 more of 2.
    """
    (world, *_) = script.worlds(4)
    rng = script.random.Random(0)
    leaves, rows, size = script.tree(
        rng, world=world, factors=[4, 2, 2], chance=1.0, baseline=baseline
    )
    own = [len(one.lines) - (one.branch.num_lines if one.branch else 0) for one in leaves]
    assert (len(leaves), size) == (16, 16)
    assert sum(own) == 4 * 4 + 4 * 3 + 8 * 2
    assert all(not any(row[: 4 - num]) for row, num in zip(rows, own, strict=True))
