"""Laws of credit: what a group says about its lines, and when it says nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import repl_rl as rr
from credit_kit import line_advantages
from repl_rl.config.sections import Baseline, GRPOConfig
from repl_rl.credit.advantages import EPSILON, advantage_rows, batch_scale, load_credit
from repl_rl.credit.base import spread
from repl_rl.records import Branch, OutcomeKind, Reward, Scored, Trajectory

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OK = OutcomeKind.OK_OUTPUT


def reward(outcome: float | None, *lines: float) -> Reward:
    return Reward(line_rewards=lines, outcome_reward=outcome)


def local(*group: Reward, weight: float = 0.5, scale_by: float | None = None) -> list[list[float]]:
    return line_advantages(group, credit="line_local", weight=weight, scale_by=scale_by)


def test_plain_grpo_by_hand() -> None:
    """Outcomes 1 and 0: mean 0.5, deviation sqrt(0.5) = 0.70711."""
    group = [reward(1.0, 0.0, -0.3), reward(0.0, 0.0)]
    high = 0.5 / (math.sqrt(0.5) + 1e-4)
    assert line_advantages(group, credit="outcome", weight=0.5) == [
        pytest.approx([high, high]),
        pytest.approx([-high]),
    ]


def test_the_line_local_mix_by_hand() -> None:
    """Lines 0, -0.3, 0 have the mean -0.1: at weight 0.5 they move by 0.05, -0.1, 0.05."""
    high = 0.5 / (math.sqrt(0.5) + 1e-4)
    assert local(reward(1.0, 0.0, -0.3), reward(0.0, 0.0)) == [
        pytest.approx([high + 0.05, high - 0.1]),
        pytest.approx([-high + 0.05]),
    ]


def test_three_outcomes_by_hand() -> None:
    """1, 0, 0: mean 1/3, sample deviation sqrt((4/9 + 1/9 + 1/9) / 2) = 0.57735."""
    advantages = local(reward(1.0, 0.0), reward(0.0, 0.0), reward(0.0, 0.0))
    expected = [2 / 3 / (0.57735027 + 1e-4), -1 / 3 / (0.57735027 + 1e-4)]
    assert [a for (a,) in advantages] == pytest.approx([expected[0], expected[1], expected[1]])


def test_a_given_scale_replaces_the_deviation_of_the_group() -> None:
    group = [reward(1.0, 0.0), reward(0.0, 0.0)]
    assert local(*group, scale_by=2.0) == [
        pytest.approx([0.5 / 2.0001]),
        pytest.approx([-0.5 / 2.0001]),
    ]


def test_no_scale_divides_by_one() -> None:
    scale_by = batch_scale([], "none")
    assert local(reward(1.0, 0.0), reward(0.0, 0.0), scale_by=scale_by) == [
        pytest.approx([0.5], abs=1e-12),
        pytest.approx([-0.5], abs=1e-12),
    ]


def test_the_scale_of_a_batch_is_its_deviation_without_the_unscorable() -> None:
    rewards = [reward(1.0), reward(None), reward(0.0), reward(0.0), reward(1.0)]
    assert batch_scale(rewards, "batch") == pytest.approx(0.57735027)
    assert batch_scale(rewards, "group") is None


# The other modes

TWO = [reward(1.0, -0.2, -0.1), reward(0.0, -0.4)]


def credit_of(group: list[Reward], credit: str, baseline: Baseline) -> list[list[float]]:
    """The part of line rewards alone: at weight 1, without that of the outcome."""
    full = line_advantages(group, credit=credit, weight=1.0, baseline=baseline, scale_by=1.0)
    plain = line_advantages(group, credit=credit, weight=0.0, baseline=baseline, scale_by=1.0)
    return [[a - b for a, b in zip(f, p, strict=True)] for f, p in zip(full, plain, strict=True)]


@pytest.mark.parametrize(
    ("credit", "baseline", "expected"),
    [
        # Lines -0.2, -0.1 and -0.4: their mean is -0.7/3; those of the others are -0.4 and -0.15.
        ("line_local", "mean", [[0.1 / 3, 0.4 / 3], [-0.5 / 3]]),
        ("line_local", "leave_one_out", [[0.2, 0.3], [-0.25]]),
        # To go: -0.3, -0.1 and -0.4, 0 (ended). Means -0.35 and -0.05.
        ("return_to_go", "mean", [[0.05, -0.05], [-0.05]]),
        ("return_to_go", "leave_one_out", [[0.1, -0.1], [-0.1]]),
        # Phi before a line: 0, -0.2 and 0, 0 (ended). Means 0 and -0.1.
        ("potential", "mean", [[0.0, 0.1], [0.0]]),
        ("potential", "leave_one_out", [[0.0, 0.2], [0.0]]),
        ("outcome", "mean", [[0.0, 0.0], [0.0]]),
    ],
)
def test_the_credit_of_lines_by_hand(
    credit: str, baseline: Baseline, expected: list[list[float]]
) -> None:
    found = credit_of(TWO, credit, baseline)
    assert found == [pytest.approx(lines, abs=1e-12) for lines in expected]


def test_leave_one_out_by_hand() -> None:
    """1, 0, 0: the others' means are 0, 1/2, 1/2."""
    group = [reward(1.0, 0.0), reward(0.0, 0.0), reward(0.0, 0.0)]
    found = line_advantages(
        group,
        credit="outcome",
        weight=0.5,
        baseline="leave_one_out",
        scale_by=batch_scale([], "none"),
    )
    assert [a for (a,) in found] == pytest.approx([1.0, -0.5, -0.5])


