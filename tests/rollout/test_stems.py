"""A trajectory that begins as another: the state, the tokens and the record are the other's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import shaped
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import (
    Attempt,
    Branch,
    OutcomeKind,
    Problem,
    Split,
    Stem,
    StopReason,
    Trajectory,
    Verdict,
)
from repl_rl.rollout.builder import fault
from repl_rl.rollout.prefixes import can_leave
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.tasks.base import make_prompt
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernels
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Execution, Kernel, KernelSource, Limits

CODEC = ByteCodec()
PROBLEM = Problem(id="p", statement="?")


class OneTask:
    name = "one"
    prompt = "{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        raise AssertionError("problems are given")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nothing is submitted")


class NoJudge:
    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nothing is submitted")


@dataclass
class Scripted:
    """Writes the lines of a sibling, by its index."""

    lines: Mapping[int, tuple[str, ...]]

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        engine = ScriptedEngine(CODEC, script(*self.lines[attempt.sibling_index]))
        sampler = LineSampler(engine, CODEC, PYTHON, SamplingConfig(), context_tokens=4096)
        return await sampler.sample(attempt, prompt, kernel)


async def roll_out(
    kernels: KernelSource, attempt: Attempt, *lines: str
) -> tuple[RolloutRunner, Trajectory]:
    runner = RolloutRunner(
        task=OneTask(),
        fmt=PYTHON,
        sampler=Scripted({attempt.sibling_index: lines}),
        kernels=kernels,
        scorer=Scorer(
            task_spec="",
            judge=NoJudge(),
            reward=lambda trajectory, verdict: shaped(trajectory, verdict, RewardConfig()),
        ),
        max_in_flight=1,
    )
    (scored,) = await runner.run([attempt])
    return runner, scored.trajectory


FIRST = Attempt(problem=PROBLEM, group_index=3, sibling_index=0, seed=7)


def leaving(trajectory: Trajectory, num_lines: int) -> Attempt:
    stem = Stem(trajectory=trajectory, num_lines=num_lines)
    return Attempt(problem=PROBLEM, group_index=3, sibling_index=1, seed=99, stem=stem)


@pytest.mark.kernel
def test_it_goes_on_from_the_state_and_the_tokens_of_the_other() -> None:
    """The next number of a generator is part of the state."""

    async def both() -> tuple[Trajectory, Trajectory]:
        async with KernelPool(Limits(), setup=("import random",), standby=1) as pool:
            lines = (" x = random.random()\n", " x\n", " random.random()\n", "\n")
            _, first = await roll_out(pool, FIRST, *lines)
            _, second = await roll_out(
                pool, leaving(first, 2), " y = 1\n", " random.random()\n", ""
            )
        return first, second

    first, second = asyncio.run(both())
    cut = first.lines[2].start
    assert second.lines[:2] == first.lines[:2]
    assert second.completion_ids[:cut] == first.completion_ids[:cut]
    assert second.loss_mask[:cut] == first.loss_mask[:cut]
    assert second.lines[3].outcome.observation == first.lines[2].outcome.observation
    assert float(second.lines[3].outcome.observation) > 0
    assert [line.index for line in second.lines] == [0, 1, 2, 3, 4]
    assert fault(second) is None


def test_it_says_whom_it_leaves_and_keeps_the_seed_of_the_kernel() -> None:
    kernels = FakeKernels()

    async def both() -> Trajectory:
        _, first = await roll_out(kernels, FIRST, " a\n", " b\n", "\n")
        _, second = await roll_out(kernels, leaving(first, 1), " c\n", "\n")
        return second

    second = asyncio.run(both())
    assert second.branch == Branch(sibling_index=0, num_lines=1, seed=99)
    assert second.seed == 7
    assert [kernel.seed for kernel in kernels.kernels] == [7, 7]
    assert kernels.kernels[1].sources == ["a", "c"]


def test_where_a_line_does_something_else_it_begins_at_the_prompt() -> None:
    """In a kernel of its own seed, and it says that it leaves nobody."""
    answers = iter(["1\n", "2\n", "3\n", "4\n"])
    kernels = FakeKernels(lambda _: Execution(status=ExecStatus.OK, output=next(answers)))

    async def both() -> Trajectory:
        _, first = await roll_out(kernels, FIRST, " a\n", " b\n", "")
        _, second = await roll_out(kernels, leaving(first, 1), " c\n", "")
        return second

    second = asyncio.run(both())
    assert (second.branch, second.seed) == (None, 99)
    assert [line.source for line in second.lines if line.source] == [" c\n"]
    assert [kernel.seed for kernel in kernels.kernels] == [7, 7, 99]
    assert all(kernel.is_closed for kernel in kernels.kernels)


def test_one_that_was_asked_in_another_prompt_is_left_by_nobody() -> None:
    """Such as a row from before the task's prompt was edited."""
    kernels = FakeKernels()

    async def both() -> Trajectory:
        _, first = await roll_out(kernels, FIRST, " a\n", " b\n", "")
        asked = replace(first, prompt_ids=(*first.prompt_ids, 10))
        return (await roll_out(kernels, leaving(asked, 1), " c\n", ""))[1]

    second = asyncio.run(both())
    assert (second.branch, [line.source for line in second.lines if line.source]) == (
        None,
        [" c\n"],
    )


def test_one_that_is_under_way_is_left_like_one_that_has_ended() -> None:
    """Behind each line where it goes on it says how far it is; the last one of these ends it."""
    kernels, states = FakeKernels(), list[Trajectory]()
    engine = ScriptedEngine(CODEC, script(" a\n", " b\n", ""))
    sampler = LineSampler(engine, CODEC, PYTHON, SamplingConfig(), context_tokens=4096)

    async def all_of_it() -> tuple[Trajectory, list[Trajectory]]:
        kernel = await kernels.acquire(seed=7)
        prompt = make_prompt(OneTask(), PROBLEM, PYTHON)
        ended = await sampler.sample(FIRST, prompt, kernel, on_state=states.append)
        found = [
            (await roll_out(kernels, leaving(one, at), " c\n", ""))[1]
            for at, state in enumerate(states, 1)
            for one in (ended, state)
        ]
        return ended, found

    ended, found = asyncio.run(all_of_it())
    assert [len(state.lines) for state in states] == [1, 2]
    assert {state.stop_reason for state in states} == {StopReason.CANCELLED}
    for at, state in enumerate(states, 1):
        assert state.completion_ids == ended.completion_ids[: ended.lines[at].start]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0].branch != found[2].branch


OK, ERROR, OPEN = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR, OutcomeKind.INCOMPLETE


@pytest.mark.parametrize(
    ("kinds", "places"),
    [
        ([OK, ERROR, OutcomeKind.SUBMITTED], [0, 1, 2]),
        ([OK, OPEN, OPEN, OK, OK], [0, 1, 4]),
        ([OutcomeKind.COMMENT, OK, OutcomeKind.CUT], [0, 1, 2]),
        ([OK, OutcomeKind.TIMEOUT, OK], [0, 1]),
        ([OK, OutcomeKind.DIED], [0, 1]),
    ],
)
def test_another_can_leave_before_statements_behind_lines_that_met_no_limit(
    kinds: list[OutcomeKind], places: list[int], make_trajectory: object
) -> None:
    assert callable(make_trajectory)
    trajectory: Trajectory = make_trajectory([(" x\n", kind, None) for kind in kinds])
    assert [at for at in range(len(kinds)) if can_leave(trajectory.lines[:at])] == places
    assert trajectory.stop_reason is not StopReason.CANCELLED
