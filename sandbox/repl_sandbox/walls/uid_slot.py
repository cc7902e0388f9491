"""The share of the user ids for kernels that belongs to a pool: no two living pools have the same.

Without namespaces, kernels of two pools could signal each other if they were one user.
Knows numbers. Does not know users.
"""

from __future__ import annotations

import socket

from repl_sandbox.types import SandboxError

NUM_SLOTS = 64


class UidSlot:
    """One of NUM_SLOTS at most, held from `take` to `close` or to the end of this process."""

    def __init__(self) -> None:
        self._lock: socket.socket | None = None
        self._number = 0

    def take(self) -> int:
        """The number of the slot, the same each time. SandboxError if all are taken."""
        if self._lock is None:
            self._lock, self._number = _first_free()
        return self._number

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _first_free() -> tuple[socket.socket, int]:
    lock = socket.socket(socket.AF_UNIX)
    for number in range(NUM_SLOTS):
        try:
            # A name in the abstract namespace leaves no file behind.
            lock.bind(f"\0repl-rl-uids-{number}")
        except OSError:
            continue
        return lock, number
    lock.close()
    raise SandboxError(f"{NUM_SLOTS} pools of kernels run on this machine; end one of them")
