"""All measurements, one after the other: `python benchmarks/bench.py --output DIR [--only NAME]`.

Says first how long each takes on two cores. What one prints goes to DIR/NAME.txt as well, with the
command, the machine and the versions at its head; rows and pictures to DIR/NAME. One that fails is
said to have failed, and the next begins. A measurement that is whole is not made again, and those
of learning go on where they were ended.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
REAL = ("--model", str(HERE.parent / ".real" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
"""The model that `make real` downloads."""
SMALL = (
    *("--task", "doors:Doors", "--small", "--set", "sandbox.preload=[]"),
    *("--set", "eval.problems=100"),
)
DOORS = (*SMALL, "--rates", "2e-3", "4e-3", "--steps", "20", "--set", "eval.every=4")
FEW = (
    *(*SMALL, "--rates", "1e-3", "1.5e-3", "2e-3", "--steps", "60", "--set", "eval.every=6"),
    *("--set", "grpo.group_size=4", "--set", "grpo.problems_per_step=2"),
    *("--at", "20000", "--arms", "outcome", "line_local 1.0"),
)
PACKAGES = ("repl-rl", "torch", "transformers", "trl", "ipykernel", "sympy")


@dataclass(frozen=True)
class Bench:
    name: str
    minutes: float
    about: str
    words: tuple[str, ...]
    """The script and its arguments; OUT stands for a folder of its own."""


BENCHES = (
    Bench("kernels", 3, "kernels beside a stock ipykernel", ("kernels.py",)),
    Bench("clients", 2, "kernels as a Jupyter client has them", ("clients.py",)),
    Bench("executors", 14, "other executors of Python", ("executors.py", "--output", "OUT")),
    Bench("workers", 2, "rollouts in worker processes", ("workers.py",)),
    Bench("tool-loop", 4, "the loop beside TRL's, with slow tools", ("tool_loop.py",)),
    Bench("sampling", 4, "what interleaving costs an engine", ("sampling.py",)),
    Bench("transformers", 12, "an engine beside theirs", ("sampling.py", *REAL)),
    Bench("sync", 1, "weights to servers, by the way they take", ("sync.py",)),
    Bench("update", 6, "an update beside TRL's", ("update.py", *REAL)),
    Bench("grader", 3, "verdicts and their latency", ("grader.py",)),
    Bench("latex-golds", 2, "answers in LaTeX, read beside math-verify", ("latex_golds.py",)),
    Bench("launches", 1, "what a decoding step launches", ("launches.py",)),
    Bench("tree", 8, "the cost of groups that branch", ("tree.py",)),
    Bench("noise", 1, "how noisy updates of trees are", ("noise.py",)),
    Bench("credit", 60, "estimates of credit beside the truth", ("credit.py", "--output", "OUT")),
    Bench("length", 60, "credit against length", ("length.py", "--output", "OUT")),
    Bench("doors", 95, "credit where all lines matter", ("learning.py", *DOORS, "--output", "OUT")),
    Bench("few", 35, "the same, 8 trajectories a step", ("learning.py", *FEW, "--output", "OUT")),
    Bench("forms", 700, "lines, blocks, scripts and texts", ("forms.py", "--output", "OUT")),
    Bench("starters", 20, "recipes of starters", ("starters.py", "--output", "OUT")),
    Bench("density", 120, "starts of 2, 4 and 8 lines", ("density.py", "--output", "OUT")),
    Bench("main-job", 75, "the default run, three seeds", ("main_job.py",)),
    Bench("learning", 480, "learning by credit", ("learning.py", "--output", "OUT")),
)


def main() -> None:
    names = [one.name for one in BENCHES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    args = parser.parse_args()
    chosen = [one for one in BENCHES if one.name in args.only]
    for one in chosen:
        print(f"{one.name:<12} {one.about:<42} about {duration(one.minutes)}")
    print(f"{'all':<12} {'':<42} about {duration(sum(one.minutes for one in chosen))}")
    if args.dry_run:
        return
    args.output.mkdir(parents=True, exist_ok=True)
    results = [run(one, args.output.resolve()) for one in chosen]
    print("\n" + "\n".join(results))
    sys.exit(any("failed" in one for one in results))


def run(bench: Bench, output: Path) -> str:
    """Run one, unless it is whole. Returns a row of the summary."""
    path = output / f"{bench.name}.txt"
    if path.exists():
        return f"{bench.name:<12} there already: {path}"
    words = [str(output / bench.name) if word == "OUT" else word for word in bench.words]
    print(f"\n{bench.name}: {' '.join(words)}", flush=True)
    began = time.monotonic()
    said = head(words)
    with subprocess.Popen(
        [sys.executable, str(HERE / words[0]), *words[1:]], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for row in process.stdout:
            print(row, end="", flush=True)
            said += row
    minutes = (time.monotonic() - began) / 60
    if process.returncode:
        return f"{bench.name:<12} failed with exit code {process.returncode}"
    path.write_text(said)
    return f"{bench.name:<12} {duration(minutes)}: {path}"


def head(words: Sequence[str]) -> str:
    """What a table cannot be compared without."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"# python benchmarks/{' '.join(words)}\n# {os.cpu_count()} cores, {processor()}, "
        f"{platform.system()}, Python {platform.python_version()}\n# {versions}\n"
    )


def processor() -> str:
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    return next((row.partition(":")[2].strip() for row in rows if row.startswith("model name")), "")


def fast_dtype() -> str:
    """`grpo.dtype` for a pretrained model: in bfloat16 where the device is fast in it."""
    import torch

    from repl_rl.models.precision import is_fast_in_bfloat16

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return "mixed" if is_fast_in_bfloat16(device) else "float32"


def duration(minutes: float) -> str:
    return f"{minutes / 60:.0f} h" if minutes >= 120 else f"{minutes:.0f} min"


if __name__ == "__main__":
    main()
