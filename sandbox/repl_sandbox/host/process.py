"""One process seen from outside through its pidfd: signals, CPU clock, death.

Trusted side. A process number may be given to another process after a death, a pidfd never is.
Knows the operating system. Does not know what the process is for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Process:
    """Owner of `pidfd`. The process need not be a child of ours."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self.pid = _pid(pidfd)
        """Its number in our namespace. Once it is dead, another process may have that number."""
        # As clock_getcpuclockid(3) computes it.
        self._clock_id = ((~self.pid) << 3) | 2
        self._last_cpu_s = 0.0
        self.died = asyncio.Event()
        """Set when the process has ended, if `watch` was called."""

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call `on_death` once, as soon as the process has ended."""
        loop = asyncio.get_running_loop()

        def note_death() -> None:
            loop.remove_reader(self._pidfd)
            self.died.set()
            on_death()

        loop.add_reader(self._pidfd, note_death)

    def send_signal(self, number: signal.Signals) -> None:
        """Send signal `number`. If the process is dead, do nothing."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def cpu_s(self) -> float:
        """CPU seconds that it used. Of a dead process, the last value that was read."""
        with suppress(OSError):
            self._last_cpu_s = time.clock_gettime(self._clock_id)
        return self._last_cpu_s

    def close(self) -> None:
        """Forget the process, dead or not. Once only: the pidfd's number is free afterwards."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)


def _pid(pidfd: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
