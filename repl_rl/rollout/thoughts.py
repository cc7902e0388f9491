"""Sample a thought before the first line: pieces of an engine's, up to the marker that ends it.

    prompt -> [engine.line]* -> thought -> what asks for the first line

Knows tokens. Does not know kernels: nothing of a thought runs.
"""

from __future__ import annotations

import bisect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.errors import ConfigError
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.seeds import derive_seed
from repl_rl.transcript.format import Part

Ask = Callable[[list[int], int, int], Awaitable[SampledLine]]
"""Ids, the most tokens and a seed -> what an engine samples, up to a newline."""


async def think(
    built: TrajectoryBuilder, after: Sequence[Part], limits: SamplingConfig, ask: Ask, *, seed: int
) -> None:
    """Append a thought of at most `limits.max_think_tokens` and `after`, which asks for a line.

    A thought ends with its marker. At the limit, or where the policy ends the sequence, the marker
    is injected; the token that ended the sequence is dropped. Raises ConfigError where no room
    would be left for a line.
    """
    room = min(limits.max_think_tokens, _room(built, after, limits))
    pieces: list[SampledLine] = []
    ids: list[int] = []
    is_over = False
    while not is_over and len(ids) < room:
        piece_seed = derive_seed(seed, "thought", len(pieces))
        sampled = await ask([*built.ids, *ids], room - len(ids), piece_seed)
        piece, is_over = _kept(built, after, ids, sampled)
        pieces.append(piece)
        ids += piece.ids
    built.add_thought(*pieces, after=after)


def _room(built: TrajectoryBuilder, after: Sequence[Part], limits: SamplingConfig) -> int:
    """Tokens of a thought that leave one for a line."""
    needed = len(built.encoding.after_thought(after, "")[0]) + 1
    room = min(limits.max_tokens, built.context_tokens - built.num_prompt) - needed
    if room < 0:
        raise ConfigError(
            f"{needed} tokens end a thought and ask for a line, {room + needed} are left for a "
            f"trajectory; raise sampling.max_tokens, or set sampling.max_think_tokens = 0"
        )
    return room


def _kept(
    built: TrajectoryBuilder, after: Sequence[Part], ids: Sequence[int], sampled: SampledLine
) -> tuple[SampledLine, bool]:
    """(the part of a piece that belongs to the thought, whether the thought is over)."""
    decode, marker = built.encoding.codec.decode, built.encoding.thought_end(after)
    if marker in decode([*ids, *sampled.ids]):
        sizes = range(1, len(sampled.ids) + 1)
        at = bisect.bisect_left(
            sizes, x=True, key=lambda size: marker in decode([*ids, *sampled.ids[:size]])
        )
        return _cut(sampled, sizes[at]), True
    is_over = sampled.end is LineEnd.EOS
    return _cut(sampled, len(sampled.ids) - is_over), is_over


def _cut(sampled: SampledLine, size: int) -> SampledLine:
    return replace(sampled, ids=sampled.ids[:size], logprobs=sampled.logprobs[:size])
