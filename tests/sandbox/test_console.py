"""A person's client attaches to a kernel of a pool, and finds the state that is there."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kernel_uses import ConsoleUse, T
from person import TIMEOUT_S, Person
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.types import (
    HEARTBEAT,
    ExecStatus,
    Execution,
    Isolation,
    Limits,
    SandboxError,
    socket_path,
)

pytestmark = pytest.mark.kernel
Typed = tuple[dict[str, Any], str]  # Any: a reply is JSON
"""The content of a reply, and the text that came with it."""
LIMITS = Limits(line_cpu_s=0.4, line_wall_s=20.0, grace_s=0.4)
BUSY = "import time; start = time.process_time()\nwhile time.process_time() - start < {}: pass\n\n"


@pytest.fixture(autouse=True)
def quiet_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the user's Jupyter is read or written."""
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


def with_console(
    use: ConsoleUse[T],
    *,
    isolation: Isolation = Isolation.AUTO,
    standby: int = 0,
    limits: Limits = LIMITS,
) -> T:
    """`use(pool, kernel, path)` on a kernel in which `x` is 6170."""

    async def run() -> T:
        async with KernelPool(
            limits,
            preload=(),
            setup=("x = 1234",),
            standby=standby,
            isolation=isolation,
            front_end=LINES,
        ) as pool:
            kernel, path = await pool.acquire_console(seed=5)
            await kernel.run("x = x * 5")
            return await use(pool, kernel, path)

    return asyncio.run(run())


async def type_all(path: Path, *sources: str) -> list[Typed]:
    def sit() -> list[Typed]:
        with Person(path) as person:
            return [person.type(source) for source in sources]

    return await asyncio.to_thread(sit)


def test_a_client_sees_the_state_that_was_built(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, _kernel: SupervisedKernel, path: Path) -> list[Typed]:
        return await type_all(path, "x + 1", "print('a'); y", "z = 7")

    (_, shown), (failed, trace), (passed, silence) = with_console(use, isolation=isolation)
    assert shown == "6171\n"
    assert failed["ename"] == "NameError"
    assert trace.startswith("a\nTraceback (most recent call last):\n")
    assert (passed["status"], silence) == ("ok", "")


def test_the_owner_sees_what_a_client_left(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, path: Path) -> Execution:
        await type_all(path, "x = 'theirs'")
        return await kernel.run("x")

    shown = with_console(use, isolation=isolation)
    assert (shown.status, shown.output) == (ExecStatus.OK, "'theirs'\n")


def test_a_second_client_finds_what_the_first_left() -> None:
    async def use(_pool: KernelPool, _kernel: SupervisedKernel, path: Path) -> list[Typed]:
        await type_all(path, "x += 1")
        return await type_all(path, "x")

    assert with_console(use)[0][1] == "6171\n"


def test_a_console_kernel_is_seeded_as_any_other() -> None:
    async def use(pool: KernelPool, console: SupervisedKernel, _path: Path) -> list[Execution]:
        plain, draw = await pool.acquire(seed=5), "__import__('random').random()"
        return [await kernel.evaluate(draw) for kernel in (console, plain)]

    console, plain = with_console(use)
    assert console.value == plain.value is not None


def test_the_heart_beats_while_a_line_runs(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, path: Path) -> bytes | None:
        def sit() -> bytes | None:
            with Person(path) as person:
                person.begin("while True: pass\n")
                heart = person.client.connect_hb()
                heart.send(b"are you there?")
                beat = heart.recv() if heart.poll(TIMEOUT_S * 1000) else None
                heart.close(linger=0)
                return beat

        beat = await asyncio.to_thread(sit)
        kernel.interrupt()
        return beat

    assert with_console(use, isolation=isolation) == b"are you there?"


def test_only_its_owner_can_read_the_connection_file() -> None:
    async def use(_pool: KernelPool, _kernel: SupervisedKernel, path: Path) -> tuple[int, int]:
        return stat.S_IMODE(os.stat(path).st_mode), stat.S_IMODE(os.stat(path.parent).st_mode)

    assert with_console(use) == (0o600, 0o700)


def exist(*paths: Path) -> list[bool]:
    return [path.exists() for path in paths]


