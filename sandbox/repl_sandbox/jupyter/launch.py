"""A sealed kernel for a client that starts the command of a kernelspec by itself.

    python -m repl_sandbox.jupyter.launch -f CONNECTION_FILE [--lines] ...

    client <-> the ports of the connection file <-> this process <-> the kernel's own sockets

A sealed kernel has no network. So this process listens where the client expects the kernel and
copies bytes between the two: the messages are the same on both ways. It passes on interrupts, and
ends with its kernel. Knows connection files. Does not know messages.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import (
    KERNEL_TIMEOUT_S,
    Configuration,
    add_options,
    configuration_of,
    resident_kernel,
)
from repl_sandbox.types import PORTS, STDIN, SandboxError, socket_path

Port = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
COPIED_BYTES = 1 << 16
LOOK_AGAIN_MS = 1000


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a connection file.

    https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files
    """

    transport: Literal["tcp", "ipc"]
    ip: str
    key: str
    shell_port: Port
    iopub_port: Port
    stdin_port: Port
    hb_port: Port
    control_port: Port
    signature_scheme: Literal["hmac-sha256"] = "hmac-sha256"


class Relay:
    """Listens for one kernel, from before it is there until this process ends.

    By threads: an event loop takes longer to import than a resident server takes to make a kernel.
    """

    def __init__(self, connection: Connection) -> None:
        """Take clients at once. They wait for the kernel. OSError where the ports are taken."""
        self._has_started = threading.Event()
        self._folder = Path()
        for name, channel in PORTS.items():
            if channel != STDIN:  # nobody is asked for input
                listener = listen(connection.transport, connection.ip, getattr(connection, name))
                self._start(self._accept, listener, channel)

    def join(self, started: StartedKernel) -> None:
        """The kernel is there."""
        self._folder = started.folder
        self._has_started.set()

    def _accept(self, listener: socket.socket, channel: int) -> None:
        while True:
            self._start(self._relay, accept(listener), channel)

    def _relay(self, outer: socket.socket, channel: int) -> None:
        self._has_started.wait()
        inner = socket.socket(socket.AF_UNIX)
        with outer, inner, suppress(OSError):
            inner.connect(str(socket_path(self._folder, channel)))
            back = self._start(_copy, inner, outer)
            _copy(outer, inner)
            back.join()

    def _start(self, work: Any, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread


def listen(transport: str, ip: str, port: int) -> socket.socket:
    """Open the socket at which a client looks for one of its channels."""
    if transport == "tcp":
        return socket.create_server((ip, port))
    address = Path(f"{ip}-{port}")
    if address.is_socket():  # of the kernel before a restart
        address.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(address))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def accept(listener: socket.socket) -> socket.socket:
    """The next client. What it is sent leaves at once, however small."""
    accepted, _ = listener.accept()
    if accepted.family != socket.AF_UNIX:
        # Else it waits for the receipt of what went before, which a client delays for up to 40 ms.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return accepted


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one side ends. Then both do, and so does the copying of the other way."""
    with suppress(OSError):
        while received := source.recv(COPIED_BYTES):
            target.sendall(received)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def run(connection: Connection, configuration: Configuration) -> None:
    """Be the kernel of this connection until it ends. Raises SandboxError if there is none."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relay = Relay(connection)
    with _kernel(configuration, connection.key.encode()) as started:
        signal.signal(signal.SIGINT, lambda *_: started.send_signal(signal.SIGINT))
        relay.join(started)
        while not started.has_ended(within_ms=LOOK_AGAIN_MS):
            if os.getppid() != parent and "JPY_PARENT_PID" in os.environ:
                break


@contextmanager
def _kernel(configuration: Configuration, key: bytes) -> Iterator[StartedKernel]:
    """A kernel of the resident server, or of a server of its own."""
    with resident_kernel(configuration, key) as started:
        if started is not None:
            yield started
            return
    from asyncio import Runner

    with Runner() as runner:
        link = runner.run(configuration.start_server())
        try:
            yield runner.run(link.console(key=key, timeout_s=KERNEL_TIMEOUT_S))
        finally:
            runner.run(link.aclose())


def read_connection(file: Path) -> Connection:
    """Read the connection file that a client has written.

    Raises ValueError for anything else, and where the client asks for what this kernel does not do.
    """
    try:
        fields = json.loads(file.read_text())
        connection = msgspec.convert(fields, Connection)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file}: no connection file of Jupyter's: {error}") from None
    if encrypting := [name for name in sorted(fields) if name.startswith("curve_")]:
        names = ", ".join(encrypting)
        raise ValueError(f"{file}: {names}: this kernel does not encrypt (CurveZMQ)")
    return connection


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 the kernel has ended, 2 there was none."""
    options = _parser().parse_args(arguments)
    try:
        run(read_connection(options.file), configuration_of(options))
    except (ValueError, OSError, SandboxError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="repl_sandbox.jupyter.launch", description=__doc__)
    parser.add_argument("-f", dest="file", type=Path, required=True, help="connection file")
    parser.add_argument("--lines", action="store_true", help="the classic REPL, line by line")
    add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
