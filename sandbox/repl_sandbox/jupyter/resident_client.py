"""The end of a connection to a resident server (`repl_sandbox.jupyter.serve`).

Imports no event loop: half of what a client waits for would be that import. Knows packets. Does not
know what the kernel is for.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Self

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.sockets import MAX_PACKET_BYTES
from repl_sandbox.types import SandboxError

BIRTH_TIMEOUT_S = 20.0


class ResidentClient:
    """Client whose kernel ends with the connection, so that a killed one leaves nothing behind."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    def find(cls, configuration: Configuration) -> Self | None:
        """A connection to this user's server; None if there is none, or it has no such kernels."""
        connection = connect(resident_address())
        if connection is None:
            return None
        found = cls(connection)
        try:
            reply, _ = found._ask({"configuration": configuration.as_json()})
        except SandboxError:
            reply = {}
        if reply.get("is_such"):
            return found
        found.close()
        return None

    def kernel(self, key: bytes) -> StartedKernel:
        """A kernel whose messages `key` signs. The server has ended the last one, and the new one's
        sockets have the same names. SandboxError if there is none.
        """
        reply, fds = self._ask({"key": key.decode()})
        if "folder" not in reply or not fds:
            raise SandboxError(str(reply.get("error", "the resident server sent no kernel")))
        place = Path(str(reply["folder"]))
        return StartedKernel(folder=place, key=key, pidfd=fds[0], is_console=True)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, request: dict[str, object]) -> tuple[dict[str, object], list[int]]:
        try:
            self._connection.send(json.dumps(request).encode())
            packet, fds, *_ = socket.recv_fds(self._connection, MAX_PACKET_BYTES, 1)
        except OSError as error:
            raise SandboxError(f"the resident server does not answer: {error}") from error
        if not packet:
            raise SandboxError("the resident server has ended")
        try:
            return dict(json.loads(packet)), fds
        except (ValueError, TypeError, RecursionError):
            raise SandboxError("the resident server answers what is not understood") from None


def resident_address() -> Path:
    """Return the path at which a resident server of this user listens."""
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
    """Return whether the process at the other end is one of this user's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little") == os.getuid()
