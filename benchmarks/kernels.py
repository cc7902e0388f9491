"""Measure the kernels: `python benchmarks/kernels.py [--quick] [--isolation none]`, one table.

Our kernels beside stock ipykernels in the same minutes: start, latency of a line, lines per second,
private memory. Prints medians over the counts named below the table; the first of each is left out.
Choices favour the stock kernel: its start ends with the first reply (no `wait_for_ready`), and its
client opens no heartbeat and no control channel.
"""

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from queue import Empty
from subprocess import DEVNULL

import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from repl_sandbox.host.pool import KernelPool
from repl_sandbox.jupyter.front_ends import LINES, address
from repl_sandbox.types import Isolation, Limits

IMPORT = "from sympy import *"
SYMBOLS = 's, t = symbols("s t")'
LINE = "x = 2"
OTHER_LINES = ("1+1", "1/0", "expand((s + t)**8)")
SESSION = (
    'x, y, z = symbols("x y z")',
    'n = symbols("n", integer=True, positive=True)',
    "p = expand((x + y)**6)",
    "p",
    "factor(p)",
    "factor(x**6 - 1)",
    "solve(x**2 - 5*x + 6, x)",
    "solve([x + 2*y - 3, 3*x - y - 2], [x, y])",
    "solve(x**3 - 6*x**2 + 11*x - 6, x)",
    "diff(sin(x)**2 * exp(-x), x)",
    "integrate(x**2 * cos(x), x)",
    "integrate(exp(-x**2), (x, -oo, oo))",
    "series(exp(x) * cos(x), x, 0, 7)",
    "limit((1 + 1/n)**n, n, oo)",
    "limit(sin(3*x) / x, x, 0)",
    "summation(n**2, (n, 1, 50))",
    "m = Matrix([[2, 1, 0], [1, 3, 1], [0, 1, 2]])",
    "m.eigenvals()",
    "m.inv() * m",
    "simplify(sin(x)**4 - cos(x)**4 + cos(2*x))",
    "apart(1 / (x**3 - x), x)",
    "trigsimp(cos(x)**2 - sin(x)**2)",
    "nsimplify(0.125) + Rational(7, 8)",
    "N(pi**2 / 6, 30)",
)
DEADLINE_S = 30.0
SUBSCRIBED_S = 0.2
CHANNELS = {"stdin": False, "hb": False, "control": False}

START = "start with sympy to first reply"
STANDBY = "the same, from standby"
LATENCY = "line {}, p50 / p99"
THROUGH_STOCK = "x = 2 through jupyter_client, p50 / p99"
THROUGHPUT = "lines per second, {} kernels"
FRESH = "private memory, fresh"
USED = "private memory, after 24 lines of sympy"
CROWD = "200 kernels at once, all have answered"
CROWD_LINES = "line x = 2 in all 200 at once, p99"

Figures = dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    name: str
    unit: str
    target: tuple[float, ...] = ()
    bound: str = "<="
    """How a figure should compare with its target; `~` is not checked."""


