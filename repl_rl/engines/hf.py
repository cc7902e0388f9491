"""Sample lines with a transformers model in this process: the default engine.

    line(ids) -> a row of the KV cache -> steps shared with all other lines -> SampledLine

Tokens only: knows no text, no kernel, no reward. Shares its weights with the trainer, so
there is nothing to copy after an update: `sync` drops the cached keys and values.

One step is one forward over the rows that have a token to add and one over the rows that come back
with an observation. A row keeps its trajectory's keys between lines. It is found again by its
tokens (the longest row whose tokens begin the request), so there is no session to open or close. A
row that was given away in the meantime costs a prefill, never a wrong token.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from repl_rl.engines import row_attention
from repl_rl.engines.base import NOT_FINITE, SampledLine, Weights, check_request, line_end
from repl_rl.engines.policy import Policy
from repl_rl.engines.precision import autocast
from repl_rl.engines.row_attention import Run
from repl_rl.engines.row_cache import RowCache, context_tokens
from repl_rl.errors import ConfigError, EngineError

_COLUMNS = 64
"""Rows have a multiple of this many columns, tokens."""

_FEW_RUNS = 4
"""Up to so many slices of the cache a GPU attends to one by one; more are copied together."""

_LARGE = 30_000_000
"""Weights from which on forwards outweigh the kernels, and take all cores. A token of 135 M weights
takes 7 ms of a core, a line of them about 100; a kernel runs most lines in a few."""

_TURNS = 8
"""Turns of the event loop between two steps. An answer takes several from a kernel's socket to the
next request; with fewer, its line would miss a step."""

_TRIAL = ((6, 11), (7, 12), (8, 13), (13, 15))
"""Lengths that the first and the last row grow to when a model is tried: prompts, tokens, chunks.
The two never have equal lengths: a model might rely on those."""


@dataclass(slots=True)
class _Request:
    ids: list[int]
    """Prompt, completion so far and what was sampled: grows by one token a step."""
    max_tokens: int
    rng: random.Random
    done: asyncio.Future[SampledLine]
    num_kept: int = 0
    """Leading ids whose keys its row held from the line before."""
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Row:
    index: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values the row holds."""
    request: _Request | None = None
    last_used: int = 0


