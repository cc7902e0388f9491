"""An engine over tinker's sampling client: the trajectory is what any other engine makes of it."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import pytest

tinker = pytest.importorskip("tinker")

from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture  # noqa: E402

from attempt_kit import an_attempt  # noqa: E402
from repl_rl.config.sections import SamplingConfig  # noqa: E402
from repl_rl.engines.base import Engine, LineEnd  # noqa: E402
from repl_rl.engines.scripted import ScriptedEngine, script  # noqa: E402
from repl_rl.errors import ConfigError, EngineError  # noqa: E402
from repl_rl.integrations.tinker import TinkerEngine  # noqa: E402
from repl_rl.records import StopReason, Trajectory  # noqa: E402
from repl_rl.rollout.sampler import LineSampler  # noqa: E402
from repl_rl.testing import LoopContract  # noqa: E402
from repl_rl.testing.engine import LoopRun  # noqa: E402
from repl_rl.testing.under_test import CODEC as MANY_STOPS  # noqa: E402
from repl_rl.testing.under_test import T, Use  # noqa: E402
from repl_rl.transcript.format import PYTHON, Prompt  # noqa: E402
from repl_rl.transcript.tokens import ByteCodec  # noqa: E402
from repl_sandbox.fake import FakeKernel  # noqa: E402
from repl_sandbox.types import ExecStatus, Execution  # noqa: E402
from tinker_clients import AnsweringClient, ScriptedClient, come, response  # noqa: E402

CODEC = ByteCodec()
CONTEXT = 400
ANSWERS = {
    "x": Execution(status=ExecStatus.OK, output="1\n"),
    "long": Execution(status=ExecStatus.OK, output="9" * 300 + "\n"),
    "die": Execution(status=ExecStatus.DIED, output="gone\n"),
    "1": Execution(status=ExecStatus.OK, value="1"),
}
SUBMIT = " submit_final_answer(1)\n"


def over(client: Any, codec: ByteCodec = CODEC, **options: Any) -> TinkerEngine:
    return TinkerEngine(client, codec, vocabulary=257, context_tokens=1024, **options)


def with_engine(client: Any, use: Callable[[TinkerEngine], Awaitable[T]]) -> T:
    async def inside() -> T:
        return await use(over(client))

    return asyncio.run(inside())


def ask(client: Any, *, max_tokens: int = 9, seed: int = 5, **options: Any) -> Any:
    async def inside() -> Any:
        return await over(client, **options).line([62], max_tokens=max_tokens, seed=seed)

    return asyncio.run(inside())


def made_by(engine: Engine, **limits: Any) -> Trajectory:
    sampler = LineSampler(engine, CODEC, PYTHON, SamplingConfig(**limits), context_tokens=CONTEXT)
    attempt, prompt = an_attempt(seed=7), Prompt.plain("# p\n>>>")
    return asyncio.run(sampler.sample(attempt, prompt, FakeKernel(ANSWERS)))


class TestTinker(LoopContract):
    @pytest.fixture
    def run(self) -> LoopRun:
        """Lines of one to seven letters; one of four ends the sequence."""

        def run_once(use: Use[T], *, seed: int = 0) -> T:
            rng = random.Random(seed)

            def write(_: str) -> str:
                letters = "".join(rng.choices("abcxyz", k=rng.randint(1, 7)))
                return letters + rng.choice(["\n", "\n", "\n", ""])

            async def inside() -> T:
                client = ScriptedClient(MANY_STOPS, write, logprob=-0.5)
                return await use(over(client, MANY_STOPS))

            return asyncio.run(inside())

        return run_once


@pytest.mark.parametrize(
    ("lines", "limits", "stop"),
    [
        ([" x = 1\n", " x\n", SUBMIT], {}, StopReason.SUBMITTED),
        ([" x\n", " # so\n", "\n", ""], {}, StopReason.EOS),
        ([" if x:\n", "     x\n", "\n", SUBMIT], {}, StopReason.SUBMITTED),
        ([" die\n"], {}, StopReason.KERNEL_DIED),
        ([" x\n"] * 9, {"max_lines": 3}, StopReason.MAX_LINES),
        ([" x" * 40 + "\n"], {"max_line_tokens": 9}, StopReason.MAX_LINE_TOKENS),
        ([" long\n", SUBMIT], {"max_tokens": 90}, StopReason.MAX_TOKENS),
        ([" long\n"] * 9, {}, StopReason.CONTEXT_FULL),
    ],
)
def test_it_makes_the_trajectory_that_any_engine_makes_of_the_same_lines(
    lines: list[str], limits: dict[str, Any], stop: StopReason
) -> None:
    theirs = made_by(over(ScriptedClient(CODEC, script(*lines))), **limits)
    assert theirs == made_by(ScriptedEngine(CODEC, script(*lines)), **limits)
    assert theirs.stop_reason is stop


# What is asked, and what comes back


def test_a_request_stops_at_every_id_that_ends_a_line_and_has_the_seed_of_the_line() -> None:
    client = ScriptedClient(CODEC, script(" x\n"))
    ask(client, max_tokens=9, seed=2**63 - 1, temperature=0.5)
    (asked,) = client.asked
    assert asked.prompt.to_ints() == [62]
    assert asked.num_samples == 1
    assert asked.sampling_params.model_dump() == {
        "max_tokens": 9,
        "seed": 2**63 - 1,
        "stop": [10, 256],
        "temperature": 0.5,
        "top_k": -1,
        "top_p": 1,
    }


def test_the_real_client_takes_such_a_call() -> None:
    parameters = inspect.signature(tinker.SamplingClient.sample)
    parameters.bind(None, prompt=None, num_samples=1, sampling_params=None)
    ours = inspect.signature(AnsweringClient.sample).parameters
    assert list(ours) == list(parameters.parameters)[: len(ours)]


@pytest.mark.parametrize(
    ("text", "end", "ids"),
    [
        ("1\n", LineEnd.NEWLINE, b"1\n"),
        ("1", LineEnd.EOS, [49, 256]),
        ("123456789\n", LineEnd.LENGTH, b"123456789"),
    ],
)
def test_a_line_has_its_stop_token_and_the_log_probabilities_that_came(
    text: str, end: LineEnd, ids: bytes
) -> None:
    line = ask(ScriptedClient(CODEC, script(text), logprob=-0.25))
    assert (line.ids, line.end, line.policy_version) == (tuple(ids), end, 0)
    assert line.logprobs == (-0.25,) * len(line.ids)


def test_the_next_client_samples_what_is_asked_for_from_then_on() -> None:
    first, second = (ScriptedClient(CODEC, script(text)) for text in ("1\n", "2\n"))

    async def use(engine: TinkerEngine) -> list[tuple[int, int]]:
        before = await engine.line([62], max_tokens=9, seed=0)
        engine.use(second, version=3)
        after = await engine.line([62], max_tokens=9, seed=0)
        return [(line.ids[0], line.policy_version) for line in (before, after)]

    assert with_engine(first, use) == [(ord("1"), 0), (ord("2"), 3)]


# Bad input of the other side


@pytest.mark.parametrize(
    ("ids", "logprobs", "message"),
    [
        (b"1\n2\n", [0.0] * 4, "continued for 2 tokens behind the stop token 10; it must stop at"),
        (b"1\n", None, "it has 0 log-probabilities for 2 tokens"),
        (b"1\n", [0.0], "it has 1 log-probabilities for 2 tokens"),
        (b"1\n", [0.0, float("nan")], "an invalid line: logits are not finite"),
        (b"1\n", [0.0, 0.5], "an invalid line: its log-probabilities are none: expected neg"),
        (b"x = 1", [0.0] * 5, r"5 of 9 tokens, the last of them 49; .* not at strings"),
        (b"123456789\n", [0.0] * 10, "10 of 9 tokens, the last of them 10; it must stop at"),
        (b"", [], r"sequences of \[0\] tokens; expected one"),
    ],
)
def test_what_is_not_one_line_is_one_clear_error(
    ids: bytes, logprobs: list[float] | None, message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        ask(AnsweringClient(lambda _: response(list(ids), logprobs)))


def test_a_service_that_fails_is_an_engine_that_fails() -> None:
    with pytest.raises(EngineError, match="the sampling client gave no line: no such session"):
        ask(AnsweringClient(lambda _: tinker.TinkerError("no such session")))


@pytest.mark.parametrize(
    ("ids", "max_tokens", "message"),
    [
        ([], 4, "4 tokens to sample after 0; expected at least one of each"),
        ([1, 257], 4, "from 1 to 257, the model embeds 257; give it the tokenizer"),
        ([1] * 1020, 5, "1020 tokens and 5 to sample, but the model's context holds 1024; lower"),
    ],
)
def test_a_request_that_cannot_be_served_is_never_sent(
    ids: list[int], max_tokens: int, message: str
) -> None:
    client = ScriptedClient(CODEC, script("1\n"))
    with pytest.raises(ConfigError, match=message):
        with_engine(client, lambda engine: engine.line(ids, max_tokens=max_tokens, seed=0))
    assert client.asked == []


def test_weights_cannot_be_sent() -> None:
    with pytest.raises(ConfigError, match="trains its own weights; give its next client to"):
        with_engine(None, lambda engine: engine.sync([], version=1))


# Lines that do not end by themselves


class SilentClient:
    """Never answers."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def sample(self, **_: Any) -> AwaitableConcurrentFuture[Any]:
        return AwaitableConcurrentFuture(self.future)


