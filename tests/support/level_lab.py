"""Run a corpus of lines in real kernels, and print what became of each line, as JSON.

`python level_lab.py LEVEL UID`, as root or as that user. Each entry of the corpus is the lines of a
kernel of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, replace

from level_corpus import CORPUS, OUTSIDE
from nobody import become
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Isolation, Limits
from repl_sandbox.walls import bubblewrap

AT_ONCE = 4
# A busy machine must not decide what a line does.
LIMITS = Limits(line_cpu_s=20.0, line_wall_s=60.0, memory_mib=512)


async def run(asked: str) -> dict[str, object]:
    isolation = Isolation.STRICT if asked == "strict" else Isolation.AUTO
    async with KernelPool(LIMITS, standby=AT_ONCE, isolation=isolation) as pool:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(lines: tuple[str, ...]) -> list[dict[str, object]]:
            async with turns:
                kernel = await pool.acquire(seed=7)
                try:
                    ran = [await kernel.run(line) for line in lines]
                finally:
                    await kernel.aclose()
            return [asdict(replace(execution, wall_ms=0.0, cpu_ms=0.0)) for execution in ran]

        found = await asyncio.gather(*map(one, CORPUS + OUTSIDE))
        return {"level": str(pool.walls.level), "uid": os.geteuid(), "found": found}


def main(asked: str, uid: int) -> None:
    if uid != os.geteuid():
        become(uid)
    if asked == "basic":
        bubblewrap.find = lambda: None
    print(json.dumps(asyncio.run(run(asked))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
