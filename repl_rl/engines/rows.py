"""The rows of a cache and the requests on them: which tokens a row holds, and who takes it next.

Knows ids, and keeps the logits behind a prompt. Does not know keys, models or sampling.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import torch

from repl_rl.engines.base import SampledLine


@dataclass(slots=True, eq=False)
class Request:
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
class Row:
    index: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values the row holds."""
    request: Request | None = None
    last_used: int = 0
    turn: int = 0
    """Who has a lower one was given its request before."""

    @property
    def num_new(self) -> int:
        """Ids of its request that it does not hold."""
        assert self.request is not None
        return len(self.request.ids) - len(self.cached)

    def holds(self, ids: list[int]) -> bool:
        """Whether these are its first tokens."""
        return self.cached[: len(ids)] == ids


def best_row(free: list[Row], ids: list[int]) -> Row:
    """The free row that holds most of `ids`, or the one unused for longest."""
    if matches := [row for row in free if row.cached and _begins(row.cached, ids)]:
        return max(matches, key=lambda row: len(row.cached))
    return min(free, key=lambda row: row.last_used)


def _begins(held: list[int], ids: list[int]) -> bool:
    """Say whether a list that is not empty begins another; most fail at their last token."""
    num = len(held)
    return num <= len(ids) and held[-1] == ids[num - 1] and ids[:num] == held


class Prompts:
    """What rows read from the first token on: who holds it, and what follows it.

    A prompt is read in one piece, or in two where `beginning` is known. Only whole pieces are given
    to others. The last bits of a key depend on where a piece was cut, and which other rows are
    there, to be cut at, depends on how fast kernels answer.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._known: dict[tuple[int, ...], tuple[Row, torch.Tensor]] = {}
        self.beginning: list[int] = []
        """What prompts begin with; a piece of its own."""

    def add(self, ids: list[int], row: Row, logits: torch.Tensor) -> None:
        """`row` holds these, and these logits (V,) follow them; the oldest of too many is lost."""
        if len(self._known) == self._most:
            del self._known[next(iter(self._known))]
        self._known[tuple(ids)] = row, logits

    def find(self, ids: list[int]) -> tuple[Row, torch.Tensor] | None:
        """Who holds exactly these among its first tokens, and the logits after them."""
        found = self._known.get(tuple(ids))
        return found if found and found[0].holds(ids) else None

    def goes_on(self, ids: list[int]) -> bool:
        """Whether these are the beginning and more."""
        num = len(self.beginning)
        return 0 < num < len(ids) and ids[:num] == self.beginning

    def piece(self, row: Row) -> list[int]:
        """What a row is to hold after the next forward: all of its request, or the beginning."""
        assert row.request is not None
        # A row that holds less than the beginning is on its way through it.
        is_first = len(row.cached) < len(self.beginning) and self.goes_on(row.request.ids)
        return self.beginning if is_first else row.request.ids

    def is_at_start(self, row: Row) -> bool:
        """Say whether a row with a request reads a prompt next: it holds nothing, or the beginning.

        Also where it is on its way through the prompt, and has not drawn from what follows it.
        """
        request, held = row.request, row.cached
        if request is not None and not request.sampled:
            held = held[: request.num_kept]
        return not held or held == self.beginning

    def reading(self, rows: list[Row]) -> list[Row]:
        """Return those of `rows` that read a prompt next."""
        return [row for row in rows if row.request is not None and self.is_at_start(row)]

    def is_being_read(self, ids: list[int], reading: list[Row]) -> bool:
        """Say whether one of those that read a prompt reads what a request of these ids could be
        given."""
        return any(
            row.request is not None
            and (
                row.request.ids == ids or (self.goes_on(ids) and self.piece(row) is self.beginning)
            )
            for row in reading
        )

    def kept(self, row: Row, ids: list[int]) -> list[int]:
        """What a row keeps of what it holds, for a request of these ids."""
        # At least one token must go through the model to get the next one's distribution.
        num = min(len(row.cached), len(ids) - 1)
        kept = row.cached[:num] if ids[: len(row.cached)] == row.cached else []
        if len(kept) < len(self.beginning) and self.goes_on(ids):
            kept = self.beginning if row.holds(self.beginning) else []
        return list(kept)

    def lent(self, row: Row, ids: list[int], rows: list[Row]) -> tuple[Row, list[int]] | None:
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
