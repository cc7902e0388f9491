"""One kernel seen from outside: one source in, one Execution out, whatever the kernel does.

source -> request -> [deadline: SIGINT, grace, SIGKILL] -> checked reply -> rendered Execution

Deadlines, clocks and deaths are observed from here. Every byte of a reply is checked before it is
used, even as data. Knows processes and messages. Does not know Python, lines or rewards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from repl_sandbox.host.started_kernel import StartedKernel, remove_folder
from repl_sandbox.host.wire import KernelConnection, Reply, WireError, read_reply
from repl_sandbox.render import clean, render
from repl_sandbox.types import DIRECT, ExecStatus, Execution, Limits, SandboxError, socket_path

DEATH_TIMEOUT_S = 30.0
"""Many kernels that end at once, each with much memory to give back, take a while."""
HANGUP_S = 0.1
"""Time for which a process may still seem to live after its socket has closed."""
JSON_BYTES_PER_CHAR = 12
"""JSON writes a character outside the basic plane as two escapes."""


class Deadline:
    """Time of one line: an interrupt at its end, and no more waiting after a period of grace.

    [made] -> line_cpu_s or line_wall_s -> SIGINT -> grace_s -> `answer` is None

    A line has one timer, because `asyncio.wait` costs a callback, a second future and another turn
    of the loop.

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
        """True where the line was interrupted."""
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


class Process:
    """Owner of `pidfd`: signals, CPU clock and death of a process that need not be our child.

    A process number may be given to another process after a death, a pidfd never is.
    """

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