def test_the_connection_file_goes_with_the_kernel(isolation: Isolation) -> None:
    async def use(
        _pool: KernelPool, kernel: SupervisedKernel, path: Path
    ) -> tuple[list[bool], list[bool]]:
        was_there = exist(path)
        await kernel.aclose()
        return was_there, exist(path, path.parent)

    assert with_console(use, isolation=isolation) == ([True], [False, False])


def test_code_in_a_walled_kernel_can_neither_read_nor_replace_the_connection_file(
    isolation: Isolation,
) -> None:
    if isolation is Isolation.NONE:
        pytest.skip("without walls code may do what its user may")

    async def use(
        _pool: KernelPool, kernel: SupervisedKernel, path: Path
    ) -> tuple[list[str | None], str]:
        attacks = (
            f"open({str(path)!r}).read()",
            f"open({str(path)!r}, 'w')",
            f"import os; os.rename({str(path)!r}, {str(path.parent / 'mine')!r})",
        )
        errors = [(await kernel.run(attack)).error_type for attack in attacks]
        return errors, await asyncio.to_thread(path.read_text)

    errors, connection = with_console(use, isolation=isolation)
    assert set(errors) <= {"PermissionError", "FileNotFoundError"}
    assert json.loads(connection)["transport"] == "ipc"


def test_each_kernel_has_a_key_of_its_own() -> None:
    async def use(pool: KernelPool, _kernel: SupervisedKernel, path: Path) -> list[str]:
        _, other = await pool.acquire_console(seed=6)
        return [json.loads(file.read_text())["key"] for file in (path, other)]

    one, other = with_console(use)
    assert one != other


@pytest.mark.parametrize("standby", [0, 2])
def test_neither_kind_of_kernel_is_handed_out_for_the_other(standby: int) -> None:
    async def use(pool: KernelPool, console: SupervisedKernel, _path: Path) -> list[bool]:
        (other, _), *plain = await asyncio.gather(
            pool.acquire_console(seed=9), pool.acquire(seed=0), pool.acquire(seed=1)
        )
        folders = [kernel._started.folder for kernel in (console, other, *plain)]
        return [socket_path(folder, HEARTBEAT).exists() for folder in folders]

    assert with_console(use, standby=standby) == [True, True, False, False]


def test_a_console_kernel_takes_none_from_the_stock() -> None:
    async def use(pool: KernelPool, _console: SupervisedKernel, _path: Path) -> int:
        return pool._link.num_stocked

    assert with_console(use, standby=2) == 2


def test_a_shut_down_by_a_client_ends_the_wait(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, path: Path) -> ExecStatus:
        def sit() -> None:
            with Person(path) as person:
                person.client.shutdown()

        await asyncio.gather(kernel.wait(), asyncio.to_thread(sit))
        return (await kernel.run("x")).status

    async def in_time(pool: KernelPool, kernel: SupervisedKernel, path: Path) -> ExecStatus:
        async with asyncio.timeout(TIMEOUT_S):
            return await use(pool, kernel, path)

    assert with_console(in_time, isolation=isolation) is ExecStatus.DIED


def test_closing_the_kernel_ends_the_wait() -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, _path: Path) -> None:
        waiting = asyncio.create_task(kernel.wait())
        await asyncio.sleep(0)  # it begins to wait
        await kernel.aclose()
        async with asyncio.timeout(TIMEOUT_S):
            await waiting

    with_console(use)


def test_the_end_of_the_pool_ends_the_wait() -> None:
    async def use(pool: KernelPool, kernel: SupervisedKernel, _path: Path) -> None:
        waiting = asyncio.create_task(kernel.wait())
        await pool.aclose()
        async with asyncio.timeout(TIMEOUT_S):
            await waiting

    with_console(use)


def test_no_deadline_ends_the_line_of_a_person(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, _kernel: SupervisedKernel, path: Path) -> list[Typed]:
        # Over the limit of a line and its grace together.
        return await type_all(path, BUSY.format(1.2) + "'done'")

    assert with_console(use, isolation=isolation)[0][1] == "'done'\n"


def test_the_time_of_a_persons_line_is_not_billed_to_ours() -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, path: Path) -> Execution:
        await type_all(path, BUSY.format(0.6))
        # Long enough for the deadline to look at the clock.
        return await kernel.run("time.sleep(0.7)\n'done'")

    ended = with_console(use)
    assert (ended.status, ended.output) == (ExecStatus.OK, "'done'\n")


