"""Measure the main job: `python benchmarks/main_job.py [--seeds 0 1 2]`, a row a seed.

Runs `repl-rl train --task sympy-proofs` as a user would, one seed after another, and reads the run
folders. Prints wall time, held-out solve rate before and after, speed, peak memory.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from repl_rl.runs.metrics import read_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    args = parser.parse_args()
    print(f"{'seed':>4} {'before':>7} {'after':>7} {'steps min':>9} {'all min':>8} "
          f"{'tokens/s':>9} {'lines/s':>8} {'peak GiB':>9}")  # fmt: skip
    for seed in args.seeds:
        with tempfile.TemporaryDirectory(prefix="repl-rl-benchmark-") as folder:
            print(measure(seed, Path(folder) / "run", args.overrides), flush=True)


def measure(seed: int, run: Path, overrides: list[str]) -> str:
    """One seed's row."""
    command = [sys.executable, "-c", "from repl_rl.commands.cli import main; main()", "train"]
    command += ["--task", "sympy-proofs", "--seed", str(seed), "--output", str(run)]
    for override in overrides:
        command += ["--set", override]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_kib = 0
    while process.poll() is None:
        peak_kib = max(peak_kib, proportional_kib(process.pid))
        time.sleep(2)
    minutes = (time.monotonic() - started) / 60
    if process.returncode:
        raise SystemExit(f"seed {seed}: exit code {process.returncode}")
    curve = read_curve(run)
    steps = [step.numbers for step in curve.steps]
    before, *_, after = curve.evaluations
    step_minutes = sum(row["step_time"] for row in steps) / 60
    return (
        f"{seed:>4} {before.rate:>7.1%} {after.rate:>7.1%} {step_minutes:>9.1f} {minutes:>8.1f} "
        f"{mean(steps, 'rollout/tokens_per_s'):>9,.0f} {mean(steps, 'rollout/lines_per_s'):>8,.0f} "
        f"{peak_kib / 2**20:>9.2f}"
    )


def mean(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def proportional_kib(pid: int) -> int:
    """Memory of a process and all below it; a page that n processes share counts 1/n in each."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it ended in the meantime
        return 0
    own = sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return own + sum(proportional_kib(int(child)) for child in children)


if __name__ == "__main__":
    main()
