"""Run the attack table in real kernels and print what came of it, as JSON.

`python attack_lab.py LEVEL UID`, as root or as that user. Each attack gets a kernel of its own,
with a victim beside it and a file that nothing but the walls protects.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import stat
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from attacks import ATTACKS, NUMBERS, Attack
from nobody import become
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Execution, Isolation, Limits
from repl_sandbox.walls import bubblewrap

# Short in CPU time, which a loaded machine does not stretch; long on the wall clock, which it does.
LIMITS = Limits(line_cpu_s=0.4, line_wall_s=6.0, grace_s=1.0, memory_mib=256)
SECRET = "nobody has read this\n"
AT_ONCE = 4
IMPATIENT = replace(LIMITS, grace_s=0.1)
"""For what may end by a kill: most of it runs until then, and longer says nothing more."""
PATIENT = replace(LIMITS, line_cpu_s=4.0, line_wall_s=30.0)
"""For what another limit ends: on a busy machine the same work takes more CPU time."""
MAX_QUEUED_SIGNALS = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    stumbled: str | None
    """The line before the last that did not end `ok`, and how it ended."""
    end: str
    says: str
    has_harmed: bool
    """Whether the victim or the file were not as before."""


async def perform(
    attack: Attack, pool: KernelPool, names: dict[str, object]
) -> tuple[Execution, str | None]:
    """(how the last line ended, which line before it went wrong)."""
    kernel = await pool.acquire(seed=0)
    if "killed" in attack.ends:
        kernel._limits = IMPATIENT
    elif "timeout" not in attack.ends:
        kernel._limits = PATIENT
    try:
        *first, last = (line.format(**names) for line in attack.lines)
        for line in first:
            execution = await kernel.run(line)
            if execution.status is not ExecStatus.OK:
                return execution, f"{line!r}: {execution}"
        return await kernel.run(last), None
    finally:
        await kernel.aclose()


def make_decoy(home: Path) -> Path:
    decoy = home / "secret"
    decoy.write_text(SECRET)
    decoy.chmod(0o666)
    home.chmod(0o777)
    os.utime(decoy, (1.0, 1.0))
    return decoy


def num_queued_signals() -> int:
    """Signals that wait for any process of this user."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("SigQ:")[2].split("/")[0])


def is_untouched(decoy: Path) -> bool:
    found = decoy.stat()
    return (
        decoy.read_text() == SECRET
        and stat.S_IMODE(found.st_mode) == 0o666
        and found.st_mtime == 1.0
        and os.listdir(decoy.parent) == [decoy.name]
        and num_queued_signals() < MAX_QUEUED_SIGNALS
    )


async def run(asked: str, decoy: Path) -> dict[str, object]:
    isolation = Isolation.STRICT if asked == "strict" else Isolation.AUTO
    async with KernelPool(LIMITS, preload=(), standby=AT_ONCE, isolation=isolation) as pool:
        victim = await pool.acquire(seed=0)
        await victim.run("state = 'intact'")
        names = {
            "decoy": str(decoy),
            "folder": str(pool._link.runtime),
            "victim": victim.pid,
            **NUMBERS[platform.machine()],
        }
        turns, checks = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

        async def one(attack: Attack) -> Outcome:
            async with turns:
                execution, stumbled = await perform(attack, pool, names)
            async with checks:
                answer = await victim.run("state")
            is_well = answer.output == "'intact'\n" and is_untouched(decoy)
            end = str(execution.status)
            if execution.status is ExecStatus.ERROR:
                end = f"error:{execution.error_type}"
            return Outcome(stumbled, end, execution.output, not is_well)

        outcomes = await asyncio.gather(*map(one, ATTACKS))
        level = str(pool.walls.level)
    found = {attack.name: asdict(made) for attack, made in zip(ATTACKS, outcomes, strict=True)}
    return {"level": level, "uid": os.geteuid(), "outcomes": found}


def main(asked: str, uid: int) -> None:
    if uid != os.geteuid():
        become(uid)
    if asked == "basic":
        bubblewrap.find = lambda: None
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(asyncio.run(run(asked, make_decoy(Path(home))))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
