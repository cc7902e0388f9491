"""Check and measure a GPU: `python benchmarks/gpu.py --model FILE [--output docs/engines.md]`.

Rows are measured in the order of their worth, each in a process of its own with a limit of its own,
and written down as soon as they are there: `gpu.json` beside the page keeps, for each card and each
model, what is whole, and only what is missing is measured. `--rows NAME ...` measures some of them
again. A row that fails keeps its traceback, and the page shows what was measured. Exit code 1 if a
row is not whole. `--device cpu --sizes tiny` does all of it on a random model, a row a core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpu_job import Cells, Job
from gpu_rows import ROWS, measurable

Found = dict[str, dict[str, Cells]]
"""Rows by name, of each place: a card and a model."""

FIGURES: Mapping[str, Mapping[str, str]] = {
    "laws": {"passed": "tests passed, of the engine `hf` and of the update"},
    "line tax": {
        "graph 64 lines tokens/s": "64 rows, lines of 12 tokens and 8 observed, tokens/s",
        "graph 64 line tax": "relative to one uninterrupted line",
        "graph 64 uneven tokens/s": "the same in lines of 4 to 20 tokens, tokens/s",
        "plain 64 lines tokens/s": "without CUDA graphs, lines of 12 and 8, tokens/s",
    },
    "vllm": {
        "vllm 64 lines tokens/s": "vLLM, 64 rows, lines of 12 tokens and 8 observed, tokens/s",
        "vllm 64 line tax": "relative to one uninterrupted line",
    },
    "rollout": {
        "graph 64 second tokens/s": "a rollout of 64 trajectories, kernels and adapter, tokens/s",
        "graph 64 second s": "the same, seconds",
        "plain 8 first tokens/s": "without CUDA graphs, 8 trajectories, tokens/s",
    },
    "busy": {
        f"{ms} ms busy": f"32 trajectories, kernels of {ms} ms a line, the GPU's share of the time"
        for ms in (0, 10, 50, 250)
    },
    "update": {
        "tree tokens/s": "an update of 64 trajectories, all weights, tokens/s",
        "tree GiB": "the same, GiB at the peak",
        "loop tokens/s": "the same with attention that loops over branches, tokens/s",
        "trl tokens/s": "stock TRL's update of them, tokens/s",
        "trl GiB": "the same, GiB at the peak",
    },
    "grpo": {
        "step 1 s": "a whole GRPO step of 8 x 8 with an adapter, seconds",
        "step 1 phases": "the same, by phase",
        "step 2 s": "the step after it, seconds",
        "step 2 phases": "the same, by phase",
        "peak GiB": "GiB at the peak of these steps",
    },
    "vllm grpo": {
        "step 2 s": "a whole GRPO step of 8 x 8 with an adapter, sampled by vLLM, seconds",
        "step 2 phases": "the same, by phase",
    },
    "update long": {
        "tree tokens/s": "an update of 64 x 2,048 tokens, 4 rows at once, checkpointing, tokens/s",
        "tree GiB": "the same, GiB at the peak",
        "trl tokens/s": "stock TRL, tokens/s",
        "trl GiB": "stock TRL, GiB at the peak",
    },
    "update 16k": {
        "tree tokens/s": "0.6 B, an update of 16,384 tokens at once, checkpointing, tokens/s",
        "tree GiB": "the same, GiB at the peak",
        "trl tokens/s": "stock TRL, row by row, tokens/s",
        "trl GiB": "stock TRL, GiB at the peak",
    },
    "tool loop": {
        "trl 50 ms s": "TRL's tool loop, 32 trajectories, 6 calls of 50 ms each, seconds",
        "trl 50 ms busy": "the same, the GPU's share of the time",
        "50 ms s": "repl-rl on as many tokens, seconds",
        "50 ms busy": "the same, the GPU's share of the time",
    },
    "curve": {"rates": "held-out problems solved, from a warm start to GRPO, by seconds"},
    "memory": {
        f"{name} estimate / allocated MiB": f"0.6 B, {name}: MiB estimated and allocated"
        for name in ("mixed", "lora", "checkpointing")
    },
    "gap": {
        "all bfloat16 against autocast": "gap between engine and update, nats a token",
        "all float32 against float32": "the same, both in float32",
    },
    "warm": {"trees s a step": "a step of a warm start, 8 transcripts of 174 tokens, seconds"},
    "killed": {"losses off by": "difference of losses in a run resumed after SIGKILL"},
    "line tax 0.6 B": {
        "graph 64 lines tokens/s": "0.6 B, 64 rows, lines of 12 tokens and 8 observed, tokens/s",
        "graph 64 line tax": "relative to one uninterrupted line",
    },
    "replay": {
        "narrow 319 columns ms": "a decoding step of 64 rows at 320 tokens a row, ms",
        "narrow 2303 columns ms": "the same at 2,304 tokens a row, ms",
        "kernels": "GPU kernels at 320 tokens a row",
    },
    "in flight": {
        f"graph {count} lines tokens/s": f"{count} rows, lines of 12 and 8, tokens/s"
        for count in (32, 128, 512)
    },
    "compiled": {"compiled ms": "a decoding step that torch has compiled, ms"},
}
"""What the page shows of a row, and in which words."""
HEADING = "### Measured by `make gpu`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--sizes", choices=["tiny", "given"], default="given")
    parser.add_argument("--model", help="a folder or a GGUF file; not with --sizes tiny")
    parser.add_argument("--rows", nargs="+", choices=ROWS, help="measure these, again")
    parser.add_argument("--output", type=Path, help="the page that the section ends")
    parser.add_argument("--json", type=Path, help="by default gpu.json, beside the page")
    parser.add_argument("--seconds", type=float, default=560.0, help="for all of it")
    parser.add_argument("--case", choices=ROWS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sizes == "given" and args.model is None:
        parser.error("give --model, or --sizes tiny")
    if args.case:
        model = None if args.sizes == "tiny" else args.model
        measure(args.case, Job(args.device, args.sizes, model))
        return
    if args.device == "cuda" and not sees_gpu():
        parser.error("torch sees no GPU; --device cpu --sizes tiny tries all of it without one")
    file = args.json or (args.output or Path("gpu.md")).with_name("gpu.json")
    found: Found = json.loads(file.read_text()) if file.exists() else {}
    place, machine = about(args)
    rows = found.setdefault(place, {})

    def keep(name: str, cells: Cells) -> None:
        rows[name] = better(name, rows.get(name, {}), {"machine": machine, **cells})
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(table(name, cells), flush=True)

    names = args.rows or missing(rows)
    whole = asyncio.run(measured(names, args, keep))
    if args.output is not None:
        put(args.output, page(found))
    sys.exit(whole != set(names))


def missing(rows: Mapping[str, Cells]) -> list[str]:
    """Return the rows that can be measured here and are not there, or not whole."""
    return [name for name in measurable() if not rows.get(name, {}).get("is whole")]


def better(name: str, before: Cells, after: Cells) -> Cells:
    """Return the later of two tries, or the first if that is more whole or shows more figures."""

    def worth(cells: Cells) -> tuple[bool, int]:
        return bool(cells.get("is whole")), sum(key in cells for key in FIGURES[name])

    return after if worth(after) >= worth(before) else before


async def measured(
    names: Sequence[str], args: argparse.Namespace, keep: Callable[[str, Cells], None]
) -> set[str]:
    """Measure rows, and hand each to `keep`; returns those that are whole.

    One after the other on a GPU. On a CPU, where the figures say nothing, as many as it has cores,
    and limits are longer: they are those of a GPU.
    """
    deadline, whole = time.monotonic() + args.seconds, set()
    is_cuda = args.device == "cuda"
    turn = asyncio.Semaphore(1 if is_cuda else os.cpu_count() or 1)

    async def one(name: str) -> None:
        async with turn:
            left = deadline - time.monotonic()
            if left > 10:
                limit = ROWS[name].limit_s * (1 if is_cuda else 3)
                cells = await row(name, args, min(left, limit))
                keep(name, cells)
                whole.update([name] if cells["is whole"] else [])

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
    return whole


async def row(name: str, args: argparse.Namespace, limit: float) -> Cells:
    """A row by a process of its own, as far as it came."""
    command = [sys.executable, __file__, "--case", name, "--device", args.device]
    command += ["--sizes", args.sizes, *(["--model", args.model] if args.model else [])]
    # Of a CPU other rows want the cores, and models of this size are no faster on several.
    threads = {} if args.device == "cuda" else {"OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=errors, start_new_session=True, env=os.environ | threads
        )
        try:
            code: int | str = await asyncio.wait_for(process.wait(), limit)
        except TimeoutError:
            code = f"cut after {limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):  # all of its session has ended
                os.killpg(process.pid, 9)
            await process.wait()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read())
    cells: Cells = {}
    for line in texts[0].splitlines():
        if line.startswith("ROW "):
            cells |= json.loads(line.removeprefix("ROW "))
    cells["took s"] = round(time.monotonic() - started, 1)
    cells["is whole"] = code == 0
    if code != 0:
        cells["ended"] = code
        cells["stderr"] = texts[1][-2500:]
    return cells


def measure(name: str, job: Job) -> None:
    """Print what a row finds, a line of JSON each; a traceback ends it."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    try:
        for cells in ROWS[name].measure(job):
            job.note(**cells)
    except BaseException:
        job.note(traceback=traceback.format_exc()[-4000:])
        raise


