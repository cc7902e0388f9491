"""An engine whose working time is counted: that in which at least one line is in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repl_rl.engines.base import EngineWrapper, SampledLine


@dataclass
class BusyEngine(EngineWrapper):
    """Passes everything on."""

    clock: Callable[[], float] = time.monotonic
    busy_s: float = 0.0
    """Seconds since the engine was made in which a line was in flight."""
    _num_lines: int = 0
    """In flight."""
    _since: float = 0.0

    @property
    def prefix_tokens(self) -> tuple[int, int]:
        """(tokens that needed no forward, tokens that lines were asked for after).

        Both 0 for an engine that does not count them.
        """
        found: tuple[int, int] = getattr(self.engine, "prefix_tokens", (0, 0))
        return found

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
