"""The time of one line: an interrupt at its end, and no more waiting after a period of grace.

[started] -> line_cpu_s or line_wall_s -> SIGINT -> grace_s -> the answer is None

Trusted side: the clocks are read from outside. A line has one timer, because `asyncio.wait` costs a
callback, a second future and another turn of the loop. Knows processes. Does not know messages.
"""

from __future__ import annotations

import asyncio
import signal
import time

from repl_sandbox.host.process import Process
from repl_sandbox.types import Limits


class Deadline:
    """Starts when it is made. Sets `answer` to None if nothing else did in time.

    billed_cpu_s: CPU seconds of the process that earlier lines were charged for. This line pays for
                  all beyond them, so no line gains by running on after its answer.
    """

    def __init__(
        self,
        answer: asyncio.Future[bytes | None],
        process: Process,
        limits: Limits,
        *,
        billed_cpu_s: float,
    ) -> None:
        self._answer = answer
        self._process = process
        self._limits = limits
        self._started = time.monotonic()
        self._cpu_before = billed_cpu_s
        self.has_passed = False
        """Whether the line was interrupted."""
        self._wait(min(limits.line_cpu_s, limits.line_wall_s))

    def wall_ms(self) -> float:
        return 1e3 * (time.monotonic() - self._started)

    def cpu_ms(self) -> float:
        return 1e3 * max(0.0, self._process.cpu_s() - self._cpu_before)

    def cancel(self) -> None:
        self._timer.cancel()

    def _wait(self, left_s: float) -> None:
        self._timer = self._answer.get_loop().call_later(max(left_s, 1e-3), self._look)

    def _look(self) -> None:
        if self._answer.done():
            return
        if self.has_passed:
            self._answer.set_result(None)
            return
        wall_left_s = self._limits.line_wall_s - self.wall_ms() / 1e3
        # One thread works in a kernel (those of zmq hardly do), so CPU time is at most wall time.
        left_s = min(wall_left_s, self._limits.line_cpu_s - self.cpu_ms() / 1e3)
        if left_s > 0:
            self._wait(left_s)
            return
        self.has_passed = True
        self._process.send_signal(signal.SIGINT)
        self._wait(self._limits.grace_s)
