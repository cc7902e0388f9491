"""Many rollouts at once, each with a kernel, a verdict and a reward; none waits for another.

    Attempt -> kernel -> Trajectory -> Verdict -> Reward = Scored

The one place that catches a rollout's errors. `Waits` sums what trajectories wait for: kernels and
the grader. Knows no tensors and no training.

`kernel_pool` opens the kernels that a config asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from repl_rl.base.concurrency import Start, run_growing
from repl_rl.config.sections import SandboxConfig
from repl_rl.credit.base import More
from repl_rl.errors import ConfigError, StemError
from repl_rl.records import Attempt, Problem, Scored, StopReason, Trajectory
from repl_rl.rollout.builder import RolloutCancelled, check_trajectory
from repl_rl.rollout.plan import TrajectorySampler, is_line_loop
from repl_rl.rollout.prefixes import can_be_had_again
from repl_rl.rollout.scoring import Scoring, unscored
from repl_rl.tasks.base import Task, make_prompt, make_setup
from repl_rl.transcript.format import Prompt, TranscriptFormat
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.started_kernel import FrontEnd
from repl_sandbox.types import ExecStatus, Execution, Kernel, KernelSource, Limits, SandboxError


class SetupError(SandboxError):
    """A source of a problem's setup fails in a kernel."""


_Measured = Literal["total_s", "kernel_s", "grading_s"]


@dataclass(slots=True)
class Waits:
    """Waiting times of the trajectories of one phase, summed: several of them wait at once."""

    total_s: float = 0.0
    """Sum of the times of all trajectories, from the kernel's start to the verdict."""
    kernel_s: float = 0.0
    """Part of it that was spent on kernels: their starts and their lines."""
    grading_s: float = 0.0
    """Part of it that was spent on verdicts, the wait for a free grader included."""
    starts_ms: list[float] = field(default_factory=list)
    """Wait for each kernel that was asked for, its problem's setup included."""
    verdicts_ms: list[float] = field(default_factory=list)
    """Wait for the verdict of each submission."""

    def shares(self) -> tuple[float, float]:
        """(of kernels, of the grader) in all that trajectories waited for."""
        total = self.total_s or 1.0
        return self.kernel_s / total, self.grading_s / total

    def add(self, other: Waits) -> None:
        """Count what was measured elsewhere."""
        self.total_s += other.total_s
        self.kernel_s += other.kernel_s
        self.grading_s += other.grading_s
        self.starts_ms += other.starts_ms
        self.verdicts_ms += other.verdicts_ms

    def clear(self) -> None:
        """Begin a phase."""
        self.total_s = self.kernel_s = self.grading_s = 0.0
        self.starts_ms, self.verdicts_ms = [], []

    @contextlib.contextmanager
    def measure(self, part: _Measured, *, each: list[float] | None = None) -> Iterator[None]:
        """Add the time of the block to `part`, and in milliseconds to the waits in `each`."""
        began = time.monotonic()
        try:
            yield
        finally:
            spent_s = time.monotonic() - began
            setattr(self, part, getattr(self, part) + spent_s)
            if each is not None:
                each.append(spent_s * 1e3)


@dataclass(frozen=True, slots=True)
class _TimedKernel:
    """Kernel whose times go to `waits`."""

    kernel: Kernel
    waits: Waits

    async def run(self, source: str) -> Execution:
        with self.waits.measure("kernel_s"):
            return await self.kernel.run(source)

    async def evaluate(self, expression: str) -> Execution:
        with self.waits.measure("kernel_s"):
            return await self.kernel.evaluate(expression)

    async def aclose(self) -> None:
        await self.kernel.aclose()


_Sample = Callable[[Attempt, Prompt, Kernel], Awaitable[Trajectory]]


