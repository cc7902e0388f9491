"""Processes of a kernel end with it, however far from home; those of another stay."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.types import ExecStatus, Isolation, Limits

pytestmark = pytest.mark.kernel
LIMITS = Limits(line_cpu_s=5.0, line_wall_s=20.0, grace_s=2.0)
LOOKS, LOOK_S = 1000, 0.01
"""Ten times what the law allows, for a loaded machine; what is started would sleep for longer.
Counted, not timed: where the whole machine stood still, nobody had the time."""

IMPORTS = "import os, signal, subprocess, time"
CHILD = "child = subprocess.Popen(['/bin/sleep', '60'])"
SHELL = "done = subprocess.run(['/bin/sh', '-c', {script!r}]).returncode"
ORPHAN = SHELL.format(script="sleep 60 &")
DAEMON = SHELL.format(script="setsid sleep 60 &")
TREE = SHELL.format(script="setsid sh -c 'setsid sh -c \"setsid sleep 60 & wait\" & wait' &")
# Each process is in a session of its own and gone as soon as it has a child.
RELAY = """
def relay():
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if os.fork(): os._exit(0)
        os.setsid()
    os._exit(0)

if os.fork() == 0: relay()

"""
SPAWNS = {
    "child": CHILD,
    "own session": CHILD.replace("])", "], start_new_session=True)"),
    "own group": CHILD.replace("])", "], process_group=0)"),
    "orphan": ORPHAN,
    "daemon": DAEMON,
    "tree": TREE,
    "deaf": "if os.fork() == 0:\n    os.setsid()\n    for n in range(1, 32):\n"
    "        if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n    time.sleep(60)\n",
}


def processes_in(folder: Path) -> set[int]:
    """The living processes that work in `folder` or below, as a kernel and all it starts do."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                where = Path(os.readlink(entry / "cwd").removesuffix(" (deleted)"))
            except OSError:
                # It ended, or it is a zombie.
                continue
            if where.is_relative_to(folder):
                found.add(int(entry.name))
    return found


async def until_in(folder: Path, claim: Callable[[int], bool]) -> bool:
    """Return whether `claim` of the number of processes in `folder` came true in time."""
    for _ in range(LOOKS):
        if claim(len(processes_in(folder))):
            return True
        # No event reports a stranger's end.
        await asyncio.sleep(LOOK_S)
    return False


async def acquire_and_spawn(pool: KernelPool, source: str) -> tuple[SupervisedKernel, Path]:
    """A kernel that has started something, and its folder."""
    kernel = await pool.acquire(seed=1)
    folder = kernel._started.folder
    await kernel.run(IMPORTS)
    execution = await kernel.run(source)
    assert execution.status is ExecStatus.OK, execution
    assert await until_in(folder, lambda number: number > 1)
    return kernel, folder


@pytest.mark.parametrize("spawn", SPAWNS.values(), ids=SPAWNS)
def test_what_a_kernel_started_ends_with_it_while_its_sibling_lives(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool, spawn: str
) -> None:
    async def attack() -> tuple[bool, str]:
        sibling = await unsealed_pool.acquire(seed=2)
        await sibling.run("x = 5")
        kernel, folder = await acquire_and_spawn(unsealed_pool, spawn)
        await kernel.aclose()
        is_gone = await until_in(folder, lambda number: number == 0)
        after = await sibling.run("x")
        await sibling.aclose()
        return is_gone, after.output

    assert loop_runner.run(attack()) == (True, "5\n")


def test_what_a_kernel_started_ends_when_the_kernel_ends_itself(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool
) -> None:
    async def attack() -> bool:
        kernel, folder = await acquire_and_spawn(unsealed_pool, DAEMON)
        await kernel.run("os._exit(0)")
        is_gone = await until_in(folder, lambda number: number == 0)
        await kernel.aclose()
        return is_gone

    assert loop_runner.run(attack())


@pytest.mark.parametrize("spawn", [CHILD, ORPHAN, DAEMON], ids=["child", "orphan", "daemon"])
def test_what_a_sibling_started_outlives_the_end_of_another_kernel(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool, spawn: str
) -> None:
    async def attack() -> tuple[set[int], set[int]]:
        sibling, home = await acquire_and_spawn(unsealed_pool, spawn)
        kernel, folder = await acquire_and_spawn(unsealed_pool, DAEMON)
        before = processes_in(home)
        await kernel.aclose()
        assert await until_in(folder, lambda number: number == 0)
        after = processes_in(home)
        await sibling.aclose()
        return before, after

    before, after = loop_runner.run(attack())
    assert after == before


def test_a_relay_of_sessions_is_overtaken(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool
) -> None:
    async def attack() -> bool:
        kernel = await unsealed_pool.acquire(seed=1)
        folder = kernel._started.folder
        await kernel.run(IMPORTS)
        await kernel.run(RELAY)
        await kernel.aclose()
        return await until_in(folder, lambda number: number == 0)

    assert loop_runner.run(attack())


@pytest.mark.parametrize("spawn", SPAWNS.values(), ids=SPAWNS)
def test_nothing_is_left_once_the_pool_is_closed(spawn: str) -> None:
    async def attack() -> set[int]:
        async with KernelPool(LIMITS, preload=(), standby=1, isolation=Isolation.NONE) as pool:
            await acquire_and_spawn(pool, spawn)
            runtime = pool._link.runtime
        return processes_in(runtime)

    assert asyncio.run(attack()) == set()


def test_a_kernel_is_forked_and_buried_while_others_are(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool
) -> None:
    async def live_and_die(seed: int) -> str:
        kernel, _folder = await acquire_and_spawn(unsealed_pool, DAEMON if seed % 2 else CHILD)
        await kernel.run(f"x = {seed}")
        execution = await kernel.run("x")
        await kernel.aclose()
        return execution.output

    async def attack() -> list[str]:
        return await asyncio.gather(*(live_and_die(seed) for seed in range(12)))

    assert loop_runner.run(attack()) == [f"{seed}\n" for seed in range(12)]


MISSES = """
import os, signal, sys
from repl_sandbox.guest import fork_server

kill, missed = fork_server._kill_orphan, []

def miss_once(pid):
    if pid in missed:
        kill(pid)
    missed.append(pid)

fork_server._kill_orphan = miss_once
owner = fork_server.Children()
reader, writer = os.pipe()
if (parent := os.fork()) == 0:
    if os.fork() == 0:
        os.setsid()
        os.write(writer, b".")
        signal.pause()
    os._exit(0)
os.read(reader, 1)
os.waitpid(parent, 0)
owner.end()
print(len(missed) > 1, fork_server._living_or_dead())
"""


def test_an_orphan_that_a_kill_missed_is_looked_for_again() -> None:
    """A thread that execs hides its process for a moment, and no death reports it."""
    ran = subprocess.run(
        [sys.executable, "-c", MISSES], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["True", "set()"]
