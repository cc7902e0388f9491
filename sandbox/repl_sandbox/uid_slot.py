"""Which share of the user ids for kernels is a pool's: no two pools that live have the same one.

Kernels of two pools that were one user could signal each other where no namespace is between them.
Knows numbers. Does not know users.
"""

from __future__ import annotations

import socket

from repl_sandbox.types import SandboxError

NUM_SLOTS = 64


class UidSlot:
    """At most one of NUM_SLOTS, from `take` to `close` or the end of this process."""

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
            # A name in the abstract namespace: there is no file that could stay behind.
            lock.bind(f"\0repl-rl-uids-{number}")
        except OSError:
            continue
        return lock, number
    lock.close()
    raise SandboxError(f"{NUM_SLOTS} pools of kernels run on this machine; end one of them")