@dataclass(slots=True, kw_only=True)
class RolloutRunner:
    """Turns attempts into scored trajectories, `max_in_flight` at a time."""

    task: Task
    fmt: TranscriptFormat
    sampler: TrajectorySampler
    kernels: KernelSource
    scorer: Scoring
    max_in_flight: int
    waits: Waits = field(default_factory=Waits, init=False)
    """Waiting times of its trajectories. Whoever measures a phase clears it first."""
    num_retries: int = field(default=0, init=False)
    """Rollouts begun again because our side of a kernel failed."""

    def sampling_by(self, sampler: TrajectorySampler) -> RolloutRunner:
        """Copy the runner for another sampler: kernels, grader and clocks are shared."""
        other = copy.copy(self)
        other.sampler = sampler
        return other

    def counting_apart(self) -> RolloutRunner:
        """Copy the runner with clocks and a counter of its own."""
        other = copy.copy(self)
        other.waits, other.num_retries = Waits(), 0
        return other

    async def run(
        self,
        attempts: Sequence[Attempt],
        *,
        on_sampled: Callable[[], None] = lambda: None,
        on_scored: Callable[[Scored], None] | None = None,
        more: More | None = None,
    ) -> list[Scored]:
        """All attempts, scored, in their order. `on_scored` is called with each as it ends.

        `on_sampled` is called for each that only waits for its verdict. `more` gets each trajectory
        as far as it is, behind each of its own lines where it goes on and whose state can be had
        again: what it asks for stands behind all others. One that begins again is asked again.

        A dead or stubborn kernel ends its own trajectory and is part of the result. A failure of
        our side (engine, sandbox twice for one attempt, a user's reward) ends them all and raises;
        `on_scored` gets those it cut short, too: their stop reason is CANCELLED. ConfigError for
        `more` where the sampler is a user's own.
        """

        async def one(attempt: Attempt, start: Start[Attempt]) -> Scored:
            try:
                with self.waits.measure("total_s"):
                    sample = self._sampling(attempt.problem, more, start)
                    scored = await self._attempt(attempt, sample, on_sampled)
            except RolloutCancelled as cancelled:
                if on_scored is not None:
                    on_scored(unscored(cancelled.trajectory, attempt.problem))
                raise
            if on_scored is not None:
                on_scored(scored)
            return scored

        return await run_growing(one, attempts, at_once=self.max_in_flight)

    def _sampling(self, problem: Problem, more: More | None, start: Start[Attempt]) -> _Sample:
        sampler = self.sampler
        if more is None:
            return sampler.sample
        if not is_line_loop(sampler):
            raise ConfigError(
                f"{type(sampler).__name__} cannot branch trajectories; expected sampling.sampler = "
                f"'lines'"
            )
        setup = (*make_setup(self.task, self.fmt), *problem.setup)

        def on_state(so_far: Trajectory) -> None:
            if can_be_had_again(so_far.lines, setup):
                start(more(so_far))

        return partial(sampler.sample, on_state=on_state)

    async def _attempt(
        self, attempt: Attempt, sample: _Sample, on_sampled: Callable[[], None]
    ) -> Scored:
        trajectory = await self._roll_out(attempt, sample)
        on_sampled()
        try:
            each = None if trajectory.submission is None else self.waits.verdicts_ms
            with self.waits.measure("grading_s", each=each):
                return await self.scorer.score(trajectory, attempt.problem)
        except asyncio.CancelledError:
            unjudged = replace(trajectory, stop_reason=StopReason.CANCELLED)
            raise RolloutCancelled(unjudged) from None

    async def _roll_out(self, attempt: Attempt, sample: _Sample) -> Trajectory:
        """One retry: a kernel that our side lost says nothing about the policy."""
        try:
            return await self._try(attempt, sample)
        except SandboxError:
            self.num_retries += 1
            return await self._try(attempt, sample)

    async def _try(self, attempt: Attempt, sample: _Sample) -> Trajectory:
        with self.waits.measure("kernel_s", each=self.waits.starts_ms):
            kernel = await kernel_for(attempt.problem, self.kernels, seed=attempt.kernel_seed)
        async with contextlib.aclosing(_TimedKernel(kernel, self.waits)) as timed:
            prompt = make_prompt(self.task, attempt.problem, self.fmt)
            try:
                trajectory = await sample(attempt, prompt, timed)
            except StemError:
                return await self._try(replace(attempt, stem=None), sample)
        check_trajectory(trajectory, maker=type(self.sampler).__name__)
        return trajectory


def kernel_pool(
    config: SandboxConfig, *, setup: Sequence[str] = (), front_end: FrontEnd | None = None
) -> KernelPool:
    """Kernels as configured, each of which has run the sources of `setup`."""
    limits = Limits(
        line_cpu_s=config.line_cpu_s,
        line_wall_s=config.line_wall_s,
        grace_s=config.grace_s,
        kernel_cpu_s=config.kernel_cpu_s,
        memory_mib=config.memory_mib,
        max_output_chars=config.max_output_chars,
    )
    return KernelPool(
        limits,
        preload=config.preload,
        warmup=config.warmup,
        setup=setup,
        standby=config.standby,
        isolation=config.isolation,
        front_end=front_end,
    )


async def kernel_for(problem: Problem, kernels: KernelSource, *, seed: int) -> Kernel:
    """A fresh kernel that has run the problem's own sources.

    Raises SandboxError where there is no kernel, and SetupError where a source fails in it.
    """
    kernel = await kernels.acquire(seed=seed)
    try:
        for source in problem.setup:
            execution = await kernel.run(source)
            if execution.status is not ExecStatus.OK:
                fault = execution.output.strip().rpartition("\n")[2]
                raise SetupError(f"setup of problem {problem.id} fails at {source!r}: {fault}")
    except BaseException:
        await kernel.aclose()
        raise
    return kernel