def test_equal_outcomes_do_not_blow_line_credit_up() -> None:
    """The deviation of the outcomes is 0, and only the outcomes are divided by it."""
    group = [reward(0.8, -0.3, 0.0), reward(0.8, 0.0, -0.3)]
    found = line_advantages(group, credit="return_to_go", weight=0.5)
    assert found == [pytest.approx([0.0, 0.075]), pytest.approx([0.0, -0.075])]


# Nothing to learn


@pytest.mark.parametrize("weight", [0.0, 0.5, 10.0])
def test_identical_siblings_get_exactly_nothing(weight: float) -> None:
    group = [reward(0.8, -0.3, 0.0, -0.1)] * 4
    assert local(*group, weight=weight) == [[0.0, 0.0, 0.0]] * 4


def test_equal_returns_get_exactly_nothing_wherever_the_errors_were() -> None:
    group = [reward(0.8, -0.3, 0.0, -0.1), reward(0.8, -0.1, -0.3), reward(0.8, -0.4)]
    assert local(*group) == [[0.0, 0.0, 0.0], [0.0, 0.0], [0.0]]


def test_equal_outcomes_still_tell_errors_apart() -> None:
    """Lines -0.3 and 0 around -0.15, at weight 0.5."""
    assert local(reward(0.0, -0.3), reward(0.0, 0.0)) == [
        pytest.approx([-0.075]),
        pytest.approx([0.075]),
    ]


def test_a_lone_sibling_and_an_empty_group_get_nothing() -> None:
    assert local(reward(1.0, -0.3)) == [[0.0]]
    assert local() == []


# The unscorable


def test_an_unscorable_sibling_gets_zero() -> None:
    assert local(reward(1.0, 0.0), reward(None, -0.3, 0.0), reward(0.0, 0.0))[1] == [0.0, 0.0]


def test_an_unscorable_sibling_changes_nobody_else() -> None:
    rest = [reward(1.0, 0.0, -0.3), reward(0.0, 0.0)]
    assert local(rest[0], reward(None, -9.0), rest[1])[::2] == local(*rest)


def test_a_group_of_unscorable_siblings_gets_nothing() -> None:
    assert local(reward(None, -0.3), reward(None, 0.0)) == [[0.0], [0.0]]


def test_one_scorable_sibling_alone_gets_nothing() -> None:
    assert local(reward(None, -0.3), reward(1.0, -0.1)) == [[0.0], [0.0]]


# Properties

rewards = st.builds(
    lambda outcome, lines: reward(outcome, *lines),
    st.none() | st.sampled_from([1.0, 0.8, 0.0, -0.1, -0.6]),
    st.lists(st.sampled_from([0.0, -0.05, -0.1, -0.3, -0.4]), min_size=1, max_size=5),
)


