"""Laws of the default reward, with numbers worked out by hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repl_rl.config.sections import GRPOConfig, RewardConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.credit.rewards import load_reward, shaped
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Reward, Trajectory, Verdict, VerdictKind

MakeTrajectory = Callable[..., Trajectory]
CONFIG = RewardConfig()
PROVED = Verdict(kind=VerdictKind.PROVED)


@pytest.fixture(scope="session")
def of_kinds(make_trajectory: MakeTrajectory) -> Callable[..., Trajectory]:
    """A trajectory whose lines had these outcomes."""
    return lambda *kinds: make_trajectory([("x\n", kind, None) for kind in kinds])


OfKinds = Callable[..., Trajectory]


def test_errors_cost_and_answers_pay(of_kinds: OfKinds) -> None:
    kind = OutcomeKind
    trajectory = of_kinds(kind.SYNTAX_ERROR, kind.OK_OUTPUT, kind.SUBMITTED)
    assert shaped(trajectory, PROVED, CONFIG) == Reward(
        line_rewards=(-0.3, 0.0, 0.0),
        outcome_reward=1.0,
        terms={"line/syntax_error": -0.3, "outcome/proved": 1.0},
    )


@pytest.mark.parametrize(
    "kind",
    [
        OutcomeKind.OK_OUTPUT,
        OutcomeKind.OK_SILENT,
        OutcomeKind.COMMENT,
        OutcomeKind.BLANK,
        OutcomeKind.INCOMPLETE,
        OutcomeKind.CUT,
        OutcomeKind.SUBMITTED,
    ],
)
def test_a_line_is_never_paid_for_running(of_kinds: OfKinds, kind: OutcomeKind) -> None:
    assert shaped(of_kinds(kind), None, CONFIG).line_rewards == (0.0,)


def test_charges_are_scaled_to_the_cap(of_kinds: OfKinds) -> None:
    """-0.3, -0.3, 0, -0.2 (two name errors' worth) sum to -0.8: each is halved."""
    kind = OutcomeKind
    trajectory = of_kinds(
        kind.SYNTAX_ERROR, kind.TIMEOUT, kind.OK_SILENT, kind.NAME_ERROR, kind.NAME_ERROR
    )
    reward = shaped(trajectory, PROVED, CONFIG)
    assert reward.line_rewards == pytest.approx((-0.15, -0.15, 0.0, -0.05, -0.05))
    assert reward.terms == pytest.approx(
        {
            "line/syntax_error": -0.15,
            "line/timeout": -0.15,
            "line/name_error": -0.1,
            "outcome/proved": 1.0,
        }
    )


def test_charges_within_the_cap_stand_as_they_are(of_kinds: OfKinds) -> None:
    trajectory = of_kinds(OutcomeKind.SYNTAX_ERROR, OutcomeKind.NAME_ERROR)
    assert shaped(trajectory, PROVED, CONFIG).line_rewards == (-0.3, -0.1)


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (VerdictKind.PROVED, 1.0),
        (VerdictKind.SUPPORTED, 0.8),
        (VerdictKind.REFUTED, 0.0),
        (VerdictKind.WRONG, 0.0),
        (VerdictKind.MALFORMED, -0.1),
        (VerdictKind.UNDECIDED, None),
    ],
)
def test_a_verdict_has_its_price_and_an_undecided_one_has_none(
    of_kinds: OfKinds, kind: VerdictKind, outcome: float | None
) -> None:
    trajectory = of_kinds(OutcomeKind.SUBMITTED)
    assert shaped(trajectory, Verdict(kind=kind), CONFIG).outcome_reward == outcome


def test_a_potential_is_a_term_that_sums_to_nothing(of_kinds: OfKinds) -> None:
    """One result of four at weight 0.8: 0.2 for it, taken back with the submission."""
    kind = OutcomeKind
    trajectory = of_kinds(kind.SYNTAX_ERROR, kind.OK_OUTPUT, kind.SUBMITTED)
    reward = shaped(trajectory, PROVED, RewardConfig(potential=0.8))
    assert reward.line_rewards == pytest.approx((-0.3, 0.2, -0.2))
    assert reward.terms == {"line/syntax_error": -0.3, "potential": 0.0, "outcome/proved": 1.0}


