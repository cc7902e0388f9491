"""Engines: each extends a list of token ids to the end of a line.

    ids, a seed -> Engine.line -> SampledLine and its LineEnd

Holds the protocol `Engine`, its extensions (`SharedEngine`, `PrefixSharing`, `SelfDescribing`),
wrappers, of which `BusyEngine` has a clock, checks of requests and lines, and the limit on waiting
for one. `EngineKind` opens an engine, and an entry point has its name; no torch is loaded before.
Tokens only: an engine knows no text, no kernel, no reward.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from repl_rl.base.plugins import load_named
from repl_rl.config import Config
from repl_rl.errors import ConfigError, EngineError

Result = TypeVar("Result")

if TYPE_CHECKING:
    from repl_rl.models.loading import ModelFiles

Weights = Iterable[tuple[str, Any]]
"""Names and tensors of a model, as `weights.named_weights` gives them. Any: no torch here."""


@runtime_checkable
class AdaptedWeights(Protocol):
    """Weights of a model and an adapter: walked, with the adapter added, or the adapter alone."""

    def why_whole(self) -> str | None:
        """Reason why others cannot add this adapter themselves; None where they can."""
        ...

    def __iter__(self) -> Iterator[tuple[str, Any]]: ...

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter as peft does; `folder` is there, and empty."""
        ...


AUTO = "auto"
"""Value of `sampling.engine` that leaves the choice to `choice.chosen`."""
NOT_FINITE = "logits are not finite: the weights have diverged; lower grpo.learning_rate"

_LOGPROBS = (-1e6, 1e-3)
"""A logarithm of 0 does not come from sampling, and rounding lifts one hardly above 0."""


class LineEnd(StrEnum):
    """Reason why a line ended, decided by its last token.

    >>> LineEnd("eos") is LineEnd.EOS
    True
    """

    NEWLINE = "newline"
    EOS = "eos"
    LENGTH = "length"


def line_end(last_id: int, *, newline_ids: Set[int], eos_ids: Set[int]) -> LineEnd:
    """Tell how a line ended, by its last token alone.

    >>> line_end(10, newline_ids={10}, eos_ids={0})
    <LineEnd.NEWLINE: 'newline'>
    """
    if last_id in newline_ids:
        return LineEnd.NEWLINE
    return LineEnd.EOS if last_id in eos_ids else LineEnd.LENGTH


def fault_of_line(
    ids: Sequence[Any],  # Any: nobody has looked at what it sent
    logprobs: Sequence[Any],
    *,
    vocabulary: int | None = None,
    forbidden: Set[int] = frozenset(),
) -> str | None:
    """Say why no engine of ours samples these tokens, which another process sent; None for a line.

    >>> fault_of_line([7, True], [-0.5, -0.5])
    'its tokens are not integers alone'
    """
    if not all(type(one) is int for one in ids):
        return "its tokens are not integers alone"
    if vocabulary is not None and not all(0 <= one < vocabulary for one in ids):
        return f"its tokens are not within the vocabulary of {vocabulary:,}"
    if not forbidden.isdisjoint(ids):
        return "its tokens are among those that were forbidden"
    if len(ids) != len(logprobs):
        return f"it has {len(logprobs)} log-probabilities for {len(ids)} tokens"
    if not all(type(one) in (int, float) for one in logprobs):
        return "its log-probabilities are not numbers alone"
    if any(one != one or one in (math.inf, -math.inf) for one in logprobs):
        return NOT_FINITE
    least, most = _LOGPROBS
    if not all(least <= one <= most for one in logprobs):
        return "its log-probabilities are none: expected negative numbers"
    return None


