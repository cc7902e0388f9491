"""Laws of scoring anew: what differs is told, what does not count is not, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import RewardFunction, shaped
from repl_rl.records import (
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.rollout.scoring import Scorer
from repl_rl.viewer.replay.compare import Change, Judgement

MakeTrajectory = Callable[..., Trajectory]
PROVED, WRONG = VerdictKind.PROVED, VerdictKind.WRONG
UNDECIDED = VerdictKind.UNDECIDED


class Judge:
    """Says the same of everything, and keeps what it was asked."""

    def __init__(self, kind: VerdictKind = PROVED) -> None:
        self.kind = kind
        self.asked: list[tuple[str, str, str]] = []

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        self.asked.append((task_spec, problem.id, submission))
        return Verdict(kind=self.kind)


def scorer(judge: Judge, reward: RewardFunction = shaped) -> Scorer:
    def bound(trajectory: Trajectory, verdict: Verdict | None) -> Reward:
        return reward(trajectory, verdict, RewardConfig())

    return Scorer(task_spec="t:Task", judge=judge, reward=bound)


def worth(
    verdict: VerdictKind | None, outcome: float | None, *lines: float, **terms: float
) -> Judgement:
    reward = Reward(line_rewards=lines, outcome_reward=outcome, terms=terms)
    return Judgement(verdict=verdict, reward=reward)


def told(before: Judgement, after: Judgement) -> list[str]:
    return list(Change(id="s:1", before=before, after=after).differences())


@pytest.fixture
def submitted(make_trajectory: MakeTrajectory) -> Trajectory:
    return make_trajectory(
        [
            (" y\n", OutcomeKind.NAME_ERROR, "NameError\n>>>"),
            (" submit_final_answer(2)\n", OutcomeKind.SUBMITTED, None),
        ],
        submission="2",
        stop_reason=StopReason.SUBMITTED,
    )


PROBLEM = Problem(id="p-1", statement="1 + 1")

# Scoring


def test_a_submission_is_judged_and_its_lines_are_priced(submitted: Trajectory) -> None:
    judge = Judge()
    scored = asyncio.run(scorer(judge).score(submitted, PROBLEM))
    assert judge.asked == [("t:Task", "p-1", "2")]
    assert scored.verdict == Verdict(kind=PROVED)
    assert (scored.reward.line_rewards, scored.reward.outcome_reward) == ((-0.1, 0.0), 1.0)
    assert (scored.trajectory, scored.problem) == (submitted, PROBLEM)


def test_where_nothing_was_submitted_nobody_is_asked(submitted: Trajectory) -> None:
    judge = Judge()
    silent = replace(submitted, submission=None)
    scored = asyncio.run(scorer(judge).score(silent, PROBLEM))
    assert (judge.asked, scored.verdict, scored.reward.outcome_reward) == ([], None, -0.6)


def test_the_stored_verdict_and_reward_are_not_asked(submitted: Trajectory) -> None:
    stored = Scored(
        trajectory=submitted,
        problem=PROBLEM,
        verdict=Verdict(kind=WRONG),
        reward=Reward(line_rewards=(-9.0, -9.0), outcome_reward=-9.0),
    )
    rescored = asyncio.run(scorer(Judge()).rescore(stored))
    assert rescored == asyncio.run(scorer(Judge()).score(submitted, PROBLEM))


def test_what_was_called_off_is_never_scored(submitted: Trajectory) -> None:
    judge = Judge()
    stored = Scored(
        trajectory=replace(submitted, stop_reason=StopReason.CANCELLED),
        problem=PROBLEM,
        verdict=None,
        reward=Reward(line_rewards=(0.0, 0.0), outcome_reward=None),
    )
    assert asyncio.run(scorer(judge).rescore(stored)) is stored
    assert judge.asked == []


def test_lines_so_far_are_priced_without_a_judge(submitted: Trajectory) -> None:
    judge = Judge()
    assert scorer(judge).reward(submitted, None).line_rewards == (-0.1, 0.0)
    assert judge.asked == []


def test_what_a_reward_raises_is_not_hidden(submitted: Trajectory) -> None:
    def broken(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scorer(Judge(), broken).score(submitted, PROBLEM))


# What changed


def test_nothing_is_told_of_what_is_the_same() -> None:
    same = worth(PROVED, 1.0, -0.3, 0.0)
    change = Change(id="s:1", before=same, after=same)
    assert (list(change.differences()), change.is_real, change.gain) == ([], False, 0.0)


def test_verdict_outcome_and_lines_are_told_in_this_order() -> None:
    assert told(worth(PROVED, 1.0, -0.3, 0.0), worth(WRONG, 0.0, -0.3, -0.05)) == [
        "right (exact) -> wrong",
        "outcome +1.000 -> +0.000",
        "line 2 +0.000 -> -0.050",
    ]


def test_a_gain_is_that_of_outcome_and_lines() -> None:
    change = Change(id="s:1", before=worth(WRONG, 0.0, -0.3), after=worth(PROVED, 1.0, -0.1))
    assert change.gain == pytest.approx(1.2)


@pytest.mark.parametrize(("was", "now"), [(0.0, None), (None, 0.5), (None, None)])
def test_nothing_is_gained_over_what_could_not_be_scored(
    was: float | None, now: float | None
) -> None:
    change = Change(id="s:1", before=worth(WRONG, was, -0.3), after=worth(WRONG, now, -0.1))
    assert change.gain is None


def test_what_could_not_be_scored_is_not_worth_zero() -> None:
    assert told(worth(WRONG, 0.0), worth(WRONG, None)) == ["outcome +0.000 -> none"]
    assert told(worth(WRONG, None), worth(WRONG, 0.5)) == ["outcome none -> +0.500"]
    assert told(worth(WRONG, None), worth(WRONG, None)) == []


def test_a_submission_that_is_gone_is_told() -> None:
    assert told(worth(PROVED, 1.0), worth(None, 1.0)) == ["right (exact) -> nothing submitted"]


def test_a_small_change_is_told_with_the_digits_that_show_it() -> None:
    assert told(worth(PROVED, 1.0, -0.3), worth(PROVED, 1.0, -0.30004)) == [
        "line 1 -0.3 -> -0.30004"
    ]


def test_what_a_computer_rounds_is_no_change() -> None:
    assert told(worth(PROVED, 1.0, 0.1 + 0.2), worth(PROVED, 1.0, 0.3)) == []


def test_a_change_of_the_verdict_alone_is_real() -> None:
    assert Change(id="s:1", before=worth(WRONG, 0.0), after=worth(VerdictKind.REFUTED, 0.0)).is_real


def test_the_names_of_terms_do_not_count() -> None:
    assert told(worth(PROVED, 1.0, old=1.0), worth(PROVED, 1.0, new=1.0)) == []


def test_evidence_and_time_do_not_count(submitted: Trajectory) -> None:
    reward = Reward(line_rewards=(0.0, 0.0), outcome_reward=1.0)
    verdicts = (
        Verdict(kind=PROVED, method="structural", ms=1.0),
        Verdict(kind=PROVED, method="numeric", evidence="x = 1", ms=9.0),
    )
    before, after = (
        Judgement.of(Scored(trajectory=submitted, problem=PROBLEM, verdict=verdict, reward=reward))
        for verdict in verdicts
    )
    assert not Change(id="s:1", before=before, after=after).is_real


@pytest.mark.parametrize(
    ("found", "is_ungraded"),
    [
        (worth(UNDECIDED, None), True),
        (worth(UNDECIDED, 0.0), False),
        (worth(None, None), False),
        (worth(PROVED, 1.0), False),
    ],
)
def test_ungraded_is_what_was_submitted_and_has_no_reward(
    found: Judgement, is_ungraded: bool
) -> None:
    assert found.is_ungraded is is_ungraded
