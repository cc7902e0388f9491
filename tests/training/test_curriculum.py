"""Laws of the curriculum: weights follow rates, and rates are all of its state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from repl_rl.tasks.base import Cell, Choice
from repl_rl.training.curriculum import Curriculum, rates_in
from repl_rl.types import Problem, Split, Verdict

EASY, HARD = Cell(family="sum", tier=1), Cell(family="ode", tier=3)


class Two:
    """A task of two families, one of which has two tiers."""

    name = "two"
    prompt = "{{problem}}"
    cells: tuple[Cell, ...] = (EASY, HARD, Cell(family="ode", tier=4))
    choice = Choice(families=("sum", "ode"), tiers=(1, 3, 4), weights={"ode": 3.0})

    def with_choice(self, choice: Choice) -> Two:
        raise NotImplementedError

    def problem(self, cell: Cell, split: Split, *, seed: int) -> Problem:
        meta = {"family": cell.family, "tier": str(cell.tier)}
        return Problem(id=f"{cell}/{split}/{seed}", statement="?", meta=meta)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        raise NotImplementedError

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise NotImplementedError


def test_families_share_by_weight_and_tiers_in_their_family() -> None:
    weights = Curriculum(Two(), seed=0).weights()
    assert [weights[cell] for cell in Two.cells] == [1.0, 1.5, 1.5]


@pytest.mark.parametrize(
    ("rate", "factor"), [(0.2, 1.0), (0.5, 1.0), (0.8, 1.0), (0.1, 0.55), (0.9, 0.55), (0.0, 0.1)]
)
def test_beyond_the_bounds_a_cell_is_drawn_less_often(rate: float, factor: float) -> None:
    weights = Curriculum(Two(), seed=0, rates={"sum-1": rate}).weights()
    assert weights[EASY] == pytest.approx(factor)


def test_a_rate_remembers_four_fifths() -> None:
    """A first group sets it, 2 of 4; then one of none solved: 0.8 * 0.5."""
    course = Curriculum(Two(), seed=0)
    course.hear(("sum-1", 0, 1.0, solved) for solved in (True, False, True, False))
    assert course.metrics() == {"curriculum/sum-1": 0.5}
    course.hear([("sum-1", 1, 1.0, False)])
    assert course.metrics() == {"curriculum/sum-1": pytest.approx(0.4)}


def test_a_trajectory_counts_for_as_much_of_a_rollout_as_it_stands_for() -> None:
    """Two that share their beginning have a half each: 1.5 of 2 rollouts solved it."""
    course = Curriculum(Two(), seed=0)
    course.hear([("sum-1", 0, 0.5, True), ("sum-1", 0, 0.5, False), ("sum-1", 0, 1.0, True)])
    assert course.metrics() == {"curriculum/sum-1": 0.75}


def test_a_number_has_one_problem_until_the_next_step() -> None:
    course = Curriculum(Two(), seed=0)
    drawn = [course[number] for number in range(20)]
    assert [course[number] for number in range(20)] == drawn
    assert len({problem.id for problem in drawn}) == 20


def test_one_that_goes_on_from_its_metrics_draws_the_same() -> None:
    course = Curriculum(Two(), seed=3)
    course.hear(("ode-3", group, 1.0, False) for group in range(5))
    resumed = Curriculum(Two(), seed=3, rates=rates_in({**course.metrics(), "loss": 1.0}))
    assert [course[n].id for n in range(50)] == [resumed[n].id for n in range(50)]


def test_ranks_agree_whatever_the_order_of_rows() -> None:
    rows = [("ode-3", group, 1.0, group % 3 == 0) for group in range(9)]
    one, other = (Curriculum(Two(), seed=0) for _ in range(2))
    one.hear(rows)
    other.hear(reversed(rows))
    assert one.metrics() == other.metrics()
