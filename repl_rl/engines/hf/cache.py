"""A KV cache with one row per trajectory, a row for a request, and the batch of one forward.

    request -> best_row, Prompts -> Row -> RowCache: written anywhere, never shifted

Rows keep their keys and values between lines, so resuming a trajectory computes nothing twice. A
forward names its rows and, per token, the position to write; a token sees what its row holds up to
its own position, so leftovers of an earlier use are never visible. A row also keeps what a sliding
window has passed: the mask of such a layer hides it.

A `Batch` is the tokens that a forward computes, and where their keys and values are written.
Packed, all tokens stand one behind the other (B = 1): it takes an attention that finds keys by
itself. Padded, each row of the cache has a row of the batch.

A packed batch gives each token the same bits whatever else is in it. So what a trajectory is does
not depend on how fast the kernels of others answer, and a run that goes on after a stop samples
what it would have sampled. Found out on x86 with MKL, for one thread and for two:

- A product with fewer than 4 rows for a thread adds up in another order: a batch has at least 6.
- Elementwise functions go 32 numbers at a time, and differ in the last bit in what is left over: a
  batch has a multiple of 4 tokens, which have a multiple of 8 numbers in any model.
- Sums over keys go 16 at a time: a row looks back on a multiple of 64 columns. Those behind its own
  are masked, and add zeros.

Knows `transformers`' cache protocol and the ids that a row holds. Does not know the model or
sampling.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from repl_rl.engines.base import SampledLine
from repl_rl.models.loading import attention_windows

# B rows of a forward, Q new tokens per row, H key-value heads, K keys in view, D head dimension


class KeyLayer(CacheLayerMixin):
    """Keys and values of one layer, [rows, H, columns, D]; the last column takes padding."""

    def __init__(self, cache: KeyCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped upstream
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = self._cache.zeros(key_states), self._cache.zeros(value_states)
        self.is_initialized = True

    def tensors(self, *states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values, with room for states like these."""
        if not self.is_initialized:
            self.lazy_initialization(*states)
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.num_keys, 0

    def get_seq_length(self) -> int:
        return self._cache.num_keys

    def get_max_length(self) -> int:
        return self._cache.capacity

    get_max_cache_shape = get_max_length
    """The name in transformers 5.10, the oldest that is taken."""


