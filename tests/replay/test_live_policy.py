"""A policy and a person take turns: each line prints as it does for who wrote it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fixture_types import MakeScene, Record
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.branch import begin
from repl_rl.viewer.replay.live import Live
from repl_rl.viewer.replay.model_policy import ModelPolicy
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution

LONG = "a" * 200 + "\n"  # of 201 tokens, one a byte
ANSWERS = {"long": Execution(status=ExecStatus.OK, output=LONG)}
SAMPLING = SamplingConfig(max_lines=3, max_observation_tokens=64)
MAX_TOKENS = 1 << 16

Beside = Callable[[Callable[[ModelPolicy, Live], Awaitable[object]]], object]


@pytest.fixture
def beside(record: Record, a_scene: MakeScene) -> Beside:
    """`beside(act)`: what `act(policy, live)` returns, of a policy that writes a script's lines.

    Before it stands a line by hand.
    """

    def run(act: Callable[[ModelPolicy, Live], Awaitable[object]]) -> object:
        codec = ByteCodec()
        engine = ScriptedEngine(codec, script(" long\n", " # end\n"))
        loaded: Any = SimpleNamespace(codec=codec, source="scripted")
        policy = ModelPolicy(loaded, engine, PYTHON, context_tokens=MAX_TOKENS, sampling=SAMPLING)

        async def inside() -> object:
            scored = await record([" # think\n"], FakeKernels(ANSWERS))
            async with Live(scored, a_scene(), FakeKernels(ANSWERS)) as live:
                await live.edit("long")
                await policy.continue_from(live, on_line=lambda line: None)
                return await act(policy, live)

        return asyncio.run(inside())

    return run


def observations(live: Live) -> list[str]:
    return [line.outcome.observation for line in live.lines]


# 64 bytes: 20 of its head, 34 that count what is missing, 10 of its tail.
CUT = "a" * 20 + "\n... [171 characters omitted] ...\n" + "a" * 9 + "\n"


def test_the_cap_in_tokens_is_the_policys_alone(beside: Beside) -> None:
    async def act(policy: ModelPolicy, live: Live) -> object:
        await live.edit("long")
        return observations(live)

    assert beside(act) == [LONG, CUT, "", LONG]


def test_what_the_policy_saw_stands_there_after_going_back(beside: Beside) -> None:
    async def act(policy: ModelPolicy, live: Live) -> object:
        ids = begin(live, ByteCodec()).ids
        await live.back(live.at)
        return observations(live), begin(live, ByteCodec()).ids == ids

    assert beside(act) == ([LONG, CUT, ""], True)


def test_a_policy_reads_its_tokens_as_its_codec_does(beside: Beside) -> None:
    async def act(policy: ModelPolicy, live: Live) -> object:
        return policy.decode([32, 49, 43, 49, 10])

    assert beside(act) == " 1+1\n"
