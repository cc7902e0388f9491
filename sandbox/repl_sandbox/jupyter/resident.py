"""A fork server that stays: the kernels of a person's clients are born warm, in milliseconds.

    client --(configuration?, key)--> resident --(order)--> fork server
    client <--(folder, pidfd)--------

A client connects for each kernel. Its kernel lives as long as the connection. Who may connect is
decided by the user who runs the process at the other end. Knows packets. Does not know Jupyter.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from repl_sandbox.isolation import Walls
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.resident_client import (
    BIRTH_TIMEOUT_S,
    connect,
    is_own,
    resident_address,
)
from repl_sandbox.newborn import Newborn
from repl_sandbox.sockets import MAX_PACKET_BYTES
from repl_sandbox.types import SandboxError, SettingError
from repl_sandbox.zygote_link import ZygoteLink

FIRST_PASSED_FD = 3
"""By systemd's convention for what it has opened: `man sd_listen_fds`."""
END_TIMEOUT_S = 5.0
LOOK_AGAIN_S = 0.5


class Resident:
    """Serves kernels of one configuration on a listening socket."""

    def __init__(self, configuration: Configuration, link: ZygoteLink) -> None:
        self._configuration = configuration
        self._link = link
        self._turn = asyncio.Lock()
        """The fork server answers orders in turn, and a key must meet its own kernel."""

    async def serve(self, listener: socket.socket) -> None:
        """Until it is cancelled, or its fork server has ended: SandboxError."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                await self._accept(listener, tasks)
        except* SandboxError as errors:
            raise errors.exceptions[0] from None

    async def _watch(self) -> None:
        while not self._link.is_gone():  # noqa: ASYNC110  # its end sets no Event
            await asyncio.sleep(LOOK_AGAIN_S)
        raise SandboxError("the fork server is gone")

    async def _accept(self, listener: socket.socket, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            connection, _ = await loop.sock_accept(listener)
            connection.setblocking(False)
            tasks.create_task(self._attend(connection))

    async def _attend(self, connection: socket.socket) -> None:
        """Serve one client: a kernel, and another one each time that it asks again."""
        loop = asyncio.get_running_loop()
        newborn: Newborn | None = None
        with connection:
            try:
                while is_own(connection):
                    request = json.loads(await loop.sock_recv(connection, MAX_PACKET_BYTES))
                    if "configuration" in request:
                        wanted = Configuration.from_json(request["configuration"])
                        is_such = self._configuration.covers(wanted)
                        connection.send(json.dumps({"is_such": is_such}).encode())
                        continue
                    if newborn is not None:
                        await _end(newborn)
                    newborn = await self._born(request["key"].encode(), newborn)
                    answer = json.dumps({"folder": str(newborn.folder)}).encode()
                    socket.send_fds(connection, [answer], [newborn.pidfd])
            except SandboxError as error:
                with suppress(OSError):
                    connection.send(json.dumps({"error": str(error)}).encode())
            # It hung up, which is an empty packet, or it speaks something else.
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                pass
            finally:
                if newborn is not None:
                    await _end(newborn)
                    newborn.discard()

    async def _born(self, key: bytes, last: Newborn | None) -> Newborn:
        async with self._turn:
            folder = None if last is None else last.folder
            self._link.order(key=key, folder=folder, is_console=True)
            newborn = await self._next()
            while newborn.key != key:  # it came after whoever had asked for it was gone
                await _end(newborn)
                newborn.discard()
                newborn = await self._next()
            if last is not None:
                os.close(last.pidfd)
            return newborn

    async def _next(self) -> Newborn:
        return await self._link.newborn(timeout_s=BIRTH_TIMEOUT_S, is_console=True)


async def _end(newborn: Newborn) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(newborn.pidfd, signal.SIGKILL)
    deadline = time.monotonic() + END_TIMEOUT_S
    # An exit sets no Event.
    while not newborn.has_ended() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def open_listener(address: Path) -> socket.socket:
    """The socket that systemd has passed, or a new one at `address`.

    Raises SettingError where another server listens, or the folder is not this user's alone.
    """
    if _is_passed():
        return socket.socket(fileno=FIRST_PASSED_FD)
    folder = address.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise SettingError(f"{folder}: others may write there; expected a folder of your own")
    other = connect(address)
    if other is not None:
        other.close()
        raise SettingError(f"{address}: a server listens there; end it first")
    address.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(address))
    address.chmod(0o600)
    listener.listen()
    return listener


async def serve(configuration: Configuration, *, on_ready: Callable[[Walls | None], None]) -> None:
    """Serve kernels of this configuration at the address of this user, until it is cancelled.

    on_ready: called with the walls in force, as soon as kernels can be had.

    Raises SandboxError where there can be no such kernels.
    """
    address = resident_address()
    with open_listener(address) as listener:
        try:
            link = await configuration.start_server()
            try:
                on_ready(link.walls)
                await Resident(configuration, link).serve(listener)
            finally:
                await link.aclose()
        finally:
            if not _is_passed():
                address.unlink(missing_ok=True)


def _is_passed() -> bool:
    """Whether systemd has opened the socket, and keeps it."""
    return os.environ.get("LISTEN_PID") == str(os.getpid())
