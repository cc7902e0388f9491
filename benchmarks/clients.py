"""Kernels as a Jupyter client has them: `python benchmarks/clients.py [-n 5]`.

The kernelspecs `repl-rl` and `repl-rl-lines` beside the stock ipykernel, each through KernelManager
and its blocking client: time from the order to the first reply, and of the first `import sympy`;
round trips of a cell; memory that no other process has. `by command` is the same kernel for a
client without provisioners; `resident` asks `repl-rl kernels serve`, which is warm; `activated` is
the first kernel after systemd has opened that server's socket: the order starts the server.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from rich.console import Console
from rich.table import Table

from repl_sandbox.jupyter.configuration import resident_address

TIMEOUT_S = 60.0
CELL = "x = 2"
IMPORT = "import sympy"
KINDS = (
    "python3",
    "repl-rl",
    "repl-rl-by-command",
    "repl-rl-lines",
    "repl-rl, resident",
    "repl-rl-by-command, resident",
    "repl-rl, activated",
)

# The convention of systemd: the socket is descriptor 3, and the variables say for whom.
ACTIVATE = """
import os, select, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
print("ready", flush=True)
select.select([3], [], [])
os.execv(sys.executable, [sys.executable, "-m", "repl_sandbox.jupyter.serve"])
"""


@dataclass(frozen=True, slots=True)
class Measured:
    ready_ms: float
    """From the order to the first reply, which says what kernel it is."""
    import_ms: float
    cells_ms: list[float]
    memory_mib: float
    """Of all processes that this kernel brought."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=5, help="kernels of each kind, after one more")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, metavar="KIND")
    parser.add_argument("--cells", type=int, default=200, help="round trips in each kernel")
    args = parser.parse_args()
    table = Table(title=f"{args.n} kernels of each kind, {args.cells} cells in each")
    for column in ("kernel", "first start", "start", IMPORT, "cell p50 / p99", "memory"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for kind in args.kinds:
        with prepared(kind) as (name, around):
            kernels = []
            for _ in range(args.n + 1):
                with around():
                    kernels.append(measure(name, args.cells))
        first, *others = kernels
        cells = statistics.quantiles([ms for one in others for ms in one.cells_ms], n=100)
        table.add_row(
            kind,
            f"{first.ready_ms:.0f} ms",
            f"{statistics.median(one.ready_ms for one in others):.0f} ms",
            f"{statistics.median(one.import_ms for one in others):.0f} ms",
            f"{cells[49]:.1f} / {cells[98]:.1f} ms",
            f"{statistics.median(one.memory_mib for one in others):.0f} MiB",
        )
    Console(width=100).print(table)


Around = Callable[[], AbstractContextManager[None]]


@contextlib.contextmanager
def prepared(kind: str) -> Iterator[tuple[str, Around]]:
    """The name of the kernelspec, with all that it takes in place, and what each kernel needs."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        os.environ["JUPYTER_PATH"] = folder
        name, _, server = kind.partition(", ")
        with resident() if server == "resident" else contextlib.nullcontext():
            if name == "repl-rl-by-command":
                spec = KernelSpecManager().get_kernel_spec("repl-rl").to_dict()
                del spec["metadata"]["kernel_provisioner"]
                place = Path(folder, "kernels", name)
                place.mkdir(parents=True)
                (place / "kernel.json").write_text(json.dumps(spec))
            yield name, activated if server == "activated" else contextlib.nullcontext


@contextlib.contextmanager
def resident() -> Iterator[None]:
    command = [str(Path(sys.executable).with_name("repl-rl")), "kernels", "serve"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if line.startswith("listening"):
                break
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


@contextlib.contextmanager
def activated() -> Iterator[None]:
    """A socket whose first client starts the server, as systemd does it."""
    address = resident_address()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen()
        passed = listener.fileno()
        command = [sys.executable, "-c", ACTIVATE, str(passed)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[passed])
    assert server.stdout is not None
    server.stdout.readline()
    try:
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        address.unlink()


def measure(name: str, num_cells: int) -> Measured:
    before = _below()
    manager = KernelManager(kernel_name=name)
    started = time.perf_counter()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        # Not `wait_for_ready`: when all is there it waits for 0.2 s more.
        client.kernel_info(reply=True, timeout=TIMEOUT_S)
        ready_ms = (time.perf_counter() - started) * 1e3
        client.wait_for_ready(timeout=TIMEOUT_S)

        def run(code: str) -> float:
            begun = time.perf_counter()
            reply = client.execute_interactive(code, timeout=TIMEOUT_S, output_hook=lambda _: None)
            assert reply["content"]["status"] == "ok", reply["content"]
            return (time.perf_counter() - begun) * 1e3

        run(CELL)
        import_ms = run(IMPORT)
        cells_ms = [run(CELL) for _ in range(num_cells)]
        memory_mib = sum(one.memory_full_info().uss for one in _below() - before) / 2**20
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return Measured(ready_ms, import_ms, cells_ms, memory_mib)


def _below() -> set[psutil.Process]:
    """All processes that this one, or one of them, has started."""
    return set(psutil.Process().children(recursive=True))


if __name__ == "__main__":
    main()
