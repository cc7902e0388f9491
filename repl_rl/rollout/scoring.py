"""Scores of trajectories: a grader's verdict on the submission, and a reward for all of it.

    Trajectory, Problem -> Verdict -> Reward = Scored

Rollouts, players and replays ask here. Knows a judge and a reward function. Does not know
kernels, engines or files.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Protocol

from repl_rl.credit.rewards import BoundReward
from repl_rl.grading.grader import Grader
from repl_rl.records import Problem, Reward, Scored, StopReason, Trajectory, Verdict
from repl_rl.rollout.plan import TaskPlan


class Judge(Protocol):
    """Judges one submission in a process of its own."""

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict: ...


class Scoring(Protocol):
    """Judge that a runner asks once a trajectory has ended."""

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A task's judge and a config's reward."""

    task_spec: str
    judge: Judge | None
    """None where nobody knows the answers: nothing is scored."""
    reward: BoundReward

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored:
        """Raises GraderError, and whatever the reward function raises."""
        if self.judge is None:
            return unscored(trajectory, problem)
        verdict = None
        if trajectory.submission is not None:
            graded = await self.judge.grade(self.task_spec, problem, trajectory.submission)
            verdict = replace(graded, chance=problem.chance)
        reward = self.reward(trajectory, verdict)
        return Scored(trajectory=trajectory, problem=problem, verdict=verdict, reward=reward)

    async def rescore(self, stored: Scored) -> Scored:
        """The stored trajectory scored anew; one that was called off is never scored."""
        if stored.trajectory.stop_reason is StopReason.CANCELLED:
            return stored
        return await self.score(stored.trajectory, stored.problem)


def unscored(trajectory: Trajectory, problem: Problem) -> Scored:
    """The record of a trajectory that was called off, or that nobody can judge."""
    nothing = Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=None)
    return Scored(trajectory=trajectory, problem=problem, verdict=None, reward=nothing)


@contextlib.asynccontextmanager
async def open_scorer(plan: TaskPlan) -> AsyncIterator[Scorer]:
    """Open the grader and the reward of a plan; without a grader where it is not graded."""
    grading = plan.grading
    scorer = Scorer(task_spec=plan.task_spec, judge=None, reward=plan.reward)
    if not plan.is_graded:
        yield scorer
        return
    async with Grader(num_workers=grading.num_workers, deadline_s=grading.deadline_s) as judge:
        yield replace(scorer, judge=judge)
