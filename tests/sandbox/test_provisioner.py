"""Any Jupyter client runs on the REPL that the trainer uses, sealed as it is: `repl-rl-lines`."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pexpect
import psutil
import pytest
from jupyter_client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from kernel_uses import T
from repl_sandbox.types import SandboxError

pytestmark = pytest.mark.kernel
NAME = "repl-rl-lines"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30
Typed = tuple[dict[str, Any], str]  # Any: a reply is JSON
"""The content of a reply, and the text that came with it."""


@pytest.fixture(autouse=True)
def quiet_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the user's Jupyter is read or written."""
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


def run_with_kernel(use: Callable[[AsyncKernelManager, AsyncKernelClient], Awaitable[T]]) -> T:
    """Start a kernel through its manager, `use(manager, client)`, shut it down."""

    async def run() -> T:
        manager = AsyncKernelManager(kernel_name=NAME)
        await manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=TIMEOUT_S)
            return await use(manager, client)
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)

    return asyncio.run(run())


async def execute(client: AsyncKernelClient, code: str) -> Typed:
    """(reply content, text that the client was sent)."""
    texts = []
    reply = await client.execute_interactive(
        code,
        timeout=TIMEOUT_S,
        allow_stdin=False,
        output_hook=lambda message: texts.append(message["content"].get("text", "")),
    )
    return reply["content"], "".join(texts)


def cells(*sources: str) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(s) for s in sources]
    )
    notebook.metadata["kernelspec"] = {"name": NAME, "display_name": NAME, "language": "python"}
    return notebook


def test_the_kernelspec_is_installed_with_the_package() -> None:
    spec = KernelSpecManager().get_kernel_spec(NAME)
    assert spec.metadata["kernel_provisioner"]["provisioner_name"] == "repl-rl-provisioner"
    assert Path(spec.resource_dir).is_relative_to(sys.prefix)


def test_a_manager_gets_a_sealed_kernel_that_keeps_its_state() -> None:
    async def use(_manager: AsyncKernelManager, client: AsyncKernelClient) -> list[Typed]:
        await execute(client, "x = 20")
        return [await execute(client, code) for code in ("x + 1", "import os; os.fork()", "1/0")]

    (_, shown), (forked, _), (divided, trace) = run_with_kernel(use)
    assert shown == "21\n"
    assert (forked["status"], forked["ename"]) == ("error", "PermissionError")
    assert divided["ename"] == "ZeroDivisionError"
    assert trace.endswith("ZeroDivisionError: division by zero\n")


def test_a_large_output_arrives_whole() -> None:
    async def use(_manager: AsyncKernelManager, client: AsyncKernelClient) -> Typed:
        return await execute(client, "print('a' * 10**6)")

    assert run_with_kernel(use)[1] == "a" * 10**6 + "\n"


def test_an_output_that_was_cut_says_how_much_is_missing() -> None:
    async def use(_manager: AsyncKernelManager, client: AsyncKernelClient) -> Typed:
        return await execute(client, "print('a' * 3_000_000)")

    reply, shown = run_with_kernel(use)
    assert reply["ename"] == "OutputLimit"
    # Kept are the first and the last 2**20 characters, and the traceback is among the last.
    trace = shown[shown.index("Traceback") :]
    num_omitted = 3_000_000 + len(trace) - 2 * 2**20
    assert f"\n... [{num_omitted} characters omitted] ...\n" in shown


def test_an_interrupt_ends_the_line_and_keeps_the_state() -> None:
    async def use(manager: AsyncKernelManager, client: AsyncKernelClient) -> tuple[str, str]:
        await execute(client, "x = 5")
        line = asyncio.create_task(execute(client, "while True: pass\n"))
        while not line.done():
            # Before the line begins it does nothing.
            await manager.interrupt_kernel()
            await asyncio.sleep(0.1)
        return (await line)[0]["ename"], (await execute(client, "x"))[1]

    assert run_with_kernel(use) == ("KeyboardInterrupt", "5\n")


def test_a_restart_keeps_the_connection_and_drops_the_state() -> None:
    async def use(manager: AsyncKernelManager, client: AsyncKernelClient) -> str:
        await execute(client, "x = 5")
        await manager.restart_kernel(now=True)
        await client.wait_for_ready(timeout=TIMEOUT_S)
        return str((await execute(client, "x"))[0]["ename"])

    assert run_with_kernel(use) == "NameError"


