"""Kernels are born ready, differ in nothing but their seed, and leave nothing behind."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import repl_sandbox
from own_processes import PATIENCE_S, is_running, survivors
from repl_sandbox.host import fork_server_client
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Execution, Isolation, Limits, SandboxError, SettingError

pytestmark = pytest.mark.kernel
LIMITS = Limits(line_cpu_s=5.0, line_wall_s=20.0, grace_s=2.0)
ROOT = Path(__file__).parents[2]


def left_behind() -> tuple[list[str], list[str]]:
    """(descriptors, child processes) of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return sorted(os.listdir("/proc/self/fd")), children


def started_by(pool: KernelPool) -> int:
    """The process that a pool has started: bubblewrap, or the fork server itself."""
    process = pool._link._process
    assert process is not None
    return process.pid


def fork_server(started: int) -> int:
    """The fork server: the process that we started, or the child of it that is in namespaces."""
    children = Path(f"/proc/{started}/task/{started}/children").read_text().split()
    is_bubblewrap = Path(f"/proc/{started}/comm").read_text() == "bwrap\n"
    return int(children[0]) if is_bubblewrap else started


def test_fifty_kernels_leave_nothing_behind(isolation: Isolation) -> None:
    async def use_fifty() -> tuple[object, object, Path]:
        before = left_behind()
        async with KernelPool(LIMITS, preload=(), standby=2, isolation=isolation) as pool:
            for index in range(50):
                kernel = await pool.acquire(seed=index)
                await kernel.run("import os; os._exit(0)" if index % 10 == 0 else "x = 2")
                if index % 2:
                    await kernel.aclose()
        await asyncio.sleep(0)
        return before, left_behind(), pool._link.runtime

    before, after, folder = asyncio.run(use_fifty())
    assert after == before
    assert not folder.exists()


def test_an_exception_in_the_block_leaves_nothing_behind(isolation: Isolation) -> None:
    async def fail() -> None:
        async with KernelPool(LIMITS, preload=(), standby=1, isolation=isolation) as pool:
            kernel = await pool.acquire(seed=1)
            line = asyncio.create_task(kernel.run("while True: pass\n"))
            await asyncio.sleep(0.05)
            line.cancel()
            raise LookupError

    before = left_behind()
    with pytest.raises(LookupError):
        asyncio.run(fail())
    assert left_behind() == before


TRAINER = """
import asyncio, sys
from repl_sandbox.walls import bubblewrap
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Isolation, Limits

if sys.argv[1] == "basic": bubblewrap.find = lambda: None
isolation = Isolation.NONE if sys.argv[1] == "none" else Isolation.AUTO

async def train():
    limits = Limits(line_cpu_s=600, line_wall_s=600, kernel_cpu_s=600)
    async with KernelPool(limits, preload=(), standby=2, isolation=isolation) as pool:
        kernels = [await pool.acquire(seed=i) for i in range(64)]
        pids = [kernel.pid for kernel in kernels]
        if isolation is Isolation.NONE:
            for kernel, prefix in zip(kernels, ("", "setsid ")):
                script = prefix + "sleep 600 >/dev/null 2>&1 & echo $!"
                start = f"__import__('subprocess').getoutput({script!r})"
                pids.append(int((await kernel.evaluate(start)).value.strip("'")))
        print(pool._link.runtime, pool._link._process.pid, *pids, flush=True)
        await asyncio.gather(*(kernel.run("while True: pass\\n") for kernel in kernels[:2]))

asyncio.run(train())
"""


