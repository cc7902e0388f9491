"""The end of a connection to a resident server (`repl_sandbox.jupyter.serve`).

Imports no event loop: half of what a client waits for would be that import. Knows packets. Does not
know what the kernel is for.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.sockets import MAX_PACKET_BYTES

KERNEL_TIMEOUT_S = 20.0


@contextmanager
def resident_kernel(configuration: Configuration, key: bytes) -> Iterator[StartedKernel | None]:
    """Kernel of this user's server, whose messages `key` signs; None where no server has such.

    It ends with the block, as its pidfd does, and with this process: a killed client leaves nothing
    behind.
    """
    connection = connect(resident_address())
    if connection is None:
        yield None
        return
    with connection:
        request = {"configuration": asdict(configuration), "key": key.decode()}
        try:
            connection.send(json.dumps(request).encode())
            packet, fds, *_ = socket.recv_fds(connection, MAX_PACKET_BYTES, 1)
        except OSError:
            fds = []
        if not fds:  # the packet says why this server has none: another may
            yield None
            return
        try:
            folder = Path(json.loads(packet)["folder"])
            yield StartedKernel(folder=folder, key=key, pidfd=fds[0], is_console=True)
        finally:
            os.close(fds[0])


def resident_address() -> Path:
    """Return the path at which a resident server of this user listens."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) if base else Path(f"/tmp/repl-rl-{os.getuid()}")
    return folder / "repl-rl-kernels"


def connect(address: Path) -> socket.socket | None:
    """The end of a connection to the server that listens there; None if none of this user does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(KERNEL_TIMEOUT_S)
    try:
        connection.connect(str(address))
        if is_own(connection):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def is_own(connection: socket.socket) -> bool:
    """Return whether the process at the other end is one of this user's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little") == os.getuid()
