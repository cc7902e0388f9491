"""A fork server whose kernels go to several clients, each to the one that asked for it.

    order with a key -> fork server -> Newborn with that key

Knows keys and turns. Does not know who asks, nor which of several servers is asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

from repl_sandbox.host.fork_server_client import ZygoteLink
from repl_sandbox.host.started_kernel import Newborn
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.resident_client import BIRTH_TIMEOUT_S
from repl_sandbox.walls.isolation import Walls

END_TIMEOUT_S = 5.0


class SharedServer:
    """Owner of the fork server."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.num_clients = 0
        """Those that may ask for kernels, and have not left."""
        self._link: ZygoteLink | None = None
        self._has_started = asyncio.Event()
        self._turn = asyncio.Lock()
        """The fork server answers orders in turn, and a key must meet its own kernel."""

    async def start(self) -> Walls | None:
        """The walls in force. SandboxError if it cannot be had."""
        self._link = await self.configuration.start_server()
        self._has_started.set()
        return self._link.walls

    @property
    def is_there(self) -> bool:
        """Whether it has started and was not closed."""
        return self._link is not None

    def has_failed(self) -> bool:
        """Whether it has ended by itself."""
        return self._link is not None and self._link.is_gone()

    async def wait(self) -> None:
        """Until it has started."""
        await self._has_started.wait()

    async def kernel(self, key: bytes, last: Newborn | None) -> Newborn:
        """A kernel whose messages `key` signs. SandboxError if there is none.

        last: one of this server's that has ended. The new one takes its place.
        """
        assert self._link is not None, "wait first"
        async with self._turn:
            folder = None if last is None else last.folder
            self._link.order(key=key, folder=folder, is_console=True)
            newborn = await _next(self._link)
            while newborn.key != key:  # it came after whoever had asked for it was gone
                await end(newborn)
                newborn.discard()
                newborn = await _next(self._link)
            if last is not None:
                os.close(last.pidfd)
            return newborn

    async def aclose(self) -> None:
        """End it and all its kernels. Safe to call twice, and before it has started."""
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()


async def _next(link: ZygoteLink) -> Newborn:
    return await link.newborn(timeout_s=BIRTH_TIMEOUT_S, is_console=True)


async def end(newborn: Newborn) -> None:
    """Kill it, and wait until it has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(newborn.pidfd, signal.SIGKILL)
    deadline = time.monotonic() + END_TIMEOUT_S
    # An exit sets no Event.
    while not newborn.has_ended() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
