"""What the seconds of a step go into: at every moment exactly one part.

begin("sync") ... begin("rollout") ... begin("update") ... take() -> seconds by part
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Laps:
    """A clock that always counts for one part, from the first `begin` on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._part: str | None = None
        self._since = 0.0
        self._seconds: dict[str, float] = {}

    def begin(self, part: str) -> None:
        """From here on the time goes to `part`."""
        now = self._clock()
        if self._part is not None:
            self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now

    def take(self, then: str) -> dict[str, float]:
        """Seconds by part since the last `take`; what follows goes to `then`."""
        self.begin(then)
        taken, self._seconds = self._seconds, {}
        return taken