def table(name: str, cells: Cells) -> str:
    """A row as lines of text."""
    lines = [f"\n## {name}"]
    for key, value in cells.items():
        shown = "\n    ".join(map(str, value)) if isinstance(value, list) else value
        lines.append(f"  {key}: {shown}")
    return "\n".join(lines)


def page(found: Found) -> str:
    """The section: what was measured, by machine; a machine of which nothing was has no table."""
    tables: dict[str, list[str]] = {}
    for rows in found.values():
        for name, words in FIGURES.items():
            cells = rows.get(name, {})
            for key in filter(cells.__contains__, words):
                line = f"| {words[key]} | {shown(cells[key])} |"
                tables.setdefault(cells["machine"], []).append(line)
    parts = (
        "\n".join([f"{machine}:\n", "| what | measured |", "|--|--|", *lines]) + "\n"
        for machine, lines in tables.items()
    )
    return "\n".join([HEADING + "\n", *parts])


def shown(value: Any) -> str:
    """A figure in the page's way."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def put(page: Path, text: str) -> None:
    """Let the section `text` end a page, in place of the one that did."""
    heading = text.partition("\n")[0]
    before = page.read_text().partition(heading)[0] if page.exists() else ""
    page.write_text(before + text)


def sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def card(device: str) -> str:
    if device == "cpu":
        return platform.machine()
    import torch

    return torch.cuda.get_device_name()


def about(args: argparse.Namespace) -> tuple[str, str]:
    """(card and model, these with what they run on and the day)."""
    given = "a random model and tiny sizes" if args.sizes == "tiny" else args.model
    model = os.path.basename(os.path.abspath(given))  # a link in a cache leads to another name
    place = f"{card(args.device)}, {model.removesuffix('.gguf')}"
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    found = driver() if args.device == "cuda" else None
    machine = f"{place}, {versions}, {datetime.date.today()}"
    return place, machine + (f", driver {found}" if found else "")


def driver() -> str | None:
    """NVIDIA's, or None: cards of others have no `nvidia-smi`."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return said[0] if said else None  # a line for each card


if __name__ == "__main__":
    main()