def test_nothing_outlives_a_trainer_that_was_killed(level: str) -> None:
    command = [sys.executable, "-c", TRAINER, level]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        folder, *numbers = trainer.stdout.readline().decode().split()
        processes = [psutil.Process(int(number)) for number in numbers]
        are_running = list(map(is_running, processes))
        trainer.kill()
    assert all(are_running)
    assert survivors(processes) == []
    deadline = time.monotonic() + PATIENCE_S
    while os.path.exists(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(folder)


@pytest.mark.parametrize("victim", ["the process we started", "the fork server"])
def test_a_dead_fork_server_is_our_fault_not_the_kernels(isolation: Isolation, victim: str) -> None:
    async def lose_the_server() -> None:
        async with KernelPool(LIMITS, preload=(), isolation=isolation) as pool:
            started = started_by(pool)
            server = started if victim == "the process we started" else fork_server(started)
            idle, busy = await pool.acquire(seed=1), await pool.acquire(seed=2)
            line = asyncio.create_task(busy.run("while True: pass\n"))
            await asyncio.sleep(0.05)
            os.kill(server, signal.SIGKILL)
            with pytest.raises(SandboxError):
                await line
            with pytest.raises(SandboxError):
                await idle.run("1")
            with pytest.raises(SandboxError):
                await pool.acquire(seed=3)

    before = left_behind()
    asyncio.run(lose_the_server())
    assert left_behind() == before


def test_a_waiting_acquire_hears_of_the_death_of_the_server(isolation: Isolation) -> None:
    async def lose_the_server() -> None:
        async with KernelPool(LIMITS, preload=(), isolation=isolation) as pool:
            server = fork_server(started_by(pool))
            os.kill(server, signal.SIGSTOP)
            waiting = asyncio.create_task(pool.acquire(seed=1))
            await asyncio.sleep(0.05)
            os.kill(server, signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_S):
                await waiting

    with pytest.raises(SandboxError):
        asyncio.run(lose_the_server())


def test_standby_kernels_are_made_while_the_event_loop_stands_still() -> None:
    async def stand_still() -> tuple[int, int]:
        async with KernelPool(LIMITS, preload=(), standby=3) as pool:
            kernels = [await pool.acquire(seed=i) for i in range(2)]
            deadline = time.monotonic() + PATIENCE_S
            while pool._link._started.qsize() < 3 and time.monotonic() < deadline:
                time.sleep(0.1)  # noqa: ASYNC251  # a training update does not yield either
                pool._link._receive()
            return pool._link._started.qsize(), len(kernels)

    assert asyncio.run(stand_still()) == (3, 2)


TRANSCRIPT = (
    "import random; random.random()",
    "from sympy.core import random as r; r.rng.random()",
    "Dummy('d').dummy_index",
    "d = [Dummy() for _ in range(3)]; sum(d)",
    "set('hello world')",
    "[object(), lambda: 0]",
    "solve(x**4 - 5*x**2 + 4, x)",
    "integrate(sin(x)**3 * cos(x), x)",
    "hash('a')",
)


async def transcript(seed: int) -> list[str]:
    setup = ("from sympy import *", "x = symbols('x')")
    async with KernelPool(LIMITS, setup=setup) as pool:
        kernel = await pool.acquire(seed=seed)
        return [(await kernel.run(source)).output for source in TRANSCRIPT]


def test_the_same_seed_gives_the_same_transcript_in_another_pool() -> None:
    first, again, other = (asyncio.run(transcript(seed)) for seed in (5, 5, 6))
    assert first == again
    assert first[0] != other[0]
    assert first[6] == "[-2, -1, 1, 2]\n"


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def test_the_environment_is_made_by_hand(
    monkeypatch: pytest.MonkeyPatch, isolation: Isolation
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")

    async def look() -> tuple[str | None, str, bool, int]:
        async with KernelPool(LIMITS, preload=(), isolation=isolation) as pool:
            kernel = await pool.acquire(seed=1)
            names = await kernel.evaluate("sorted(__import__('os').environ)")
            home = await kernel.evaluate("__import__('os').path.expanduser('~')")
            where = await kernel.evaluate("__import__('os').getcwd()")
            mode = os.stat(kernel._started.folder).st_mode & 0o777
            return names.value, environment(kernel.pid), home.value == where.value, mode

    names, block, is_at_home, mode = asyncio.run(look())
    assert names == repr(
        [
            *("HOME", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONHASHSEED"),
            "SYMPY_GROUND_TYPES",
        ]
    )
    assert "hunter2" not in block
    assert is_at_home
    assert mode == 0o700


def test_a_kernel_that_dies_at_birth_is_reported_and_does_not_stop_the_pool(
    isolation: Isolation,
) -> None:
    async def start() -> None:
        setup = ("import os; os._exit(0)",)
        async with KernelPool(LIMITS, preload=(), setup=setup, isolation=isolation) as pool:
            for seed in range(3):
                async with asyncio.timeout(PATIENCE_S):
                    await pool.acquire(seed=seed)

    with pytest.raises(SandboxError, match="it died at its start"):
        asyncio.run(start())


def test_a_warm_up_that_hangs_leaves_nothing_behind(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server_client, "START_TIMEOUT_S", 1.0)
    monkeypatch.setattr(fork_server_client, "END_TIMEOUT_S", 0.5)

    async def start() -> None:
        warmup = ("while True: pass",)
        async with KernelPool(LIMITS, preload=(), warmup=warmup, isolation=isolation):
            pass

    before = left_behind()
    with pytest.raises(SandboxError, match=r"no reply from it within 1\.0 s"):
        asyncio.run(start())
    assert left_behind() == before


def test_all_kernels_have_the_same_memory(isolation: Isolation) -> None:
    async def look() -> set[str]:
        async with KernelPool(LIMITS, preload=(), isolation=isolation) as pool:
            kernels = [await pool.acquire(seed=i) for i in range(6)]
            return {address_space(kernel.pid) for kernel in kernels}

    assert len(asyncio.run(look())) == 1


def address_space(pid: int) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith("Max address space"))


def test_a_mapping_that_kernels_would_share_is_refused() -> None:
    async def start() -> None:
        warmup = ("import builtins, mmap", "builtins.shared = mmap.mmap(-1, 4096)")
        async with KernelPool(LIMITS, preload=(), warmup=warmup):
            pass

    with pytest.raises(SandboxError, match="kernels would share what is written to"):
        asyncio.run(start())


@pytest.mark.parametrize(
    "setup", ["1/0", "x = (", "raise SystemExit", "raise ValueError('x' * 300_000)"]
)
def test_a_setup_source_that_fails_is_our_fault(setup: str) -> None:
    async def start() -> None:
        async with KernelPool(LIMITS, preload=(), setup=(setup,)) as pool:
            await pool.acquire(seed=1)

    with pytest.raises(SandboxError, match="setup line"):
        asyncio.run(start())


def test_a_module_that_cannot_be_preloaded_is_named(isolation: Isolation) -> None:
    async def start() -> None:
        async with KernelPool(LIMITS, preload=("no_such_module",), isolation=isolation):
            pass

    with pytest.raises(SettingError, match="no_such_module"):
        asyncio.run(start())


def test_kernels_do_not_share_names(loop_runner: asyncio.Runner, pool: KernelPool) -> None:
    async def use_two() -> Execution:
        one, two = await pool.acquire(seed=1), await pool.acquire(seed=1)
        await one.run("x = 1")
        shown = await two.run("x")
        await one.aclose()
        await two.aclose()
        await two.aclose()
        return shown

    assert loop_runner.run(use_two()).error_type == "NameError"


def test_a_cancelled_line_leaves_the_kernel_killed(
    loop_runner: asyncio.Runner, pool: KernelPool
) -> None:
    async def cancel() -> Execution:
        kernel = await pool.acquire(seed=1)
        line = asyncio.create_task(kernel.run("while True: pass\n"))
        await asyncio.sleep(0.05)
        line.cancel()
        with pytest.raises(asyncio.CancelledError):
            await line
        after = await kernel.run("1")
        await kernel.aclose()
        return after

    assert loop_runner.run(cancel()).status is ExecStatus.KILLED


@pytest.mark.usefixtures("jumping_clock")
def test_a_clock_that_jumps_ends_no_line_and_no_kernel(
    loop_runner: asyncio.Runner, pool: KernelPool
) -> None:
    async def use() -> list[ExecStatus]:
        kernel = await pool.acquire(seed=1)
        ran = [await kernel.run(f"{number}\n") for number in range(4)]
        await kernel.aclose()
        return [one.status for one in ran]

    assert loop_runner.run(use()) == [ExecStatus.OK] * 4


def test_a_loop_that_is_held_up_while_it_connects_loses_no_kernel(
    loop_runner: asyncio.Runner, pool: KernelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine whose cores are shared by many kernels: a turn may take seconds."""

    async def use() -> ExecStatus:
        loop = asyncio.get_running_loop()
        connect, clock = loop.create_unix_connection, loop.time

        async def held_up(*given: Any) -> Any:
            monkeypatch.setattr(loop, "time", lambda: clock() + 3600)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            monkeypatch.undo()
            return await connect(*given)

        monkeypatch.setattr(loop, "create_unix_connection", held_up)
        kernel = await pool.acquire(seed=1)
        return (await kernel.run("1\n")).status

    assert loop_runner.run(use()) is ExecStatus.OK


def test_sympy_prints_as_text(loop_runner: asyncio.Runner, sympy_pool: KernelPool) -> None:
    async def show() -> list[str]:
        kernel = await sympy_pool.acquire(seed=1)
        try:
            await kernel.run("x = symbols('x', integer=True)")
            return [
                (await kernel.run(source)).output
                for source in ("solve(x**2 - 5*x + 6, x)", "sqrt(8)", "Matrix([[1, 2]])")
            ]
        finally:
            await kernel.aclose()

    assert loop_runner.run(show()) == ["[2, 3]\n", "2*sqrt(2)\n", "Matrix([[1, 2]])\n"]


def test_a_warm_up_source_runs_before_every_kernel() -> None:
    async def ask() -> list[str]:
        warmup = ("import decimal", "decimal.DefaultContext.prec = 7")
        async with KernelPool(LIMITS, preload=("decimal",), warmup=warmup) as pool:
            kernels = [await pool.acquire(seed=i) for i in range(2)]
            source = "from decimal import Context, DefaultContext; DefaultContext.prec"
            return [(await kernel.run(source)).output for kernel in kernels]

    assert asyncio.run(ask()) == ["7\n", "7\n"]


def test_what_is_preloaded_can_be_imported_and_what_is_not_cannot() -> None:
    async def ask(preload: tuple[str, ...]) -> str | None:
        async with KernelPool(LIMITS, preload=preload) as pool:
            kernel = await pool.acquire(seed=1)
            return (await kernel.run("import mpmath")).error_type

    assert asyncio.run(ask(("sympy",))) is None
    assert asyncio.run(ask(())) in ("ModuleNotFoundError", "PermissionError")


def test_a_pool_is_had_by_what_one_types_first() -> None:
    async def use() -> list[str]:
        async with repl_sandbox.KernelPool() as pool:
            kernels = [await pool.acquire() for _ in range(2)]
            return [(await kernel.run("factorint(120)")).output for kernel in kernels] + [
                (await kernel.run("import random; random.random()")).output for kernel in kernels
            ]

    *_, one, other = asyncio.run(use())
    assert (one, other) == tuple(f"{random.Random(seed).random()}\n" for seed in range(2))


def test_the_packages_names_are_imported_when_they_are_asked_for() -> None:
    for name in repl_sandbox.__all__:
        assert getattr(repl_sandbox, name).__module__.startswith("repl_sandbox.")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        repl_sandbox.nothing  # noqa: B018
    done = subprocess.run(
        [sys.executable, "-c", "import repl_sandbox, sys; print('asyncio' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_a_pool_is_found_at_its_former_path_which_says_the_other() -> None:
    with pytest.warns(FutureWarning, match="import it from repl_sandbox"):
        from repl_sandbox.pool import KernelPool as former
    assert former is KernelPool
