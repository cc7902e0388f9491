"""A sealed kernel for a client that starts the command of a kernelspec by itself.

    python -m repl_sandbox.jupyter.launch -f CONNECTION_FILE [--lines] ...

    client <-> the ports of the connection file <-> this process <-> the kernel's own sockets

A sealed kernel has no network. So this process listens where the client expects the kernel and
copies bytes between the two: the messages are the same on both ways. It passes on interrupts, and
ends with its kernel. Knows connection files. Does not know messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from repl_sandbox.console import PORTS
from repl_sandbox.jupyter.configuration import Configuration, names_in
from repl_sandbox.jupyter.origins import find_origin
from repl_sandbox.newborn import Newborn
from repl_sandbox.sockets import STDIN, socket_path
from repl_sandbox.types import Isolation, SandboxError

SCHEME = "hmac-sha256"
COPIED_BYTES = 1 << 16
LOOK_AGAIN_S = 1.0


class Relay:
    """Listens for one kernel, from before it is born until it has ended."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._connection = connection
        self._folder: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._servers: list[asyncio.AbstractServer] = []

    async def listen(self) -> None:
        """Take clients at once. They wait for the kernel. OSError where the ports are taken."""
        for name, channel in PORTS.items():
            if channel == STDIN:  # nobody is asked for input
                continue
            meet = partial(self._meet, channel)
            ip, port = self._connection["ip"], self._connection[name]
            is_tcp = self._connection["transport"] == "tcp"
            self._servers.append(
                await asyncio.start_server(meet, ip, port)
                if is_tcp
                else await asyncio.start_unix_server(meet, f"{ip}-{port}")
            )

    def join(self, newborn: Newborn) -> None:
        """The kernel is there."""
        self._folder.set_result(newborn.folder)

    def close(self) -> None:
        for server in self._servers:
            server.close()

    async def _meet(
        self, channel: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        folder = await asyncio.shield(self._folder)
        with suppress(OSError):
            inner = await asyncio.open_unix_connection(str(socket_path(folder, channel)))
            await asyncio.gather(_copy(reader, inner[1]), _copy(inner[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side ends."""
    try:
        while received := await reader.read(COPIED_BYTES):
            writer.write(received)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def run(connection: dict[str, Any], configuration: Configuration) -> None:
    """Be the kernel of this connection until it ends. Raises SandboxError if there is none."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    parent = os.getppid()
    relay = Relay(connection)
    await relay.listen()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # there is nothing to interrupt yet
    origin = await find_origin(configuration)
    try:
        newborn = await origin.kernel(key=connection["key"].encode())
        loop.add_signal_handler(signal.SIGINT, _send, newborn, signal.SIGINT)
        loop.add_reader(newborn.pidfd, ended.set)
        relay.join(newborn)
        while not ended.is_set() and (os.getppid() == parent or "JPY_PARENT_PID" not in os.environ):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await ended.wait()
        loop.remove_reader(newborn.pidfd)
        _send(newborn, signal.SIGKILL)
    finally:
        relay.close()
        await origin.aclose()


def _send(newborn: Newborn, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(newborn.pidfd, number)


def read_connection(file: Path) -> dict[str, Any]:
    """What a client has written. Raises ValueError for anything but a connection file of Jupyter's.

    https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files
    """
    try:
        found = json.loads(file.read_text())
        lacking = {"transport", "ip", "key", *PORTS} - set(found)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{file}: no connection file of Jupyter's: {error}") from None
    if lacking:
        names = ", ".join(sorted(lacking))
        raise ValueError(f"{file}: no connection file of Jupyter's: it lacks {names}")
    if found.get("signature_scheme", SCHEME) != SCHEME:
        raise ValueError(f"{file}: signature_scheme is {found['signature_scheme']!r}, not {SCHEME}")
    return dict(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 the kernel has ended, 2 there was none."""
    asked = _parser().parse_args(arguments)
    names = {field.name for field in fields(Configuration)}
    given = {name: value for name, value in vars(asked).items() if name in names}
    try:
        asyncio.run(run(read_connection(asked.file), Configuration(**given)))
    except (ValueError, OSError, SandboxError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    usual = Configuration()
    parser = argparse.ArgumentParser(prog="repl_sandbox.jupyter.launch", description=__doc__)
    parser.add_argument("-f", dest="file", type=Path, required=True, help="connection file")
    parser.add_argument("--lines", action="store_true", help="the classic REPL, line by line")
    parser.add_argument(
        "--isolation", type=Isolation, choices=list(Isolation), default=usual.isolation
    )
    for name in ("preload", "packages"):
        parser.add_argument(
            f"--{name}",
            type=names_in,
            default=getattr(usual, name),
            metavar="NAME,...",
        )
    parser.add_argument("--memory-mib", type=int, default=usual.memory_mib)
    return parser


if __name__ == "__main__":
    sys.exit(main())
