"""The executors that `executors.py` measures: how each one starts, runs a line, and stops one.

An executor boots once, then opens sessions. The last four are others' packages, for an environment
that you make for them: sandlock, smolagents, autogen-ext[jupyter-executor], swe-rex. Knows nothing
of corpus, clocks and tables.
"""

import asyncio
import importlib
import logging
import os
import re
import shlex
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty
from subprocess import DEVNULL, PIPE
from typing import Any

SETUP = ("from sympy import *", "x, n, k = symbols('x n k')", "from time import process_time")
DEADLINE_S = 60.0
"""Of what has no limit of its own: imports, starts, a line that nothing interrupts."""
SUBSCRIBED_S = 0.2
PRIMARY, SECONDARY = ">>> ", "... "

END = b"\4"
PROMPTS = 'import sys; sys.ps1, sys.ps2 = "\\4", ""'
"""Lets the interpreter end its answers with a character that no output has."""
COMMAND = ("sh", "-c", 'PYTHON_BASIC_REPL=1 exec "$0" -i -q -u 2>&1', sys.executable)

Ask = Callable[..., Awaitable[str]]
"""The same as Run, with the limit as `limit_s`."""
Run = Callable[[str], Awaitable[str]]
"""Run a source to its end, or to the limit; the text shown."""
Open = Callable[[], AbstractAsyncContextManager[Run]]
"""Start a session that has run SETUP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    boot: Callable[[float], AbstractAsyncContextManager[Open]]
    """Gets the limit of a line in seconds."""
    package: str = ""
    """Its distribution on the package index; empty for what is always there."""


# Ours, by its own client and by a stock one.


@asynccontextmanager
async def ours(limit_s: float, *, is_console: bool = False) -> AsyncIterator[Open]:
    from repl_sandbox.host.pool import KernelPool
    from repl_sandbox.jupyter.front_ends import LINES
    from repl_sandbox.types import Limits

    limits = Limits(line_cpu_s=limit_s, line_wall_s=limit_s)
    front_end = LINES if is_console else None
    async with KernelPool(limits, setup=SETUP, front_end=front_end) as pool:
        yield partial(our_console if is_console else our_kernel, pool, limit_s)


@asynccontextmanager
async def our_kernel(pool: Any, _limit_s: float) -> AsyncIterator[Run]:
    kernel = await pool.acquire(seed=0)

    async def run(source: str) -> str:
        execution = await kernel.run(source)
        assert execution.status != "incomplete", source
        return str(execution.output)

    try:
        yield run
    finally:
        await kernel.aclose()


@asynccontextmanager
async def our_console(pool: Any, limit_s: float) -> AsyncIterator[Run]:
    from jupyter_client.asynchronous.client import AsyncKernelClient

    # A stock client asks the kernel for no interrupt, so its owner does it.
    kernel, path = await pool.acquire_console(seed=0)
    client = AsyncKernelClient()
    client.load_connection_file(str(path))

    async def interrupt() -> None:
        kernel.interrupt()

    try:
        ask = await asking(client, interrupt)
        yield partial(ask, limit_s=limit_s)
    finally:
        client.stop_channels()
        await kernel.aclose()


# Stock kernels.


@asynccontextmanager
async def ipykernel(limit_s: float) -> AsyncIterator[Open]:
    with tempfile.TemporaryDirectory(prefix="repl-rl-executors-") as folder:
        # A stock kernel leaves its history and its connection file there.
        os.environ |= {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        yield partial(stock_kernel, limit_s)


@asynccontextmanager
async def stock_kernel(limit_s: float) -> AsyncIterator[Run]:
    from jupyter_client.manager import AsyncKernelManager

    manager = AsyncKernelManager(kernel_name="python3")
    await manager.start_kernel(stdout=DEVNULL, stderr=DEVNULL)
    client = manager.client()
    try:
        ask = await asking(client, manager.interrupt_kernel)
        await ask("\n".join(SETUP), limit_s=DEADLINE_S)
        yield partial(ask, limit_s=limit_s)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def asking(client: Any, interrupt: Callable[[], Awaitable[None]]) -> Ask:
    """What asks a kernel by a client of jupyter_client's, once the texts of the kernel arrive."""
    client.start_channels(stdin=False, hb=False, control=False)

    async def ask(source: str, *, limit_s: float, silence_s: float = DEADLINE_S) -> str:
        msg_id = client.execute(source)
        texts: list[str] = []
        try:
            await client.get_shell_msg(timeout=limit_s)
        except Empty:
            await interrupt()
            await client.get_shell_msg(timeout=DEADLINE_S)
        while True:
            message = await client.get_iopub_msg(timeout=silence_s)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            match message["content"]:
                case {"execution_state": "idle"}:
                    return "".join(texts)
                case {"data": {"text/plain": text}} | {"name": _, "text": text}:
                    texts.append(text)
                case {"traceback": frames}:
                    texts.append("\n".join(frames))

    for _ in range(int(DEADLINE_S / SUBSCRIBED_S)):
        try:
            await ask("", limit_s=DEADLINE_S, silence_s=SUBSCRIBED_S)
        except Empty:  # what a kernel publishes before a client has subscribed is lost
            continue
        return ask
    raise TimeoutError("iopub stayed silent")


