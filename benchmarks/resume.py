"""Kill a training at random points and resume it: `python benchmarks/resume.py [-n 50]`.

A run of eight steps is made whole once. Then a row a kill: when SIGKILL came, what was under way,
what outlived it, and in what the resumed run differs from the whole one. All of it is bit for bit,
but for what a clock measures. One trajectory is sampled at a time, as rows of a batch round by what
is beside them. Without --model it trains a random model of two layers.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from same_run import differences
from small_run import small
from tiny_model import save_tiny_model

SETTINGS = small(
    grpo__steps=8,
    grpo__micro_batch_size=2,
    grpo__learning_rate=1e-3,
    grpo__kl_beta=0.01,
    eval__every=3,
    report__checkpoint_every=2,
    report__sample_every=99,
    sampling__max_in_flight=1,
)
GONE_WITHIN_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=50, help="how many kills")
    parser.add_argument("--model")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="repl-rl-benchmark-") as scratch:
        folder = Path(scratch)
        model = args.model or str(save_tiny_model(folder / "model"))
        whole = folder / "whole"
        seconds = wait(start(folder, "--model", model, "--output", "whole", *SETTINGS), whole)
        print(f"a whole run takes {seconds:.1f} s from its first file on")
        print(f"{'kill':>4} {'after s':>8}  {'under way':14} {'left':>4}  differs in")
        bad = 0
        for number in range(args.n):
            after = rng.uniform(0, seconds)
            name = f"run-{number}"
            process = start(folder, "--model", model, "--output", name, *SETTINGS)
            where, left = kill(process, folder / name, after)
            wait(start(folder, "--resume", name), folder / name)
            found = differences(whole, folder / name)
            bad += bool(found or left)
            print(f"{number:>4} {after:>8.2f}  {where:14} {left:>4}  {'; '.join(found[:3]) or '-'}",
                  flush=True)  # fmt: skip
        print(f"{args.n - bad} of {args.n} as the whole run, nothing left behind")
    sys.exit(bool(bad))


def start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", "from repl_rl.commands.cli import main; main()", "train"]
    with (folder / "out").open("ab") as out:
        return subprocess.Popen(
            [*command, *words],
            cwd=folder,
            stdout=out,
            stderr=out,
            # A sum over more threads may have another order.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def wait(process: "subprocess.Popen[bytes]", run: Path) -> float:
    """Seconds from the run's first file to the end of the process."""
    began = None
    while process.poll() is None:
        if began is None and (run / "config.toml").exists():
            began = time.monotonic()
        time.sleep(0.01)
    if process.returncode not in (0, 2):  # 2: it had ended, and nothing was left to resume
        sys.exit((run.parent / "out").read_text()[-2000:])
    return time.monotonic() - (began or 0.0)


def kill(process: "subprocess.Popen[bytes]", run: Path, after: float) -> tuple[str, int]:
    """What was under way when SIGKILL came, and how many processes outlived it."""
    while process.poll() is None and not (run / "config.toml").exists():
        time.sleep(0.01)
    time.sleep(after)
    family = list(descendants(process.pid))
    where = "the end" if process.poll() is not None else under_way(run)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    _, left = psutil.wait_procs(family, timeout=GONE_WITHIN_S)
    return where, len(left)


def descendants(pid: int) -> Iterator[psutil.Process]:
    try:
        yield from psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return


def under_way(run: Path) -> str:
    """By the file that would come next."""
    if any((run / "checkpoints").glob(".unfinished-*")):
        return "a save"
    rows = (run / "metrics.jsonl").read_text().count("\n")
    files = sorted(path.stem for path in (run / "trajectories").iterdir())
    if not files:
        return "measuring"
    # Rows of metrics come last: of rollouts after the update, of a measurement after its file.
    return "an update" if len(files) > rows else "rollouts"


if __name__ == "__main__":
    main()
