"""Laws of rollouts that are called off: what was sampled is kept, and nobody hears of it twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from attempt_kit import an_attempt
from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import bound_reward
from repl_rl.engines.base import SampledLine, Weights, answered_within
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import EngineError
from repl_rl.records import (
    Attempt,
    Problem,
    Scored,
    Split,
    Stem,
    StopReason,
    Trajectory,
    Verdict,
)
from repl_rl.rollout.builder import RolloutCancelled
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.types import ExecStatus, Execution, Kernel

CODEC = ByteCodec()
T = TypeVar("T")


@dataclass
class Stalling:
    """Writes `lines`, then waits for ever; `stalled` is set from there on."""

    lines: Sequence[str] = ()
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    was_cancelled: bool = False
    num_sampled: int = 0

    def __post_init__(self) -> None:
        self._written = ScriptedEngine(CODEC, script(*self.lines))
        self._num_left = len(self.lines)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        if self._num_left:
            self._num_left -= 1
            return await self._written.line(ids, max_tokens=max_tokens, seed=seed)
        self.stalled.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        raise AssertionError

    async def sync(self, weights: Weights, *, version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


def make_sampler(engine: Stalling, **limits: Any) -> LineSampler:
    return LineSampler(engine, CODEC, PYTHON, SamplingConfig(**limits), context_tokens=4096)


def run(use: Awaitable[T]) -> T:
    """Nothing may hang."""

    async def inside() -> T:
        async with asyncio.timeout(60):
            return await use

    return asyncio.run(inside())


# One rollout


async def call_off(engine: Stalling, **limits: float) -> Trajectory:
    """The part that is there when a rollout is cancelled as soon as the engine stalls."""
    kernel = FakeKernel({"x": Execution(status=ExecStatus.OK, output="1\n")})
    task = asyncio.create_task(
        make_sampler(engine, **limits).sample(an_attempt(), Prompt.plain(">>>"), kernel)
    )
    await engine.stalled.wait()
    task.cancel()
    with pytest.raises(RolloutCancelled) as cancelled:
        await task
    assert task.cancelled()
    return cancelled.value.trajectory


def test_a_rollout_that_is_cancelled_hands_over_its_lines() -> None:
    trajectory = run(call_off(Stalling([" x\n", " # a\n"])))
    assert CODEC.decode(trajectory.completion_ids) == " x\n1\n>>> # a\n>>>"
    assert [line.source for line in trajectory.lines] == [" x\n", " # a\n"]
    assert trajectory.lines[0].outcome.observation == "1\n"
    assert trajectory.stop_reason is StopReason.CANCELLED


def test_a_rollout_that_is_cancelled_in_its_first_line_hands_over_nothing() -> None:
    trajectory = run(call_off(Stalling()))
    assert (trajectory.completion_ids, trajectory.lines) == ((), ())


@pytest.mark.parametrize("lines", [(), (" x = 1\n",)])
def test_an_engine_that_hangs_ends_the_rollout_in_one_sentence(lines: Sequence[str]) -> None:
    engine = Stalling(lines)
    sampler = make_sampler(engine, engine_timeout_s=0.05)
    with pytest.raises(EngineError) as raised:
        run(sampler.sample(an_attempt(), Prompt.plain(">>>"), FakeKernel()))
    assert str(raised.value) == (
        "the engine took more than 0.05 s for a line and counts as hung; see its log, or give it "
        "longer with sampling.engine_timeout_s"
    )
    assert engine.was_cancelled


def test_a_trajectory_out_of_time_is_no_sign_of_a_hung_engine() -> None:
    sampler = make_sampler(Stalling([" x\n"]), time_limit_s=0.05, engine_timeout_s=5.0)
    trajectory = run(sampler.sample(an_attempt(), Prompt.plain(">>>"), FakeKernel()))
    assert trajectory.stop_reason is StopReason.TIME_LIMIT


def test_a_timeout_of_the_engines_own_stays_what_it_is() -> None:
    class Gone(Stalling):
        async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
            raise TimeoutError("gone")

    async def ask() -> None:
        async with answered_within(5.0, "a line"):
            await Gone().line([], max_tokens=1, seed=0)

    with pytest.raises(TimeoutError, match="gone"):
        run(ask())
    with pytest.raises(TimeoutError, match="gone"):
        sample(Gone(), time_limit_s=5.0)


def test_the_line_of_a_cancelled_rollout_is_cancelled() -> None:
    engine = Stalling([" x\n"])
    run(call_off(engine))
    assert engine.was_cancelled


def test_a_rollout_that_is_cancelled_while_its_kernel_runs_has_the_line_as_cut() -> None:
    task: asyncio.Task[Trajectory]

    class Busy(FakeKernel):
        async def run(self, source: str) -> Execution:
            task.cancel()
            await asyncio.Event().wait()
            raise AssertionError

    async def use() -> Trajectory:
        nonlocal task
        task = asyncio.create_task(
            make_sampler(Stalling([" x\n"])).sample(an_attempt(), Prompt.plain(">>>"), Busy())
        )  # fmt: skip
        with pytest.raises(RolloutCancelled) as cancelled:
            await task
        return cancelled.value.trajectory

    trajectory = run(use())
    assert [(line.source, str(line.outcome.kind)) for line in trajectory.lines] == [(" x\n", "cut")]


# Time


def sample(engine: Stalling, **limits: float) -> Trajectory:
    return run(
        make_sampler(engine, **limits).sample(an_attempt(), Prompt.plain(">>>"), FakeKernel())
    )


def test_a_line_that_never_ends_is_cut_at_the_time_limit() -> None:
    engine = Stalling([" x = 1\n", " # a\n"])
    trajectory = sample(engine, time_limit_s=1.0)
    assert CODEC.decode(trajectory.completion_ids) == " x = 1\n>>> # a\n>>>"
    assert trajectory.stop_reason is StopReason.TIME_LIMIT
    assert engine.was_cancelled


def test_the_first_line_is_waited_for() -> None:
    class Late(Stalling):
        async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
            await asyncio.sleep(0.2)
            return await super().line(ids, max_tokens=max_tokens, seed=seed)

    trajectory = sample(Late([" x\n", " y\n"]), time_limit_s=0.05)
    assert [line.source for line in trajectory.lines] == [" x\n"]
    assert trajectory.stop_reason is StopReason.TIME_LIMIT
    behind = replace(an_attempt(), stem=Stem(trajectory=trajectory, num_lines=1))
    sampler = make_sampler(Late([" y\n", " z\n"]), time_limit_s=0.05)
    other = run(sampler.sample(behind, Prompt.plain(">>>"), FakeKernel()))
    assert [line.source for line in other.own_lines] == [" y\n"]
    assert other.stop_reason is StopReason.TIME_LIMIT


# Many rollouts


@dataclass
class ByProblem:
    """A sampler whose engine is named by the problem."""

    engines: Mapping[str, Stalling]

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        return await make_sampler(self.engines[attempt.problem.id]).sample(attempt, prompt, kernel)


@dataclass
class Failing(Stalling):
    """Fails once `others` have stalled and `after` is set."""

    others: Sequence[Stalling] = ()
    after: asyncio.Event | None = None

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        for other in self.others:
            await other.stalled.wait()
        if self.after is not None:
            await self.after.wait()
        raise EngineError("the engine is gone")


class OneTask:
    name = "one"
    prompt = "{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        raise AssertionError("problems are given")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("a judge grades")


@dataclass
class SlowJudge:
    """Never comes to a verdict."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


