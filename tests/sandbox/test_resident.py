"""`repl-rl kernels serve`: kernels of a fork server that stays, each as long as its connection."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest

from jupyter_kernels import TIMEOUT_S, Session, session
from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.jupyter.configuration import (
    Configuration,
    add_options,
    configuration_of,
    connect,
    resident_kernel,
)
from repl_sandbox.jupyter.serve import read_request, serve
from repl_sandbox.types import MAX_PACKET_BYTES, Isolation

pytestmark = pytest.mark.kernel
SERVE = [str(Path(sys.executable).with_name("repl-rl")), "kernels", "serve", "--preload", ""]
SERVE_LEAN = [sys.executable, "-m", "repl_sandbox.jupyter.serve", "--preload", ""]


@dataclass(frozen=True, slots=True)
class Server:
    process: subprocess.Popen[str]
    address: Path

    def kernels(self) -> list[int]:
        """Processes below it, without the fork server and what wraps it."""
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # reaped meanwhile
                if one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one.pid)
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "repl-rl-kernels"


@pytest.fixture
def server(place: Path) -> Iterator[Server]:
    with subprocess.Popen(SERVE, stdout=subprocess.PIPE, text=True) as process:
        try:
            rows = first_rows(process)
            assert rows[0].startswith("kernels: ")
            assert rows[2] == f"listening: {place}\n"
            yield Server(process, place)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=TIMEOUT_S) == 130
            assert not place.exists()


def is_resident(one: Session) -> bool:
    """Return whether a kernel is of the server that stays, and not of one of its own."""
    return one.manager.provisioner._resident is not None


def first_rows(process: subprocess.Popen[str]) -> list[str]:
    """Rows that it prints when there are kernels to be had."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(3)]


def test_a_kernel_comes_from_it_and_ends_with_its_client(server: Server) -> None:
    before = server.kernels()
    with session("repl-rl") as one:
        assert is_resident(one)
        assert len(server.kernels()) == len(before) + 1
        assert one.cell("6 * 7").data() == {"text/plain": "42"}
        with session("repl-rl") as two:
            two.cell("x = 5")
            assert one.cell("x").reply["ename"] == "NameError"
            two.manager.restart_kernel(now=True)
            two.client.wait_for_ready(timeout=TIMEOUT_S)
            assert two.cell("x").reply["ename"] == "NameError"
    wait_until(lambda: server.kernels() == before)


def test_who_wants_other_kernels_gets_a_server_of_its_own(server: Server) -> None:
    with session("repl-rl-lines") as lines:
        assert not is_resident(lines)
        assert lines.cell("6 * 7").text() == "42\n"


KEYS = (b"5", b'""', b"NaN", b'"\\ud800"', b"{}", b'"' + b"k" * 100_000 + b'"')
CONFIGURATIONS = (
    *(b"5", b'{"memory_mib": 1e400}', b'{"lines": "no"}'),
    b'{"memory_mib": ' + b"9" * 10_000 + b"}",
)
FOREIGN = (
    *(b"", b"hello", b"[]", b"{}", b"null", b"5", b"\xff", b"NaN", b'"key"', b'["key"]'),
    *(b'{"configuration": {}, "key": %b}' % key for key in KEYS),
    *(b'{"configuration": %b, "key": "k"}' % each for each in CONFIGURATIONS),
    *(b'{"key": "k"}', b'{"configuration": {}}', b'{"configuration": {}, "key": "k'),
    b'{"configuration": {}, "key": "k", "more": 1}',
    b"[" * 100_000,
    b'{"configuration": ' * 5_000,
)


def test_more_clients_than_it_can_hold_wait_and_end_nothing(place: Path) -> None:
    few = (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with subprocess.Popen(
        SERVE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few),
    ) as process:
        first_rows(process)
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                connection = connect(place)
                assert connection is not None
                stack.enter_context(connection)
            time.sleep(0.1)  # until it has taken as many as it can
        with session("repl-rl") as one:
            assert is_resident(one)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT_S) == 130


def test_a_client_that_speaks_something_else_is_left(server: Server) -> None:
    before = server.kernels()
    for packet in FOREIGN:
        connection = connect(server.address)
        assert connection is not None
        with connection:
            connection.send(packet)
            answer = connection.recv(MAX_PACKET_BYTES)
            assert b"is not understood" in answer or not packet
            assert connection.recv(100) == b""
    with session("repl-rl") as one:
        assert is_resident(one)
    wait_until(lambda: server.kernels() == before)


