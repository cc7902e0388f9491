"""Where a person's kernel comes from: a fork server of its own, or one that stays.

    Configuration -> the resident server, if it has such kernels -> Newborn
                  -> a fork server that is started for it         -> Newborn

Knows both. Does not know who asks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from repl_sandbox.host.started_kernel import Newborn
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.resident_client import BIRTH_TIMEOUT_S, ResidentClient

if TYPE_CHECKING:
    from repl_sandbox.host.fork_server_client import ZygoteLink


class Origin(Protocol):
    """One kernel at a time comes from it."""

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> Newborn:
        """A kernel whose messages `key` signs. SandboxError if there is none.

        folder: that of the last one, which has ended: the new one's sockets have the same names.
        """
        ...

    async def aclose(self) -> None:
        """End what came from it. Safe to call twice."""
        ...


async def find_origin(configuration: Configuration) -> Origin:
    """The resident server if there is one with such kernels, else one that is started."""
    client = await asyncio.to_thread(ResidentClient.find, configuration)
    return FromOwnServer(configuration) if client is None else FromResident(client)


class FromOwnServer:
    """A fork server for this kernel alone, which ends with it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.link: ZygoteLink | None = None

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> Newborn:
        if self.link is None:
            self.link = await self._configuration.start_server()
        self.link.order(key=key, folder=folder, is_console=True)
        return await self.link.newborn(timeout_s=BIRTH_TIMEOUT_S, is_console=True)

    async def aclose(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            await link.aclose()


class FromResident:
    """A resident server's, asked in a thread."""

    def __init__(self, client: ResidentClient) -> None:
        self._client = client

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> Newborn:
        """See `Origin`; the server ends the last one and takes its folder by itself."""
        return await asyncio.to_thread(self._client.kernel, key)

    async def aclose(self) -> None:
        self._client.close()