Heard = list[tuple[str, StopReason, int]]
"""(problem, stop reason, lines) in the order in which they were told."""


def fail(
    engines: Mapping[str, Stalling],
    *,
    judge: SlowJudge,
    kernels: FakeKernels,
    on_scored: Callable[[Scored], None] = lambda _: None,
) -> Heard:
    """Report on an attempt at each problem, all at once, of which one fails."""
    runner = RolloutRunner(
        task=OneTask(),
        fmt=PYTHON,
        sampler=ByProblem(engines),
        kernels=kernels,
        scorer=Scorer(task_spec="", judge=judge, reward=bound_reward(RewardConfig())),
        max_in_flight=len(engines),
    )
    attempts = [
        Attempt(problem=Problem(id=name, statement=name), group_index=0, sibling_index=0, seed=0)
        for name in engines
    ]
    heard: list[Scored] = []

    def hear(scored: Scored) -> None:
        heard.append(scored)
        on_scored(scored)

    with pytest.raises(EngineError, match="the engine is gone"):
        run(runner.run(attempts, on_scored=hear))
    return [
        (one.trajectory.problem_id, one.trajectory.stop_reason, len(one.trajectory.lines))
        for one in heard
    ]


def test_a_failure_tells_of_those_that_ended_and_of_those_that_it_cut_short_once() -> None:
    ended = asyncio.Event()
    stalls = Stalling([" x\n", " y\n"])
    engines = {
        "ends": Stalling([" x"]),
        "stalls": stalls,
        "fails": Failing(others=[stalls], after=ended),
    }
    kernels = FakeKernels()
    heard = fail(
        engines, judge=SlowJudge(), kernels=kernels, on_scored=lambda _: ended.set()
    )  # fmt: skip
    assert heard == [("ends", StopReason.EOS, 1), ("stalls", StopReason.CANCELLED, 2)]
    assert [kernel.is_closed for kernel in kernels.kernels] == [True] * 3


def test_a_trajectory_that_waits_for_its_verdict_is_told_of_too() -> None:
    judge = SlowJudge()
    engines = {
        "first": Stalling([" x"]),
        "submits": Stalling([" submit_final_answer(2)\n"]),
        "fails": Failing(after=judge.asked),
    }
    kernels = FakeKernels({"2": Execution(status=ExecStatus.OK, value="2")})
    heard = fail(engines, judge=judge, kernels=kernels)
    assert heard == [("first", StopReason.EOS, 1), ("submits", StopReason.CANCELLED, 1)]


def test_a_trajectory_that_was_cut_short_has_no_outcome_and_no_charge() -> None:
    stalls = Stalling([" x\n", " x\n"])
    told: list[Scored] = []
    engines = {"stalls": stalls, "fails": Failing(others=[stalls])}
    fail(engines, judge=SlowJudge(), kernels=FakeKernels(), on_scored=told.append)
    (cut,) = told
    assert (cut.verdict, cut.reward.outcome_reward) == (None, None)
    assert cut.reward.line_rewards == (0.0, 0.0)