def test_silence_has_a_price_of_its_own(of_kinds: OfKinds) -> None:
    reward = shaped(of_kinds(OutcomeKind.OK_OUTPUT), None, CONFIG)
    assert (reward.outcome_reward, reward.terms) == (-0.6, {"outcome/no_submission": -0.6})


def test_the_terms_add_up_to_the_whole_reward(of_kinds: OfKinds) -> None:
    reward = shaped(of_kinds(*[OutcomeKind.KILLED] * 7), PROVED, CONFIG)
    assert sum(reward.terms.values()) == pytest.approx(0.6)


KINDS = st.lists(st.sampled_from(OutcomeKind), max_size=30)
PRICED = st.sampled_from(sorted(CONFIG.verdict)).map(lambda kind: Verdict(kind=kind))


def total(reward: Reward) -> float:
    assert reward.outcome_reward is not None
    return reward.outcome_reward + math.fsum(reward.line_rewards)


@given(attempt=KINDS, verdict=PRICED, silent=KINDS)
def test_silence_never_beats_a_submission(
    of_kinds: OfKinds, attempt: list[OutcomeKind], verdict: Verdict, silent: list[OutcomeKind]
) -> None:
    submitted = shaped(of_kinds(*attempt), verdict, CONFIG)
    assert total(submitted) > total(shaped(of_kinds(*silent), None, CONFIG))


@given(kinds=KINDS)
def test_the_charge_of_a_trajectory_never_exceeds_the_cap(
    of_kinds: OfKinds, kinds: list[OutcomeKind]
) -> None:
    assert math.fsum(shaped(of_kinds(*kinds), None, CONFIG).line_rewards) >= -0.4 - 1e-12


# A user's function


def load(monkeypatch: pytest.MonkeyPatch, function: object) -> Callable[..., Reward]:
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(reward=function))
    return load_reward(RewardConfig(function="mine:reward"))


def test_a_users_function_is_called_with_the_trajectory_verdict_and_config(
    monkeypatch: pytest.MonkeyPatch, of_kinds: OfKinds
) -> None:
    reward = Reward(line_rewards=(0.5,), outcome_reward=2.0)
    calls: list[tuple[object, ...]] = []

    def mine(*given: object) -> Reward:
        calls.append(given)
        return reward

    function = load(monkeypatch, mine)
    trajectory, config = of_kinds(OutcomeKind.BLANK), RewardConfig(function="mine:reward")
    assert function(trajectory, PROVED, config) is reward
    assert calls == [(trajectory, PROVED, config)]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1.0, r"mine:reward returned float; expected a Reward"),
        (
            Reward(line_rewards=(0.0, 0.0), outcome_reward=1.0),
            r"mine:reward returned 2 line rewards for a trajectory of 1 lines",
        ),
        (Reward(line_rewards=(math.nan,), outcome_reward=1.0), r"mine:reward .* not finite"),
        (Reward(line_rewards=(0.0,), outcome_reward=math.nan), r"mine:reward .* not finite"),
        (Reward(line_rewards=(0.0,), outcome_reward=math.inf), r"mine:reward .* not finite"),
        (
            Reward(line_rewards=(0.0,), outcome_reward="1"),  # type: ignore[arg-type]  # as a user may
            r"mine:reward .* is no float",
        ),
        (
            Reward(line_rewards=(-0.5,), outcome_reward=1.0, terms={"a": 1.0}),
            r"mine:reward returned terms that add up to 1 and rewards that add up to 0\.5",
        ),
    ],
)
def test_what_a_users_function_returns_is_checked(
    monkeypatch: pytest.MonkeyPatch, of_kinds: OfKinds, returned: object, message: str
) -> None:
    function = load(monkeypatch, lambda *_: returned)
    with pytest.raises(ConfigError, match=message):
        function(of_kinds(OutcomeKind.BLANK), None, RewardConfig(function="mine:reward"))


