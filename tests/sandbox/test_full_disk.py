"""No kernel starts where no file can be made: the error is ours, and nothing is left of it."""

import asyncio
import errno
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_uses import T
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.started_kernel import FrontEnd, StartedKernel
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.types import Isolation, Limits, SandboxError

pytestmark = pytest.mark.kernel
LIMITS = Limits(line_cpu_s=5.0, line_wall_s=20.0, grace_s=2.0)


def with_pool(
    use: Callable[[KernelPool], Awaitable[T]],
    *,
    isolation: Isolation,
    standby: int = 0,
    front_end: FrontEnd = LINES,
) -> T:
    async def run() -> T:
        async with KernelPool(
            LIMITS, preload=(), standby=standby, isolation=isolation, front_end=front_end
        ) as pool:
            return await use(pool)

    return asyncio.run(run())


def block_next(pool: KernelPool) -> Path:
    """Put something where the folder of the next kernel to be ordered will be."""
    taken = pool._link.runtime / f"k{pool._link._num_orders}"
    taken.mkdir()
    return taken


def open_kernels(pool: KernelPool) -> int:
    return sum(not kernel.is_closed for kernel in pool._kernels)


@pytest.mark.parametrize("acquire", [KernelPool.acquire, KernelPool.acquire_console])
def test_a_folder_that_is_taken_is_refused_and_the_next_kernel_comes(
    isolation: Isolation, acquire: Callable[..., Awaitable[object]]
) -> None:
    async def use(pool: KernelPool) -> str:
        taken = block_next(pool)
        with pytest.raises(SandboxError, match=r"^no folder for a kernel: File exists$"):
            await acquire(pool, seed=1)
        assert taken.is_dir()
        assert (pool._link._ordered, pool._link.num_stocked, open_kernels(pool)) == ({}, 0, 0)
        return (await (await pool.acquire(seed=1)).run("6170 + 1")).output

    assert with_pool(use, isolation=isolation) == "6171\n"


def test_a_full_disk_is_refused_in_one_line(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(self: Path, mode: int = 511) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    async def use(pool: KernelPool) -> tuple[dict[str, Any], int]:
        message = r"^no folder for a kernel: No space left on device$"
        with monkeypatch.context() as full:
            full.setattr(Path, "mkdir", mkdir)
            with pytest.raises(SandboxError, match=message):
                await pool.acquire(seed=1)
        return pool._link._ordered, pool._link.num_stocked

    assert with_pool(use, isolation=isolation) == ({}, 0)


def test_a_kernel_whose_successor_cannot_be_ordered_is_closed(isolation: Isolation) -> None:
    async def use(pool: KernelPool) -> int:
        block_next(pool)
        with pytest.raises(SandboxError, match="no folder for a kernel"):
            await pool.acquire(seed=1)
        return open_kernels(pool)

    assert with_pool(use, isolation=isolation, standby=1) == 0


def test_a_kernel_without_a_connection_file_is_closed(isolation: Isolation) -> None:
    folders = []

    def write_nothing(started: StartedKernel) -> Path:
        folders.append(started.folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def use(pool: KernelPool) -> tuple[int, list[bool]]:
        message = r"^no connection file for a kernel: No space left on device$"
        with pytest.raises(SandboxError, match=message):
            await pool.acquire_console(seed=1)
        return open_kernels(pool), [folder.exists() for folder in folders]

    front_end = replace(LINES, write_connection=write_nothing)
    assert with_pool(use, isolation=isolation, front_end=front_end) == (0, [False])


def test_no_folder_for_any_kernel_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdtemp(prefix: str, dir: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), dir)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(
        SandboxError, match=r"^no folder for kernels in /\S+: No space left on device$"
    ):
        asyncio.run(KernelPool(LIMITS, preload=()).__aenter__())