# The interpreter itself, as `python -i`.


@asynccontextmanager
async def interactive(limit_s: float) -> AsyncIterator[Open]:
    yield partial(interpreter, limit_s)


@asynccontextmanager
async def interpreter(limit_s: float) -> AsyncIterator[Run]:
    process = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, limit=1 << 24)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ask = await typing_into(process.stdin.write, process.stdout, process.pid)
        for source in SETUP:
            await ask(source, limit_s=DEADLINE_S)
        yield partial(ask, limit_s=limit_s)
    finally:
        process.kill()
        await process.wait()


async def typing_into(
    write: Callable[[bytes], object], answers: asyncio.StreamReader, pid: int
) -> Ask:
    """What types at the prompt of an interpreter, and reads up to the next one."""

    async def read(*, end: bytes = END, limit_s: float = DEADLINE_S) -> str:
        async with asyncio.timeout(limit_s):
            return (await answers.readuntil(end)).removesuffix(end).decode()

    async def ask(source: str, *, limit_s: float) -> str:
        write(source.encode() + b"\n")
        try:
            return await read(limit_s=limit_s)
        except TimeoutError:
            os.kill(pid, signal.SIGINT)
            return await read()

    await read(end=PRIMARY.encode())
    await ask(PROMPTS, limit_s=DEADLINE_S)
    return ask


@asynccontextmanager
async def fresh(limit_s: float, *, is_whole: bool = False) -> AsyncIterator[Open]:
    yield partial(calls, limit_s, is_whole=is_whole)


@asynccontextmanager
async def calls(limit_s: float, *, is_whole: bool) -> AsyncIterator[Run]:
    """An interpreter for each line, which runs it alone, or all before it first."""
    before: list[str] = []

    async def run(source: str) -> str:
        async with interpreter(limit_s) as ask:
            for line in before:
                await ask(line)
            shown = await ask(source)
        if is_whole and not shown.endswith("KeyboardInterrupt\n"):
            before.append(source)
        return shown

    yield run


# Others.


@asynccontextmanager
async def sandlock(limit_s: float) -> AsyncIterator[Open]:
    yield partial(sandlock_session, limit_s)


@asynccontextmanager
async def sandlock_session(limit_s: float) -> AsyncIterator[Run]:
    lib = importlib.import_module("sandlock")
    system = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev")
    readable = [*system, sys.prefix, sys.base_prefix, *filter(os.path.isdir, sys.path)]
    pipe, answers = lib.StdioMode.PIPED, asyncio.StreamReader(limit=1 << 24)
    with lib.Sandbox(fs_readable=readable).popen(COMMAND, stdin=pipe, stdout=pipe) as process:
        reading, _ = await asyncio.get_running_loop().connect_read_pipe(
            partial(asyncio.StreamReaderProtocol, answers), process.stdout
        )
        try:
            ask = await typing_into(process.stdin.write, answers, process.pid)
            for source in SETUP:
                await ask(source, limit_s=DEADLINE_S)
            yield partial(ask, limit_s=limit_s)
        finally:
            process.kill()
            reading.close()


@asynccontextmanager
async def smolagents(limit_s: float) -> AsyncIterator[Open]:
    yield partial(smolagents_session, limit_s)


