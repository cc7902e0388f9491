"""What an engine does: extend a list of token ids to the end of a line.

Floor 2. Tokens only: an engine knows no text, no kernel, no reward.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class LineEnd(StrEnum):
    """Why a line ended; decided by its last token."""

    NEWLINE = "newline"
    EOS = "eos"
    LENGTH = "length"


def line_end(last_id: int, *, newline_ids: Set[int], eos_ids: Set[int]) -> LineEnd:
    """How a line ended, told from its last token alone."""
    if last_id in newline_ids:
        return LineEnd.NEWLINE
    return LineEnd.EOS if last_id in eos_ids else LineEnd.LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLine:
    ids: tuple[int, ...]  # [N], N >= 1
    """The sampled tokens, the one that ended the line among them."""
    logprobs: tuple[float, ...]  # [N]
    """Log-probability of each under the distribution it was drawn from, in nats."""
    end: LineEnd
    policy_version: int
    """Optimiser steps behind the weights that sampled the line."""


class Engine(Protocol):
    """Many trajectories wait on one engine; none waits for another."""

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """Sample after `ids` up to a newline id, an end-of-sequence id or `max_tokens` >= 1.

        The same ids, seed and weights give the same line, whatever else is in flight.
        Raises EngineError if the engine cannot go on, ConfigError for a request that it cannot
        serve; one that is cancelled or refused leaves no trace in others.
        """
        ...

    async def aclose(self) -> None:
        """Free what the engine holds; again, nothing. Lines in flight end in EngineError."""
        ...
