"""Source of kernels: the owner of the fork server and of every kernel that it made.

acquire(seed) <- standby kernels <- fork server
canary + bystander -> the probes -> nothing, or SandboxError with the probes that got through

Every acquire orders its successor at once, so the stock refills while lines run, and while the
trainer's event loop stands still. The first kernel is a canary: it tries to break out, because a
library, a container or an old Linux may leave a wall out. If it can, no kernel is given out. Knows
kernels as a whole, and attacks. Does not know what runs in a kernel, nor how a wall is built.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Self

from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.started_kernel import FrontEnd, NoMemoryError, StartedKernel
from repl_sandbox.host.supervisor import SupervisedKernel, closed_on_failure
from repl_sandbox.types import ExecStatus, Isolation, Limits, SandboxError
from repl_sandbox.walls.isolation import ESCAPE, Level, Walls

SEALED = "\nSeccomp:\t2\n"

DECOY_TEXT = "nobody has read this\n"
PROBES: Mapping[str, str] = {
    "start a process": "import os; os.fork() or os._exit(0)",
    "run a program": "import os; os.posix_spawn('/bin/true', ['true'], {{}})",
    "start a thread": "import threading; threading.Thread(target=int).start()",
    "open a socket": "import socket; socket.socket()",
    "read a file": "open({decoy!r}).read()",
    "list a folder": "import os; os.listdir({folder!r})",
    "overwrite a file": "open({decoy!r}, 'w').write('gone')",
    "remove a file": "import os; os.unlink({decoy!r})",
    "see processes": "import os; os.listdir('/proc')",
    "signal a kernel": "import os; os.kill({bystander}, 9)",
    # A C function reports failure by -1.
    "trace a kernel": "import ctypes; 1 / (ctypes.CDLL(None).ptrace(16, {bystander}, 0, 0) + 1)",
    "make a namespace": "import ctypes; 1 / (ctypes.CDLL(None).unshare(0x10000000) + 1)",
    "lift its limits": "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))",
    "import what runs it": "import repl_sandbox.guest.repl",
}
"""Act that a kernel must not be able to do -> a source that does it, and raises if it cannot."""

ACQUIRE_TIMEOUT_S = 60.0
MAX_OPEN_FILES = 1 << 14
MEMORY_PAUSE_S = 0.1
"""Between two attempts to fork where there is no memory."""
SYMPY_WARMUP = (
    """
from sympy import *
x, y = symbols("x y")
n = symbols("n", integer=True, positive=True)
solve(x**2 - 5*x + 6, x), solve([x + y - 3, x - y - 1], [x, y]), solveset(x**3 - x, x)
integrate(x**2 * sin(x), x), integrate(exp(-x**2), (x, -oo, oo)), diff(sin(x) ** 2, x)
simplify(sin(x) ** 2 + cos(x) ** 2), factor(x**4 - 1), expand((x + y) ** 5), apart(1 / (x**2 - 1))
series(sin(x), x, 0, 6), limit(sin(x) / x, x, 0), summation(n**2, (n, 1, 10))
Matrix([[2, 1], [1, 3]]).eigenvals(), Matrix([[1, 2], [3, 4]]).inv(), factorint(360)
str(sqrt(8) + Rational(1, 3) + pi), repr(Eq(x, y)), N(pi, 20), nsimplify(0.5), isprime(97)
x.is_positive, (n + 1).is_positive, ask(Q.even(2 * n)), reduce_inequalities([x > 0, x < 2], x)
""",
)
"""Run once in the fork server, so that every kernel is born with sympy's caches warm."""


