"""Each machine gets the level it can have, or a sentence; a wall that is missing is noticed."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType

import pytest

from repl_sandbox.host import pool
from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.pool import PROBES, KernelPool, inspect
from repl_sandbox.host.supervisor import Process
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.types import Execution, Isolation, Limits, SandboxError, SettingError
from repl_sandbox.walls import bubblewrap, confine, landlock, seccomp
from repl_sandbox.walls.confine import NUM_SLOTS, UidSlot
from repl_sandbox.walls.isolation import Level, Walls

pytestmark = pytest.mark.kernel
Threads = Coroutine[None, None, list[dict[str, str]]]
ThreadsOf = Callable[[Isolation], Threads]


def walls_of(isolation: Isolation) -> Walls:
    async def open_pool() -> Walls:
        async with KernelPool(Limits(), preload=(), isolation=isolation) as pool:
            return pool.walls

    return asyncio.run(open_pool())


@pytest.fixture
def sealable() -> None:
    if (lacking := confine.missing()) is not None:
        pytest.skip(f"this machine lacks {lacking}")


def test_a_pool_has_the_walls_that_were_asked_for(isolation: Isolation, level: str) -> None:
    assert walls_of(isolation).level == level


@pytest.mark.usefixtures("sealable")
def test_without_bubblewrap_the_level_is_basic_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bubblewrap, "find", lambda: None)
    found = walls_of(Isolation.AUTO)
    assert found.level is Level.BASIC
    assert found.shortfall == "bubblewrap is not installed (`apt install bubblewrap`)"
    with pytest.raises(SettingError, match=r"strict.*bubblewrap is not installed"):
        walls_of(Isolation.STRICT)


@pytest.mark.usefixtures("sealable")
def test_without_user_namespaces_the_level_is_basic_as_bubblewrap_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    refusing.chmod(refusing.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(bubblewrap, "find", lambda: str(refusing))
    found = walls_of(Isolation.AUTO)
    assert found.level is Level.BASIC
    assert "bwrap: No permissions to create new namespace" in found.shortfall
    with pytest.raises(SettingError, match="No permissions to create new namespace"):
        walls_of(Isolation.STRICT)


@pytest.mark.parametrize("isolation", [Isolation.AUTO, Isolation.STRICT])
@pytest.mark.parametrize(
    ("module", "name", "value", "lacking"),
    [
        (landlock, "abi", 0, "Landlock .Linux 5.13"),
        (seccomp, "is_available", False, "seccomp filters"),
    ],
)
def test_without_landlock_or_seccomp_nothing_starts(
    monkeypatch: pytest.MonkeyPatch,
    isolation: Isolation,
    module: ModuleType,
    name: str,
    value: object,
    lacking: str,
) -> None:
    monkeypatch.setattr(module, name, lambda: value)
    with pytest.raises(SettingError, match=f"lacks {lacking}.*isolation = .none."):
        walls_of(isolation)
    assert walls_of(Isolation.NONE).level is Level.NONE


def thread_fields(pid: int) -> list[dict[str, str]]:
    """Fields that the operating system gives of each thread of a process."""
    folders = Path(f"/proc/{pid}/task").iterdir()
    texts = [(folder / "status").read_text() for folder in folders]
    return [dict(line.split(":\t", 1) for line in text.splitlines()) for text in texts]


def test_a_kernel_of_the_trainer_is_one_thread(isolation: Isolation) -> None:
    """Code in a kernel could drive a second one, and run between two lines."""

    async def look() -> tuple[list[dict[str, str]], Execution]:
        async with KernelPool(
            Limits(), preload=(), standby=1, isolation=isolation, front_end=LINES
        ) as pool:
            kernel = await pool.acquire(seed=0)
            await kernel.run("import zmq, threading")
            return thread_fields(kernel.pid), await kernel.run(HOLDS_ZMQ)

    threads, held = asyncio.run(look())
    assert len(threads) == 1
    assert held.output == "0\n"


HOLDS_ZMQ = (
    "import gc, zmq; gc.unfreeze(); kinds = zmq.Socket, zmq.Context\n"
    "sum(isinstance(held, kinds) for held in gc.get_objects())"
)


async def threads_of_consoles(isolation: Isolation) -> list[dict[str, str]]:
    async with KernelPool(Limits(), preload=(), isolation=isolation, front_end=LINES) as pool:
        consoles = [await pool.acquire_console(seed=0) for _ in range(2)]
        return [thread for kernel, _path in consoles for thread in thread_fields(kernel.pid)]


async def threads_of_notebooks(isolation: Isolation) -> list[dict[str, str]]:
    link = await Configuration(isolation=isolation, packages=()).start_server()
    try:
        return [thread for _ in range(2) for thread in await threads_of_a_notebook(link)]
    finally:
        await link.aclose()


async def threads_of_a_notebook(link: ForkServerClient) -> list[dict[str, str]]:
    link.order(is_console=True)
    started = await link.next_kernel(timeout_s=60.0, is_console=True)
    try:
        return thread_fields(Process(started.pidfd).pid)
    finally:
        os.close(started.pidfd)


@pytest.mark.parametrize(
    ("threads_of", "num_expected"), [(threads_of_consoles, 8), (threads_of_notebooks, 10)]
)
def test_no_thread_of_a_console_keeps_a_right(
    isolation: Isolation, level: str, threads_of: ThreadsOf, num_expected: int
) -> None:
    """zmq starts threads in the midst of the sealing; code in a kernel could drive them."""
    threads = asyncio.run(threads_of(isolation))
    # Main, zmq's two and the heart's; that which sends what is printed.
    assert len(threads) == num_expected
    if level == "none":
        assert {thread["Seccomp"] for thread in threads} == {"0"}
        return
    assert {thread["Seccomp"] for thread in threads} == {"2"}
    assert {thread["NoNewPrivs"] for thread in threads} == {"1"}
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert {int(thread[name], 16) for thread in threads} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's fork server can give users away")
def test_each_kernel_of_roots_is_a_user_of_its_own_where_files_permit(
    level: str, isolation: Isolation
) -> None:
    async def look() -> list[tuple[list[str], int]]:
        async with KernelPool(Limits(), preload=(), isolation=isolation) as pool:
            kernels = [await pool.acquire(seed=0) for _ in range(3)]
            return [
                (
                    thread_fields(kernel.pid)[0]["Uid"].split(),
                    os.stat(f"/proc/{kernel.pid}/environ").st_uid,
                )
                for kernel in kernels
            ]

    uids, owners = zip(*asyncio.run(look()), strict=True)
    # A process that may not be dumped belongs to root, whoever it is.
    assert set(owners) == {0}
    if level == "strict":
        assert len({uid for (uid, *_) in uids}) == 3
        assert all(len(set(four)) == 1 and four[0] != "0" for four in uids)
    if level == "none":
        assert uids == (["0"] * 4,) * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's fork server can give users away")
def test_the_kernels_of_two_pools_are_no_user_of_both(isolation: Isolation, level: str) -> None:
    if level == "none":
        pytest.skip("kernels without walls are who started them")

    async def look() -> list[int]:
        one, other = (KernelPool(Limits(), preload=(), isolation=isolation) for _ in range(2))
        async with one, other:
            kernels = [await pool.acquire(seed=0) for pool in (one, other, one, other)]
            return [int(thread_fields(kernel.pid)[0]["Uid"].split()[0]) for kernel in kernels]

    uids = asyncio.run(look())
    # Root where its files are closed to other users; then no kernel has a user of its own.
    assert len(set(uids)) == 4 or set(uids) == {0}
    if level == "strict":
        assert 0 not in uids


def test_every_slot_has_user_ids_that_no_other_has() -> None:
    ranges = [confine.uids(slot) for slot in range(NUM_SLOTS)]
    taken = [uid for uids in ranges for uid in uids]
    assert len(set(taken)) == len(taken)


def test_a_slot_that_was_given_back_is_free_again() -> None:
    first, second, third = (UidSlot() for _ in range(3))
    numbers = [slot.take() for slot in (first, second, first)]
    first.close()
    numbers.append(third.take())
    second.close()
    third.close()
    assert numbers[0] != numbers[1]
    assert numbers[0] == numbers[2] == numbers[3]


def test_pools_of_two_processes_share_no_user_id() -> None:
    take = "from repl_sandbox.walls.confine import UidSlot; print(UidSlot().take())"
    slot = UidSlot()
    number = slot.take()
    told = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True, check=True)
    slot.close()
    assert int(told.stdout) != number
    assert set(confine.uids(int(told.stdout))).isdisjoint(confine.uids(number))


def test_the_canary_finds_every_way_out_of_an_unsealed_kernel(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool, tmp_path: Path
) -> None:
    async def try_walls() -> None:
        await inspect(lambda: unsealed_pool.acquire(seed=0), folder=tmp_path)

    with pytest.raises(SandboxError, match="the walls around kernels do not hold") as caught:
        loop_runner.run(try_walls())
    # It gave itself up to the limits of an unsealed kernel, and its modules are not on its path.
    spared = {"make a namespace", "lift its limits", "import what runs it", "trace a kernel"}
    assert {name for name in PROBES if name not in str(caught.value)} <= spared
    assert "change a file" in str(caught.value)
    assert "harm another kernel" in str(caught.value)


def test_a_server_of_notebooks_is_tried_before_its_first_kernel(
    isolation: Isolation, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PROBES", {"add": "1 + 1", "divide": "1 / 0"})

    async def start() -> None:
        link = await Configuration(isolation=isolation, packages=()).start_server()
        await link.aclose()

    if level == "none":
        asyncio.run(start())
        return
    with pytest.raises(SandboxError, match="do not hold: one could add; "):
        asyncio.run(start())