UNREAD = [GRPOConfig(credit="outcome"), GRPOConfig(line_credit_weight=0.0)]


@pytest.mark.parametrize("grpo", UNREAD, ids=["outcome", "weight 0"])
def test_line_rewards_that_nobody_reads_are_refused(
    monkeypatch: pytest.MonkeyPatch, of_kinds: OfKinds, grpo: GRPOConfig
) -> None:
    config = RewardConfig(function="mine:reward")
    reward = Reward(line_rewards=(0.5,), outcome_reward=1.0)
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(reward=lambda *_: reward))
    function = load_reward(config, load_credit(grpo))
    with pytest.raises(
        ConfigError, match=r"mine:reward returned line rewards, and grpo\.credit = "
    ):
        function(of_kinds(OutcomeKind.BLANK), None, config)


@pytest.mark.parametrize("grpo", UNREAD, ids=["outcome", "weight 0"])
def test_line_rewards_of_zero_go_unread(
    monkeypatch: pytest.MonkeyPatch, of_kinds: OfKinds, grpo: GRPOConfig
) -> None:
    config = RewardConfig(function="mine:reward")
    reward = Reward(line_rewards=(0.0,), outcome_reward=1.0)
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(reward=lambda *_: reward))
    assert (
        load_reward(config, load_credit(grpo))(of_kinds(OutcomeKind.BLANK), None, config) is reward
    )


def test_the_default_reward_serves_an_ablation_of_credit(of_kinds: OfKinds) -> None:
    function = load_reward(CONFIG, load_credit(GRPOConfig(credit="outcome")))
    assert function(of_kinds(OutcomeKind.TIMEOUT), PROVED, CONFIG).line_rewards == (-0.3,)


def test_a_function_may_be_named_by_an_entry_point(
    monkeypatch: pytest.MonkeyPatch, of_kinds: OfKinds
) -> None:
    point = EntryPoint(
        name="gentle", value="repl_rl.credit.rewards:shaped", group="repl_rl.rewards"
    )
    monkeypatch.setattr("repl_rl.base.plugins.entry_points", lambda group: [point])
    function = load_reward(RewardConfig(function="gentle"))
    assert function(of_kinds(OutcomeKind.TIMEOUT), PROVED, CONFIG).line_rewards == (-0.3,)


def test_an_entry_point_that_is_not_there_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint(
        name="gentle", value="repl_rl.credit.rewards:shaped", group="repl_rl.rewards"
    )
    monkeypatch.setattr("repl_rl.base.plugins.entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match=r"unknown reward 'gentel'; did you mean 'gentle'\?"):
        load_reward(RewardConfig(function="gentel"))


def test_a_function_that_raises_keeps_its_error(
    monkeypatch: pytest.MonkeyPatch, of_kinds: OfKinds
) -> None:
    def broken(*_: object) -> Reward:
        raise ZeroDivisionError("a bug in a reward")

    with pytest.raises(ZeroDivisionError, match="a bug in a reward"):
        load(monkeypatch, broken)(of_kinds(OutcomeKind.BLANK), None, CONFIG)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("repl_rl.credit.rewards:shapd", r"has no 'shapd'; did you mean 'shaped'\?"),
        ("repl_rl.no_such:shaped", r"no module named 'repl_rl.no_such'"),
        ("repl_rl.credit.advantages:EPSILON", r"is not callable"),
        ("shapd", r"unknown reward 'shapd'; did you mean 'shaped'"),
        ("repl_rl.credit.base:all_equal", r"takes \(values: .*; expected a function of \(traject"),
    ],
)
def test_a_function_that_is_not_there_is_a_config_error(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_reward(RewardConfig(function=spec))
