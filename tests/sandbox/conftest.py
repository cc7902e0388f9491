"""One event loop and two pools for all tests of this folder; a fresh kernel for each test."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_uses import RunAll, T, Use, WithKernel
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.types import Execution, Isolation, Limits
from repl_sandbox.walls import bubblewrap, confine
from repl_sandbox.walls.view import readable_paths

# Short in CPU time, which a loaded machine does not stretch; long on the wall clock, which it does.
LIMITS = Limits(line_cpu_s=0.4, line_wall_s=6.0, grace_s=1.0, memory_mib=256)


@pytest.fixture(scope="session")
def loop_runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def _open_pool(runner: asyncio.Runner, pool: KernelPool) -> Iterator[KernelPool]:
    runner.run(pool.__aenter__())
    try:
        yield pool
    finally:
        runner.run(pool.aclose())


@pytest.fixture(params=["strict", "basic", "none"])
def level(request: pytest.FixtureRequest) -> str:
    """Each level that this machine has."""
    if request.param != "none" and (lacking := confine.missing()) is not None:
        pytest.skip(f"this machine lacks {lacking}")
    if request.param == "strict" and bubblewrap.find() is None:
        pytest.skip("bubblewrap is not installed")
    return str(request.param)


@pytest.fixture
def isolation(level: str, monkeypatch: pytest.MonkeyPatch) -> Isolation:
    """Isolation to ask of a pool to get `level`."""
    if level == "basic":
        monkeypatch.setattr(bubblewrap, "find", lambda: None)
    return {"strict": Isolation.STRICT, "basic": Isolation.AUTO, "none": Isolation.NONE}[level]


@pytest.fixture(scope="session")
def pool(loop_runner: asyncio.Runner) -> Iterator[KernelPool]:
    """With a front end: code in a kernel then meets all that a kernel may hold."""
    yield from _open_pool(loop_runner, KernelPool(LIMITS, preload=(), standby=1, front_end=LINES))


@pytest.fixture(scope="session")
def sympy_pool(loop_runner: asyncio.Runner) -> Iterator[KernelPool]:
    yield from _open_pool(
        loop_runner, KernelPool(LIMITS, setup=("from sympy import *",), standby=1)
    )


@pytest.fixture(scope="session")
def unsealed_pool(loop_runner: asyncio.Runner) -> Iterator[KernelPool]:
    """For what must hold where there are no walls, and for what only their absence permits."""
    yield from _open_pool(
        loop_runner, KernelPool(LIMITS, preload=(), standby=1, isolation=Isolation.NONE)
    )


@pytest.fixture(scope="session")
def paths() -> tuple[Path, ...]:
    """Paths that a kernel with sympy may read, in a pool with a front end."""
    return readable_paths(["sympy"], LINES.distributions)


async def use_kernel(pool: KernelPool, use: Use[T]) -> T:
    kernel = await pool.acquire(seed=7)
    try:
        return await use(kernel)
    finally:
        await kernel.aclose()


@pytest.fixture
def with_kernel(loop_runner: asyncio.Runner, pool: KernelPool) -> WithKernel:
    def run(use: Use[T]) -> T:
        return loop_runner.run(use_kernel(pool, use))

    return run


@pytest.fixture
def with_unsealed(loop_runner: asyncio.Runner, unsealed_pool: KernelPool) -> WithKernel:
    def run(use: Use[T]) -> T:
        return loop_runner.run(use_kernel(unsealed_pool, use))

    return run


async def run_each(pool: KernelPool, sources: tuple[str, ...]) -> list[Execution]:
    async def use(kernel: SupervisedKernel) -> list[Execution]:
        return [await kernel.run(source) for source in sources]

    return await use_kernel(pool, use)


@pytest.fixture
def run_all(loop_runner: asyncio.Runner, pool: KernelPool) -> RunAll:
    """Run sources one after the other in one fresh kernel."""
    return lambda *sources: loop_runner.run(run_each(pool, sources))


@pytest.fixture
def run_unsealed(loop_runner: asyncio.Runner, unsealed_pool: KernelPool) -> RunAll:
    """Run sources as `run_all` does, in a kernel without walls."""
    return lambda *sources: loop_runner.run(run_each(unsealed_pool, sources))
