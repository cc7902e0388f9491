"""Configuration of a person's kernels, and the end of a connection to a resident server of such.

a kernelspec's `config`, a command's options, defaults -> Configuration
Configuration -> the server of `repl_sandbox.jupyter.serve` -> StartedKernel, or None

Imports no event loop: half of what a client waits for would be that import. Knows names, numbers
and packets. Does not know how a kernel is started, nor what it is for.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.types import MAX_PACKET_BYTES, PERSON_CPU_S, Isolation, Limits

if TYPE_CHECKING:
    import argparse

    from repl_sandbox.host.fork_server_client import ForkServerClient

PACKAGES = ("jinja2", "matplotlib", "numpy", "pandas", "scipy", "sympy")
"""Packages that a notebook may import unless it is told otherwise."""

KERNEL_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings of a person's kernels and their fork server; kernels of equal ones are alike."""

    lines: bool = False
    """True where its kernels are the classic REPL, line by line; else IPython, cell by cell."""
    isolation: Isolation = Isolation.AUTO
    preload: tuple[str, ...] = ()
    """Modules that are imported before a kernel is born."""
    packages: tuple[str, ...] = PACKAGES
    """Modules that a kernel may import, of those that are installed."""
    setup: tuple[str, ...] = ()
    """Sources that each kernel runs before its first cell."""
    memory_mib: int = 2048
    kernel_cpu_s: int = PERSON_CPU_S
    max_output_chars: int = 1 << 20
    """Most characters of one line's output. Cells print as much as they like."""

    def covers(self, other: Configuration) -> bool:
        """Return whether these kernels can stand in for those of `other`: more may be preloaded."""
        is_loaded = set(other.preload) <= set(self.preload)
        return is_loaded and replace(other, preload=self.preload) == self

    def installed(self) -> tuple[str, ...]:
        """Return the installed ones of `packages`."""
        return tuple(name for name in self.packages if find_spec(name) is not None)

    async def start_server(self) -> ForkServerClient:
        """A fork server of such kernels, whose walls were tried. SandboxError if there is none."""
        # Half of what a client waits for would be their import, where a resident server is there.
        from repl_sandbox.host.fork_server_client import ForkServerClient
        from repl_sandbox.host.pool import SYMPY_WARMUP, inspect_consoles
        from repl_sandbox.jupyter.front_ends import CELLS, LINES
        from repl_sandbox.walls.isolation import Level

        limits = Limits(
            memory_mib=self.memory_mib,
            kernel_cpu_s=self.kernel_cpu_s,
            max_output_chars=self.max_output_chars,
        )
        link = ForkServerClient(limits, setup=self.setup)
        try:
            walls = await link.start(
                preload=self.preload,
                packages=self.installed(),
                warmup=SYMPY_WARMUP if "sympy" in self.preload else (),
                isolation=self.isolation,
                front_end=LINES if self.lines else CELLS,
            )
            if walls.level is not Level.NONE:
                await inspect_consoles(link, limits)
        except BaseException:
            await link.aclose()
            raise
        return link


def names_in(text: str) -> tuple[str, ...]:
    """Modules as an option names them, with commas between."""
    return tuple(name for name in text.replace(" ", "").split(",") if name)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the commands of this folder are told. What is not given is None."""
    parser.add_argument("--isolation", type=Isolation, choices=list(Isolation))
    for name in ("preload", "packages"):
        parser.add_argument(f"--{name}", type=names_in, metavar="NAME,...")
    parser.add_argument("--memory-mib", type=int)


def configuration_of(options: argparse.Namespace) -> Configuration:
    """Return the settings that the options give, and the usual where they say nothing."""
    names = {field.name for field in fields(Configuration)}
    given = {name: value for name, value in vars(options).items() if name in names}
    return Configuration(**{name: value for name, value in given.items() if value is not None})


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
