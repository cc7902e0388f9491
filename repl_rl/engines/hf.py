"""Sample lines with a transformers model in this process: the default engine.

    line(ids) -> a row of the KV cache -> steps shared with all other lines -> SampledLine

Floor 2. Tokens only: knows no text, no kernel, no reward. Shares its weights with the trainer, so
there is nothing to copy after an update: `sync` drops the cached keys and values.

One step is one forward over the rows that have a token to add and one over the rows that come back
with an observation. A row stays on its trajectory's keys between lines; it is found again by its
tokens (the longest row whose tokens begin the request), so there is no session to open or close,
and a row that was given away in the meantime costs a prefill, never a wrong token.
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

from repl_rl.engines.base import SampledLine, line_end
from repl_rl.engines.row_cache import RowCache
from repl_rl.errors import EngineError

_COLUMNS = 64
"""Rows have a multiple of this many columns, tokens."""


@dataclass(slots=True)
class _Request:
    ids: list[int]
    """Prompt, completion so far and what was sampled: grows by one token a step."""
    max_tokens: int
    rng: random.Random
    done: asyncio.Future[SampledLine]
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

    Rows double their columns up to `row_tokens`, and grow beyond it only for a request that does.
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
    ) -> None:
        self._model = model
        self._newline_ids = newline_ids
        self._eos_ids = eos_ids
        self._temperature = temperature
        self._row_tokens = row_tokens
        self._is_closed = False
        self._rows = [_Row(index) for index in range(num_rows)]
        self._waiting: list[_Request] = []
        self._stepper: asyncio.Task[None] | None = None
        self._version = 0
        self._clock = 0
        self._cache = RowCache(
            num_layers=model.config.get_text_config().num_hidden_layers,
            num_rows=num_rows,
            capacity=_COLUMNS,
        )
        self.num_sampled = 0
        """Tokens sampled since the engine was made."""

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """See `Engine.line`."""
        if self._is_closed:
            raise EngineError("the engine was closed")
        done: asyncio.Future[SampledLine] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(list(ids), max_tokens, random.Random(seed), done))
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.create_task(self._run())
        return await done

    def sync(self, version: int) -> None:
        """The weights have changed: forget every key and value made with the old ones."""
        self._version = version
        for row in self._rows:
            row.cached = []

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        self._is_closed = True
        if self._stepper is not None:
            self._stepper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._stepper
        self._fail(EngineError("the engine was closed"))
        self._cache.clear()

    async def _run(self) -> None:
        was_training, num_threads = self._model.training, torch.get_num_threads()
        self._model.eval()
        # One core is the kernels': threads that wait for one that lost its core cost all of them.
        torch.set_num_threads(max(1, num_threads - 1))
        try:
            while self._admit():
                for rows in self._batches():
                    self._step(rows)
                # Kernels that answered in the meantime get their say before the next step.
                await asyncio.sleep(0)
        # A model may raise anything, and a line that nobody answers would wait for ever.
        except Exception as error:  # noqa: BLE001
            self._fail(EngineError(f"the model's forward failed: {error!r}"))
        finally:
            torch.set_num_threads(num_threads)
            self._model.train(was_training)

    def _admit(self) -> bool:
        """Seat waiting requests on free rows; False when there is nothing left to do."""
        for row in self._rows:
            if row.request is not None and row.request.done.cancelled():
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
        logits = self._forward(rows).float() / self._temperature  # (B, V)
        logprobs = torch.log_softmax(logits, dim=-1)
        # Inverse transform with one uniform number a row: what a row draws depends on its own
        # seed alone, never on what else is in the batch.
        uniform = torch.tensor(
            [row.request.rng.random() for row in rows if row.request is not None],
            dtype=torch.float64,
            device=logprobs.device,
        )
        cumulative = logprobs.double().exp().cumsum(-1)
        drawn = (cumulative < uniform[:, None] * cumulative[:, -1:]).sum(-1)
        drawn = drawn.clamp_max(logits.shape[-1] - 1)
        chosen = logprobs.gather(-1, drawn[:, None])[:, 0].tolist()
        if not all(map(math.isfinite, chosen)):
            raise FloatingPointError("logits are not finite: the weights have diverged")
        for row, token, logprob in zip(rows, drawn.tolist(), chosen, strict=True):
            self._take(row, token, logprob)

    def _forward(self, rows: list[_Row]) -> torch.Tensor:
        """Logits (B, V) after the last token of each row; its keys and values stay in the cache."""
        device = self._model.device
        width = max(_num_new(row) for row in rows)
        num_keys = max(len(row.request.ids) for row in rows if row.request is not None)
        if num_keys > self._cache.capacity:
            self._grow(num_keys)
        in_place = _in_place(rows)
        size = rows[-1].index + 1 if in_place else len(rows)
        # Padding stands on the left, so that the last column is every row's last token. It is
        # written to the spare column that no mask ever shows. Idle rows are padding throughout.
        tokens = [[0] * width for _ in range(size)]
        positions = [[0] * width for _ in range(size)]
        writes = [[self._cache.capacity] * width for _ in range(size)]
        places = [row.index if in_place else place for place, row in enumerate(rows)]
        for place, row in zip(places, rows, strict=True):
            assert row.request is not None
            where = range(len(row.cached), len(row.request.ids))
            tokens[place][width - len(where) :] = row.request.ids[where.start :]
            positions[place][width - len(where) :] = where
            writes[place][width - len(where) :] = where
            row.cached.extend(row.request.ids[where.start :])
        position_ids = torch.tensor(positions, device=device)  # (B, Q)
        self._cache.view(
            None if in_place else torch.tensor([row.index for row in rows], device=device),
            torch.tensor(writes, device=device),
            num_keys=num_keys,
        )
        keys = torch.arange(num_keys, device=device)
        mask = keys <= position_ids[:, None, :, None]  # (B, 1, Q, K)
        # The trainer's forward is under the same autocast: both sides must agree on a logprob.
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            output = self._model(
                input_ids=torch.tensor(tokens, device=device),
                attention_mask=mask,
                position_ids=position_ids,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits: torch.Tensor = output.logits[places, -1]
        return logits

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
            row.cached = []
        for request in requests:
            if not request.done.done():
                request.done.set_exception(error)


def _num_new(row: _Row) -> int:
    assert row.request is not None
    return len(row.request.ids) - len(row.cached)


def _in_place(rows: list[_Row]) -> bool:
    """Whether to run idle rows along and read the cache in place rather than copy keys together.

    The copy is the dearest part of a step where models are small: worth up to 40 % idle rows.
    """
    return len(rows) >= 0.6 * (rows[-1].index + 1)


def _begins(ids: list[int], prefix: list[int]) -> bool:
    return ids[: len(prefix)] == prefix


def _best_row(free: list[_Row], ids: list[int]) -> _Row:
    """The free row that holds most of `ids`, or the one unused for longest."""
    matches = [row for row in free if row.cached and _begins(ids, row.cached)]
    if matches:
        return max(matches, key=lambda row: len(row.cached))
    return min(free, key=lambda row: row.last_used)
