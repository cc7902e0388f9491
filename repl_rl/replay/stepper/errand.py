"""The command of a key while it runs: one errand at a time. Some may be called off.

Knows tasks and time. Does not know walks or screens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

Command = Coroutine[None, None, str | None]
"""Returns a message, None where there is nothing to say."""


class CalledOff(Exception):
    """The person ended the errand early."""


class Errand:
    """`begin`, `outcome`, `end`; `call_off` in between ends it early."""

    def __init__(self) -> None:
        self._task: asyncio.Task[str | None] | None = None
        self.doing, self._since = "", 0.0
        self.can_stop = False

    @property
    def is_on(self) -> bool:
        return self._task is not None

    def begin(self, doing: str, command: Command, *, can_stop: bool) -> None:
        """`doing` says in words what it is."""
        assert self._task is None, "one at a time"
        self.doing, self._since, self.can_stop = doing, time.monotonic(), can_stop
        self._task = asyncio.create_task(command)

    async def outcome(self) -> str | None:
        """The message of the command. Raises what the command raises, and CalledOff."""
        assert self._task is not None, "nothing was begun"
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()  # in case this wait is cancelled itself
            self.can_stop = False
        if self._task.cancelled():
            raise CalledOff
        return self._task.result()

    def call_off(self) -> None:
        """End the command early, if it may be called off."""
        if self._task is not None and self.can_stop:
            self._task.cancel()
            self.can_stop = False  # its cleanup must run to the end

    def end(self) -> None:
        self._task, self.can_stop = None, False

    def __str__(self) -> str:
        return f"{self.doing} ... {time.monotonic() - self._since:.0f} s"
