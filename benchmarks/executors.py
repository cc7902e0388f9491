"""Ours beside other executors of Python: `python benchmarks/executors.py [--output DIR]`.

One corpus, the same for the same `--trajectories`: scripted demonstrations of the task sympy-proofs
(tiers 1 and 2, without those that fail), with lines put between theirs until 5 % of all lines
raise, 1 % take 0.2 s of CPU and 0.5 % are endless loops. Each executor works in a process of its
own, line after line, with a session for each trajectory and a limit of `--limit` seconds for each
line, until `--seconds` are over. Faults are spread evenly: any beginning has about the shares.

    repl-rl            our kernel and its own client
    repl-rl, jupyter   the same kernel, asked by jupyter_client
    ipykernel          a stock kernel, asked by jupyter_client
    python -i          the interpreter itself behind pipes, without walls, a process a session
    fresh              the same, a process a line
    re-execution       the same, after all lines of the trajectory before it but the endless ones
    sandlock           `python -i` within its walls (`Sandbox.popen`)
    smolagents         its LocalPythonExecutor: an interpreter of syntax trees, in the client
    autogen-ext        its JupyterCodeExecutor; it has no interrupt, so a timeout restarts it
    swe-rex            `python -i` in a terminal of its LocalRuntime

What is not installed is left out with a word. Endless loops are interrupted where nothing else is
said. `lines/s` counts starts and ends of sessions in, the percentiles do not. `start` is the median
time until a session with sympy has answered a first line (without sessions: the time of a call),
`boot` comes once before all. `MiB` is the proportional set size of all processes, beyond what the
client had before, with as many idle sessions that have sympy loaded.

`same` is the share of lines, endless ones left out, that show what `python -i` shows: equal text
once colours and white space at both ends are off, of a line that raises its last line alone. The
text is stdout, stderr and the value as text/plain, for autogen-ext its `output`, for smolagents its
logs and the repr of its output. `loops` counts the endless loops, those of the corpus and one more,
after which a name still has its value. Rows go to DIR/lines.jsonl and DIR/executors.jsonl, the
latencies as a picture to DIR/executors.svg.
"""

import argparse
import asyncio
import ctypes
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from executor_corpus import LOOP, SHARES, Line, make_corpus
from executor_kinds import DEADLINE_S, EXECUTORS, Open

MARGIN_S = 240.0
"""What an executor may take beyond its seconds: boot, sessions, the last trajectory."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(kw_only=True)
class Measured:
    executor: str
    version: str = ""
    boot_s: float = 0.0
    seconds: float = 0.0
    """All sessions, from the start of the first to the end of the last."""
    start_ms: list[float] = field(default_factory=list)
    mib: dict[str, float] = field(default_factory=dict)
    """By number of sessions."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    is_kept: bool = False
    """Whether a name outlived an endless loop after the others."""

    def row(self) -> dict[str, Any]:
        """Of the table."""
        ms = [line["ms"] for line in self.lines]
        cuts = statistics.quantiles(ms, n=100, method="inclusive")
        survived = [line["is_kept"] for line in self.lines if line["kind"] == "loop"]
        survived.append(self.is_kept)
        compared = [line["is_same"] for line in self.lines if line["kind"] != "loop"]
        return {
            "executor": f"{self.executor} {self.version}".strip(),
            "lines": len(ms),
            "lines/s": len(ms) / self.seconds,
            **{f"p{cut} ms": cuts[cut - 1] for cut in (50, 95, 99)},
            "start ms": statistics.median(self.start_ms),
            "boot s": self.boot_s,
            **{f"MiB, {count}": mib for count, mib in self.mib.items()},
            "same %": 100 * statistics.mean(compared),
            "loops": f"{sum(survived)}/{len(survived)}",
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="for the lines of an executor")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds of a line")
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 8, 32], help="for memory")
    parser.add_argument("--only", nargs="+", choices=EXECUTORS, default=list(EXECUTORS))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    args = parser.parse_args()
    # A shell's background jobs ignore it, and so would the interpreters that are interrupted here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Processes whose parent has ended become our children: they are counted, and ended.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    if args.drive:
        asyncio.run(drive(args))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    with tempfile.TemporaryDirectory(prefix="repl-rl-executors-") as folder:
        corpus = asyncio.run(make_corpus(args.trajectories, args.limit))
        rows = [[asdict(line) for line in trajectory] for trajectory in corpus]
        (Path(folder) / "corpus.json").write_text(json.dumps(rows))
        kinds = [line.kind for trajectory in corpus for line in trajectory]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("plain", *SHARES))
        print(
            f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
            f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}\n"
            f"{len(corpus)} trajectories, {len(kinds)} lines: {counts}",
            flush=True,
        )
        measured = [one for name in args.only if (one := measure(name, args, Path(folder)))]
    if measured:
        print("\n".join(table([one.row() for one in measured])))
    if measured and args.output:
        save(measured, args.output)


