"""The first kernel of a pool tries to break out. If it can, the pool gives out no kernel.

canary + bystander -> the probes -> nothing, or SandboxError with the probes that got through

Walls are tested, because a library, a container or an old Linux may leave one out. Knows attacks.
Does not know how a wall is built.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from repl_sandbox.isolation import ESCAPE
from repl_sandbox.types import ExecStatus, Kernel, SandboxError

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
    "import what runs it": "import repl_sandbox.repl",
}
"""What a kernel must not be able to do -> a source that does it, and raises if it cannot."""


class Subject(Kernel, Protocol):
    """A kernel whose process number is known outside."""

    @property
    def pid(self) -> int: ...


async def inspect(canary: Subject, bystander: Subject, *, folder: Path) -> None:
    """Raise SandboxError unless every probe fails and leaves decoy and bystander as they were.

    folder: one that both kernels would see if there were no walls.
    """
    decoy = folder / "decoy"
    decoy.write_text(DECOY_TEXT)
    # Where all kernels are one user, only the walls protect it.
    decoy.chmod(0o666)
    through = []
    for name, source in PROBES.items():
        attempt = source.format(decoy=str(decoy), folder=str(folder), bystander=bystander.pid)
        if (await canary.run(attempt)).status is not ExecStatus.ERROR:
            through.append(name)
    if len(os.listdir(f"/proc/{canary.pid}/task")) != 1:
        through.append("run a thread beside its lines")
    if not decoy.exists() or decoy.read_text() != DECOY_TEXT:
        through.append("change a file")
    if (await bystander.run("print(2)")).output != "2\n":
        through.append("harm another kernel")
    decoy.unlink(missing_ok=True)
    if through:
        raise SandboxError(
            f"the walls around kernels do not hold: one could {', '.join(through)}; {ESCAPE}"
        )
