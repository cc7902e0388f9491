"""Linux ends kernels first where memory runs out: a pool outlives a while without them."""

import asyncio
import os
import resource
import select
import signal
from collections.abc import Awaitable, Callable

import pytest

from repl_sandbox.host import pool as pools
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Isolation, Limits, SandboxError

pytestmark = pytest.mark.kernel
LIMITS = Limits(line_cpu_s=5.0, line_wall_s=20.0, grace_s=2.0)
PATIENCE_S = 20.0

NO_FORKS = """
import errno, os

def fork(real=os.fork):
    if left and left.pop():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return real()

left, os.fork = [True] * {num}, fork
"""
"""Runs in the fork server."""


def run(use: Callable[[KernelPool], Awaitable[None]], **options: object) -> None:
    async def inside() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            KernelPool(LIMITS, preload=(), **options) as pool,  # type: ignore[arg-type]
        ):
            await use(pool)

    asyncio.run(inside())


def test_kernels_that_were_killed_on_standby_are_replaced(isolation: Isolation) -> None:
    async def use(pool: KernelPool) -> None:
        stock = [await pool._link.next_kernel(timeout_s=PATIENCE_S) for _ in range(4)]
        for started in stock:
            signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)
            assert select.select([started.pidfd], [], [], PATIENCE_S)[0]
            pool._link._started.put_nowait(started)
        kernel = await pool.acquire(seed=1)
        assert (await kernel.run("6 * 7\n")).output == "42\n"

    before = os.listdir("/proc/self/fd")
    run(use, standby=4, isolation=isolation)
    assert os.listdir("/proc/self/fd") == before


def test_a_kernel_that_is_killed_in_a_line_dies_alone(isolation: Isolation) -> None:
    async def use(pool: KernelPool) -> None:
        victim, other = await pool.acquire(seed=1), await pool.acquire(seed=2)
        line = asyncio.create_task(victim.run("while True: pass\n"))
        await asyncio.sleep(0.1)
        os.kill(victim.pid, signal.SIGKILL)
        assert (await line).status is ExecStatus.DIED
        assert (await other.run("6 * 7\n")).output == "42\n"

    run(use, isolation=isolation)


def test_forks_that_find_no_memory_are_waited_for(isolation: Isolation) -> None:
    """Ten of them in a row, of which the stock has four."""

    async def use(pool: KernelPool) -> None:
        kernels = await asyncio.gather(*(pool.acquire(seed=i) for i in range(3)))
        for kernel in kernels:
            assert (await kernel.run("6 * 7\n")).output == "42\n"
        folders = [path for path in pool._link.runtime.iterdir() if path.name.startswith("k")]
        assert len(folders) <= 2 + 3 + 4  # of kernels that looked at the walls, live, or wait

    warmup = (NO_FORKS.format(num=10),)
    run(use, standby=4, warmup=warmup, isolation=isolation)


def test_the_wait_for_memory_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "ACQUIRE_TIMEOUT_S", 3.0)
    warmup = (NO_FORKS.format(num=1000),)

    async def use(pool: KernelPool) -> None:
        with pytest.raises(SandboxError, match=r"a kernel could not start: .*temporarily unav"):
            await pool.acquire(seed=0)

    run(use, warmup=warmup, isolation=Isolation.NONE)


def test_a_kernel_whose_descriptor_finds_no_room_is_an_error_and_stops_nothing() -> None:
    """Linux drops the descriptor then, and says so in a flag alone."""

    async def use(pool: KernelPool) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = os.dup(0)  # the lowest number that is free
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
        try:
            with pytest.raises(SandboxError, match=r"too many open files in this process; raise"):
                await pool.acquire(seed=1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        kernel = await pool.acquire(seed=1)
        assert (await kernel.run("6 * 7\n")).output == "42\n"

    run(use, isolation=Isolation.NONE)


def test_a_pool_raises_a_low_limit_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    most = 1 << 14 if hard == resource.RLIM_INFINITY else min(hard, 1 << 14)

    async def use(_pool: KernelPool) -> None:
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)

    try:
        run(use, isolation=Isolation.NONE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
