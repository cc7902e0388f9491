"""An engine that samples what a script says: tests and demonstrations run the real loop with it.

Knows token ids; does not know models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repl_rl.engines.base import SampledLine, Weights, line_end
from repl_rl.transcript.tokens import Codec

Writer = Callable[[str], str]
"""Gets the text since the last line (the prompt at first), returns the next line, newline included;
a line without a newline ends the sequence."""


class ScriptedEngine:
    """One trajectory's engine: `write` is asked for a line whenever the loop wants one.

    Every token gets the log-probability 0.0: a script leaves no choice.
    """

    def __init__(self, codec: Codec, write: Writer) -> None:
        self._codec = codec
        self._write = write
        self._num_seen = 0
        self.num_sampled = 0

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        written = self._codec.encode(self._write(self._codec.decode(ids[self._num_seen :])))
        if not written or written[-1] not in self._codec.newline_ids:
            written.append(min(self._codec.eos_ids))
        sampled = tuple(written[:max_tokens])
        self._num_seen = len(ids) + len(sampled)
        self.num_sampled += len(sampled)
        codec = self._codec
        end = line_end(sampled[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        return SampledLine(ids=sampled, logprobs=(0.0,) * len(sampled), end=end, policy_version=0)

    async def sync(self, weights: Weights, *, version: int) -> None:
        pass

    async def sleep(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def script(*lines: str) -> Writer:
    r"""A writer of fixed lines, then the end of the sequence: `script(" x = 1\n", " x\n")`."""
    rest = iter(lines)
    return lambda _: next(rest, "")
