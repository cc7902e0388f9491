"""Kernels as a Jupyter client has them: `python benchmarks/clients.py [-n 5]`.

The kernelspecs `repl-rl` and `repl-rl-lines` beside the stock ipykernel, each through KernelManager
and its blocking client: time from the order to the first reply, and of the first `import sympy`;
round trips of a cell; memory that no other process has. `by command` is the same kernel for a
client without provisioners; `resident` asks `repl-rl kernels serve`, which is started for it.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from rich.console import Console
from rich.table import Table

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
)


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
        with prepared(kind) as name:
            first, *others = [measure(name, args.cells) for _ in range(args.n + 1)]
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


@contextlib.contextmanager
def prepared(kind: str) -> Iterator[str]:
    """The name of the kernelspec, with all that it takes in place."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        os.environ["JUPYTER_PATH"] = folder
        name, _, server = kind.partition(", ")
        with resident() if server else contextlib.nullcontext():
            if name == "repl-rl-by-command":
                spec = KernelSpecManager().get_kernel_spec("repl-rl").to_dict()
                del spec["metadata"]["kernel_provisioner"]
                place = Path(folder, "kernels", name)
                place.mkdir(parents=True)
                (place / "kernel.json").write_text(json.dumps(spec))
            yield name


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


def measure(name: str, num_cells: int) -> Measured:
    before = {one.pid for one in psutil.process_iter()}
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
        brought = [one for one in psutil.process_iter() if one.pid not in before]
        memory_mib = sum(one.memory_full_info().uss for one in brought) / 2**20
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return Measured(ready_ms, import_ms, cells_ms, memory_mib)


if __name__ == "__main__":
    main()