def measure(name: str, args: argparse.Namespace, folder: Path) -> Measured | None:
    """None, with a word, for what is not there or fails."""
    package = EXECUTORS[name].package
    try:
        version = metadata.version(package) if package else ""
    except metadata.PackageNotFoundError:
        print(f"{name}: left out, {package} is not installed", flush=True)
        return None
    env = os.environ | {"TMPDIR": str(folder)}  # what a killed one leaves is removed too
    command = [
        *(sys.executable, __file__, "--drive", name, "--output", str(folder)),
        *("--seconds", str(args.seconds), "--limit", str(args.limit)),
        *("--sessions", *map(str, args.sessions)),
    ]
    with open(folder / "errors", "w+") as errors, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=env
    ) as driver:  # fmt: skip
        try:
            driver.wait(args.seconds + MARGIN_S)
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGINT)  # it closes what it has opened
            with suppress(subprocess.TimeoutExpired):
                driver.wait(DEADLINE_S)
            errors.write("out of time")
        finally:
            end_children()
        result = folder / f"{name}.json"
        if result.exists():
            return Measured(**json.loads(result.read_text()), version=version)
        errors.seek(0)
        print(f"{name}: failed, {[*errors.read().splitlines(), '?'][-2:][0]}", flush=True)
    return None


def end_children() -> None:
    for child in (children := psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=DEADLINE_S)


async def drive(args: argparse.Namespace) -> None:
    """Measure one executor in this process; the result goes to a file."""
    rows = json.loads((args.output / "corpus.json").read_text())
    corpus = [[Line(**line) for line in lines] for lines in rows]
    found, before_mib, began = Measured(executor=args.drive), pss_mib(), time.perf_counter()
    async with EXECUTORS[args.drive].boot(args.limit) as open_session:
        found.boot_s = time.perf_counter() - began
        async with AsyncExitStack() as stack:
            num_open = 0
            for count in args.sessions:
                for _ in range(count - num_open):
                    await (await stack.enter_async_context(open_session()))("0")
                num_open = count
                found.mib[str(count)] = pss_mib() - before_mib
        began = time.perf_counter()
        for number, trajectory in enumerate(corpus):
            if time.perf_counter() - began > args.seconds:
                break
            await drive_one(found, open_session, number, trajectory)
        found.seconds = time.perf_counter() - began
        last = Measured(executor=args.drive)
        await drive_one(last, open_session, len(corpus), [LOOP])
        found.is_kept = last.lines[0]["is_kept"]
    result = {name: value for name, value in asdict(found).items() if name != "version"}
    (args.output / f"{args.drive}.json").write_text(json.dumps(result))


async def drive_one(found: Measured, open_session: Open, number: int, lines: list[Line]) -> None:
    started = time.perf_counter()
    async with open_session() as run:
        await run("0")
        found.start_ms.append(1e3 * (time.perf_counter() - started))
        for line in lines:
            is_kept = None
            if line.kind == "loop":
                await run("kept = 41")
            started = time.perf_counter()
            shown = await run(line.source)
            ms = 1e3 * (time.perf_counter() - started)
            if line.kind == "loop":
                is_kept = "42" in await run("print(kept + 1)")  # leaves `_` alone
            found.lines.append(
                {
                    "executor": found.executor,
                    "trajectory": number,
                    **asdict(line),
                    "got": shown,
                    "ms": ms,
                    "is_same": is_same(shown, line),
                    "is_kept": is_kept,
                }
            )


def is_same(shown: str, line: Line) -> bool:
    got, expected = (COLOURS.sub("", text).strip() for text in (shown, line.shown))
    if line.kind == "error":
        return got.rpartition("\n")[2] == expected.rpartition("\n")[2]
    return got == expected


def pss_mib() -> float:
    """Memory of this process and of all that came of it; NaN where it may not be read."""
    me, total = psutil.Process(), 0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            try:
                total += process.memory_full_info().pss
            except psutil.AccessDenied:
                return float("nan")
    return total / (1 << 20)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [[*rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])
        for first, *others in cells
    ]


def _cell(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    return str(value)


def save(measured: Sequence[Measured], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "lines": [line for one in measured for line in one.lines],
        "executors": [one.row() for one in measured],
    }
    for name, rows in tables.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    draw(measured, folder / "executors.svg")


def draw(measured: Sequence[Measured], path: Path) -> None:
    """The latencies of each executor's lines, as a cumulative share, beside its median start. After
    its name comes `same`.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (lines, starts) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for place, one in enumerate(measured):
        ms = statistics.quantiles([line["ms"] for line in one.lines], n=200, method="inclusive")
        shares = [(index + 1) / 200 for index in range(len(ms))]
        width = 2.5 if one.executor.startswith("repl-rl") else 1.2
        lines.step(ms, shares, f"C{place}", where="post", linewidth=width)
        label = f"{one.executor} ({_cell(one.row()['same %'])} %)"
        bar = starts.barh(label, statistics.median(one.start_ms), color=f"C{place}")
        starts.bar_label(bar, fmt="{:.0f}", padding=3)
    lines.set(xscale="log", xlabel="ms of a line", ylabel="share of lines", ylim=(0, 1))
    lines.grid(alpha=0.3)
    starts.set(xscale="log", xlabel="ms until a session has answered")
    starts.margins(x=0.15)
    starts.invert_yaxis()
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    main()
