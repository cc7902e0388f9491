"""A fork server that stays: the kernels of a person's clients are born warm, in milliseconds.

    python -m repl_sandbox.jupyter.serve [--preload NAME,...] ...

    client --(configuration, then key)--> resident --(order)--> fork server
    client <--(folder, pidfd)------------

A client connects for each kernel. Its kernel lives as long as the connection. Who may connect is
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
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import Configuration, add_options, configured
from repl_sandbox.jupyter.resident_client import (
    BIRTH_TIMEOUT_S,
    connect,
    is_own,
    resident_address,
)
from repl_sandbox.sockets import MAX_PACKET_BYTES
from repl_sandbox.types import SandboxError, SettingError
from repl_sandbox.walls.isolation import Walls

FIRST_PASSED_FD = 3
"""By systemd's convention for what it has opened: `man sd_listen_fds`."""
LOOK_AGAIN_S = 0.5
END_TIMEOUT_S = 5.0
BUSY = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
"""Too many clients at once, or one that has left: others wait until there is room."""
KEY = re.compile("[ -~]{1,256}")
MAX_SHOWN_BYTES = 60
HEAD_START_S = 0.2
"""For kernels that clients wait for: to start a fork server keeps this process from giving them."""

OnWarm = Callable[[Walls | None], None]
"""Called with the walls in force, as soon as the next kernel has all that is preloaded."""


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    server: SharedServer | None = None
    """Server of all its kernels: no other server can make one in the place of the last."""
    started: StartedKernel | None = None


class Resident:
    """Serves kernels of one configuration on a listening socket.

    `warm` preloads what the configuration says. `bare` preloads nothing and is there long before.
    It serves who comes until then, and ends with the last of them.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._warm = self._bare = SharedServer(configuration)
        if configuration.preload:
            self._bare = SharedServer(replace(configuration, preload=()))

    async def serve(self, listener: socket.socket, on_warm: OnWarm) -> None:
        """Serve until cancelled. SandboxError if a fork server does not start, or has ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._start(on_warm))
                tasks.create_task(self._watch())
                await self._accept(listener, tasks)
        except* SandboxError as errors:
            raise errors.exceptions[0] from None
        finally:
            try:
                await self._bare.aclose()
            finally:
                await self._warm.aclose()

    async def _start(self, on_warm: OnWarm) -> None:
        walls = await self._bare.start()
        if self._warm is not self._bare:
            await asyncio.sleep(HEAD_START_S)
            walls = await self._warm.start()
            await self._end_bare()
        on_warm(walls)

    async def _end_bare(self) -> None:
        """End the bare fork server if nobody needs it any more."""
        is_over = self._warm.is_there and not self._bare.num_clients
        if is_over and self._warm is not self._bare:
            await self._bare.aclose()

    async def _watch(self) -> None:
        # The end of a fork server sets no Event.
        while not (self._bare.has_failed() or self._warm.has_failed()):  # noqa: ASYNC110
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
            tasks.create_task(self._attend(_Client(connection)))

    async def _attend(self, client: _Client) -> None:
        """Serve one client: a kernel, and another one each time that it asks again."""
        loop = asyncio.get_running_loop()
        with client.connection as connection:
            try:
                while is_own(connection) and (
                    packet := await loop.sock_recv(connection, MAX_PACKET_BYTES)
                ):
                    request = read_request(packet)
                    if isinstance(request, Configuration):
                        await self._choose(client, request)
                    else:
                        await _give(client, request)
            except (SandboxError, ValueError) as error:
                with suppress(OSError):
                    connection.send(json.dumps({"error": str(error)}).encode())
            except OSError:
                pass  # it hung up
            finally:
                await self._leave(client)

    async def _choose(self, client: _Client, wanted: Configuration) -> None:
        """Say whether there are such kernels, as soon as there are."""
        if client.server is None and self._warm.configuration.covers(wanted):
            is_enough = self._bare.configuration.covers(wanted) and not self._warm.is_there
            client.server = self._bare if is_enough else self._warm
            client.server.num_clients += 1
        is_such = client.server is not None and client.server.configuration.covers(wanted)
        if client.server is not None:
            await client.server.wait()
        client.connection.send(json.dumps({"is_such": is_such}).encode())

    async def _leave(self, client: _Client) -> None:
        if client.started is not None:
            await end(client.started)
            client.started.discard()
        if client.server is not None:
            client.server.num_clients -= 1
            await self._end_bare()


