"""Laws of pass@k, with numbers worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from repl_rl.base.concurrency import derive_seed
from repl_rl.records import OutcomeKind, Problem, Scored, Split, Trajectory, Verdict, VerdictKind
from repl_rl.runs.summary import (
    clustered_interval,
    difference,
    pass_at,
    pass_rates,
    rate_of,
    rates_by,
    wilson_interval,
)
from repl_rl.training.evaluate import held_out_attempts


@pytest.mark.parametrize(
    ("k", "num_samples", "num_solved", "rate"),
    [
        (1, 4, 1, 1 / 4),
        (2, 4, 1, 1 / 2),  # 3 of the 6 pairs hold the solved one
        (2, 4, 2, 5 / 6),  # 1 of the 6 pairs holds none
        (3, 4, 2, 1.0),  # any three hold one
        (4, 4, 0, 0.0),
        (2, 10, 3, 1 - 21 / 45),  # 21 of the 45 pairs are among the 7 others
    ],
)
def test_pass_at_k_is_the_share_of_choices_that_hold_a_solved_sample(
    k: int, num_samples: int, num_solved: int, rate: float
) -> None:
    assert pass_at(k, num_samples=num_samples, num_solved=num_solved) == pytest.approx(rate)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pass_at_k_is_unbiased(k: int) -> None:
    """Over all outcomes of 4 samples, each solved with 1/3, its mean is 1 - (2/3)**k."""
    mean = Fraction(0)
    for outcomes in itertools.product((0, 1), repeat=4):
        chance = Fraction(1, 3) ** sum(outcomes) * Fraction(2, 3) ** (4 - sum(outcomes))
        found = pass_at(k, num_samples=4, num_solved=sum(outcomes))
        mean += chance * Fraction(found).limit_denominator(100)
    assert mean == 1 - Fraction(2, 3) ** k


@pytest.fixture
def samples(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> Callable[..., list[Scored]]:
    """Verdicts of each problem's attempts -> what was scored."""

    def build(*problems: list[VerdictKind]) -> list[Scored]:
        return [
            make_scored(
                make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)], group_index=group),
                None if kind is VerdictKind.UNDECIDED else 0.0,
                verdict=Verdict(kind=kind),
            )
            for group, kinds in enumerate(problems)
            for kind in kinds
        ]

    return build


def test_rates_are_means_over_problems(samples: Callable[..., list[Scored]]) -> None:
    """Three samples: 1 solved of the first problem, 3 of the second; pass@2 is (2/3 + 1) / 2."""
    solved, wrong = VerdictKind.PROVED, VerdictKind.WRONG
    scored = samples([wrong, solved, wrong], [solved, solved, solved])
    assert pass_rates(scored, 3) == pytest.approx({1: 2 / 3, 2: 5 / 6, 3: 1.0})


def test_what_could_not_be_graded_is_not_solved(samples: Callable[..., list[Scored]]) -> None:
    scored = samples([VerdictKind.UNDECIDED, VerdictKind.SUPPORTED])
    assert pass_rates(scored, 2) == {1: 0.5, 2: 1.0}


def test_no_problem_has_no_rate() -> None:
    assert pass_rates([], 4) == {}


def test_with_one_attempt_a_problem_the_interval_is_wilsons() -> None:
    assert clustered_interval([1.0] * 8 + [0.0] * 2) == pytest.approx(wilson_interval(8, 10))


@pytest.mark.parametrize(
    ("shares", "solved", "size"),
    [
        ([1.0, 0.0], 1, 2),  # 100 attempts at each would say no more than one
        ([0.75, 0.25], 4, 8),  # variance 1/16 where an attempt has 1/4: worth four attempts each
        ([1.0, 1.0, 1.0], 3, 3),
        ([0.5, 0.5], 1, 2),  # no spread at all is taken for no more than the problems
    ],
)
def test_attempts_at_one_problem_count_for_less_than_as_many_problems(
    shares: list[float], solved: float, size: float
) -> None:
    assert clustered_interval(shares) == pytest.approx(wilson_interval(solved, size))


def test_nothing_measured_has_no_rate() -> None:
    with pytest.raises(AssertionError, match="nothing measured has no rate"):
        rate_of([])


def test_a_rate_tells_all_of_it(samples: Callable[..., list[Scored]]) -> None:
    solved, wrong, open_ = VerdictKind.PROVED, VerdictKind.WRONG, VerdictKind.UNDECIDED
    found = rate_of(samples([wrong, solved], [solved, open_]))
    assert (found.solved, found.total, found.ungraded, found.rate) == (2, 4, 1, 0.5)
    assert found.passes == {1: 0.5, 2: 1.0}


def test_families_are_told_apart_where_problems_name_them(
    samples: Callable[..., list[Scored]],
) -> None:
    scored = samples([VerdictKind.PROVED], [VerdictKind.WRONG])
    assert rates_by(scored, "family") == {}
    named = [
        replace(item, problem=replace(item.problem, meta={"family": family}))
        for item, family in zip(scored, ("sums", "limits"), strict=True)
    ]
    found = rates_by(named, "family")
    assert [(name, rate.rate) for name, rate in found.items()] == [("limits", 0.0), ("sums", 1.0)]


def test_a_difference_is_paired(samples: Callable[..., list[Scored]]) -> None:
    """Gaps 0, 0, 1, 1: mean 1/2, deviation sqrt(1/3), so 1.96 * sqrt(1/3) / 2 = 0.5658."""
    solved, wrong = [VerdictKind.PROVED], [VerdictKind.WRONG]
    one, other = samples(solved, wrong, solved, solved), samples(solved, wrong, wrong, wrong)
    found = difference(one, other)
    assert found.mean == 0.5
    assert found.interval == pytest.approx((-0.0658, 1.0), abs=1e-4)
    assert difference(one, one).interval == (0.0, 0.0)


def test_other_problems_are_not_compared(samples: Callable[..., list[Scored]]) -> None:
    solved = [VerdictKind.PROVED]
    with pytest.raises(ValueError, match="different problems"):
        difference(samples(solved), samples(solved, solved))


class Counting:
    name = "counting"
    prompt = "{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        for number in itertools.count():
            yield Problem(id=f"{split}-{seed}-{number}", statement="?")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise NotImplementedError


def test_more_samples_leave_the_first_as_they_were() -> None:
    once = held_out_attempts(Counting(), count=3, seed=5)
    thrice = held_out_attempts(Counting(), count=3, seed=5, samples=3)
    assert thrice[::3] == once
    assert [one.seed for one in once] == [derive_seed(5, "evaluation", i) for i in range(3)]
    assert len({one.seed for one in thrice}) == 9
    assert [one.sibling_index for one in thrice] == [0, 1, 2] * 3
    assert [one.problem.id for one in thrice[:3]] == [once[0].problem.id] * 3