def check_request(
    ids: Sequence[int], max_tokens: int, *, vocabulary: int, context_tokens: int
) -> None:
    """Refuse a request that would make the forward fail, for all other lines, too.

    Raises ConfigError.

    >>> check_request([1, 12], 1, vocabulary=10, context_tokens=100)
    Traceback (most recent call last):
    repl_rl.errors.ConfigError: token ids from 1 to 12, the model embeds 10; give it ...
    """
    if not ids or max_tokens < 1:
        raise ConfigError(
            f"{max_tokens} tokens to sample after {len(ids)}; expected at least one of each"
        )
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise ConfigError(
            f"token ids from {min(ids)} to {max(ids)}, the model embeds {vocabulary}; "
            f"give it the tokenizer it was trained with"
        )
    if len(ids) + max_tokens > context_tokens:
        raise ConfigError(
            f"{len(ids)} tokens and {max_tokens} to sample, but the model's context holds "
            f"{context_tokens}; lower sampling.max_tokens or give a model with more"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLine:
    """A line as an engine gives it.

    >>> ends = {"end": LineEnd.NEWLINE, "policy_version": 0}
    >>> SampledLine(ids=(49, 10), logprobs=(-0.5, 0.0), **ends).ids
    (49, 10)
    """

    ids: tuple[int, ...]  # [N], N >= 1
    """The sampled tokens, the one that ended the line among them."""
    logprobs: tuple[float, ...]  # [N]
    """Log-probability of each under the distribution it was drawn from, in nats."""
    end: LineEnd
    policy_version: int
    """Optimiser steps behind the weights that sampled the line."""


class Engine(Protocol):
    r"""Many trajectories wait on one engine; none waits for another.

    >>> import asyncio
    >>> from repl_rl.engines.scripted import ScriptedEngine, script
    >>> engine: Engine = ScriptedEngine(ByteCodec(), script("1+1\n"))
    >>> asyncio.run(engine.line([62, 62, 62], max_tokens=9, seed=0)).ids
    (49, 43, 49, 10)
    """

    @property
    def num_sampled(self) -> int:
        """Tokens sampled since the engine was made, those of cancelled lines among them."""
        ...

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """Sample after `ids` up to a newline id, an end-of-sequence id or `max_tokens` >= 1.

        The same ids, seed and weights give the same line, whatever else is in flight.
        Raises EngineError if the engine cannot go on, ConfigError for a request that it cannot
        serve; one that is cancelled or refused leaves no trace in others.
        """
        ...

    async def sync(self, weights: Weights, *, version: int) -> None:
        """Use `weights`, of version `version`, for every line requested from now on.

        Lines in flight end first, continue with the new weights, or keep the weights that they
        began with. Each says which. `weights` may be `AdaptedWeights`. Raises EngineError if they
        did not arrive, and StorageError if a disk on their way is full. An engine that shares the
        trainer's weights reads none.
        """
        ...

    async def sleep(self) -> None:
        """Give back memory that the trainer could use, until the next `sync`.

        Lines in flight end before that. The weights may be forgotten: an engine with a copy of them
        may refuse a line before the next `sync`, with EngineError.
        """
        ...

    async def aclose(self) -> None:
        """Free what the engine holds; safe to repeat. Lines in flight end in EngineError."""
        ...


@runtime_checkable
class SharedEngine(Engine, Protocol):
    """Several processes sample from the same servers: one of them syncs, the others adopt."""

    @property
    def label(self) -> str:
        """A name of the weights that it was given last; of an adapter, its folder."""
        ...

    async def adopt(self, label: str, *, version: int) -> None:
        """Sync to the weights that another process has given the servers under this label.

        Raises EngineError if a server has others.
        """
        ...


@runtime_checkable
class PrefixSharing(Engine, Protocol):
    """An engine that reads once what all prompts begin with, if it is told."""

    def share(self, beginning: Sequence[int]) -> None:
        """Tell it, before the first line. A prompt may begin in another way."""
        ...


@runtime_checkable
class SelfDescribing(Engine, Protocol):
    """An engine whose way of sampling depends on the machine."""

    @property
    def about(self) -> str:
        """That way in a few words, for the person who runs it; empty where it is the usual one."""
        ...


class Requests:
    """Requests of an engine that are under way; when it is closed they end in EngineError."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work`. EngineError if the engine is closed before it has ended."""
        if self._is_closed:
            work.close()
            raise EngineError("the engine was closed")
        caller = asyncio.current_task()
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_closed and caller is not None and not caller.cancelling():
                raise EngineError("the engine was closed") from None
            raise

    async def ended(self) -> None:
        """Wait for those that are under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel those that are under way, and refuse others."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass
class EngineWrapper:
    """Passes everything on to another engine; a subclass changes or records lines."""

    engine: Engine

    @property
    def num_sampled(self) -> int:
        return self.engine.num_sampled

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        return await self.engine.line(ids, max_tokens=max_tokens, seed=seed)

    async def sync(self, weights: Weights, *, version: int) -> None:
        await self.engine.sync(weights, version=version)

    async def sleep(self) -> None:
        await self.engine.sleep()

    async def aclose(self) -> None:
        await self.engine.aclose()


@dataclass
class BusyEngine(EngineWrapper):
    """Passes everything on."""

    clock: Callable[[], float] = time.monotonic
    busy_s: float = 0.0
    """Seconds since the engine was made in which a line was in flight."""
    num_elsewhere: int = 0
    """Tokens that workers have sampled."""
    _num_lines: int = 0
    """In flight."""
    _since: float = 0.0

    @property
    def num_sampled(self) -> int:
        return self.engine.num_sampled + self.num_elsewhere

    def count_elsewhere(self, num_tokens: int, busy_s: float) -> None:
        """Count what workers have sampled, as well."""
        self.num_elsewhere += num_tokens
        self.busy_s += busy_s

    @property
    def prefix_tokens(self) -> tuple[int, int]:
        """(tokens that needed no forward, tokens that lines were asked for after).

        Both 0 for an engine that does not count them.
        """
        tokens: tuple[int, int] = getattr(self.engine, "prefix_tokens", (0, 0))
        return tokens

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        if self._num_lines == 0:
            self._since = self.clock()
        self._num_lines += 1
        try:
            return await self.engine.line(ids, max_tokens=max_tokens, seed=seed)
        finally:
            self._num_lines -= 1
            if self._num_lines == 0:
                self.busy_s += self.clock() - self._since


class EngineKind:
    """Opener of an engine. A name in the group `repl_rl.engines` stands for a subclass.

    The defaults suit an engine that computes somewhere else; only `open` must be written.

        >>> class Elsewhere(EngineKind):
        ...     name = "elsewhere"
        ...     def open(self, config, loaded, *, row_tokens):
        ...         return MyEngine(loaded.codec, max_tokens=row_tokens)
        >>> Elsewhere().about(Config(model="PATH"))
        '64 trajectories at once'
    """

    name: str
    shares_weights: bool = False
    """It samples from the trainer's own model: nothing is sent to it, and in float32 its
    log-probabilities are the trainer's."""
    holds_weights: bool = False
    """It has a copy of the weights on the trainer's device."""
    holds_keys: bool = False
    """Its keys and values take memory of the trainer's device."""
    rows_grow: bool = False
    """It takes rows longer than it was opened for, up to what the model attends to."""
    most_forbidden: float = 0
    """The most ids that it can keep from being sampled, as `sampling.run_on` may ask for."""
    needs_one_process: bool = False
    """It keeps torch's groups of processes to itself."""
    is_client: bool = False
    """It opens a `SharedEngine` for a ModelFiles, without weights: workers can sample with it."""

    @property
    def samples_elsewhere(self) -> bool:
        """True where it needs neither the trainer's model nor its whole process."""
        return not (self.shares_weights or self.needs_one_process)

    def check_ranks(self) -> None:
        """ConfigError where it cannot be one of several, each in a process that trains."""
        if self.needs_one_process:
            raise ConfigError(
                f"the engine {self.name!r} needs a single process, but a launcher has started "
                f"several; give the engine 'hf' or 'vllm-server', or start without a launcher"
            )

    def check_staleness(self) -> None:
        """ConfigError where it cannot sample from older weights than those that are trained."""
        if self.shares_weights:
            raise ConfigError(
                f"grpo.staleness = 1 with the engine {self.name!r}, which samples from the weights "
                f"that the update changes; give the engine 'vllm' or 'vllm-server', or set it to 0"
            )

    def check_workers(self) -> None:
        """ConfigError where workers, which hold no weights, cannot sample with it."""
        if not self.is_client:
            raise ConfigError(
                f"the engine {self.name!r} samples where the weights are, but workers hold none; "
                f"give the engine 'vllm-server', or workers.count = 0"
            )

    def check_forbidden(self, count: float) -> None:
        """ConfigError where it cannot keep `count` ids from being sampled."""
        if count > self.most_forbidden:
            raise ConfigError(
                f"the engine {self.name!r} can forbid {self.most_forbidden:,} tokens, but "
                f"sampling.run_on = 'forbid' asks for {count:,} or more; give the engine 'hf', or "
                f"sampling.run_on = 'allow'"
            )

    def check(self, config: Config) -> None:
        """ConfigError for what it cannot do, as far as that is known without a model."""

    def reach(self, config: Config) -> None:
        """ConfigError for what it needs of other machines, before weights are read."""

    def prepare(self) -> None:
        """Do what precedes the import of torch; ConfigError if the engine is not installed."""

    def kept_tokens(self, num_rows: int, row_tokens: int) -> int:
        """Tokens that it has memory for, for the keys and values of so many full trajectories."""
        return num_rows * row_tokens

    def about(self, config: Config) -> str:
        """A few words about it for the person who runs it."""
        return f"{config.sampling.max_in_flight} trajectories at once"

    def open(self, config: Config, loaded: Any, *, row_tokens: int) -> Engine:
        """An engine for trajectories of `row_tokens` with their prompts; `loaded` is a LoadedModel,
        or a ModelFiles where a worker opens a client.

        Raises ConfigError where it cannot serve this model.
        """
        raise NotImplementedError


@contextlib.asynccontextmanager
async def answered_within(limit_s: float, what: str) -> AsyncIterator[None]:
    """EngineError if the block takes longer: the engine hangs. What it waits for is cancelled."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # the engine's own
        raise EngineError(
            f"the engine took more than {limit_s:g} s for {what} and counts as hung; see its log, "
            f"or give it longer with sampling.engine_timeout_s"
        ) from None


def engine_kind(name: str) -> EngineKind:
    """The kind of engine of a name in the group `repl_rl.engines`, or `module:Class`.

    Raises ConfigError where there is none of that name.
    """
    kind = load_named(name, group="repl_rl.engines", besides=(AUTO,))
    if not (isinstance(kind, type) and issubclass(kind, EngineKind)):
        raise ConfigError(
            f"sampling.engine = {name!r} is no engine; expected a subclass of repl_rl.EngineKind"
        )
    return kind()


def common_options(config: Config, loaded: ModelFiles, row_tokens: int) -> dict[str, Any]:
    """Arguments that every engine of the project takes."""
    return {
        "newline_ids": loaded.codec.newline_ids,
        "eos_ids": loaded.codec.eos_ids,
        "forbidden_ids": loaded.forbidden_ids,
        "row_tokens": row_tokens,
        "temperature": config.sampling.temperature,
    }