class KernelPool:
    """A `KernelSource` over real processes. Use it with `async with`: nothing outlives the block.

    setup:   sources that a kernel has run before it is handed out, as `from sympy import *`.
    warmup:  sources that the fork server runs once, for its caches; None: those for sympy if it
             is preloaded.
    standby: kernels kept ready.
    isolation: the walls to have around each kernel. `walls` has those in force.
    front_end: the way in for a person's client, `repl_sandbox.jupyter.front_ends.LINES`; None: no
               client can attach, and kernels hold nothing of Jupyter.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        preload: Sequence[str] = ("sympy",),
        warmup: Sequence[str] | None = None,
        setup: Sequence[str] = (),
        standby: int = 0,
        isolation: Isolation = Isolation.AUTO,
        front_end: FrontEnd | None = None,
    ) -> None:
        if standby < 0:
            raise ValueError(f"standby must be 0 or more, not {standby}")
        self._limits = limits = limits or Limits()
        self._preload = tuple(preload)
        default_warmup = SYMPY_WARMUP if "sympy" in preload else ()
        self._warmup = tuple(default_warmup if warmup is None else warmup)
        self._standby = standby
        self._isolation = isolation
        self._front_end = front_end
        self.walls = Walls(level=Level.NONE)
        """The walls in force, once the pool is open."""
        self._link = ForkServerClient(limits, setup=setup)
        self._kernels: set[SupervisedKernel] = set()
        self._num_waiting = 0
        self._seeds = itertools.count()
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Start the fork server and have a canary try its walls.

        From here on this process may have 16,384 open files, if it is allowed to: a kernel takes
        two, and the usual soft limit is 1,024.

        Raises SandboxError if it cannot import or warm up, or if a wall is missing.
        """
        _allow_open_files()
        try:
            self.walls = await self._link.start(
                preload=self._preload,
                warmup=self._warmup,
                isolation=self._isolation,
                front_end=self._front_end,
            )
            self._is_open = True
            if self.walls.level is not Level.NONE:
                await inspect(lambda: self.acquire(seed=0), folder=self._link.runtime)
            self._restock(standby=self._standby)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def acquire(self, *, seed: int | None = None) -> SupervisedKernel:
        """A fresh kernel. The caller closes it. When the pool closes, it closes those left.

        seed: what its `random` starts from; the number of kernels that had none before it, if none
              is given.

        Raises SandboxError if the fork server is gone, a folder could not be made, a setup source
        failed or no kernel came in time. If there is no memory for a kernel, the call waits for it.
        """
        self._require_open()
        seed = next(self._seeds) if seed is None else seed
        self._num_waiting += 1
        try:
            started = await self._next_kernel(until_s=time.monotonic() + ACQUIRE_TIMEOUT_S)
        finally:
            self._num_waiting -= 1
        kernel = await self._open(started, seed=seed)
        async with closed_on_failure(kernel):
            # Not earlier: the start of a successor would delay this kernel's first answer.
            self._restock(standby=self._standby)
        return kernel

    async def acquire_console(self, *, seed: int) -> tuple[SupervisedKernel, Path]:
        """A kernel that a person's client can attach to, and its connection file.

        It is made to order, because kernels on standby lack the sockets. It has another thread, for
        its heartbeat. Its end removes the file. Raises as `acquire` does, and if the file cannot be
        written; ValueError for a pool without a front end.
        """
        self._require_open()
        if self._front_end is None:
            raise ValueError(
                "this pool has no front end: a client cannot attach; expected "
                "KernelPool(..., front_end=repl_sandbox.jupyter.front_ends.LINES)"
            )
        started = await self._link.console(timeout_s=ACQUIRE_TIMEOUT_S)
        kernel = await self._open(started, seed=seed)
        async with closed_on_failure(kernel):
            try:
                return kernel, self._front_end.write_connection(started)
            except OSError as error:
                raise SandboxError(f"no connection file for a kernel: {error.strerror}") from error

    async def _next_kernel(self, *, until_s: float) -> StartedKernel:
        while True:
            self._link.drop_lost()
            self._restock(standby=0)
            try:
                return await self._link.next_kernel(timeout_s=ACQUIRE_TIMEOUT_S)
            except NoMemoryError:
                if time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(MEMORY_PAUSE_S)

    def _require_open(self) -> None:
        if not self._is_open:
            raise SandboxError("the pool is not open")

    async def _open(self, started: StartedKernel, *, seed: int) -> SupervisedKernel:
        kernel = SupervisedKernel(started, self._limits, is_server_gone=self._link.is_gone)
        self._kernels = {live for live in self._kernels if not live.is_closed} | {kernel}
        async with closed_on_failure(kernel):
            await kernel.open(seed=seed)
        return kernel

    async def aclose(self) -> None:
        """End every kernel and the fork server, remove every file. Safe to call twice."""
        self._is_open = False
        kernels, self._kernels = self._kernels, set()
        try:
            await asyncio.gather(*(kernel.aclose() for kernel in kernels))
        finally:
            await self._link.aclose()

    def _restock(self, *, standby: int) -> None:
        """Order a kernel for each `acquire` that waits, and `standby` more."""
        while self._link.num_stocked < standby + self._num_waiting:
            self._link.order()


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if resource.RLIM_INFINITY != soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def inspect_consoles(link: ForkServerClient, limits: Limits) -> None:
    """Try the walls around kernels that a person's client gets. SandboxError if they do not hold.

    limits: those of the fork server's kernels.
    """

    async def make() -> SupervisedKernel:
        started = await link.console(timeout_s=ACQUIRE_TIMEOUT_S)
        kernel = SupervisedKernel(started, limits, is_server_gone=link.is_gone)
        async with closed_on_failure(kernel):
            await kernel.open(seed=0)
        return kernel

    await inspect(make, folder=link.runtime, is_console=True)


async def inspect(
    make: Callable[[], Awaitable[SupervisedKernel]], *, folder: Path, is_console: bool = False
) -> None:
    """Raise SandboxError unless every probe fails and leaves decoy and bystander as they were.

    folder: one that all kernels would see if there were no walls.
    is_console: whether they may have threads beside the one that runs lines.
    """
    async with AsyncExitStack() as stack:
        canary, bystander = [
            await stack.enter_async_context(aclosing(await make())) for _ in range(2)
        ]
        await _try_walls(canary, bystander, folder=folder, is_console=is_console)


async def _try_walls(
    canary: SupervisedKernel, bystander: SupervisedKernel, *, folder: Path, is_console: bool
) -> None:
    decoy = folder / "decoy"
    decoy.write_text(DECOY_TEXT)
    # Where all kernels are one user, only the walls protect it.
    decoy.chmod(0o666)
    breaches = []
    for name, source in PROBES.items():
        attempt = source.format(decoy=str(decoy), folder=str(folder), bystander=bystander.pid)
        if (await canary.run(attempt)).status is not ExecStatus.ERROR:
            breaches.append(name)
    threads = _threads(canary.pid)
    if len(threads) != 1 and not is_console:
        breaches.append("run a thread beside its lines")
    if not all(SEALED in status for status in threads):
        breaches.append("have a thread without a filter")
    if not decoy.exists() or decoy.read_text() != DECOY_TEXT:
        breaches.append("change a file")
    if (await bystander.run("print(2)")).output != "2\n":
        breaches.append("harm another kernel")
    decoy.unlink(missing_ok=True)
    if breaches:
        raise SandboxError(
            f"the walls around kernels do not hold: one could {', '.join(breaches)}; {ESCAPE}"
        )


def _threads(pid: int) -> list[str]:
    """Read the operating system's status of each thread of a process."""
    return [(one / "status").read_text() for one in Path(f"/proc/{pid}/task").iterdir()]