@asynccontextmanager
async def smolagents_session(limit_s: float) -> AsyncIterator[Run]:
    lib = importlib.import_module("smolagents.local_python_executor")
    limit = max(1, round(limit_s))
    executor = lib.LocalPythonExecutor(["sympy.*", "time"], timeout_seconds=limit)
    executor.send_tools({})

    async def run(source: str) -> str:
        try:
            done = executor(source)
        except (lib.InterpreterError, lib.ExecutionTimeoutError) as error:
            return str(error)
        return str(done.logs) + ("" if done.output is None else repr(done.output))

    for source in SETUP:
        await run(source)
    yield run


@asynccontextmanager
async def autogen(limit_s: float) -> AsyncIterator[Open]:
    async with ipykernel(limit_s):
        yield partial(autogen_session, limit_s)


@asynccontextmanager
async def autogen_session(limit_s: float) -> AsyncIterator[Run]:
    core = importlib.import_module("autogen_core")
    code = importlib.import_module("autogen_core.code_executor")
    lib = importlib.import_module("autogen_ext.code_executors.jupyter")
    with tempfile.TemporaryDirectory(prefix="repl-rl-executors-") as folder:
        limit = max(1, round(limit_s))
        executor = lib.JupyterCodeExecutor(timeout=limit, output_dir=folder)

        async def ask(source: str) -> str:
            block = code.CodeBlock(code=source, language="python")
            done = await executor.execute_code_blocks([block], core.CancellationToken())
            return str(done.output)

        async def run(source: str) -> str:
            try:
                return await ask(source)
            except TimeoutError:
                await executor.restart()
                await ask("\n".join(SETUP))
                return "TimeoutError"

        await executor.start()
        try:
            await ask("\n".join(SETUP))
            yield run
        finally:
            await executor.stop()


@asynccontextmanager
async def swe_rex(limit_s: float) -> AsyncIterator[Open]:
    lib = importlib.import_module("swerex.runtime.local")
    runtime = lib.LocalRuntime(logger=logging.getLogger("silent"))
    try:
        yield partial(swe_rex_session, runtime, limit_s)
    finally:
        await runtime.close()


@asynccontextmanager
async def swe_rex_session(runtime: Any, limit_s: float) -> AsyncIterator[Run]:
    lib = importlib.import_module("swerex.runtime.abstract")
    failed = importlib.import_module("swerex.exceptions").CommandTimeoutError
    name = uuid.uuid4().hex
    action = partial(lib.BashAction, session=name, is_interactive_command=True)
    prompts = [re.escape(PRIMARY), re.escape(SECONDARY)]
    await runtime.create_session(lib.CreateBashSessionRequest(session=name))

    async def ask(source: str, *, limit_s: float) -> str:
        for line in source.split("\n"):
            asked = action(command=line, expect=prompts, timeout=limit_s)
            done = await runtime.run_in_session(asked)
        return str(done.output)

    async def run(source: str) -> str:
        try:
            return await ask(source, limit_s=limit_s)
        except failed:
            stop = lib.BashInterruptAction(session=name, expect=prompts[:1], timeout=DEADLINE_S)
            return str((await runtime.run_in_session(stop)).output)

    try:
        python = f"TERM=dumb PYTHON_BASIC_REPL=1 {shlex.quote(sys.executable)} -q"
        for source in (python, *SETUP):
            await ask(source, limit_s=DEADLINE_S)
        yield run
    finally:
        await runtime.close_session(lib.CloseBashSessionRequest(session=name))


EXECUTORS = {
    "repl-rl": Executor(boot=ours),
    "repl-rl, jupyter": Executor(boot=partial(ours, is_console=True)),
    "ipykernel": Executor(boot=ipykernel, package="ipykernel"),
    "python -i": Executor(boot=interactive),
    "fresh": Executor(boot=fresh),
    "re-execution": Executor(boot=partial(fresh, is_whole=True)),
    "sandlock": Executor(boot=sandlock, package="sandlock"),
    "smolagents": Executor(boot=smolagents, package="smolagents"),
    "autogen-ext": Executor(boot=autogen, package="autogen-ext"),
    "swe-rex": Executor(boot=swe_rex, package="swe-rex"),
}