class SupervisedKernel:
    """A `Kernel` over one process, whose socket, pidfd and folder it owns until `aclose`."""

    def __init__(
        self, started: StartedKernel, limits: Limits, *, is_server_gone: Callable[[], bool]
    ) -> None:
        self._started = started
        self._limits = limits
        self._is_server_gone = is_server_gone
        self._process = Process(started.pidfd)
        self._billed_cpu_s = self._process.cpu_s()
        """CPU time up to the last answer. What the process uses after it counts for the next line,
        except with a console, where a person's line may have used it."""
        self._ordinals: dict[str, str] = {}
        self._num_requests = 0
        self._pending: asyncio.Future[bytes | None] | None = None
        self._ended_as: ExecStatus | None = None
        self.is_closed = False
        self._connection: KernelConnection | None = None

    @property
    def pid(self) -> int:
        """The number of its process, as seen from here."""
        return self._process.pid

    async def open(self, *, seed: int) -> None:
        """Connect and seed. Raises SandboxError if the kernel does not answer."""
        loop = asyncio.get_running_loop()
        self._process.watch(lambda: self._resolve(None))
        try:
            # No deadline: the kernel listens already, so only a busy loop could miss one.
            _, self._connection = await loop.create_unix_connection(
                self._new_connection, str(socket_path(self._started.folder, DIRECT))
            )
        except OSError as error:
            raise SandboxError(f"a kernel does not listen: {error!r}") from error
        seeded = await self._ask("seed", str(seed))
        if seeded.status is not ExecStatus.OK:
            raise SandboxError(f"a kernel could not be seeded: {seeded.status}")

    async def run(self, source: str) -> Execution:
        """Run `source` and return what it did. After a death every run reports that death again.

        Cancelling it kills the kernel. Raises SandboxError if it ended with the fork server. Do
        not call it while a person's line runs: its deadline would hit that line.
        """
        return await self._ask("run", source)

    async def evaluate(self, expression: str) -> Execution:
        """The `repr` of a value, in `Execution.value`; an error as in `run`."""
        return await self._ask("evaluate", expression)

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the line that runs, if any, whoever typed it.

        An attached client cannot do it: the kernel would read its request after the line.
        """
        if not self.is_closed:
            self._process.send_signal(signal.SIGINT)

    async def wait(self) -> None:
        """Return once the process has ended, for any reason: a client may shut it down."""
        await self._process.died.wait()

    async def aclose(self) -> None:
        """End the process, close what belongs to it, remove its folder. Safe to call twice."""
        if self.is_closed:
            return
        self.is_closed = True
        self._kill()
        try:
            if self._connection is not None:
                self._connection.close()
                await self._connection.closed.wait()
            async with asyncio.timeout(DEATH_TIMEOUT_S):
                await self._process.died.wait()
        except TimeoutError as error:
            raise SandboxError("a kernel outlived SIGKILL") from error
        finally:
            self._process.close()
            remove_folder(self._started.folder)

    def _new_connection(self) -> KernelConnection:
        max_chars = 2 * self._limits.max_output_chars + self._limits.max_value_chars
        return KernelConnection(
            on_reply=self._on_reply,
            on_lost=lambda: self._resolve(None),
            max_reply_bytes=JSON_BYTES_PER_CHAR * max_chars + (1 << 16),
        )

    async def _ask(self, mode: str, code: str) -> Execution:
        if self.is_closed:
            raise SandboxError("this kernel is closed")
        if self._ended_as is not None:
            return Execution(status=self._ended_as)
        assert self._connection is not None, "open first"
        assert self._pending is None, "one source at a time"
        if self._process.died.is_set() or self._connection.closed.is_set():
            return Execution(status=await self._end_status())
        self._pending = asyncio.get_running_loop().create_future()
        if self._started.is_console:
            self._billed_cpu_s = self._process.cpu_s()
        deadline = Deadline(
            self._pending, self._process, self._limits, billed_cpu_s=self._billed_cpu_s
        )
        try:
            return await self._execution(await self._exchange(mode, code), deadline)
        except BaseException:
            # The reply to this source would be taken for that to the next.
            self._kill()
            raise
        finally:
            deadline.cancel()
            self._billed_cpu_s = self._process.cpu_s()
            self._pending = None

    async def _exchange(self, mode: str, code: str) -> Reply | None:
        """The checked reply, or None if there was none."""
        assert self._connection is not None
        assert self._pending is not None
        self._num_requests += 1
        self._connection.send((self._num_requests, mode, code))
        body = await self._pending
        if body is None:
            return None
        try:
            return read_reply(body, number=self._num_requests, limits=self._limits)
        except WireError:
            return None

    async def _execution(self, reply: Reply | None, deadline: Deadline) -> Execution:
        if reply is None:
            status = await self._end_status()
            return Execution(status=status, wall_ms=deadline.wall_ms(), cpu_ms=deadline.cpu_ms())
        output, is_truncated = render(
            reply.head,
            reply.tail,
            num_omitted=reply.num_omitted,
            max_chars=self._limits.max_output_chars,
            ordinals=self._ordinals,
        )
        return Execution(
            status=ExecStatus.TIMEOUT if deadline.has_passed else reply.status,
            output=output,
            error_type=reply.error_type,
            value=None if reply.value is None else clean(reply.value),
            wall_ms=deadline.wall_ms(),
            cpu_ms=deadline.cpu_ms(),
            is_truncated=is_truncated,
        )

    async def _end_status(self) -> ExecStatus:
        """Return why there is no valid reply: the kernel ended, or is killed here.

        Raises SandboxError if its server ended.
        """
        if self._connection is not None and self._connection.closed.is_set():
            # Its sockets close a moment before its exit can be seen.
            with suppress(TimeoutError):
                async with asyncio.timeout(HANGUP_S):
                    await self._process.died.wait()
        if not self._process.died.is_set():
            self._kill()
            return ExecStatus.KILLED
        if not self._is_server_gone():
            await asyncio.sleep(0.003)  # two deaths may be seen in the wrong order
        if self._is_server_gone():
            raise SandboxError("the fork server is gone, and this kernel with it")
        self._ended_as = ExecStatus.DIED
        return ExecStatus.DIED

    def _on_reply(self, body: bytes) -> None:
        if self._pending is None or self._pending.done():
            # Nobody asked for this reply. It could be taken for the next answer.
            self._kill()
            if self._connection is not None:
                self._connection.close()
            return
        self._resolve(body)

    def _resolve(self, answer: bytes | None) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(answer)

    def _kill(self) -> None:
        self._ended_as = self._ended_as or ExecStatus.KILLED
        self._process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def closed_on_failure(kernel: SupervisedKernel) -> AsyncIterator[None]:
    """Close the kernel if the block raises or is cancelled."""
    try:
        yield
    except BaseException:
        await kernel.aclose()
        raise
