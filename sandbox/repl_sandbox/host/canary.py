"""The first kernel of a fork server tries to break out. If it can, no kernel is given out.

canary + bystander -> the probes -> nothing, or SandboxError with the probes that got through

Walls are tested, because a library, a container or an old Linux may leave one out. Knows attacks.
Does not know how a wall is built.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.supervisor import SupervisedKernel, closed_on_failure
from repl_sandbox.types import ExecStatus, Limits, SandboxError
from repl_sandbox.walls.isolation import ESCAPE

KERNEL_TIMEOUT_S = 60.0
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


async def inspect_consoles(link: ForkServerClient, limits: Limits) -> None:
    """Try the walls around kernels that a person's client gets. SandboxError if they do not hold.

    limits: those of the fork server's kernels.
    """

    async def make() -> SupervisedKernel:
        started = await link.console(timeout_s=KERNEL_TIMEOUT_S)
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
