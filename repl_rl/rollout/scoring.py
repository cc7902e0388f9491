"""What a trajectory is worth: a grader's verdict on its submission, and a reward for all of it.

    Trajectory, Problem -> Verdict -> Reward = Scored

Rollouts, players and replays ask here. Knows a judge and a reward function. Does not know
kernels, engines or files.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from repl_rl.credit.rewards import BoundReward
from repl_rl.grading.grader import Grader
from repl_rl.rollout.plan import TaskPlan
from repl_rl.types import (
    Claim,
    JudgedLemma,
    Lemma,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)


class Judge(Protocol):
    """Judges one submission in a process of its own."""

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict: ...


class Scoring(Protocol):
    """What a runner asks of a trajectory once it has ended."""

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A task's judge and a config's reward."""

    task_spec: str
    judge: Judge
    reward: BoundReward

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored:
        """Raises GraderError, and whatever the reward function raises."""
        verdict = None
        if trajectory.submission is not None:
            verdict = await self._judge(trajectory, problem, trajectory.submission)
        reward = self.reward(trajectory, verdict)
        return Scored(trajectory=trajectory, problem=problem, verdict=verdict, reward=reward)

    async def _judge(self, trajectory: Trajectory, problem: Problem, submission: str) -> Verdict:
        verdict = await self.judge.grade(self.task_spec, problem, submission)
        lemmas = {lemma.name: lemma for lemma in problem.lemmas}
        claimed: list[JudgedLemma] = []
        for claim in trajectory.claims:
            # A session takes no other claim, but a trajectory may come from anywhere.
            if (lemma := lemmas.pop(claim.name, None)) is not None:
                kind = await self._judge_claim(claim, lemma, problem)
                claimed.append(JudgedLemma(name=claim.name, line=claim.line, kind=kind))
        judged = judged_lemmas(claimed, problem.lemmas, is_solved=verdict.is_solved)
        return replace(verdict, chance=problem.chance, lemmas=judged)

    async def _judge_claim(self, claim: Claim, lemma: Lemma, problem: Problem) -> VerdictKind:
        """A claim is graded like an answer, in the grader's process."""
        step = Problem(id=f"{problem.id}/{claim.name}", statement="", meta=lemma.meta)
        return (await self.judge.grade(self.task_spec, step, claim.value)).kind

    async def rescore(self, stored: Scored) -> Scored:
        """The stored trajectory scored anew; one that was called off is never scored."""
        if stored.trajectory.stop_reason is StopReason.CANCELLED:
            return stored
        return await self.score(stored.trajectory, stored.problem)

    def line_rewards(self, trajectory: Trajectory) -> tuple[float, ...]:
        """Line rewards [L] of one that has not ended, as if it had ended here."""
        return self.reward(trajectory, None).line_rewards


def judged_lemmas(
    claimed: Sequence[JudgedLemma], lemmas: Sequence[Lemma], *, is_solved: bool
) -> tuple[JudgedLemma, ...]:
    """All lemmas of a problem: those claimed, in their order and with their use, then the others.

    A lemma is used by one that names it in `uses` and was proved after it, and, if no other lemma
    uses it, by a right answer.
    """
    uses = {lemma.name: lemma.uses for lemma in lemmas}
    inner = {name for names in uses.values() for name in names}
    found = []
    for number, lemma in enumerate(claimed):
        later = (one for one in claimed[number + 1 :] if one.kind is VerdictKind.PROVED)
        is_used = any(lemma.name in uses[one.name] for one in later)
        is_last = lemma.name not in inner
        found.append(replace(lemma, is_used=is_used or (is_last and is_solved)))
    left = uses.keys() - {lemma.name for lemma in claimed}
    return (*found, *(JudgedLemma(name=name) for name in uses if name in left))


def unscored(trajectory: Trajectory, problem: Problem) -> Scored:
    """The record of a trajectory that was called off, or that nobody can judge."""
    nothing = Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=None)
    return Scored(trajectory=trajectory, problem=problem, verdict=None, reward=nothing)


class Unscored:
    """In place of a `Scorer` where nobody knows the answer."""

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored:
        return unscored(trajectory, problem)


@contextlib.asynccontextmanager
async def open_unscored(plan: TaskPlan) -> AsyncIterator[Unscored]:
    """As `open_scorer`, without a grader's processes."""
    yield Unscored()


@contextlib.asynccontextmanager
async def open_scorer(plan: TaskPlan) -> AsyncIterator[Scorer]:
    """The grader and the reward of a plan, for trajectories of its task."""
    grading = plan.config.grading
    async with Grader(num_workers=grading.num_workers, deadline_s=grading.deadline_s) as judge:
        yield Scorer(task_spec=plan.task_spec, judge=judge, reward=plan.reward)
