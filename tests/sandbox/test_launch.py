"""A client that knows no provisioners starts the command of the kernelspec and gets a kernel."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_kernels import TIMEOUT_S, Session, session, use_plain_specs
from repl_sandbox.jupyter.launch import accept, listen, read_connection
from repl_sandbox.types import PORTS

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def own_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_specs(tmp_path, monkeypatch)


@pytest.fixture
def kernel() -> Iterator[Session]:
    with session("repl-rl-plain") as made:
        yield made


def test_it_runs_cells_and_is_sealed(kernel: Session) -> None:
    assert kernel.cell("6 * 7").data() == {"text/plain": "42"}
    assert kernel.cell("print('a' * 10**6)").text() == "a" * 10**6 + "\n"
    assert kernel.cell("import socket; socket.socket()").reply["ename"] == "PermissionError"


def test_an_interrupt_reaches_the_cell(kernel: Session) -> None:
    asked = kernel.client.execute("x = 5\nprint('begun', flush=True)\nwhile True: pass")
    kernel.until("stream")
    kernel.manager.interrupt_kernel()
    assert kernel.until("error")["ename"] == "KeyboardInterrupt"
    assert kernel.reply(asked)["ename"] == "KeyboardInterrupt"
    assert kernel.cell("x").data() == {"text/plain": "5"}


def test_it_ends_with_its_kernel(kernel: Session) -> None:
    kernel.client.execute("import os; os._exit(1)")
    wait_until(lambda: not kernel.manager.is_alive())


def test_a_polite_end_is_an_end(kernel: Session) -> None:
    kernel.client.shutdown()
    wait_until(lambda: not kernel.manager.is_alive())


def test_it_restarts(kernel: Session) -> None:
    kernel.cell("x = 5")
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=TIMEOUT_S)
    assert kernel.cell("x").reply["ename"] == "NameError"


def test_lines_are_lines() -> None:
    with session("repl-rl-lines-plain") as lines:
        shown = lines.cell("1/0\nprint('went on')")
    assert "ZeroDivisionError: division by zero\nwent on\n" in shown.text()


def test_it_ends_with_the_client_that_started_it(tmp_path: Path) -> None:
    starter = (
        "import sys; from jupyter_client.manager import KernelManager\n"
        "manager = KernelManager(kernel_name='repl-rl-plain'); manager.start_kernel()\n"
        "client = manager.client(); client.start_channels(); client.wait_for_ready(timeout=30)\n"
        "print(manager.provisioner.pid, flush=True); import os; os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", starter], capture_output=True, text=True, timeout=60, check=True
    )
    pid = int(done.stdout)
    wait_until(lambda: not _runs(pid))


FIELDS = ("transport", "ip", "key", *PORTS)
WHOLE: dict[str, object] = {
    "transport": "tcp",
    "ip": "127.0.0.1",
    "key": "k",
    **dict.fromkeys(PORTS, 1),
}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"key": "k"}', "5", "NaN", "[" * 100_000, json.dumps(FIELDS)),
        json.dumps([[name, 1] for name in FIELDS]),
        *(json.dumps(WHOLE | {name: None}) for name in FIELDS),
        *(json.dumps(WHOLE | {name: [1.5]}) for name in FIELDS),
        json.dumps(WHOLE | {"transport": "udp"}),
        json.dumps(WHOLE | {"shell_port": 1 << 70}),
    ],
)
def test_what_a_client_cannot_have_meant_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kernel.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(file))) as raised:
        read_connection(file)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": "k"}'])
def test_a_file_that_is_no_connection_file_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kernel.json"
    file.write_text(text)
    done = launch("-f", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}: no connection file of Jupyter's: ")
    assert done.stderr.count("\n") == 1


def test_a_client_that_encrypts_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "kernel.json"
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "k", **dict.fromkeys(PORTS, 1)}
    file.write_text(json.dumps(connection | {"curve_publickey": "p", "curve_secretkey": "s"}))
    done = launch("-f", str(file))
    assert done.returncode == 2
    assert done.stderr == (
        f"{file}: curve_publickey, curve_secretkey: this kernel does not encrypt (CurveZMQ)\n"
    )


def test_what_a_client_is_sent_leaves_at_once() -> None:
    """Without the option a packet waits for the receipt of the last one, up to 40 ms."""
    with (
        listen("tcp", "127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        accept(listener) as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_of_files_is_accepted(tmp_path: Path) -> None:
    with (
        listen("ipc", str(tmp_path / "s"), 1) as listener,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(tmp_path / "s-1"))
        with accept(listener) as accepted:
            assert accepted.family == socket.AF_UNIX


def test_a_client_of_files_may_restart_its_kernel(tmp_path: Path) -> None:
    """The socket of the kernel before is still there; a file that is none is left alone."""
    for _ in range(2):
        listen("ipc", str(tmp_path / "s"), 1).close()
    (tmp_path / "f-1").write_text("kept")
    with pytest.raises(OSError, match="in use"):
        listen("ipc", str(tmp_path / "f"), 1)
    assert (tmp_path / "f-1").read_text() == "kept"


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "repl_sandbox.jupyter.launch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, os.getpid()
        time.sleep(0.02)