def test_an_interrupt_of_the_owner_ends_the_line_of_a_person(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, path: Path) -> tuple[Typed, Typed]:
        line = asyncio.create_task(type_all(path, "while True: pass\n"))
        while not line.done():
            # Before the line begins it does nothing.
            kernel.interrupt()
            await asyncio.sleep(0.1)
        (ended,), (shown,) = await line, await type_all(path, "x")
        return ended, shown

    (ended, _), (_, shown) = with_console(use, isolation=isolation)
    assert (ended["ename"], shown) == ("KeyboardInterrupt", "6170\n")


def test_an_interrupt_of_an_idle_or_closed_kernel_does_nothing() -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, _path: Path) -> str:
        kernel.interrupt()
        shown = await kernel.run("x")
        await kernel.aclose()
        kernel.interrupt()
        return shown.output

    assert with_console(use) == "6170\n"


def test_a_kernel_outlives_the_interrupt_request_of_a_client(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, _kernel: SupervisedKernel, path: Path) -> tuple[str, str]:
        def sit() -> tuple[str, str]:
            with Person(path) as person:
                control = person.client.control_channel
                control.send(person.client.session.msg("interrupt_request", {}))
                reply = person.client.get_control_msg(timeout=TIMEOUT_S)
                return reply["msg_type"], person.see("x")

        return await asyncio.to_thread(sit)

    assert with_console(use, isolation=isolation) == ("interrupt_reply", "6170\n")


def test_a_setup_that_fails_is_reported_to_who_wanted_a_console() -> None:
    async def start() -> None:
        async with KernelPool(
            LIMITS, preload=(), setup=("1/0",), isolation=Isolation.NONE, front_end=LINES
        ) as pool:
            await pool.acquire_console(seed=1)

    with pytest.raises(SandboxError, match="ZeroDivisionError"):
        asyncio.run(start())


def test_a_pool_that_is_not_open_has_no_console() -> None:
    with pytest.raises(SandboxError, match="not open"):
        asyncio.run(KernelPool(LIMITS).acquire_console(seed=1))


@pytest.mark.skipif(find_spec("jupyter_console") is None, reason="jupyter-console is not installed")
def test_a_jupyter_console_attaches_and_leaves_the_kernel_alive(isolation: Isolation) -> None:
    async def use(_pool: KernelPool, kernel: SupervisedKernel, path: Path) -> tuple[str, str]:
        command = [sys.executable, "-m", "jupyter_console", "--simple-prompt"]
        command += ["--existing", str(path)]
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            input="x\nx = 'left'\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return done.stdout, (await kernel.run("x")).output

    shown, left = with_console(use, isolation=isolation)
    assert "6170" in shown
    assert left == "'left'\n"


STOCK_CLIENT = """
import sys
from jupyter_client import BlockingKernelClient
folder, key = sys.argv[1:]
client = BlockingKernelClient()
client.load_connection_info({
    "transport": "ipc", "ip": folder + "/s", "key": key, "signature_scheme": "hmac-sha256",
    "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "hb_port": 4, "control_port": 5,
})
client.start_channels(hb=False, stdin=False)
print(client.kernel_info(reply=True, timeout=20)["content"]["implementation"])
print(client.execute("x = 6 * 7", reply=True, timeout=20)["content"]["status"])
reply = client.execute("1/0", reply=True, timeout=20)["content"]
print(reply["status"], reply["ename"])
client.get_iopub_msg(timeout=20)
shown = []
def hook(message):
    if message["msg_type"] == "stream": print(message["content"]["text"], end="")
client.execute_interactive("x", output_hook=hook, timeout=20)
client.stop_channels()
"""


def test_a_stock_client_talks_to_a_console(loop_runner: asyncio.Runner, pool: KernelPool) -> None:
    kernel, _path = loop_runner.run(pool.acquire_console(seed=1))
    folder, key = kernel._started.folder, kernel._started.key
    try:
        asked = subprocess.run(
            [sys.executable, "-c", STOCK_CLIENT, str(folder), key.decode()],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        loop_runner.run(kernel.aclose())
    assert asked.stdout.split("\n")[:4] == [
        "repl-rl-lines",
        "ok",
        "error ZeroDivisionError",
        "42",
    ], asked
