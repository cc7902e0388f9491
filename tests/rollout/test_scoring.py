"""Questions to the grader, and what its word is kept with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import shaped
from repl_rl.records import OutcomeKind, Problem, Scored, Trajectory, Verdict, VerdictKind
from repl_rl.rollout.scoring import Scorer

PROBLEM = Problem(id="p", statement="s", meta={"answer": "9"}, chance=0.25)


@dataclass
class Judge:
    """Proves what stands in `meta`; remembers what it was asked."""

    asked: list[tuple[Problem, str]] = field(default_factory=list)

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        self.asked.append((problem, submission))
        is_right = submission == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)


@pytest.fixture
def submitting(make_trajectory: Callable[..., Trajectory]) -> Callable[..., Trajectory]:
    """`submitting(value)`: a trajectory of one line that submitted this, or nothing."""
    one = make_trajectory([("x\n", OutcomeKind.SUBMITTED, None)])
    return lambda value: replace(one, submission=value)


def score(trajectory: Trajectory, judge: Judge) -> Scored:
    reward = partial(shaped, config=RewardConfig())
    scorer = Scorer(task_spec="t", judge=judge, reward=reward)
    return asyncio.run(scorer.score(trajectory, PROBLEM))


def test_a_verdict_holds_the_chance_of_its_problem_whatever_the_grader_says(
    submitting: Callable[..., Trajectory],
) -> None:
    """A wrong answer costs (1/4) / (3/4)."""
    judge = Judge()
    scored = score(submitting("8"), judge)
    assert judge.asked == [(PROBLEM, "8")]
    assert scored.verdict == Verdict(kind=VerdictKind.WRONG, chance=0.25)
    assert scored.reward.outcome_reward == pytest.approx(-1 / 3)


def test_without_a_submission_the_grader_is_asked_nothing(
    submitting: Callable[..., Trajectory],
) -> None:
    judge = Judge()
    scored = score(submitting(None), judge)
    assert (judge.asked, scored.verdict) == ([], None)


@pytest.mark.parametrize("chance", [1.0, -0.1, float("nan")])
def test_a_problem_that_makes_no_sense_is_refused(chance: float) -> None:
    message = f"problem p has the chance {chance}; expected 0 to 0.9"
    with pytest.raises(ValueError, match=message):
        Problem(id="p", statement="s", chance=chance)
