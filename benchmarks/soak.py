"""Start and end kernels by the thousand: `python benchmarks/soak.py [--kernels 10000]`.

Prints what the trainer and the fork server hold after each tenth of them; at the end, which
processes, descriptors and files the closed pool has left. Exit code 1 if there are any.
"""

import argparse
import asyncio
import os
import re
import sys
import time
from pathlib import Path

from repl_sandbox.pool import KernelPool
from repl_sandbox.types import ExecStatus, Isolation, Limits

AT_ONCE = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--isolation", type=Isolation, default=Isolation.AUTO)
    args = parser.parse_args()
    before = holdings()
    folder = asyncio.run(soak(args.kernels, args.isolation))
    after = holdings()
    print(f"before {before}\nafter  {after}, {folder} is {'there' if folder.exists() else 'gone'}")
    sys.exit(after != before or folder.exists())


async def soak(count: int, isolation: Isolation) -> Path:
    """Start `count` kernels, run a line in each, end them. Returns the folder they lived in."""
    turns = asyncio.Semaphore(AT_ONCE)
    async with KernelPool(Limits(), standby=AT_ONCE, isolation=isolation) as pool:
        print(pool.walls)
        print(f"{'kernels':>8} {'s':>6} {'trainer MiB':>12} {'server MiB':>11} {'descriptors':>12}")

        async def one(seed: int) -> None:
            async with turns:
                kernel = await pool.acquire(seed=seed)
                assert (await kernel.run("x = 2")).status is ExecStatus.OK
                await kernel.aclose()

        started = time.monotonic()
        for tenth in range(10):
            step = range(tenth * count // 10, (tenth + 1) * count // 10)
            await asyncio.gather(*map(one, step))
            server = descendants(os.getpid())
            trainer, descriptors = rss_mib([os.getpid()]), holdings()["descriptors"]
            print(f"{step.stop:>8} {time.monotonic() - started:>6.1f} {trainer:>12.1f} "
                  f"{rss_mib(server[:2]):>11.1f} {descriptors:>12}", flush=True)  # fmt: skip
        return pool._link.runtime


def holdings() -> dict[str, int]:
    """What this process has: descriptors, and processes below it."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": len(descendants(os.getpid())),
    }


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, the oldest first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, children) for one in (child, *descendants(child))]


def rss_mib(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        total += int(found[1]) if found else 0
    return total / 1024


if __name__ == "__main__":
    main()
