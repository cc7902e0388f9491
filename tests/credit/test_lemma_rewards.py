"""What lemmas pay and guesses cost, with numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import lemma_rewards, shaped
from repl_rl.types import JudgedLemma, OutcomeKind, Reward, Trajectory, Verdict, VerdictKind

CONFIG = RewardConfig()
KIND = VerdictKind
Make = Callable[..., Trajectory]


@pytest.fixture(scope="session")
def of_claims(make_trajectory: Make) -> Make:
    """A trajectory of so many claims and, after them, a submission."""

    def make(num_claims: int, *before: OutcomeKind) -> Trajectory:
        kinds = [*before, *[OutcomeKind.CLAIMED] * num_claims, OutcomeKind.SUBMITTED]
        return make_trajectory([("x\n", kind, None) for kind in kinds])

    return make


def lemma(line: int | None, kind: VerdictKind | None, *, is_used: bool = False) -> JudgedLemma:
    return JudgedLemma(name=f"l{line}", line=line, kind=kind, is_used=is_used)


def verdict(*lemmas: JudgedLemma, kind: VerdictKind = KIND.WRONG, chance: float = 0.0) -> Verdict:
    return Verdict(kind=kind, lemmas=lemmas, chance=chance)


UNCLAIMED = lemma(None, None)


def test_each_lemma_has_an_equal_share_whether_it_is_claimed_or_not(of_claims: Make) -> None:
    judged = verdict(lemma(0, KIND.PROVED, is_used=True), lemma(1, KIND.WRONG), UNCLAIMED)
    assert lemma_rewards(of_claims(2), judged, CONFIG) == pytest.approx([0.1, -0.1, 0.0])


@pytest.mark.parametrize(
    ("kind", "is_used", "reward"),
    [
        (KIND.PROVED, True, 0.3),
        (KIND.PROVED, False, 0.0),
        (KIND.SUPPORTED, True, 0.0),
        (KIND.UNDECIDED, True, 0.0),
        (KIND.WRONG, True, -0.3),
        (KIND.REFUTED, False, -0.3),
        (KIND.MALFORMED, True, -0.3),
    ],
)
def test_only_what_is_proved_and_used_pays_and_only_what_is_wrong_costs(
    of_claims: Make, kind: VerdictKind, is_used: bool, reward: float
) -> None:
    judged = verdict(lemma(0, kind, is_used=is_used))
    assert lemma_rewards(of_claims(1), judged, CONFIG) == pytest.approx([reward, 0.0])


def test_without_a_submission_no_lemma_is_worth_anything(of_claims: Make) -> None:
    assert lemma_rewards(of_claims(2), None, CONFIG) == [0.0, 0.0, 0.0]


def test_what_lemmas_pay_is_on_their_lines_and_in_the_terms(of_claims: Make) -> None:
    """-0.3 for the error; shares of 0.15, one paid and one not."""
    judged = verdict(lemma(1, KIND.PROVED, is_used=True), lemma(2, KIND.PROVED), kind=KIND.PROVED)
    reward = shaped(of_claims(2, OutcomeKind.SYNTAX_ERROR), judged, CONFIG)
    assert reward == Reward(
        line_rewards=(-0.3, 0.15, 0.0, 0.0),
        outcome_reward=1.0,
        terms={"line/syntax_error": -0.3, "lemmas": 0.15, "outcome/proved": 1.0},
    )


def test_wrong_claims_and_errors_are_scaled_to_one_cap_and_right_claims_are_not(
    of_claims: Make,
) -> None:
    """-0.3 and twice -0.1 of shares make -0.5: each four fifths."""
    judged = verdict(
        lemma(1, KIND.WRONG), lemma(2, KIND.WRONG), lemma(3, KIND.PROVED, is_used=True)
    )
    reward = shaped(of_claims(3, OutcomeKind.SYNTAX_ERROR), judged, CONFIG)
    assert reward.line_rewards == pytest.approx((-0.24, -0.08, -0.08, 0.1, 0.0))
    assert reward.terms == pytest.approx(
        {"line/syntax_error": -0.24, "lemmas": -0.06, "outcome/wrong": 0.0}
    )


def test_without_lemmas_a_reward_is_what_it_is_without_them(of_claims: Make) -> None:
    trajectory = of_claims(0, OutcomeKind.NAME_ERROR)
    assert shaped(trajectory, verdict(), CONFIG) == Reward(
        line_rewards=(-0.1, 0.0),
        outcome_reward=0.0,
        terms={"line/name_error": -0.1, "outcome/wrong": 0.0},
    )


# Guesses


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
    of_claims: Make, kind: VerdictKind, chance: float, outcome: float | None
) -> None:
    reward = shaped(of_claims(0), verdict(kind=kind, chance=chance), CONFIG).outcome_reward
    assert reward == (outcome if outcome is None else pytest.approx(outcome))


@given(chance=st.floats(0, 0.95))
def test_the_best_blind_answer_earns_nothing_on_average(of_claims: Make, chance: float) -> None:
    right, wrong = (
        shaped(of_claims(0), verdict(kind=kind, chance=chance), CONFIG).outcome_reward
        for kind in (KIND.PROVED, KIND.WRONG)
    )
    assert right is not None
    assert wrong is not None
    assert math.isclose(chance * right + (1 - chance) * wrong, 0.0, abs_tol=1e-9)


def test_a_guess_costs_in_proportion_to_what_a_proof_pays(of_claims: Make) -> None:
    config = RewardConfig(verdict={KIND.PROVED: 0.5, KIND.WRONG: -0.1}, max_line_charge=0.1)
    reward = shaped(of_claims(0), verdict(chance=0.5), config)
    assert reward.outcome_reward == pytest.approx(-0.6)
