"""Many rollouts at once: a kernel for each, a verdict, a reward; nobody waits for anybody.

    Attempt -> kernel -> Trajectory -> Verdict -> Reward = Scored

Floor 4. The one place that catches a rollout's errors. Knows no tensors and no training.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from repl_rl.builder import Rollout, RolloutCancelled, check_trajectory
from repl_rl.concurrency import run_all
from repl_rl.config import RewardConfig
from repl_rl.rewards import RewardFunction
from repl_rl.tasks.base import Task, make_prompt
from repl_rl.transcript import TranscriptFormat
from repl_rl.types import Problem, Reward, Scored, StopReason, Trajectory, Verdict
from sandbox.types import Kernel, KernelSource, SandboxError


class TrajectorySampler(Protocol):
    """Makes one trajectory in one kernel."""

    async def sample(self, rollout: Rollout, kernel: Kernel) -> Trajectory: ...


class Judge(Protocol):
    """Judges one submission in a process of its own."""

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One rollout that is wanted. Siblings share `problem` and `group_index`, never a seed."""

    problem: Problem
    group_index: int
    sibling_index: int
    seed: int


class RolloutRunner:
    """Turns attempts into scored trajectories, `max_in_flight` at a time."""

    def __init__(
        self,
        *,
        task: Task,
        task_spec: str,
        fmt: TranscriptFormat,
        sampler: TrajectorySampler,
        kernels: KernelSource,
        judge: Judge,
        reward: RewardFunction,
        reward_config: RewardConfig,
        max_in_flight: int,
    ) -> None:
        self._task = task
        self._task_spec = task_spec
        self._format = fmt
        self._sampler = sampler
        self._kernels = kernels
        self._judge = judge
        self._reward = reward
        self._reward_config = reward_config
        self._max_in_flight = max_in_flight
        self.num_retries = 0
        """Rollouts begun again because our side of a kernel failed."""

    async def run(
        self, attempts: Sequence[Attempt], *, on_scored: Callable[[Scored], None] | None = None
    ) -> list[Scored]:
        """All attempts, scored, in their order. `on_scored` hears of each as it ends.

        A dead or stubborn kernel ends its own trajectory and is part of the result. A failure of
        our side (engine, sandbox twice for one attempt, a user's reward) ends them all and raises;
        `on_scored` hears of those it cut short, too: their stop reason is CANCELLED.
        """

        async def one(attempt: Attempt) -> Scored:
            try:
                scored = await self._attempt(attempt)
            except RolloutCancelled as cancelled:
                if on_scored is not None:
                    on_scored(_unscored(cancelled.trajectory, attempt.problem))
                raise
            if on_scored is not None:
                on_scored(scored)
            return scored

        return await run_all(one, attempts, at_once=self._max_in_flight)

    async def _attempt(self, attempt: Attempt) -> Scored:
        trajectory = await self._roll_out(attempt)
        verdict = None
        if trajectory.submission is not None:
            try:
                verdict = await self._judge.grade(
                    self._task_spec, attempt.problem, trajectory.submission
                )
            except asyncio.CancelledError:
                unjudged = replace(trajectory, stop_reason=StopReason.CANCELLED)
                raise RolloutCancelled(unjudged) from None
        return Scored(
            trajectory=trajectory,
            problem=attempt.problem,
            verdict=verdict,
            reward=self._reward(trajectory, verdict, self._reward_config),
        )

    async def _roll_out(self, attempt: Attempt) -> Trajectory:
        """One retry: a kernel that our side lost says nothing about the policy."""
        try:
            return await self._try(attempt)
        except SandboxError:
            self.num_retries += 1
            return await self._try(attempt)

    async def _try(self, attempt: Attempt) -> Trajectory:
        kernel = await self._kernels.acquire(seed=attempt.seed)
        async with contextlib.aclosing(kernel):
            trajectory = await self._sampler.sample(self._rollout(attempt), kernel)
        check_trajectory(trajectory, maker=type(self._sampler).__name__)
        return trajectory

    def _rollout(self, attempt: Attempt) -> Rollout:
        return Rollout(
            problem_id=attempt.problem.id,
            group_index=attempt.group_index,
            sibling_index=attempt.sibling_index,
            seed=attempt.seed,
            prompt=make_prompt(self._task, attempt.problem, self._format),
        )


def _unscored(trajectory: Trajectory, problem: Problem) -> Scored:
    nothing = Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=None)
    return Scored(trajectory=trajectory, problem=problem, verdict=None, reward=nothing)