def test_a_second_one_is_refused(server: Server) -> None:
    done = subprocess.run(SERVE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == f"repl-rl: {server.address}: a server listens there; end it first\n"
    with session("repl-rl") as one:
        assert is_resident(one)


def test_an_address_that_nobody_serves_any_more_is_taken(place: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(str(place))
    with session("repl-rl") as one:
        assert not is_resident(one)


def test_a_folder_that_others_may_write_is_refused(place: Path) -> None:
    place.parent.chmod(0o777)
    done = subprocess.run(SERVE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "expected a folder of your own" in done.stderr


def test_kernels_that_share_numpy_draw_different_numbers(place: Path) -> None:
    with subprocess.Popen([*SERVE[:-1], "numpy"], stdout=subprocess.PIPE, text=True) as process:
        first_rows(process)
        drawn = []
        for _ in range(2):
            with session("repl-rl") as one:
                assert is_resident(one)
                drawn.append(one.cell("import numpy as np; float(np.random.rand())").data())
        process.send_signal(signal.SIGINT)
    assert drawn[0] != drawn[1]


def test_kernels_end_with_the_server(place: Path) -> None:
    with subprocess.Popen(SERVE, stdout=subprocess.PIPE, text=True) as process:
        first_rows(process)
        with session("repl-rl") as one:
            process.kill()
            process.wait()
            wait_until(lambda: not one.manager.is_alive())


@dataclass(frozen=True, slots=True)
class Gate:
    """Gate of a server in this process, which preloads `colorsys` once the gate is open."""

    is_open: threading.Event
    is_warm: threading.Event

    def open(self) -> None:
        self.is_open.set()
        assert self.is_warm.wait(2 * TIMEOUT_S)


@pytest.fixture
def gate(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made, is_over = Gate(threading.Event(), threading.Event()), threading.Event()
    start = Configuration.start_server

    async def start_server(configuration: Configuration) -> ForkServerClient:
        if configuration.preload:
            await asyncio.to_thread(made.is_open.wait, TIMEOUT_S)
        return await start(configuration)

    async def serve_until_it_is_over() -> None:
        wanted = Configuration(preload=("colorsys",))
        serving = asyncio.create_task(serve(wanted, on_warm=lambda _: made.is_warm.set()))
        await asyncio.to_thread(is_over.wait)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    monkeypatch.setattr(Configuration, "start_server", start_server)
    thread = threading.Thread(target=asyncio.run, args=(serve_until_it_is_over(),))
    thread.start()
    try:
        wait_until(place.exists)
        yield made
    finally:
        made.is_open.set()
        is_over.set()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_who_comes_before_all_is_preloaded_gets_a_server_of_its_own(gate: Gate) -> None:
    loaded = "import sys; 'colorsys' in sys.modules"
    with session("repl-rl") as first:
        assert not is_resident(first)
        gate.open()
        with session("repl-rl") as second:
            assert is_resident(second)
            assert second.cell(loaded).data() == {"text/plain": "True"}


def test_a_kernel_is_restarted_in_its_place_though_others_are_warm_since(gate: Gate) -> None:
    with session("repl-rl") as one:
        one.cell("x = 5")
        gate.open()
        one.manager.restart_kernel(now=True)
        one.client.wait_for_ready(timeout=TIMEOUT_S)
        assert not is_resident(one)
        assert one.cell("x").reply["ename"] == "NameError"


def has_kernels() -> bool:
    with resident_kernel(Configuration(), b"key") as started:
        return started is not None


@pytest.mark.parametrize(("program", "exit_code"), [(SERVE, 130), (SERVE_LEAN, 0)])
def test_systemd_may_open_the_socket(place: Path, program: list[str], exit_code: int) -> None:
    """Its convention: the listening socket is descriptor 3, and the variables say for whom."""
    command = (
        "import os; os.dup2(int(os.environ['PASSED']), 3); "
        "os.environ['LISTEN_PID'] = str(os.getpid()); os.environ['LISTEN_FDS'] = '1'; "
        f"os.execv({program[0]!r}, {program!r})"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", command],
            env={**os.environ, "PASSED": str(listener.fileno())},
            pass_fds=[listener.fileno()],
        )
        try:
            wait_until(has_kernels)
            with session("repl-rl") as one:
                assert is_resident(one)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=TIMEOUT_S) == exit_code
    assert place.exists()


@pytest.mark.parametrize(
    ("wanted", "covered"),
    [
        (Configuration(), True),
        (Configuration(preload=("sympy",)), True),
        (Configuration(preload=("numpy",)), False),
        (Configuration(memory_mib=1), False),
        (Configuration(lines=True), False),
        (Configuration(setup=("x = 1",)), False),
    ],
)
def test_more_may_be_preloaded_than_was_asked_for(wanted: Configuration, covered: bool) -> None:
    assert Configuration(preload=("sympy", "pandas")).covers(wanted) is covered
    request = json.dumps({"configuration": asdict(wanted), "key": "k"}).encode()
    assert read_request(request).configuration == wanted


def test_what_a_command_is_not_told_is_as_the_kernelspec_has_it() -> None:
    parser = ArgumentParser()
    add_options(parser)
    assert configuration_of(parser.parse_args([])) == Configuration()
    told = ["--preload", "sympy, numpy", "--packages", "", "--isolation", "none"]
    assert configuration_of(parser.parse_args([*told, "--memory-mib", "64"])) == Configuration(
        preload=("sympy", "numpy"), packages=(), isolation=Isolation.NONE, memory_mib=64
    )


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