async def in_flight(engine: TinkerEngine) -> asyncio.Task[Any]:
    line = asyncio.create_task(engine.line([62], max_tokens=9, seed=0))
    await asyncio.sleep(0.01)
    return line


def test_closing_ends_a_line_in_flight_and_refuses_later_ones() -> None:
    async def use(engine: TinkerEngine) -> list[Any]:
        line = await in_flight(engine)
        await engine.aclose()
        await engine.aclose()
        later = engine.line([62], max_tokens=9, seed=0)
        return list(await asyncio.gather(line, later, return_exceptions=True))

    ended = with_engine(SilentClient(), use)
    assert [(type(one), str(one)) for one in ended] == [(EngineError, "the engine was closed")] * 2


def test_a_cancelled_line_is_called_off_and_leaves_no_trace() -> None:
    client = SilentClient()

    async def use(engine: TinkerEngine) -> tuple[bool, int]:
        line = await in_flight(engine)
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)
        await engine.sleep()
        engine.use(ScriptedClient(CODEC, script("1\n")), version=0)
        await engine.line([62], max_tokens=9, seed=0)
        return line.cancelled(), engine.num_sampled

    assert with_engine(client, use) == (True, 2)
    assert client.future.cancelled()


def test_sleep_waits_for_lines_in_flight() -> None:
    client = SilentClient()

    async def use(engine: TinkerEngine) -> bool:
        line = await in_flight(engine)
        asyncio.get_running_loop().call_later(0.02, client.future.set_result, response([10], [0.0]))
        await engine.sleep()
        return line.done() or engine.num_sampled == 1

    assert with_engine(client, use)


def test_futures_of_the_sdk_are_what_stands_in_for_them_here() -> None:
    assert isinstance(come(None), tinker.APIFuture)
