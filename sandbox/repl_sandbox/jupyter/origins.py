"""Where a person's kernel comes from: a fork server of its own, or one that stays.

    Configuration -> the resident server, if it has such kernels -> Newborn
                  -> a fork server that is started for it         -> Newborn

A resident server (`repl_sandbox.jupyter.resident`) ends a kernel when the connection by which it
was asked for closes. So nothing is left behind by a client that was killed. Knows both. Does not
know who asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.newborn import Newborn
from repl_sandbox.sockets import MAX_PACKET_BYTES
from repl_sandbox.types import SandboxError

if TYPE_CHECKING:
    from repl_sandbox.zygote_link import ZygoteLink

BIRTH_TIMEOUT_S = 20.0


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
    resident = await asyncio.to_thread(connect, resident_address())
    if resident is not None:
        origin = FromResident(resident, configuration)
        if await origin.has_such():
            return origin
        await origin.aclose()
    return FromOwnServer(configuration)


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
    """The end of a connection to a resident server."""

    def __init__(self, connection: socket.socket, configuration: Configuration) -> None:
        self._connection = connection
        self._configuration = configuration

    async def has_such(self) -> bool:
        """Whether its kernels are of this configuration."""
        asked: dict[str, object] = {"configuration": self._configuration.as_json()}
        try:
            reply, _fds = await asyncio.to_thread(self._ask, asked)
        except SandboxError:
            return False
        return bool(reply.get("is_such"))

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> Newborn:
        """See `Origin`; the server ends the last one and takes its folder by itself."""
        reply, fds = await asyncio.to_thread(self._ask, {"key": key.decode()})
        if "error" in reply or not fds:
            raise SandboxError(str(reply.get("error", "the resident server sent no kernel")))
        place = Path(str(reply["folder"]))
        return Newborn(folder=place, key=key, pidfd=fds[0], is_console=True)

    async def aclose(self) -> None:
        self._connection.close()

    def _ask(self, request: dict[str, object]) -> tuple[dict[str, object], list[int]]:
        try:
            self._connection.send(json.dumps(request).encode())
            packet, fds, *_ = socket.recv_fds(self._connection, MAX_PACKET_BYTES, 1)
        except OSError as error:
            raise SandboxError(f"the resident server does not answer: {error}") from error
        if not packet:
            raise SandboxError("the resident server has ended")
        return json.loads(packet), fds


def resident_address() -> Path:
    """Where a resident server of this user listens."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) if base else Path(f"/tmp/repl-rl-{os.getuid()}")
    return folder / "repl-rl-kernels"


def connect(address: Path) -> socket.socket | None:
    """The end of a connection to the server that listens there; None if none of this user does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(BIRTH_TIMEOUT_S)
    try:
        connection.connect(str(address))
        if is_own(connection):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end is one of this user's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little") == os.getuid()
