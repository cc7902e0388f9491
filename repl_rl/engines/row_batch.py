"""What goes through the model in one forward, and where its keys and values are written.

    rows and what they are to hold -> tokens (B, Q), their positions, writes -> a forward

Tokens and places alone. Does not know tensors, models or requests.

Packed, all tokens stand in one row (B = 1) without padding, and what several rows begin with stands
there once: it is written to all of them. It takes an attention that finds keys by itself. Padded,
each row of the cache has a row of the batch, but for rows that are to hold the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

# B rows of a forward, Q tokens in each, W writes, P parts


class Part(NamedTuple):
    """A row of the cache, and what it is to hold: at least one token more than it does."""

    row: int
    num_cached: int
    """Leading ids that the row holds."""
    ids: list[int]

    @property
    def num_new(self) -> int:
        return len(self.ids) - self.num_cached


class Run(NamedTuple):
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
    """Keys of the longest."""


class Write(NamedTuple):
    """Keys and values of one token, on their way to the cache."""

    slot: int
    """Of the token, in the batch: row * Q + column."""
    row: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward."""

    tokens: list[list[int]]  # [B][Q]
    positions: list[list[int]]  # [B][Q]
    writes: list[Write]  # [W]
    ends: list[int]  # [P]
    """Slot of each part's last token, from whose logits it goes on."""
    num_keys: int
    """Keys of the longest part."""
    rows: list[int]  # [B], empty where packed
    """The row of the cache that each row of the batch looks back on."""
    runs: list[Run]
    """Of a packed batch: whose keys its tokens look back on; empty where padded."""


def packed(parts: Sequence[Part]) -> Batch:
    """All new tokens of `parts` one after another, those with one new token first.

    A token is there once for all parts with the same tokens up to it.
    """
    tokens: list[int] = []
    positions: list[int] = []
    writes: list[Write] = []
    ends = [0] * len(parts)
    runs: list[Run] = []
    before, slots = Part(0, 0, []), list[int]()  # the part before, and those of its new tokens
    for at in sorted(range(len(parts)), key=lambda at: _place(parts[at])):
        part = parts[at]
        shared = _shared(part, before, slots)
        start, num_all = part.num_cached + len(shared), len(part.ids)
        if start < num_all:
            _add(runs, Run(len(tokens), part.row, 1, num_all - start, num_all))
        slots = [*shared, *range(len(tokens), len(tokens) + num_all - start)]
        tokens += part.ids[start:]
        positions += range(start, num_all)
        writes += map(Write, slots, repeat(part.row), range(part.num_cached, num_all))
        ends[at], before = slots[-1], part
    return Batch(
        tokens=[tokens],
        positions=[positions],
        writes=writes,
        ends=ends,
        num_keys=max(len(part.ids) for part in parts),
        rows=[],
        runs=runs,
    )


def padded(parts: Sequence[Part]) -> Batch:
    """A row for each part, padded on the left, so that the last column is each row's last token.

    Padding is written nowhere.
    """
    width = max(part.num_new for part in parts)
    places: dict[tuple[int, ...], int] = {}
    distinct: list[Part] = []
    writes: list[Write] = []
    ends: list[int] = []
    for part in parts:
        place = places.setdefault((part.num_cached, *part.ids), len(distinct))
        if place == len(distinct):
            distinct.append(part)
        ends.append(place * width + width - 1)
        slots = range(ends[-1] + 1 - part.num_new, ends[-1] + 1)
        writes += map(Write, slots, repeat(part.row), range(part.num_cached, len(part.ids)))
    paddings = [[0] * (width - part.num_new) for part in distinct]
    return Batch(
        tokens=[
            padding + part.ids[part.num_cached :]
            for padding, part in zip(paddings, distinct, strict=True)
        ],
        positions=[
            [*padding, *range(part.num_cached, len(part.ids))]
            for padding, part in zip(paddings, distinct, strict=True)
        ],
        writes=writes,
        ends=ends,
        num_keys=max(len(part.ids) for part in parts),
        rows=[part.row for part in distinct],
        runs=[],
    )


def num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Ids that both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _place(part: Part) -> tuple[bool, list[int]]:
    """Single tokens by their rows, to find neighbours; chunks by ids: shared ones come together."""
    return (False, [part.row]) if part.num_new == 1 else (True, part.ids)


def _shared(part: Part, before: Part, slots: list[int]) -> list[int]:
    """Slots of the first new tokens of `part`, as far as the part before has the same."""
    if part.num_new == 1 or before.num_cached > part.num_cached:
        return []
    num = num_shared(part.ids, before.ids)
    return slots[part.num_cached - before.num_cached : max(0, num - before.num_cached)]


def _add(runs: list[Run], run: Run) -> None:
    """Append a run of one row, or add it to the last one if they are neighbours of one token."""
    last = runs[-1] if runs else None
    if last is None or (last.row + last.size, last.width, run.width) != (run.row, 1, 1):
        runs.append(run)
        return
    num_keys = max(last.num_keys, run.num_keys)
    runs[-1] = last._replace(size=last.size + 1, num_keys=num_keys)
