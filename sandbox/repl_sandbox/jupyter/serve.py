"""A fork server that stays: the kernels of a person's clients are born warm, in milliseconds.

    python -m repl_sandbox.jupyter.serve [--preload NAME,...] ...

    client --(configuration, key)--> resident --(order)--> fork server
    client <--(folder, pidfd)-------

A client connects for each kernel, which lives as long as the connection. Who may connect is
decided by the user who runs the process at the other end. The command is `repl-rl kernels serve`
for systemd, without the imports: who opens its socket waits for it to start. Knows packets and
signals. Does not know Jupyter.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import (
    KERNEL_TIMEOUT_S,
    Configuration,
    add_options,
    configuration_of,
    connect,
    is_own,
    resident_address,
)
from repl_sandbox.types import MAX_PACKET_BYTES, SandboxError, SettingError
from repl_sandbox.walls.isolation import Walls

FIRST_PASSED_FD = 3
"""By systemd's convention for what it has opened: `man sd_listen_fds`."""
LOOK_AGAIN_S = 0.5
END_TIMEOUT_S = 5.0
BUSY = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
"""Too many clients at once, or one that has left: others wait until there is room."""

OnWarm = Callable[[Walls | None], None]
"""Called with the walls in force, as soon as there are kernels with all that is preloaded."""


class Resident:
    """Serves kernels of one configuration on a listening socket.

    A client that comes before all is preloaded is told so, and starts a fork server of its own.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._link: ForkServerClient | None = None
        self._turn = asyncio.Lock()
        """The fork server answers orders in turn, and a key must meet its own kernel."""

    async def serve(self, listener: socket.socket, on_warm: OnWarm) -> None:
        """Serve until cancelled. SandboxError if the fork server does not start, or has ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(on_warm))
                await self._accept(listener, tasks)
        except* SandboxError as errors:
            raise errors.exceptions[0] from None
        finally:
            if self._link is not None:
                await self._link.aclose()

    async def _watch(self, on_warm: OnWarm) -> None:
        self._link = await self._configuration.start_server()
        on_warm(self._link.walls)
        # The end of a fork server sets no Event.
        while not self._link.is_gone():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN_S)
        raise SandboxError("the fork server is gone")

    async def _accept(self, listener: socket.socket, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno not in BUSY:
                    raise
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            connection.setblocking(False)
            tasks.create_task(self._attend(connection))

    async def _attend(self, connection: socket.socket) -> None:
        """Give one client a kernel, which lives until the client hangs up."""
        loop = asyncio.get_running_loop()
        with connection:
            try:
                if not is_own(connection):
                    return
                packet = await loop.sock_recv(connection, MAX_PACKET_BYTES)
                if packet:
                    started = await self._kernel(read_request(packet))
                    try:
                        answer = json.dumps({"folder": str(started.folder)}).encode()
                        socket.send_fds(connection, [answer], [started.pidfd])
                        await loop.sock_recv(connection, 1)
                    finally:
                        await end(started)
            except (SandboxError, ValueError) as error:
                with suppress(OSError):
                    connection.send(json.dumps({"error": str(error)}).encode())
            except OSError:
                pass  # it hung up

    async def _kernel(self, request: Request) -> StartedKernel:
        """Kernel that was asked for. SandboxError if there is none of this kind."""
        if not self._configuration.covers(request.configuration):
            raise SandboxError("this server has no such kernels")
        if self._link is None:
            raise SandboxError("this server is still preloading")
        async with self._turn:
            self._link.order(key=request.key.encode(), is_console=True)
            while True:
                started = await self._link.next_kernel(timeout_s=KERNEL_TIMEOUT_S, is_console=True)
                if started.key == request.key.encode():
                    return started
                await end(started)  # it came after whoever had asked for it was gone


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernel that a client asks for."""

    configuration: Configuration
    key: Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,256}\Z")]
    """Key that signs its messages."""


def read_request(packet: bytes) -> Request:
    """Read the one packet that a client sends. ValueError for anything else."""
    try:
        return msgspec.json.decode(packet, type=Request)
    # RecursionError: brackets in brackets.
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"a request that is not understood: {error}; expected a `configuration` with the "
            "fields and types of this version, and a `key` of 1 to 256 printable characters"
        ) from None


def open_listener(address: Path) -> socket.socket:
    """The socket that systemd has passed, or a new one at `address`.

    Raises SettingError where another server listens, or the folder is not this user's alone.
    """
    if _is_passed():
        return socket.socket(fileno=FIRST_PASSED_FD)
    folder = address.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
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


async def serve(configuration: Configuration, *, on_warm: OnWarm) -> None:
    """Serve kernels of this configuration at the address of this user: see `Resident.serve`."""
    address = resident_address()
    with open_listener(address) as listener:
        try:
            await Resident(configuration).serve(listener, on_warm)
        finally:
            if not _is_passed():
                address.unlink(missing_ok=True)


def _is_passed() -> bool:
    """Return whether systemd has opened the socket, and keeps it."""
    return os.environ.get("LISTEN_PID") == str(os.getpid())


async def end(started: StartedKernel) -> None:
    """Kill a kernel, wait until it has ended, and let go of it."""
    started.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + END_TIMEOUT_S
    # An exit sets no Event.
    while not started.has_ended() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    started.discard()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 it was ended by SIGINT or SIGTERM, 2 there can be no such kernels."""
    parser = argparse.ArgumentParser(prog="repl_sandbox.jupyter.serve", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    configuration = configuration_of(options)
    if options.preload is None:
        configuration = replace(configuration, preload=configuration.installed())

    def say(walls: Walls | None) -> None:
        sys.stderr.write(f"kernels: {walls}\n")

    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        asyncio.run(serve(configuration, on_warm=say))
    except KeyboardInterrupt:
        return 0
    except SandboxError as error:
        sys.stderr.write(f"{error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
