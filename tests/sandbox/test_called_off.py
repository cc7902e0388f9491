"""Waiting stops for whoever is called off, even if the thing waited for comes at that moment."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from repl_sandbox.host import supervisor
from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.types import Limits, SandboxError

LONG_S = 60.0
"""No wait here takes as long."""


async def call_off_as_it_comes(waiting: asyncio.Task[object], come: Callable[[], object]) -> None:
    """Cancel what waits in the turn of the loop in which `come` gives it what it waits for."""
    for _ in range(5):
        await asyncio.sleep(0)  # it begins to wait
    assert not waiting.done()
    come()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> ForkServerClient:
    """Client of a fork server that is there and has made nothing yet."""
    monkeypatch.setattr(ForkServerClient, "is_gone", lambda _self: False)
    return ForkServerClient(Limits(), setup=())


@pytest.mark.parametrize("is_console", [False, True])
def test_a_call_off_wins_over_a_kernel_that_comes_with_it_and_the_kernel_stays(
    link: ForkServerClient, is_console: bool
) -> None:
    started = StartedKernel(folder=Path("k0"), key=b"key", pidfd=-1, is_console=is_console)

    async def run() -> StartedKernel:
        queue = link._queue(is_console)
        waiting = asyncio.create_task(link.next_kernel(timeout_s=LONG_S, is_console=is_console))
        await call_off_as_it_comes(waiting, lambda: queue.put_nowait(started))
        return await link.next_kernel(timeout_s=LONG_S, is_console=is_console)

    assert asyncio.run(run()) is started


def test_a_kernel_that_does_not_come_in_time_is_an_error_of_ours(link: ForkServerClient) -> None:
    with pytest.raises(SandboxError, match=r"^no kernel came within 0\.0 s$"):
        asyncio.run(link.next_kernel(timeout_s=0.0))


@pytest.mark.kernel
def test_a_call_off_wins_over_a_death_that_is_seen_with_it(
    loop_runner: asyncio.Runner, pool: KernelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HANGUP_S", LONG_S)

    async def run() -> None:
        kernel = await pool.acquire(seed=1)
        assert kernel._connection is not None
        # Its socket has closed; its end is still to be seen.
        kernel._connection.closed.set()
        line = asyncio.create_task(kernel.run("x = 1"))
        try:
            await call_off_as_it_comes(line, kernel._process.died.set)
        finally:
            await kernel.aclose()

    loop_runner.run(run())
