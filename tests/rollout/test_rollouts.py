"""Laws of many rollouts at once: nobody waits for anybody, and nobody takes another down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import RewardFunction, shaped
from repl_rl.engines.base import SampledLine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Problem, Reward, Scored, Split, StopReason, Trajectory, Verdict
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution, Kernel, SandboxError

CODEC = ByteCodec()


class OneTask:
    name = "one"
    prompt = "{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        raise AssertionError("problems are given")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("a judge grades")


class NoJudge:
    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nothing was submitted")


@dataclass
class ByProblem:
    """Rolls out the line that the problem's id spells."""

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        engine = ScriptedEngine(CODEC, script(f" {attempt.problem.id}\n", "\n"))
        sampler = LineSampler(engine, CODEC, PYTHON, SamplingConfig(), context_tokens=4096)
        return await sampler.sample(attempt, prompt, kernel)


def run_all(
    kernels: FakeKernels, *problem_ids: str, reward: RewardFunction = shaped
) -> tuple[RolloutRunner, list[Scored]]:
    runner = RolloutRunner(
        task=OneTask(),
        fmt=PYTHON,
        sampler=ByProblem(),
        kernels=kernels,
        scorer=Scorer(
            task_spec="",
            judge=NoJudge(),
            reward=lambda trajectory, verdict: reward(trajectory, verdict, RewardConfig()),
        ),
        max_in_flight=2,
    )
    attempts = [
        Attempt(problem=Problem(id=id_, statement=id_), group_index=i, sibling_index=0, seed=i)
        for i, id_ in enumerate(problem_ids)
    ]
    return runner, asyncio.run(runner.run(attempts))


def asks(id_: str) -> Attempt:
    return Attempt(problem=Problem(id=id_, statement=id_), group_index=0, sibling_index=0, seed=0)


def test_a_dead_kernel_ends_its_own_trajectory_alone() -> None:
    kernels = FakeKernels(dies_at={"os.abort()"})
    _, scored = run_all(kernels, "a", "os.abort()", "b")
    assert [item.trajectory.stop_reason for item in scored] == [
        StopReason.EOS,
        StopReason.KERNEL_DIED,
        StopReason.EOS,
    ]


def test_results_come_in_the_order_of_the_attempts() -> None:
    _, scored = run_all(FakeKernels(), "a", "b", "c", "d")
    assert [item.trajectory.problem_id for item in scored] == ["a", "b", "c", "d"]


class Waiting(ScriptedEngine):
    """At the problem "waits" it writes lines until one of those that it asked for has ended."""

    def __init__(self) -> None:
        super().__init__(CODEC, script())
        self.ended: list[str] = []

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        await asyncio.sleep(0)  # the others' turn
        goes_on = "waits" in CODEC.decode(ids) and "asked 1" not in self.ended
        engine = ScriptedEngine(CODEC, script(" x\n" if goes_on else ""))
        return await engine.line(ids, max_tokens=max_tokens, seed=seed)


def test_what_a_trajectory_asks_for_on_its_way_stands_behind_all_others() -> None:
    """And is rolled out meanwhile: who asks at its second line ends after one that it asked for."""
    engine = Waiting()

    def more(so_far: Trajectory) -> list[Attempt]:
        is_asking = so_far.problem_id == "waits" and len(so_far.lines) == 2
        return [asks("asked 1"), asks("asked 2")] if is_asking else []

    runner, _ = run_all(FakeKernels())
    sampler = LineSampler(engine, CODEC, PYTHON, SamplingConfig(max_lines=50), context_tokens=4096)
    scored = asyncio.run(
        runner.sampling_by(sampler).run(
            [asks("waits"), asks("b")],
            on_scored=lambda one: engine.ended.append(one.problem.id),
            more=more,
        )
    )
    assert [item.problem.id for item in scored] == ["waits", "b", "asked 1", "asked 2"]
    assert 2 < len(scored[0].trajectory.lines) < 50
    assert engine.ended.index("asked 1") < engine.ended.index("waits")


def test_nobody_is_asked_for_behind_a_line_that_names_a_clock() -> None:
    """The second of three lines names a clock, so the first state alone can be had again."""
    asked = []

    def more(so_far: Trajectory) -> list[Attempt]:
        asked.append(len(so_far.lines))
        return []

    engine = ScriptedEngine(CODEC, script(" a = 1\n", " time.time()\n", " b = 2\n"))
    runner, _ = run_all(FakeKernels())
    sampler = LineSampler(engine, CODEC, PYTHON, SamplingConfig(max_lines=4), context_tokens=4096)
    asyncio.run(runner.sampling_by(sampler).run([asks("a")], more=more))
    assert asked == [1]


def test_a_sampler_of_a_users_own_is_not_asked_where_it_can_be_left() -> None:
    runner, _ = run_all(FakeKernels())
    with pytest.raises(ConfigError, match=r"ByProblem cannot branch .*expected sampling.sampler ="):
        asyncio.run(runner.run([asks("a")], more=lambda _: []))


def test_every_kernel_is_closed_again() -> None:
    kernels = FakeKernels(dies_at={"b"})
    run_all(kernels, "a", "b", "c")
    assert [kernel.is_closed for kernel in kernels.kernels] == [True, True, True]


def test_a_kernel_starts_from_the_seed_of_its_trajectory() -> None:
    kernels = FakeKernels()
    run_all(kernels, "a", "b", "c")
    assert sorted(kernel.seed for kernel in kernels.kernels) == [0, 1, 2]


def test_waits_for_kernels_are_part_of_the_trajectories_times() -> None:
    runner, _ = run_all(FakeKernels(), "a", "b", "c")
    waits = runner.waits
    assert 0 < waits.kernel_s <= waits.total_s
    assert 0 <= waits.grading_s <= waits.total_s - waits.kernel_s
    assert len(waits.starts_ms) == 3
    assert waits.verdicts_ms == []  # nothing was submitted
    waits.clear()
    assert (waits.shares(), waits.starts_ms) == ((0.0, 0.0), [])


class Breaking(FakeKernels):
    """Its first `num_failures` kernels fail on our side."""

    def __init__(self, num_failures: int) -> None:
        super().__init__(self._answer)
        self._num_left = num_failures

    def _answer(self, _: str) -> Execution:
        if self._num_left:
            self._num_left -= 1
            raise SandboxError("the fork server is gone")
        return Execution(status=ExecStatus.OK, output="1\n")


def test_a_failure_of_our_side_is_tried_once_more() -> None:
    runner, scored = run_all(Breaking(1), "a")
    assert (runner.num_retries, scored[0].trajectory.lines[0].outcome.observation) == (1, "1\n")


def test_a_second_failure_of_our_side_is_raised_as_it_is() -> None:
    with pytest.raises(SandboxError, match="the fork server is gone"):
        run_all(Breaking(2), "a")


def test_a_bug_in_a_reward_arrives_as_itself() -> None:
    def broken(*_: object) -> Reward:
        raise ZeroDivisionError("a bug in a reward")

    with pytest.raises(ZeroDivisionError, match="a bug in a reward"):
        run_all(FakeKernels(), "a", "b", reward=broken)
