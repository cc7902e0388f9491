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
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import Configuration, add_options, configured
from repl_sandbox.jupyter.resident_client import BIRTH_TIMEOUT_S, resident_kernel
from repl_sandbox.sockets import PORTS, STDIN, socket_path
from repl_sandbox.types import SandboxError

SCHEME = "hmac-sha256"
MAX_PORT = (1 << 16) - 1
COPIED_BYTES = 1 << 16
LOOK_AGAIN_MS = 1000
STDERR = 2


class Relay:
    """Listens for one kernel, from before it is born until this process ends.

    By threads: an event loop takes longer to import than a resident server takes to make a kernel.
    """

    def __init__(self, connection: dict[str, Any]) -> None:
        """Take clients at once. They wait for the kernel. OSError where the ports are taken."""
        self._is_born = threading.Event()
        self._folder = Path()
        for name, channel in PORTS.items():
            if channel != STDIN:  # nobody is asked for input
                listener = listen(connection, connection[name])
                self._start(self._accept, listener, channel)

    def join(self, started: StartedKernel) -> None:
        """The kernel is there."""
        self._folder = started.folder
        self._is_born.set()

    def _accept(self, listener: socket.socket, channel: int) -> None:
        while True:
            self._start(self._meet, accept(listener), channel)

    def _meet(self, outer: socket.socket, channel: int) -> None:
        self._is_born.wait()
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


def listen(connection: dict[str, Any], port: int) -> socket.socket:
    """Open the socket at which a client of this connection looks for one of its channels."""
    if connection["transport"] == "tcp":
        return socket.create_server((connection["ip"], port))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{connection['ip']}-{port}")
    listener.listen()
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


def run(
    connection: dict[str, Any], configuration: Configuration, *, on_start: Callable[[], None]
) -> None:
    """Be the kernel of this connection until it ends. Raises SandboxError if there is none."""
    parent = os.getppid()
    relay = Relay(connection)
    signals = Signals()
    with _born(configuration, connection["key"].encode()) as started:
        relay.join(started)
        on_start()
        poller = select.poll()
        poller.register(started.pidfd, select.POLLIN)
        poller.register(signals, select.POLLIN)
        while os.getppid() == parent or "JPY_PARENT_PID" not in os.environ:
            ready = [fd for fd, _ in poller.poll(LOOK_AGAIN_MS)]
            if started.pidfd in ready:
                break
            if ready:
                number = signals.take()
                if number == signal.SIGTERM:
                    break
                _send(started, number)
        _send(started, signal.SIGKILL)


@contextmanager
def _born(configuration: Configuration, key: bytes) -> Iterator[StartedKernel]:
    """A kernel of the resident server, or of a server of its own."""
    with resident_kernel(configuration, key) as started:
        if started is not None:
            yield started
            return
    from asyncio import Runner

    with Runner() as runner:
        link = runner.run(configuration.start_server())
        try:
            yield runner.run(link.console(key=key, timeout_s=BIRTH_TIMEOUT_S))
        finally:
            runner.run(link.aclose())


class Signals:
    """Signals that this process is sent from now on, in turn: a descriptor to wait for."""

    def __init__(self) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        signal.set_wakeup_fd(self._inner.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def fileno(self) -> int:
        return self._outer.fileno()

    def take(self) -> signal.Signals:
        return signal.Signals(self._outer.recv(1)[0])


def _send(started: StartedKernel, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(started.pidfd, number)


def read_connection(file: Path) -> dict[str, Any]:
    """Read the connection file that a client has written.

    Raises ValueError for anything else, and where the client asks for what this kernel does not do.

    https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files
    """
    try:
        found = dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{file}: no connection file of Jupyter's: {error}") from None
    if lacking := {"transport", "ip", "key", *PORTS} - set(found):
        names = ", ".join(sorted(lacking))
        raise ValueError(f"{file}: no connection file of Jupyter's: it lacks {names}")
    for name, kind in {
        "transport": str,
        "ip": str,
        "key": str,
        **dict.fromkeys(PORTS, int),
    }.items():
        if type(found[name]) is not kind or (kind is int and not 0 <= found[name] <= MAX_PORT):
            wanted = f"a port up to {MAX_PORT}" if kind is int else "text"
            raise ValueError(f"{file}: {name} is {found[name]!r:.60}; expected {wanted}")
    if found["transport"] not in ("tcp", "ipc"):
        raise ValueError(f"{file}: transport is {found['transport']!r:.60}; expected tcp or ipc")
    if found.get("signature_scheme", SCHEME) != SCHEME:
        raise ValueError(f"{file}: signature_scheme is {found['signature_scheme']!r}, not {SCHEME}")
    encrypting = [name for name in sorted(found) if name.startswith("curve_")]
    if encrypting:
        raise ValueError(
            f"{file}: {', '.join(encrypting)}: this kernel does not encrypt (CurveZMQ)"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 the kernel has ended, 2 there was none."""
    options = _parser().parse_args(arguments)
    with open(options.report, "w", closefd=options.report != STDERR) as report:
        try:
            connection = read_connection(options.file)
            configuration = options.configuration or configured(options)
            run(connection, configuration, on_start=report.close)
        except (ValueError, OSError, SandboxError) as error:
            print(error, file=sys.stderr if report.closed else report)
            return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="repl_sandbox.jupyter.launch", description=__doc__)
    parser.add_argument("-f", dest="file", type=Path, required=True, help="connection file")
    parser.add_argument("--lines", action="store_true", help="the classic REPL, line by line")
    add_options(parser)
    parser.add_argument(
        "--configuration", type=Configuration.from_text, help="all settings as JSON, for a program"
    )
    parser.add_argument(
        "--report",
        type=int,
        metavar="FD",
        default=STDERR,
        help="where to say why there is no kernel; closed as soon as there is one",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