QUANTITIES = (
    Quantity(name=START, unit="ms", target=(20,)),
    Quantity(name=STANDBY, unit="ms", target=(0,), bound="~"),
    Quantity(name=LATENCY.format(LINE), unit="ms", target=(0.5, 1.0)),
    *(Quantity(name=LATENCY.format(line), unit="ms") for line in OTHER_LINES),
    Quantity(name=THROUGH_STOCK, unit="ms", target=(2.0,)),
    Quantity(name=THROUGHPUT.format(16), unit="/s"),
    Quantity(name=THROUGHPUT.format(32), unit="/s", target=(4000,), bound=">="),
    Quantity(name=FRESH, unit="MiB", target=(12,)),
    Quantity(name=USED, unit="MiB", target=(25,)),
    Quantity(name=CROWD, unit="s", target=(4,)),
    Quantity(name=CROWD_LINES, unit="ms", target=(200,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How often each thing is measured. A warm-up of each comes on top."""

    stock_starts: int = 5
    our_starts: int = 20
    stock_lines: int = 300
    our_lines: int = 2000
    stock_lines_each: int = 20
    our_lines_each: int = 200
    crowd_lines_each: int = 20
    repeats: int = 3
    """Of a throughput."""


QUICK = Counts(**{name: max(1, count // 4) for name, count in asdict(Counts()).items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A kernel of either side that has answered its first line, with sympy imported."""

    start_ms: float
    run: Callable[[str], Awaitable[str]]
    """Run a line to its end; `ok` or what happened instead."""
    pid: int


Open = Callable[[], AbstractAsyncContextManager[Opened]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, rougher figures")
    parser.add_argument("--isolation", type=Isolation, choices=[*Isolation], default="auto")
    args = parser.parse_args()
    counts = QUICK if args.quick else Counts()
    print(
        f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="repl-rl-benchmark-") as folder:
        # A stock kernel leaves its history and connection file there.
        os.environ |= {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        stock = asyncio.run(measure_stock(counts))
        ours, walls = asyncio.run(measure_ours(counts, args.isolation))
    print(f"isolation of our kernels: {walls}\n")
    print("\n".join(table(stock, ours)))
    print(
        f"\nstock / ours: starts and memory, median of {counts.stock_starts} / {counts.our_starts}"
        f" kernels; lines, {counts.stock_lines} / {counts.our_lines}; lines per second, median of "
        f"{counts.repeats} times {counts.stock_lines_each} / {counts.our_lines_each} lines a kernel"
    )


def table(stock: Figures, ours: Figures) -> list[str]:
    lines = [f"{'quantity':<42} {'stock':>16} {'ours':>16} {'target':>16}"]
    for quantity in QUANTITIES:
        figures = ours.get(quantity.name, ())
        shown = " / ".join(f"{value:g}" for value in quantity.target)
        target = f"{quantity.bound} {shown} {quantity.unit}" if quantity.target else ""
        is_missed = any(
            (quantity.bound == "<=" and figure > aim) or (quantity.bound == ">=" and figure < aim)
            for figure, aim in zip(figures, quantity.target, strict=False)
        )
        cells = [_cell(side.get(quantity.name, ()), quantity.unit) for side in (stock, ours)]
        missed = "  missed" if is_missed else ""
        lines.append(f"{quantity.name:<42} {cells[0]:>16} {cells[1]:>16} {target:>16}{missed}")
    return lines


def _cell(figures: Sequence[float], unit: str) -> str:
    shown = (
        f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
        for value in figures
    )
    return f"{' / '.join(shown)} {unit}" if figures else "-"


async def measure_stock(counts: Counts) -> Figures:
    context = zmq.asyncio.Context()
    try:
        open_kernel = partial(stock_kernel, context)
        figures = await starts_and_memory(open_kernel, counts.stock_starts)
        async with open_kernel() as kernel:
            figures |= await latencies(kernel, counts.stock_lines)
        figures[THROUGH_STOCK] = figures[LATENCY.format(LINE)]
        figures |= await throughput(open_kernel, 16, counts.stock_lines_each, counts.repeats)
    finally:
        context.destroy(linger=0)
    return figures


async def measure_ours(counts: Counts, isolation: Isolation) -> tuple[Figures, str]:
    """(the figures, the walls that stood around the kernels)."""
    new_pool = partial(KernelPool, Limits(), setup=(IMPORT,), isolation=isolation)
    async with new_pool() as pool:
        walls = str(pool.walls)
        open_kernel = partial(our_kernel, pool)
        figures = await starts_and_memory(open_kernel, counts.our_starts)
        async with open_kernel() as kernel:
            figures |= await latencies(kernel, counts.our_lines)
        for num_kernels in (16, 32):
            figures |= await throughput(
                open_kernel, num_kernels, counts.our_lines_each, counts.repeats
            )
        figures |= await crowd(open_kernel, counts.crowd_lines_each)
    async with new_pool(front_end=LINES) as pool:
        figures |= await through_stock_client(pool, counts.stock_lines)
    async with new_pool(standby=4) as pool:
        figures[STANDBY] = await standby_start(partial(our_kernel, pool), counts.our_starts)
    return figures, walls


async def starts_and_memory(open_kernel: Open, num_kernels: int) -> Figures:
    start_ms, fresh_mib, used_mib = [], [], []
    for _ in range(num_kernels + 1):
        async with open_kernel() as kernel:
            start_ms.append(kernel.start_ms)
            fresh_mib.append(private_mib(kernel.pid))
            for line in SESSION:
                status = await kernel.run(line)
                assert status == "ok", f"{line!r}: {status}"
            used_mib.append(private_mib(kernel.pid))
    return {
        name: (statistics.median(values[1:]),)
        for name, values in ((START, start_ms), (FRESH, fresh_mib), (USED, used_mib))
    }


async def standby_start(open_kernel: Open, num_kernels: int) -> tuple[float]:
    start_ms = []
    for _ in range(num_kernels + 1):
        await asyncio.sleep(0.2)  # longer than a birth: the stock is full again
        async with open_kernel() as kernel:
            start_ms.append(kernel.start_ms)
    return (statistics.median(start_ms[1:]),)


async def latencies(kernel: Opened, num_lines: int) -> Figures:
    await kernel.run(SYMBOLS)
    return {
        LATENCY.format(line): p50_p99(await line_ms(kernel, line, num_lines))
        for line in (LINE, *OTHER_LINES)
    }


async def line_ms(kernel: Opened, line: str, num_lines: int) -> list[float]:
    """The time of each of `num_lines` lines, after one that is left out."""
    await kernel.run(line)
    taken_ms = []
    for _ in range(num_lines):
        started = time.perf_counter()
        await kernel.run(line)
        taken_ms.append(_ms_since(started))
    return taken_ms


async def through_stock_client(pool: KernelPool, num_lines: int) -> Figures:
    """jupyter_client talks to a console of ours over the sockets in its folder."""
    kernel, _path = await pool.acquire_console(seed=0)
    context = zmq.asyncio.Context()
    # A kernel's owner keeps these to itself: the place of its sockets, and their key.
    started = kernel._started
    client = AsyncKernelClient(context=context, **address(started.folder))
    client.session.key = started.key
    try:
        client.start_channels(**CHANNELS)
        await _subscribed(client)
        opened = Opened(start_ms=0, run=partial(ask, client), pid=kernel.pid)
        return {THROUGH_STOCK: p50_p99(await line_ms(opened, LINE, num_lines))}
    finally:
        client.stop_channels()
        context.destroy(linger=0)
        await kernel.aclose()


async def throughput(
    open_kernel: Open, num_kernels: int, num_lines_each: int, repeats: int
) -> Figures:
    """One line in flight in each kernel, the client's work included."""
    per_s = []
    async with AsyncExitStack() as stack:
        kernels = await open_many(stack, open_kernel, num_kernels)
        for _ in range(repeats + 1):
            started = time.perf_counter()
            await asyncio.gather(*(line_ms(kernel, LINE, num_lines_each) for kernel in kernels))
            num_lines = num_kernels * (num_lines_each + 1)
            per_s.append(num_lines / (time.perf_counter() - started))
    return {THROUGHPUT.format(num_kernels): (statistics.median(per_s[1:]),)}


async def crowd(open_kernel: Open, num_lines_each: int) -> Figures:
    async with AsyncExitStack() as stack:
        started = time.perf_counter()
        kernels = await open_many(stack, open_kernel, 200)
        start_s = time.perf_counter() - started
        all_ms = await asyncio.gather(
            *(line_ms(kernel, LINE, num_lines_each) for kernel in kernels)
        )
    _, p99 = p50_p99([taken for of_kernel in all_ms for taken in of_kernel])
    return {CROWD: (start_s,), CROWD_LINES: (p99,)}


async def open_many(stack: AsyncExitStack, open_kernel: Open, num_kernels: int) -> list[Opened]:
    """Kernels started all at once; the stack closes them."""
    async with asyncio.TaskGroup() as tasks:
        opening = [
            tasks.create_task(stack.enter_async_context(open_kernel())) for _ in range(num_kernels)
        ]
    return [task.result() for task in opening]


@asynccontextmanager
async def our_kernel(pool: KernelPool) -> AsyncIterator[Opened]:
    started = time.perf_counter()
    kernel = await pool.acquire(seed=0)

    async def run(source: str) -> str:
        return (await kernel.run(source)).status

    try:
        await run(LINE)
        yield Opened(start_ms=_ms_since(started), run=run, pid=kernel.pid)
    finally:
        await kernel.aclose()


@asynccontextmanager
async def stock_kernel(context: zmq.asyncio.Context) -> AsyncIterator[Opened]:
    started = time.perf_counter()
    manager = AsyncKernelManager(kernel_name="python3", context=context)
    await manager.start_kernel(stdout=DEVNULL, stderr=DEVNULL)
    client = manager.client()
    try:
        client.start_channels(**CHANNELS)
        client.execute(f"{IMPORT}\n{LINE}")
        await client.get_shell_msg(timeout=DEADLINE_S)
        start_ms = _ms_since(started)
        await _subscribed(client)
        pid = int(manager.provisioner.pid)
        yield Opened(start_ms=start_ms, run=partial(ask, client), pid=pid)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def ask(client: AsyncKernelClient, source: str, *, idle_s: float = DEADLINE_S) -> str:
    """Run a line by the stock client, until its reply and the kernel's `idle` are there."""
    msg_id = client.execute(source)
    reply = await client.get_shell_msg(timeout=DEADLINE_S)
    assert reply["parent_header"]["msg_id"] == msg_id
    while True:
        message = await client.get_iopub_msg(timeout=idle_s)
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        if message["content"].get("execution_state") == "idle":
            return str(reply["content"]["status"])


async def _subscribed(client: AsyncKernelClient) -> None:
    """Return once iopub is received: what a kernel publishes before that is lost."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            await ask(client, "", idle_s=SUBSCRIBED_S)
        except Empty:
            continue
        return
    raise TimeoutError("iopub stayed silent")


def private_mib(pid: int) -> float:
    """Memory that would be free without this process; NaN where it may not be read."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except PermissionError:
        return float("nan")
    private = (line for line in rollup if line.startswith(("Private_Clean:", "Private_Dirty:")))
    return sum(int(line.split()[1]) for line in private) / 1024


def p50_p99(values: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def _ms_since(started: float) -> float:
    return 1e3 * (time.perf_counter() - started)


if __name__ == "__main__":
    main()