class HFEngine:
    """See the module. `num_rows` bounds the lines in flight; more wait for a free row.

    Forwards compute in `dtype`; float32 leaves them to the model's weights. No id in
    `forbidden_ids` is ever sampled.
    Rows double their columns up to `row_tokens`, and grow beyond it only for a request that does.
    Raises ConfigError for a model that cannot go on from a row's keys and values.
    """

    def __init__(
        self,
        model: Any,  # a PreTrainedModel; transformers ships no types for what is used of it
        *,
        newline_ids: Set[int],
        eos_ids: Set[int],
        num_rows: int,
        row_tokens: int = 1 << 30,
        temperature: float = 1.0,
        forbidden_ids: Set[int] = frozenset(),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._model = model
        self._dtype = dtype
        self._newline_ids = newline_ids
        self._eos_ids = eos_ids
        self._policy = Policy(
            temperature=temperature, forbidden_ids=forbidden_ids, device=model.device
        )
        self._row_tokens = row_tokens
        self._is_closed = False
        self._rows = [_Row(index) for index in range(num_rows)]
        self._waiting: list[_Request] = []
        self._stepper: asyncio.Task[None] | None = None
        self._is_large = sum(weight.numel() for weight in model.parameters()) >= _LARGE
        self._version = 0
        self._clock = 0
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._context_tokens = context_tokens(model.config)
        self._cache = RowCache(
            model.config,
            num_rows=num_rows,
            capacity=_COLUMNS,
            dtype=None if dtype is torch.float32 else dtype,
        )
        self.num_sampled = 0
        """Tokens sampled since the engine was made."""
        self.prefix_tokens = (0, 0)
        """See `BusyEngine.prefix_tokens`."""
        text = model.config.get_text_config()
        self._reads_in_place = text._attn_implementation == "sdpa"
        row_attention.install()
        try:
            self._try_model()
        except ConfigError:
            if not self._reads_in_place:
                raise
            # This model does more with keys than hand them on.
            self._reads_in_place = False
            self._forget()
            self._try_model()

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """See `Engine.line`."""
        if self._is_closed:
            raise EngineError("the engine was closed")
        check_request(
            ids,
            max_tokens,
            vocabulary=self._vocabulary,
            context_tokens=self._context_tokens,
        )
        done: asyncio.Future[SampledLine] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(list(ids), max_tokens, random.Random(seed), done))
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.create_task(self._run())
        return await done

    async def sync(self, weights: Weights, *, version: int) -> None:
        """See `Engine.sync`: the model is the trainer's, so only cached keys and values go."""
        self._version = version
        for row in self._rows:
            row.cached = []

    async def sleep(self) -> None:
        """See `Engine.sleep`: what is cached is worth nothing once the weights have moved."""
        if self._stepper is not None:
            await asyncio.wait([self._stepper])
        self._forget()

    def _forget(self) -> None:
        """Drop all keys and values, and their memory."""
        for row in self._rows:
            row.cached = []
        self._cache.reset()

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        self._is_closed = True
        if self._stepper is not None:
            self._stepper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._stepper
        self._fail(EngineError("the engine was closed"))

    def _try_model(self) -> None:
        """ConfigError if logits from rows differ from those of one forward over everything.

        A model is judged by what it does, not by its name: some keep a state in place of keys, read
        positions off a padding mask or attend without any mask.
        """
        ids = [i % self._vocabulary for i in range(1, 1 + max(map(max, _TRIAL)))]
        rows = self._rows[:1] if len(self._rows) == 1 else [self._rows[0], self._rows[-1]]
        stops = [lengths[: len(rows)] for lengths in _TRIAL]
        try:
            with self._model_borrowed(), torch.no_grad(), autocast(self._model.device, self._dtype):
                whole = self._model(input_ids=torch.tensor([ids], device=self._model.device))
                found = [self._forward(rows, [ids[:stop] for stop in each]) for each in stops]
            expected = whole.logits[0, torch.tensor(stops) - 1].float()  # (4, rows, V)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise self._refusal(f"{type(error).__name__}: {reason}") from error
        for row in rows:
            row.cached = []
        gap = (torch.stack(found).float() - expected).abs().max().item()
        spread = expected.std().item()
        # Wrong keys move logits by about their spread; rounding to half precision moves them by a
        # few hundredths of it.
        is_exact = self._model.dtype is torch.float32 and self._dtype is torch.float32
        if gap > (0.01 if is_exact else 0.5) * spread:
            raise self._refusal(f"logits are off by {gap:.2g}, their spread is {spread:.2g}")

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(
            f"the engine 'hf' cannot go on from cached keys and values with a "
            f"{self._model.config.model_type} model ({reason}); give a model of full or sliding "
            f"attention that takes a mask, with attn_implementation 'sdpa' or 'eager'"
        )

    async def _run(self) -> None:
        try:
            while self._admit():
                # Given back before anything is awaited: the event loop may stop there while the
                # trainer is at work on the model.
                with self._model_borrowed():
                    for rows in self._batches():
                        self._step(rows)
                # Lines whose kernels have answered join before the next step.
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        # A model may raise anything, and a line that nobody answers would wait for ever.
        except Exception as error:  # noqa: BLE001
            self._fail(EngineError(f"the model's forward failed: {error!r}"))

    @contextlib.contextmanager
    def _model_borrowed(self) -> Iterator[None]:
        """The trainer's model in evaluation mode, with a thread less if small; all put back."""
        was_training, num_threads = self._model.training, torch.get_num_threads()
        config = self._model.config.get_text_config()
        attention = config._attn_implementation
        self._model.eval()
        if self._reads_in_place:
            config._attn_implementation = row_attention.NAME
        if not self._is_large:
            # One core is the kernels': a thread that loses its core holds up all the others.
            torch.set_num_threads(max(1, num_threads - 1))
        try:
            yield
        finally:
            torch.set_num_threads(num_threads)
            config._attn_implementation = attention
            self._model.train(was_training)

    def _admit(self) -> bool:
        """Seat waiting requests on free rows; False when there is nothing left to do."""
        for row in self._rows:
            if row.request is not None and row.request.done.cancelled():
                # Its sampled tokens may never be asked for again; those before them may.
                del row.cached[row.request.num_kept :]
                row.request = None
        self._waiting = [request for request in self._waiting if not request.done.cancelled()]
        free = [row for row in self._rows if row.request is None]
        while self._waiting and free:
            request = self._waiting.pop(0)
            row = _best_row(free, request.ids)
            free.remove(row)
            # At least one token must go through the model to get the next one's distribution.
            num_kept = min(len(row.cached), len(request.ids) - 1)
            row.cached = row.cached[:num_kept] if _begins(request.ids, row.cached) else []
            request.num_kept = len(row.cached)
            num_kept, num_asked = self.prefix_tokens
            self.prefix_tokens = (num_kept + request.num_kept, num_asked + len(request.ids))
            row.request = request
        return any(row.request is not None for row in self._rows)

    def _batches(self) -> Iterator[list[_Row]]:
        """Rows with one new token and rows with several: two forwards without much padding."""
        active = [row for row in self._rows if row.request is not None]
        single = [row for row in active if _num_new(row) == 1]
        chunks = [row for row in active if _num_new(row) > 1]
        yield from (batch for batch in (single, chunks) if batch)

    # Not inference_mode: a buffer that a model makes or replaces in its forward (scaled rotary
    # frequencies, say) would become an inference tensor, which the trainer's backward refuses.
    @torch.no_grad()
    def _step(self, rows: list[_Row]) -> None:
        """Run the new tokens of `rows` through the model and sample one token for each."""
        requests = [row.request for row in rows if row.request is not None]
        logits = self._forward(rows, [request.ids for request in requests])  # (B, V)
        logprobs = self._policy.logprobs(logits)
        drawn = self._policy.draw(logprobs, [request.rng.random() for request in requests])
        chosen = logprobs.gather(-1, drawn[:, None])[:, 0].tolist()
        if not all(map(math.isfinite, chosen)):
            raise FloatingPointError(NOT_FINITE)
        for row, token, logprob in zip(rows, drawn.tolist(), chosen, strict=True):
            self._take(row, token, logprob)

    def _forward(self, rows: list[_Row], ids: list[list[int]]) -> torch.Tensor:
        """Logits (B, V) after the last of each row's ids; the rows hold their keys from then on."""
        device = self._model.device
        width = max(len(one) - len(row.cached) for row, one in zip(rows, ids, strict=True))
        num_keys = max(map(len, ids))
        if num_keys > self._cache.capacity:
            self._grow(num_keys)
        # Padding stands on the left, so that the last column is every row's last token. It is
        # written to the spare column that no mask ever shows.
        tokens = [[0] * width for _ in rows]
        positions = [[0] * width for _ in rows]
        writes = [[self._cache.capacity] * width for _ in rows]
        for at, (row, one) in enumerate(zip(rows, ids, strict=True)):
            where = range(len(row.cached), len(one))
            tokens[at][width - len(where) :] = one[where.start :]
            positions[at][width - len(where) :] = where
            writes[at][width - len(where) :] = where
            row.cached.extend(one[where.start :])
        position_ids = torch.tensor(positions, device=device)  # (B, Q)
        runs = self._runs(rows)
        self._cache.view(
            torch.tensor([row.index for row in rows], device=device),
            torch.tensor(writes, device=device),
            num_keys=num_keys,
            is_whole=bool(runs),
        )
        with autocast(self._model.device, self._dtype), row_attention.in_view(runs):
            output = self._model(
                input_ids=torch.tensor(tokens, device=device),
                attention_mask=self._cache.mask(position_ids, dtype=self._model.dtype),
                position_ids=position_ids,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _runs(self, rows: list[_Row]) -> list[Run]:
        """Neighbours among `rows`; none where copying keys together is faster."""
        if not self._reads_in_place:
            return []
        runs: list[Run] = []
        for at, row in enumerate(rows):
            if runs and row.index == runs[-1].row + runs[-1].size:
                last = runs.pop()
                size, num_keys = last.size + 1, max(last.num_keys, len(row.cached))
                runs.append(last._replace(size=size, num_keys=num_keys))
            else:
                runs.append(Run(at, row.index, 1, len(row.cached)))
        # Each is a kernel launch of its own, in every layer.
        is_few = self._model.device.type == "cpu" or len(runs) <= _FEW_RUNS
        return runs if is_few else []

    def _grow(self, num_keys: int) -> None:
        """Double the columns: each is copied about once, however long the rows become."""
        needed = -(-num_keys // _COLUMNS) * _COLUMNS
        self._cache.grow(max(needed, min(2 * self._cache.capacity, self._row_tokens)))

    def _take(self, row: _Row, token: int, logprob: float) -> None:
        request = row.request
        assert request is not None
        self.num_sampled += 1
        request.ids.append(token)
        request.sampled.append(token)
        request.logprobs.append(logprob)
        is_end = token in self._newline_ids or token in self._eos_ids
        if not is_end and len(request.sampled) < request.max_tokens:
            return
        row.request = None
        self._clock += 1
        row.last_used = self._clock
        if not request.done.done():
            request.done.set_result(
                SampledLine(
                    ids=tuple(request.sampled),
                    logprobs=tuple(request.logprobs),
                    end=line_end(token, newline_ids=self._newline_ids, eos_ids=self._eos_ids),
                    policy_version=self._version,
                )
            )

    def _fail(self, error: EngineError) -> None:
        requests = [*self._waiting, *(row.request for row in self._rows if row.request is not None)]
        self._waiting = []
        for row in self._rows:
            row.request = None
        # A mask does not hide a NaN: 0 times NaN is NaN.
        self._forget()
        for request in requests:
            if not request.done.done():
                request.done.set_exception(error)


def _num_new(row: _Row) -> int:
    assert row.request is not None
    return len(row.request.ids) - len(row.cached)


def _begins(ids: list[int], prefix: list[int]) -> bool:
    return ids[: len(prefix)] == prefix


def _best_row(free: list[_Row], ids: list[int]) -> _Row:
    """The free row that holds most of `ids`, or the one unused for longest."""
    if matches := [row for row in free if row.cached and _begins(ids, row.cached)]:
        return max(matches, key=lambda row: len(row.cached))
    return min(free, key=lambda row: row.last_used)
