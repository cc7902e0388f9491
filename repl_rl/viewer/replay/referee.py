"""Worth of a line, by other continuations of the states before and after it.

    Scored, the place of a line, K -> K rollouts from each of two states -> Worth

The rollouts have kernels of their own, so the live one stays where it is. The numbers of a recorded
line are those of `repl-rl reward explain --branches K`. Knows lines and rollouts. Does not know
models or screens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from repl_rl.credit.worth import Worth, worths
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.records import Reward, Scored, StopReason
from repl_rl.rollout.continuations import attempts_around, check_asked
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.scoring import Scoring
from repl_rl.tasks.base import Task, make_prompt
from repl_rl.viewer.replay.branch import Asked, begin
from repl_rl.viewer.replay.live import Live, set_up
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.types import Kernel, KernelSource

Progress = Callable[[int, int], None]
"""Gets (how many continuations are scored, of how many)."""


class Referee:
    """Says what lines of live trajectories were worth, by rollouts of one policy."""

    def __init__(
        self, asked: Asked, task: Task, scene: Scene, *, kernels: KernelSource, scorer: Scoring
    ) -> None:
        self._asked, self._task, self._scene = asked, task, scene
        self._runner = RolloutRunner(
            task=task,
            fmt=asked.fmt,
            sampler=asked.sampler,
            kernels=_SetUp(kernels, scene),
            scorer=scorer,
            max_in_flight=asked.at_once,
        )

    async def worth(
        self,
        scored: Scored,
        index: int,
        *,
        num_branches: int,
        on_progress: Progress = lambda done, total: None,
    ) -> Worth:
        """Estimate the worth of a line by `num_branches` continuations of each state around it.

        Raises ConfigError where the policy would have been asked in other tokens, and what a
        runner raises.
        """
        asked, problem = self._asked, scored.problem
        prompt = make_prompt(self._task, problem, asked.fmt)
        check_asked(scored, prompt, asked.codec, source=asked.source)
        attempts = attempts_around(
            scored,
            self._scene.setup_of(problem),
            num_branches=num_branches,
            states=(index, index + 1),
        )
        num_scored = 0

        def hear(_: Scored) -> None:
            nonlocal num_scored
            num_scored += 1
            on_progress(num_scored, len(attempts))

        on_progress(0, len(attempts))
        return worths(scored, await self._runner.run(attempts, on_scored=hear))[index]

    def by_hand(self, live: Live, *, outcome: float | None) -> Scored:
        """The lines that ran here as a trajectory in the policy's tokens, `outcome` at its end.

        Unless they have ended, a line follows that never ran: others write another in its place.
        """
        codec = self._asked.codec
        built = begin(live, codec, self._asked.fmt)
        if not live.is_over:
            ids = tuple(built.encoding.line_ids("\n"))
            unknown = (0.0,) * len(ids)
            built.add_line(
                SampledLine(ids=ids, logprobs=unknown, end=LineEnd.NEWLINE, policy_version=0)
            )
        trajectory = built.build(StopReason.EOS)
        nothing = (0.0,) * len(trajectory.lines)
        reward = Reward(line_rewards=nothing, outcome_reward=outcome if live.is_over else None)
        return replace(live.scored, trajectory=trajectory, verdict=None, reward=reward)


class _SetUp:
    """Kernels that have run all of a scene's setup when they are handed out."""

    def __init__(self, kernels: KernelSource, scene: Scene) -> None:
        self._kernels, self._scene = kernels, scene

    async def acquire(self, *, seed: int) -> Kernel:
        kernel = await self._kernels.acquire(seed=seed)
        try:
            await set_up(kernel, self._scene.run_first)
        except BaseException:
            await kernel.aclose()
            raise
        return kernel