@given(st.lists(rewards, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_siblings_does_not_matter(group: list[Reward], rng: random.Random) -> None:
    order = list(range(len(group)))
    rng.shuffle(order)
    plain, shuffled = local(*group), local(*[group[i] for i in order])
    assert [pytest.approx(plain[i], abs=1e-12) for i in order] == shuffled


@given(st.lists(rewards, min_size=2, max_size=6))
def test_outcome_advantages_of_a_group_sum_to_zero(group: list[Reward]) -> None:
    advantages = line_advantages(group, credit="outcome", weight=0.5)
    assert math.fsum(lines[0] for lines in advantages) == pytest.approx(0.0, abs=1e-9)


@given(st.lists(rewards, min_size=2, max_size=6))
def test_weight_zero_is_plain_grpo(group: list[Reward]) -> None:
    assert local(*group, weight=0.0) == line_advantages(group, credit="outcome", weight=0.5)


@given(st.lists(rewards, min_size=2, max_size=6))
def test_line_credit_of_a_group_sums_to_zero(group: list[Reward]) -> None:
    mixed, plain = local(*group), local(*group, weight=0.0)
    credit = [a - b for m, p in zip(mixed, plain, strict=True) for a, b in zip(m, p, strict=True)]
    assert math.fsum(credit) == pytest.approx(0.0, abs=1e-9)


# Tokens


def test_tokens_of_a_line_share_its_advantage_and_injected_ones_get_zero(
    make_trajectory: MakeTrajectory,
) -> None:
    trajectory = make_trajectory([(" a\n", OK, "1\n>>>"), ("b\n", OK, ">>>")])
    assert spread(trajectory, [0.5, -2.0], before=0.0) == [
        *(0.5, 0.5, 0.5),
        *(0.0, 0.0, 0.0, 0.0, 0.0),
        *(-2.0, -2.0),
        *(0.0, 0.0, 0.0),
    ]


def test_copied_lines_get_zero_and_stand_in_no_baseline(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Own rewards of 0 and -0.3 have the mean -0.15; those of the copies would make it -0.1."""
    scored = [
        make_scored(
            replace(
                make_trajectory([("a\n", OK, ">"), (f"{own}\n", OK, None)]),
                branch=Branch(sibling_index=None, num_lines=1, seed=1),
            ),
            1.0,
            [-0.05, reward],
        )
        for own, reward in (("b", 0.0), ("c", -0.3))
    ]
    assert rows(scored) == [
        [0.0] * 3 + [pytest.approx(0.5 * 0.15)] * 2,
        [0.0] * 3 + [pytest.approx(-0.5 * 0.15)] * 2,
    ]
    (credit, *_) = rr.advantages(
        [replace(one, reward=Reward(line_rewards=(0.0, 0.0), outcome_reward=outcome))
         for one, outcome in zip(scored, (1.0, 0.0), strict=True)],
        credit="outcome", scale="none",
    )  # fmt: skip
    assert credit == [0.0] * 3 + [0.5] * 2


def rows(scored: Sequence[Scored]) -> list[list[float]]:
    return advantage_rows(scored, load_credit(GRPOConfig()))


def on_lines(trajectory: Trajectory, row: Sequence[float]) -> list[float]:
    return [row[line.start] for line in trajectory.lines]


def test_an_observation_changes_no_advantage(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    def group(observation: str | None) -> list[list[float]]:
        first = make_trajectory([("a\n", OK, observation), ("b\n", OK, None)])
        other = make_trajectory([("c\n", OK, None)])
        scored = [make_scored(first, 1.0, [-0.3, 0.0]), make_scored(other, 0.0)]
        return [
            on_lines(item.trajectory, row) for item, row in zip(scored, rows(scored), strict=True)
        ]

    assert group(None) == group("12345\n>>>") == group("a\nlong\nstory\n>>>")


def test_groups_do_not_mix(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> None:
    """Two groups of equal outcomes each say nothing, though their outcomes differ."""
    scored = [
        make_scored(make_trajectory([("a\n", OK, None)], group_index=group), float(group))
        for group in (0, 0, 1, 1)
    ]
    assert rows(scored) == [[0.0, 0.0]] * 4


def test_credit_baseline_and_scale_come_from_the_config(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    """Outcomes 1 and 0 against each other, unscaled; lines -0.2, -0.1, -0.4 as above at 0.5."""
    first = make_trajectory([("a\n", OK, None), ("b\n", OK, None)])
    scored = [
        make_scored(first, 1.0, [-0.2, -0.1]),
        make_scored(make_trajectory([("c\n", OK, None)]), 0.0, [-0.4]),
    ]
    config = GRPOConfig(credit="return_to_go", baseline="leave_one_out", scale="none")
    assert advantage_rows(scored, load_credit(config)) == [
        pytest.approx([1.05, 1.05, 0.95, 0.95]),
        pytest.approx([-1.05, -1.05]),
    ]


def test_the_epsilon_is_that_of_trl() -> None:
    assert EPSILON == 1e-4