def test_a_kernel_that_died_is_seen_dead() -> None:
    async def use(manager: AsyncKernelManager, client: AsyncKernelClient) -> bool:
        client.execute("import os; os._exit(1)")
        deadline = time.monotonic() + TIMEOUT_S
        while await manager.is_alive() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return bool(await manager.is_alive())

    assert run_with_kernel(use) is False


def test_a_shut_down_leaves_neither_process_nor_file() -> None:
    async def use(
        manager: AsyncKernelManager, _client: AsyncKernelClient
    ) -> tuple[list[Path], list[psutil.Process]]:
        link = manager.provisioner._link
        server = psutil.Process(link._process.pid)
        folders = [Path(manager.ip).parent, link.runtime]
        return folders, [server, *server.children(recursive=True)]

    folders, processes = run_with_kernel(use)
    assert [folder for folder in folders if folder.exists()] == []
    assert psutil.wait_procs(processes, timeout=TIMEOUT_S)[1] == []


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """Run a client's program in a Python of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_client_that_is_killed_leaves_neither_process_nor_file() -> None:
    starter = (
        "import os; from jupyter_client.manager import KernelManager\n"
        f"manager = KernelManager(kernel_name={NAME!r}); manager.start_kernel()\n"
        "link = manager.provisioner._link\n"
        "print(link._process.pid, link.runtime, flush=True); os.kill(os.getpid(), 9)\n"
    )
    done = ended(starter)
    pid, runtime = done.stdout.split()
    deadline = time.monotonic() + TIMEOUT_S
    while psutil.pid_exists(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid))
    assert not Path(runtime).exists()


def test_a_kernel_may_be_shut_down_while_the_interpreter_ends() -> None:
    """As nbclient does it. No thread can be started then."""
    program = (
        "import atexit; from jupyter_client.manager import KernelManager\n"
        f"manager = KernelManager(kernel_name={NAME!r}); manager.start_kernel()\n"
        "atexit.register(manager.shutdown_kernel, now=True)\n"
        "print(manager.provisioner._link.runtime, flush=True)\n"
    )
    done = ended(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()


def test_a_start_that_fails_leaves_no_process(tmp_path: Path) -> None:
    spec = json.loads((ROOT / "sandbox" / "kernelspecs" / NAME / "kernel.json").read_text())
    spec["metadata"]["kernel_provisioner"]["config"] = {"setup": ["1/0"]}
    folder = tmp_path / "JUPYTER_DATA_DIR" / "kernels" / "broken"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))

    async def start() -> None:
        await AsyncKernelManager(kernel_name="broken").start_kernel()

    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    with pytest.raises(SandboxError, match="ZeroDivisionError"):
        asyncio.run(start())
    assert children.read_text() == before


def test_nbclient_runs_a_notebook() -> None:
    notebook = cells("from sympy import *", "x = symbols('x')", "expand((x + 1)**2)")
    NotebookClient(notebook, timeout=TIMEOUT_S).execute()
    assert notebook.cells[2].outputs[0].text == "x**2 + 2*x + 1\n"
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]


def test_nbclient_stops_at_the_cell_that_failed() -> None:
    with pytest.raises(CellExecutionError, match="NameError"):
        NotebookClient(cells("y", "1"), timeout=TIMEOUT_S).execute()


def test_papermill_runs_a_notebook_with_parameters(tmp_path: Path) -> None:
    source, made = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    notebook = cells("n = 1", "n * 7")
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, source)
    papermill.execute_notebook(source, made, parameters={"n": 6}, progress_bar=False)
    assert nbformat.read(made, as_version=4).cells[-1].outputs[0].text == "42\n"


def test_a_console_runs_on_it() -> None:
    console = pexpect.spawn(
        sys.executable,
        ["-m", "jupyter_console", "--kernel", NAME, "--simple-prompt"],
        timeout=TIMEOUT_S,
        encoding="utf-8",
        env={**os.environ, "TERM": "dumb"},
    )
    with console:
        console.expect(r"In \[1\]:")
        console.sendline("6 * 7")
        console.expect("42")
        console.sendeof()
        console.expect("exit")
        console.sendline("y")
        console.expect(pexpect.EOF)


def test_a_console_attaches_to_a_running_kernel() -> None:
    async def use(manager: AsyncKernelManager, client: AsyncKernelClient) -> str:
        await execute(client, "x = 1234 * 5")
        command = [sys.executable, "-m", "jupyter_console", "--simple-prompt"]
        command += ["--existing", manager.connection_file]
        done = await asyncio.to_thread(
            subprocess.run, command, input="x\n", capture_output=True, text=True, timeout=TIMEOUT_S
        )
        return done.stdout

    assert "6170" in run_with_kernel(use)