class KeyCache(Cache):
    """All layers' keys and values, in `dtype`.

    None: as they come, which may be float32 under autocast, since rotary positions are computed in
    it.
    """

    capacity: int
    """Columns that tokens may have."""
    num_keys: int
    """Columns in sight of the next forward."""

    def __init__(
        self, config: Any, *, num_rows: int, num_columns: int, dtype: torch.dtype | None
    ) -> None:
        self.kept_in = dtype  # not `dtype`: accelerate takes what has one for a tensor
        self.num_rows = num_rows
        self.num_columns = num_columns
        self._config = config.get_text_config()
        self._windows = attention_windows(config)
        self._layers = [self.make_layer() for _ in range(self._config.num_hidden_layers)]
        super().__init__(layers=list(self._layers))

    def make_layer(self) -> KeyLayer:
        """Make a layer of the kind that this cache has."""
        raise NotImplementedError

    def zeros(self, like: torch.Tensor) -> torch.Tensor:
        """Room for states (B, H, Q, D) of every row and column."""
        shape = (self.num_rows, like.shape[1], self.num_columns, like.shape[3])
        return torch.zeros(shape, dtype=self.kept_in or like.dtype, device=like.device)

    def held(self) -> Iterator[torch.Tensor]:
        """Keys and values of each layer that has any."""
        for layer in self._layers:
            yield from (one for one in (layer.keys, layer.values) if one is not None)

    def _move(self) -> None:
        """Let layers have as many rows and columns as they should; what they hold stays."""
        for layer in self._layers:
            if layer.is_initialized:
                layer.keys, layer.values = map(self._moved, layer.tensors())

    def _moved(self, old: torch.Tensor) -> torch.Tensor:
        new, num_columns = self.zeros(old), min(old.shape[2], self.num_columns) - 1
        new[: len(old), :, :num_columns] = old[:, :, :num_columns]
        return new

    def copy(self, source: int, target: int, *, num_keys: int) -> None:
        """Give the row `target` the first keys and values that the row `source` holds."""
        for tensor in self.held():
            tensor[target, :, :num_keys] = tensor[source, :, :num_keys]

    def seen(self, at: torch.Tensor, columns: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Kinds of layers, and for each whether tokens at a position see these columns (K,)."""
        for kind, window in self._windows.items():
            seen = columns <= at
            if window is not None and window < len(columns):
                seen = seen & (columns > at - window)
            yield kind, seen


Masks = torch.Tensor | dict[str, torch.Tensor]
"""A mask, or where a model has two kinds of layers one for each kind."""


def for_model(masks: dict[str, torch.Tensor]) -> Masks:
    """Masks in the form that a model takes."""
    return masks if len(masks) > 1 else masks.popitem()[1]


class _RowLayer(KeyLayer):
    _cache: RowCache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (B, H, Q, D) states at their positions; keys and values of the rows, (B, H, K, D).

        Those of all rows, in place, where the view is a whole one.
        """
        keys, values = self.tensors(key_states, value_states)
        rows, positions, num_keys = self._cache.rows, self._cache.positions, self._cache.num_keys
        keys[rows, :, positions] = key_states.transpose(1, 2).to(keys.dtype)
        values[rows, :, positions] = value_states.transpose(1, 2).to(values.dtype)
        if self._cache.is_whole:
            return keys, values
        return keys[rows[:, 0], :, :num_keys], values[rows[:, 0], :, :num_keys]


class RowCache(KeyCache):
    """All layers' rows. `view` says what the next forward works on, `mask` what its tokens see.

    It holds the first ones of `most_rows`, as many as `make_rows` was asked for, now or between the
    last two resets.
    """

    def __init__(
        self, config: Any, *, most_rows: int, capacity: int, dtype: torch.dtype | None = None
    ) -> None:
        self.capacity = capacity
        self.most_rows = most_rows
        self._num_asked = 0
        self.rows = torch.empty(0, dtype=torch.long)  # (1, Q) or (B, 1)
        self.positions = torch.empty(0, dtype=torch.long)  # (B, Q)
        self.num_keys = 0
        self.is_whole = False
        super().__init__(config, num_rows=0, num_columns=capacity + 1, dtype=dtype)

    def make_layer(self) -> KeyLayer:
        return _RowLayer(self)

    def make_rows(self, count: int) -> None:
        """Hold `count` rows, or twice as many as before: each is moved about once."""
        self._num_asked = max(self._num_asked, count)
        if count > self.num_rows:
            self.num_rows = max(count, min(2 * self.num_rows, self.most_rows))
            self._move()

    def view(
        self, rows: torch.Tensor, positions: torch.Tensor, *, num_keys: int, is_whole: bool
    ) -> None:
        """Set rows and write positions (B, Q) of the next forward; keys in sight: num_keys.

        A whole view is for an attention that finds the rows by itself, and each token has a row,
        (1, Q). For any other, the keys of rows (B, 1) are copied together.
        """
        self.rows, self.positions, self.num_keys = rows, positions, num_keys
        self.is_whole = is_whole

    def mask(self, positions: torch.Tensor, *, dtype: torch.dtype) -> Masks:
        """The keys in sight that tokens at `positions` (B, Q) see, (B, 1, Q, K).

        In the form that the model's attention takes; by kind of layer where it has two kinds.
        """
        columns = torch.arange(self.num_keys, device=positions.device)
        masks = dict(self.seen(positions[:, None, :, None], columns))
        if self._config._attn_implementation == "eager":
            # Added to the scores: a boolean mask would hide nothing.
            for kind, seen in masks.items():
                bias = torch.zeros_like(seen, dtype=dtype)
                masks[kind] = bias.masked_fill(~seen, torch.finfo(dtype).min)
        return for_model(masks)

    def grow(self, capacity: int) -> None:
        """Make room for longer rows; what they hold stays."""
        self.capacity, self.num_columns = capacity, capacity + 1
        self._move()

    def reset(self) -> None:
        """Give the memory back; the next forward takes it anew, all zeros, for as many rows as
        were asked for since the last reset."""
        self.num_rows, self._num_asked = self._num_asked, 0
        for layer in self._layers:
            layer.keys = layer.values = None
            layer.is_initialized = False


@dataclass(slots=True, eq=False)
class LineRequest:
    ids: list[int]
    """Prompt, completion so far and what was sampled: grows by one token a step."""
    max_tokens: int
    rng: random.Random
    done: asyncio.Future[SampledLine]
    num_kept: int = 0
    """Leading ids whose keys its row held before it."""
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CacheRow:
    index: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values the row holds."""
    request: LineRequest | None = None
    last_used: int = 0
    turn: int = 0
    """Number of its turn: a row with a lower one got its request before."""

    @property
    def num_new(self) -> int:
        """Ids of its request that it does not hold."""
        assert self.request is not None
        return len(self.request.ids) - len(self.cached)

    def holds(self, ids: list[int]) -> bool:
        """Say whether these are the row's first tokens."""
        return self.cached[: len(ids)] == ids


def best_row(free: list[CacheRow], ids: list[int]) -> CacheRow:
    """The free row that holds most of `ids`, or the one unused for longest."""
    if matches := [row for row in free if row.cached and _begins(row.cached, ids)]:
        return max(matches, key=lambda row: len(row.cached))
    return min(free, key=lambda row: row.last_used)


def _begins(start: list[int], ids: list[int]) -> bool:
    """Say whether a list that is not empty begins another; most fail at their last token."""
    num = len(start)
    return num <= len(ids) and start[-1] == ids[num - 1] and ids[:num] == start


class Prompts:
    """Prompts that rows have read: the row that holds each, and the logits after it.

    A prompt is read in one piece, or in two where `beginning` is known. Only whole pieces are given
    to others. The last bits of a key depend on where a piece was cut, and which other rows are
    there, to be cut at, depends on how fast kernels answer.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._known: dict[tuple[int, ...], tuple[CacheRow, torch.Tensor]] = {}
        self.beginning: list[int] = []
        """Ids that prompts begin with; a piece of its own."""

    def add(self, ids: list[int], row: CacheRow, logits: torch.Tensor) -> None:
        """`row` holds these, and these logits (V,) follow them; the oldest of too many is lost."""
        if len(self._known) == self._most:
            del self._known[next(iter(self._known))]
        self._known[tuple(ids)] = row, logits

    def find(self, ids: list[int]) -> tuple[CacheRow, torch.Tensor] | None:
        """Find the row that read exactly these as a piece, and the logits after them."""
        entry = self._known.get(tuple(ids))
        return entry if entry and entry[0].holds(ids) else None

    def goes_on(self, ids: list[int]) -> bool:
        """Say whether these are the beginning and more."""
        num = len(self.beginning)
        return 0 < num < len(ids) and ids[:num] == self.beginning

    def piece(self, row: CacheRow) -> list[int]:
        """Ids for a row to hold after the next forward: all of its request, or the beginning."""
        assert row.request is not None
        # A row that holds less than the beginning is on its way through it.
        is_first = len(row.cached) < len(self.beginning) and self.goes_on(row.request.ids)
        return self.beginning if is_first else row.request.ids

    def is_at_start(self, row: CacheRow) -> bool:
        """Say whether a row with a request reads a prompt next: it holds nothing, or the beginning.

        Also where it is on its way through the prompt, and has not drawn from what follows it.
        """
        request, cached = row.request, row.cached
        if request is not None and not request.sampled:
            cached = cached[: request.num_kept]
        return not cached or cached == self.beginning

    def reading(self, rows: list[CacheRow]) -> list[CacheRow]:
        """Return those of `rows` that read a prompt next."""
        return [row for row in rows if row.request is not None and self.is_at_start(row)]

    def is_being_read(self, ids: list[int], reading: list[CacheRow]) -> bool:
        """Say whether one of those that read a prompt reads what a request of these ids could be
        given."""
        return any(
            row.request is not None
            and (
                row.request.ids == ids or (self.goes_on(ids) and self.piece(row) is self.beginning)
            )
            for row in reading
        )

    def kept(self, row: CacheRow, ids: list[int]) -> list[int]:
        """Ids that a row keeps for a request of these ids."""
        # At least one token must go through the model to get the next one's distribution.
        num = min(len(row.cached), len(ids) - 1)
        kept = row.cached[:num] if ids[: len(row.cached)] == row.cached else []
        if len(kept) < len(self.beginning) and self.goes_on(ids):
            kept = self.beginning if row.holds(self.beginning) else []
        return list(kept)

    def lent(
        self, row: CacheRow, ids: list[int], rows: list[CacheRow]
    ) -> tuple[CacheRow, list[int]] | None:
        """A row that holds more of a request of these ids than `row` kept, and what it gives of it.

        All but the last token, as where trajectories leave one another, or the beginning.
        """
        if len(row.cached) > len(self.beginning):
            return None
        for given in (ids[:-1], self.beginning if self.goes_on(ids) else []):
            for other in rows if len(given) > len(row.cached) else ():
                if other.holds(given):
                    return other, given
        return None

    def clear(self) -> None:
        self._known.clear()


COLUMNS = 64
"""Rows of a cache have a multiple of this many columns."""
_FEWEST_TOKENS = 6
_MULTIPLE = 4


class BatchPart(NamedTuple):
    """A row of the cache, and what it is to hold: at least one token more than it does."""

    row: int
    num_cached: int
    """Leading ids that the row holds."""
    ids: list[int]

    @property
    def num_new(self) -> int:
        return len(self.ids) - self.num_cached


class RowRun(NamedTuple):
    """Neighbouring rows of the cache whose tokens are neighbours in a packed batch."""

    at: int
    """Place of the first token, in the batch."""
    row: int
    """Index of the first row, in the cache."""
    size: int
    """Rows."""
    width: int
    """Tokens of each."""
    num_keys: int
    """Columns that they look back on: a multiple of `COLUMNS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward."""

    tokens: list[list[int]]  # [B][Q]
    positions: list[list[int]]  # [B][Q]
    rows: list[list[int]]  # [1][Q] or [B][1]
    """The rows of the cache that tokens are written to."""
    writes: list[list[int]]  # [B][Q]
    """Their columns."""
    ends: list[int]  # [P, or as many as are fewest], empty where padded: it is the last column
    """Place of each part's last token, from whose logits it goes on."""
    num_keys: int
    """Columns in sight of the token that sees most."""
    runs: list[RowRun]
    """Whose keys its tokens look back on; empty where padded."""


def packed(parts: Sequence[BatchPart], *, spare: int, num_threads: int) -> Batch:
    """All new tokens of `parts`, those with one new token first.

    Tokens and ends without a meaning make up for what is too few; they are written to the column
    `spare`.
    """
    fewest = _FEWEST_TOKENS * num_threads
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    ends = [0] * max(len(parts), fewest)
    runs: list[RowRun] = []
    for at in sorted(range(len(parts)), key=lambda at: (parts[at].num_new > 1, parts[at].row)):
        part, num_all = parts[at], len(parts[at].ids)
        num_keys = up_to_multiple(num_all, COLUMNS)
        _add(runs, RowRun(len(tokens), part.row, 1, part.num_new, num_keys))
        tokens += part.ids[part.num_cached :]
        positions += range(part.num_cached, num_all)
        rows += [part.row] * part.num_new
        ends[at] = len(tokens) - 1
    padding = [0] * (up_to_multiple(max(fewest, len(tokens)), _MULTIPLE) - len(tokens))
    return Batch(
        tokens=[tokens + padding],
        positions=[positions + padding],
        rows=[rows + padding],
        writes=[positions + [spare] * len(padding)],
        ends=ends,
        num_keys=max(run.num_keys for run in runs),
        runs=runs,
    )


def padded(parts: Sequence[BatchPart], *, spare: int) -> Batch:
    """A row for each part, padded on the left, so that the last column is each row's last token.

    Padding is written to the column `spare`.
    """
    width = max(part.num_new for part in parts)
    paddings = [width - part.num_new for part in parts]
    columns = [list(range(part.num_cached, len(part.ids))) for part in parts]
    return Batch(
        tokens=[
            [0] * padding + part.ids[part.num_cached :]
            for padding, part in zip(paddings, parts, strict=True)
        ],
        positions=[[0] * padding + own for padding, own in zip(paddings, columns, strict=True)],
        rows=[[part.row] for part in parts],
        writes=[[spare] * padding + own for padding, own in zip(paddings, columns, strict=True)],
        ends=[],
        num_keys=max(len(part.ids) for part in parts),
        runs=[],
    )


def up_to_multiple(number: int, unit: int) -> int:
    """The smallest multiple of `unit` that is not below `number`."""
    return -(-number // unit) * unit


def _add(runs: list[RowRun], run: RowRun) -> None:
    """Append a run of one row, or add it to the last one if they are neighbours of one token."""
    last = runs[-1] if runs else None
    if last is None or (last.row + last.size, last.width, run.width) != (run.row, 1, 1):
        runs.append(run)
        return
    num_keys = max(last.num_keys, run.num_keys)
    runs[-1] = last._replace(size=last.size + 1, num_keys=num_keys)
