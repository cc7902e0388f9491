"""Measure the replay of a stored run: `python benchmarks/replay.py RUN [--notebooks 10]`.

Runs lines again as `repl-rl replay --execute` does, beside the same trajectories as notebooks in
nbclient on the same kernels. Then glances over a file of a gigabyte, beside `json.loads` of each
row.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nbclient import NotebookClient

from repl_rl.runs.folder import files
from repl_rl.runs.trajectory_file import Selection, StoredTrajectory, places, select
from repl_rl.viewer.replay.annotated import annotate
from repl_rl.viewer.replay.jobs import execute
from repl_rl.viewer.replay.notebook import to_notebook
from repl_rl.viewer.replay.scene import make_scene
from repl_rl.viewer.show.display import Screen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, default=1000, help="trajectories run again")
    parser.add_argument("--notebooks", type=int, default=10, help="of them, in nbclient")
    parser.add_argument("--mib", type=int, default=1024, help="size of the large file")
    args = parser.parse_args()
    found = list(itertools.islice(select(files(args.run), Selection()), args.count))
    measure_runs(found, args.notebooks)
    measure_reading(args.run, args.mib << 20)


def measure_runs(found: list[StoredTrajectory], num_notebooks: int) -> None:
    started = time.perf_counter()
    reruns = asyncio.run(execute(found, make_scene, Screen(), say=print))
    seconds = time.perf_counter() - started
    num_lines = sum(one.num_lines for one in reruns)
    num_diverged = sum(one.divergence is not None for one in reruns)
    print(
        f"--execute  {len(found):,} trajectories, {num_lines:,} lines: {seconds:.1f} s, "
        f"{len(found) / seconds:.1f} trajectories/s, {num_diverged} diverged"
    )
    scene = make_scene(found[0])
    started = time.perf_counter()
    for item in annotate(found[:num_notebooks], scene.config.grpo):
        NotebookClient(to_notebook(item, setup=scene.setup), timeout=60).execute()
    seconds = time.perf_counter() - started
    print(f"nbclient   {num_notebooks} of them: {num_notebooks / seconds:.1f} trajectories/s")


def measure_reading(run: Path, size: int) -> None:
    with tempfile.TemporaryDirectory(prefix="repl-rl-benchmark-") as folder:
        path = Path(folder) / "large.jsonl"
        write_large(path, files(run)[-1], size)
        os.sync()
        before = peak_mib()
        started = time.perf_counter()
        count = sum(1 for _ in places(path))
        seconds = time.perf_counter() - started
        print(
            f"glance     {path.stat().st_size / 2**20:,.0f} MiB, {count:,} rows: {seconds:.1f} s, "
            f"{peak_mib() - before:.0f} MiB more memory"
        )
        started = time.perf_counter()
        count = sum(1 for _ in decoded(path))
        print(f"json.loads {count:,} rows, one at a time: {time.perf_counter() - started:.1f} s")


def write_large(path: Path, source: Path, size: int) -> None:
    """The rows of `source`, over and over."""
    rows = source.read_bytes()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(rows)


def decoded(path: Path) -> Iterator[object]:
    with path.open("rb") as file:
        yield from map(json.loads, file)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
