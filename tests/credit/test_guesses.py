"""Costs of guesses, with numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import shaped
from repl_rl.records import OutcomeKind, Trajectory, Verdict, VerdictKind

CONFIG = RewardConfig()
KIND = VerdictKind


@pytest.fixture(scope="session")
def submitted(make_trajectory: Callable[..., Trajectory]) -> Trajectory:
    """A trajectory of one line, which submits."""
    return make_trajectory([("x\n", OutcomeKind.SUBMITTED, None)])


def verdict(*, kind: VerdictKind = KIND.WRONG, chance: float = 0.0) -> Verdict:
    return Verdict(kind=kind, chance=chance)


@pytest.mark.parametrize(
    ("kind", "chance", "outcome"),
    [
        (KIND.WRONG, 0.5, -1.0),
        (KIND.REFUTED, 0.5, -1.0),
        (KIND.MALFORMED, 0.5, -1.1),
        (KIND.WRONG, 0.25, -1 / 3),
        (KIND.WRONG, 0.0, 0.0),
        (KIND.PROVED, 0.5, 1.0),
        (KIND.SUPPORTED, 0.5, 0.8),
        (KIND.UNDECIDED, 0.5, None),
    ],
)
def test_a_wrong_answer_costs_what_the_same_guess_earns_elsewhere(
    submitted: Trajectory, kind: VerdictKind, chance: float, outcome: float | None
) -> None:
    reward = shaped(submitted, verdict(kind=kind, chance=chance), CONFIG).outcome_reward
    assert reward == (outcome if outcome is None else pytest.approx(outcome))


@given(chance=st.floats(0, 0.95))
def test_the_best_blind_answer_earns_nothing_on_average(
    submitted: Trajectory, chance: float
) -> None:
    right, wrong = (
        shaped(submitted, verdict(kind=kind, chance=chance), CONFIG).outcome_reward
        for kind in (KIND.PROVED, KIND.WRONG)
    )
    assert right is not None
    assert wrong is not None
    assert math.isclose(chance * right + (1 - chance) * wrong, 0.0, abs_tol=1e-9)


def test_a_guess_costs_in_proportion_to_what_a_proof_pays(submitted: Trajectory) -> None:
    config = RewardConfig(verdict={KIND.PROVED: 0.5, KIND.WRONG: -0.1}, max_line_charge=0.1)
    reward = shaped(submitted, verdict(chance=0.5), config)
    assert reward.outcome_reward == pytest.approx(-0.6)
