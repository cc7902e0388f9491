"""Check and measure a GPU: `python benchmarks/gpu.py --model FILE [--output docs/engines.md]`.

Rows are measured in the order of their worth, each in a process of its own with a limit of its own,
and written down as soon as they are there: `gpu.json` beside the page keeps what is whole, and only
what is missing is measured. `--rows NAME ...` measures some of them again. A row that fails keeps
its traceback, and the page shows what was measured. Exit code 1 if a row is not whole.
`--device cpu --sizes tiny` does all of it on a random model, in three minutes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_job import Cells, Job
from gpu_rows import ROWS

FIGURES: Mapping[str, Mapping[str, str]] = {
    "laws": {"passed": "tests of the engine `hf` and of the update that pass"},
    "line tax": {
        "graph 64 lines tokens/s": "64 rows, lines of 12 tokens and 8 observed, tokens/s",
        "graph 64 line tax": "relative to one uninterrupted line",
        "graph 64 uneven tokens/s": "the same in lines of 4 to 20 tokens, tokens/s",
        "plain 64 lines tokens/s": "as on a CPU, op by op: lines of 12 and 8, tokens/s",
    },
    "rollout": {
        "graph 64 second tokens/s": "a rollout of 64 trajectories, kernels and adapter, tokens/s",
        "graph 64 second s": "the same, seconds",
        "plain 8 first tokens/s": "as on a CPU, 8 trajectories, tokens/s",
    },
    "update": {
        "tree tokens/s": "an update of 64 trajectories, all weights, tokens/s",
        "tree GiB": "the same, GiB at the peak",
        "loop tokens/s": "by branch, as on a CPU, tokens/s",
        "trl tokens/s": "stock TRL, tokens/s",
    },
    "grpo": {
        "step 2 s": "a GRPO step of 8 x 8 with an adapter, all in, seconds",
        "step 2 phases": "the same, by phase",
        "peak GiB": "the same, GiB at the peak",
    },
    "gap": {
        "all bfloat16 against autocast": "engine beside update, nats a token",
        "all float32 against float32": "the same, both in float32",
    },
    "warm": {"trees s a step": "a step of a warm start, 8 transcripts of 174 tokens, seconds"},
    "replay": {
        "narrow 319 columns ms": "a decoding step of 64 rows at 320 tokens a row, ms",
        "narrow 2303 columns ms": "at 2,304",
        "kernels": "kernels of it",
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
    file = args.json or (args.output or Path("gpu.md")).with_name("gpu.json")
    found: dict[str, Cells] = json.loads(file.read_text()) if file.exists() else {}
    machine, deadline = about(args.device), time.monotonic() + args.seconds
    for name in args.rows or missing(found):
        left = deadline - time.monotonic()
        if left > 10:
            found[name] = {"machine": machine, **row(name, args, min(left, ROWS[name][1]))}
            file.write_text(json.dumps(found, indent=1) + "\n")
            print(table(name, found[name]), flush=True)
    if args.output is not None:
        put(args.output, page(found))
    sys.exit(not all(found.get(name, {}).get("is whole") for name in args.rows or ROWS))


def missing(found: Mapping[str, Cells]) -> list[str]:
    """The rows that are not there, or not whole."""
    return [name for name in ROWS if not found.get(name, {}).get("is whole")]


def row(name: str, args: argparse.Namespace, limit: float) -> Cells:
    """A row by a process of its own, as far as it came."""
    command = [sys.executable, __file__, "--case", name, "--device", args.device]
    command += ["--sizes", args.sizes, *(["--model", args.model] if args.model else [])]
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        try:
            code: int | str = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code = f"cut after {limit:.0f} s"
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
    if not job.is_cuda:
        import torch

        torch.set_num_threads(1)  # of models of this size; other work may be on the machine
    try:
        for cells in ROWS[name][0](job):
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


def page(found: Mapping[str, Cells]) -> str:
    """The section: what was measured, by machine."""
    machines = dict.fromkeys(cells["machine"] for cells in found.values())
    tables = []
    for machine in machines:
        lines = [f"{machine}:\n", "| what | measured |", "|--|--|"]
        for name, words in FIGURES.items():
            cells = found.get(name, {})
            if cells.get("machine") == machine:
                lines += [
                    f"| {words[key]} | {shown(cells[key])} |" for key in words if key in cells
                ]
        tables.append("\n".join(lines) + "\n")
    return "\n".join([HEADING + "\n", *tables])


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


def about(device: str) -> str:
    """The machine, what it runs on, and the day."""
    import torch
    import transformers

    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    found = f"{name}, {versions}, {datetime.date.today()}"
    if device == "cuda":
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        found += f", driver {driver}"
    return found


if __name__ == "__main__":
    main()
