"""What a key asked for, while it runs: one errand at a time, some of which may be called off.

Knows tasks and time. Does not know walks or screens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

Command = Coroutine[None, None, str | None]
"""It comes back with what there is to say."""


class CalledOff(Exception):
    """Somebody had it end early."""


class Errand:
    """`begin`, `outcome`, `end`; `call_off` in between ends it early."""

    def __init__(self) -> None:
        self._task: asyncio.Task[str | None] | None = None
        self._doing, self._since = "", 0.0
        self.can_stop = False

    @property
    def is_on(self) -> bool:
        return self._task is not None

    def begin(self, doing: str, command: Command, *, can_stop: bool) -> None:
        """`doing` says in words what it is."""
        assert self._task is None, "one at a time"
        self._doing, self._since, self.can_stop = doing, time.monotonic(), can_stop
        self._task = asyncio.create_task(command)

    async def outcome(self) -> str | None:
        """What it has to say. Raises what it raises, and CalledOff."""
        assert self._task is not None, "nothing was begun"
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()  # where who waits is ended itself
            self.can_stop = False
        if self._task.cancelled():
            raise CalledOff
        return self._task.result()

    def call_off(self) -> None:
        """Have it end early, where that may be done."""
        if self._task is not None and self.can_stop:
            self._task.cancel()
            self.can_stop = False  # it may have something to clean up, which must come to its end

    def end(self) -> None:
        self._task, self.can_stop = None, False

    def __str__(self) -> str:
        return f"{self._doing} ... {time.monotonic() - self._since:.0f} s"
