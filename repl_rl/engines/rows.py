"""The rows of a cache and the requests on them: which tokens a row holds, and who takes it next.

Knows ids. Does not know keys, models or sampling.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from repl_rl.engines.base import SampledLine
from repl_rl.engines.row_batch import num_shared


@dataclass(slots=True)
class Request:
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
class Row:
    index: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values the row holds."""
    request: Request | None = None
    last_used: int = 0

    @property
    def num_new(self) -> int:
        """Ids of its request that it does not hold."""
        assert self.request is not None
        return len(self.request.ids) - len(self.cached)


def best_row(free: list[Row], ids: list[int]) -> Row:
    """The free row that holds most of `ids`, or the one unused for longest."""
    if matches := [row for row in free if row.cached and ids[: len(row.cached)] == row.cached]:
        return max(matches, key=lambda row: len(row.cached))
    return min(free, key=lambda row: row.last_used)


def holder_of(rows: Sequence[Row], ids: list[int], *, first: Row) -> tuple[Row, int]:
    """The row that holds most of the beginning of `ids`, and how many; `first` among equals."""
    holder, num_held = first, num_shared(first.cached, ids)
    for row in rows:
        if num_held == len(ids):
            break
        # One id tells nearly all rows that hold no more.
        if num_held < len(row.cached) and row.cached[num_held] == ids[num_held]:
            num = num_shared(row.cached, ids)
            holder, num_held = (row, num) if num > num_held else (holder, num_held)
    return holder, num_held