def read_request(packet: bytes) -> Configuration | bytes:
    """The kind of kernel that a client wants, or the key of one. ValueError for anything else."""
    try:
        found = json.loads(packet)
        if set(found) == {"configuration"}:
            return Configuration.from_json(found["configuration"])
        if KEY.fullmatch(found["key"]):
            return bytes(found["key"], "ascii")
    # RecursionError: brackets in brackets. The others: values of another type.
    except (ValueError, RecursionError, TypeError, KeyError):
        pass
    shown = packet[:MAX_SHOWN_BYTES].decode("ascii", "backslashreplace")
    raise ValueError(
        f"a request that is not understood: {shown}; expected a `configuration` of kernels with "
        "the fields and types of this version, or a `key` of 1 to 256 printable characters"
    )


async def _give(client: _Client, key: bytes) -> None:
    """Give it a kernel, in the place of the last one. ValueError if it did not say what kind."""
    if client.server is None:
        raise ValueError("a request that is not understood: a `key` before a `configuration`")
    if client.started is not None:
        await end(client.started)
    client.started = await client.server.kernel(key, client.started)
    answer = json.dumps({"folder": str(client.started.folder)}).encode()
    socket.send_fds(client.connection, [answer], [client.started.pidfd])


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


class SharedServer:
    """Owner of a fork server of several clients, each of whom gets the kernels that it asked for.

    order with a key -> fork server -> StartedKernel with that key
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.num_clients = 0
        """Number of clients that may ask for kernels and have not left."""
        self._link: ForkServerClient | None = None
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
        """True once the fork server has started, until it is closed."""
        return self._link is not None

    def has_failed(self) -> bool:
        """Return whether the fork server has ended by itself."""
        return self._link is not None and self._link.is_gone()

    async def wait(self) -> None:
        """Wait until the fork server has started."""
        await self._has_started.wait()

    async def kernel(self, key: bytes, last: StartedKernel | None) -> StartedKernel:
        """A kernel whose messages `key` signs. SandboxError if there is none.

        last: one of this server's that has ended. The new one takes its place.
        """
        assert self._link is not None, "wait first"
        async with self._turn:
            folder = None if last is None else last.folder
            self._link.order(key=key, folder=folder, is_console=True)
            started = await _next(self._link)
            while started.key != key:  # it came after whoever had asked for it was gone
                await end(started)
                started.discard()
                started = await _next(self._link)
            if last is not None:
                os.close(last.pidfd)
            return started

    async def aclose(self) -> None:
        """End it and all its kernels. Safe to call twice, and before it has started."""
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()


async def _next(link: ForkServerClient) -> StartedKernel:
    return await link.next_kernel(timeout_s=BIRTH_TIMEOUT_S, is_console=True)


async def end(started: StartedKernel) -> None:
    """Kill it, and wait until it has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)
    deadline = time.monotonic() + END_TIMEOUT_S
    # An exit sets no Event.
    while not started.has_ended() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 it was ended by SIGINT or SIGTERM, 2 there can be no such kernels."""
    parser = argparse.ArgumentParser(prog="repl_sandbox.jupyter.serve", description=__doc__)
    add_options(parser)
    asked = parser.parse_args(arguments)
    configuration = configured(asked)
    if asked.preload is None:
        configuration = replace(configuration, preload=configuration.installed())
    try:
        asyncio.run(_serve(configuration))
    except asyncio.CancelledError:
        return 0
    except SandboxError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


async def _serve(configuration: Configuration) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)

    def say(walls: Walls | None) -> None:
        sys.stderr.write(f"kernels: {walls}\n")

    await serve(configuration, on_warm=say)


if __name__ == "__main__":
    sys.exit(main())
