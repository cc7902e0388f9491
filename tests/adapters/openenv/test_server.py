"""The server: what it says by HTTP, its one command, and what is left of it at the end."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("openenv")

from openenv import GenericEnvClient
from openenv.cli._validation import validate_running_environment
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

import repl_rl.integrations.openenv
from openenv_kit import Served, holds, serving
from repl_rl.config import Config
from repl_rl.integrations.openenv import _is_foreign
from repl_rl.records import OutcomeKind, VerdictKind

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

HOME = Path(repl_rl.integrations.openenv.__file__).parent


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.fixture
def tracebacks() -> Iterator[list[str]]:
    """Messages of the server and of the event loop that come with a traceback."""
    found: list[str] = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                found.append(record.getMessage())

    loggers, hearing = [logging.getLogger(name) for name in ("", "uvicorn")], Hearing()
    for logger in loggers:
        logger.addHandler(hearing)
    yield found
    for logger in loggers:
        logger.removeHandler(hearing)


def asked(served: Served, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and JSON; a body is posted."""
    request = urllib.request.Request(
        served.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_tasks_are_found_by_split_and_number(served: Served) -> None:
    assert asked(served, "/repl-rl/splits") == (
        200,
        [{"name": "train", "type": "train"}, {"name": "held_out", "type": "test"}],
    )
    assert asked(served, "/repl-rl/num_tasks", {"split": "held_out"}) == (200, {"num_tasks": 20})
    status, found = asked(served, "/repl-rl/task", {"split": "train", "index": 7})
    problem = served.problems.get("train", 7)
    assert status == 200
    assert found["task"] == {
        "id": problem.id,
        "split": "train",
        "index": 7,
        "statement": problem.statement,
    }


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/repl-rl/num_tasks", {"split": "test"}, "expected one of train, held_out"),
        ("/repl-rl/task", {"split": "train", "index": 20}, "which has 20"),
        ("/step", {"action": {"line": "1"}}, "expected a reset before the first step"),
        ("/reset", {"index": 99}, "which has 20"),
    ],
)
def test_what_there_is_not_is_refused_in_a_line(
    served: Served, path: str, body: dict[str, Any], message: str
) -> None:
    status, found = asked(served, path, body)
    assert status == 400
    assert message in found["detail"]


def sent(served: Served, path: str, body: str, **headers: str) -> int:
    """The status after a body as it is written."""
    request = urllib.request.Request(
        served.url + path,
        data=body.encode(),
        headers={"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


HUGE = "9" * 5000
ODD = ["NaN", "Infinity", "-1", "1e400", "0.5", "true", '"x"', "[]", HUGE, "9" * 40, "[" * 100_000]


@pytest.mark.parametrize("value", ODD, ids=lambda one: one[:12])
@pytest.mark.parametrize("name", ["seed", "index", "split", "episode_id"])
def test_an_odd_reset_is_no_failure_of_the_server(served: Served, name: str, value: str) -> None:
    status = sent(served, "/reset", f'{{"{name}": {value}}}')
    assert 200 <= status < 500
    assert served.all_kernels_are_freed()


@pytest.mark.parametrize("path", ["/reset", "/repl-rl/num_tasks", "/repl-rl/task"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_a_page_of_another_site_gets_nothing(served: Served, path: str, origin: str) -> None:
    assert sent(served, path, "{}", Origin=origin) == 403
    host = served.url.removeprefix("http://")
    for scheme in ("http", "https"):
        assert sent(served, path, "{}", Origin=f"{scheme}://{host}") != 403


def test_a_name_that_points_here_is_another_site() -> None:
    """Whoever owns a name may have it point anywhere (DNS rebinding)."""
    headers = [(b"host", b"evil.example:8000"), (b"origin", b"http://evil.example:8000")]
    for server, is_foreign in (("127.0.0.1", True), ("::1", True), ("10.0.0.7", False)):
        scope = {"headers": headers, "server": (server, 8000)}
        assert _is_foreign(scope) is is_foreign


@pytest.mark.parametrize("name", [b"localhost:8000", b"127.0.0.1:8000", b"[::1]:8000"])
def test_a_page_of_this_machine_is_no_other_site(name: bytes) -> None:
    headers = [(b"host", name), (b"origin", b"http://" + name)]
    assert not _is_foreign({"headers": headers, "server": ("127.0.0.1", 8000)})


def test_a_socket_of_another_sites_page_is_refused(served: Served) -> None:
    address = served.url.replace("http", "ws") + "/ws"
    with pytest.raises(InvalidStatus, match="403"), connect(address, origin=Origin("http://evil")):
        pass
    with connect(address) as socket_:
        socket_.send('{"type": "state"}')
        assert json.loads(socket_.recv())["type"] == "state"


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "reset", "data": {"seed": NaN}}',
        f'{{"type": "reset", "data": {{"seed": {HUGE}}}}}',
        f'{{"type": "reset", "data": {{"index": {"9" * 40}}}}}',
        '{"type": "reset", "data": {"split": []}}',
        '{"type": "reset", "data": 5}',
        '{"type": "step", "data": {"line": NaN}}',
        '{"type": 5}',
        "[]",
        "[" * 100_000,
        "\x00",
    ],
    ids=lambda one: one[:40],
)
def test_an_odd_message_is_answered_and_leaves_no_traceback(
    served: Served, message: str, tracebacks: list[str]
) -> None:
    with connect(served.url.replace("http", "ws") + "/ws") as socket_:
        socket_.send(message)
        assert json.loads(socket_.recv())["type"] == "error"
    assert served.all_kernels_are_freed()
    assert tracebacks == []


@pytest.mark.parametrize("after", ["", '{"type": "reset", "data": {"index": 0}}', "{"])
def test_a_client_that_goes_away_leaves_no_traceback(
    served: Served, after: str, tracebacks: list[str]
) -> None:
    socket_ = connect(served.url.replace("http", "ws") + "/ws")
    for _ in range(5 if after else 0):
        socket_.send(after)
    socket_.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket_.socket.close()  # a reset, without a word
    assert served.all_kernels_are_freed()
    with served.session() as session:
        session.reset(index=0)
    assert served.all_kernels_are_freed()
    assert tracebacks == []


def test_a_reset_by_http_keeps_no_kernel(served: Served) -> None:
    status, found = asked(served, "/reset", {"index": 0})
    assert status == 200
    assert found["observation"]["text"].endswith(">>>")
    assert served.all_kernels_are_freed()


def test_an_action_has_one_required_field(served: Served) -> None:
    """Clients send it as it is, without a name."""
    _, schemas = asked(served, "/schema")
    assert schemas["action"]["required"] == ["line"]


def test_openenvs_own_check_of_a_server_passes(served: Served) -> None:
    report = validate_running_environment(served.url)
    assert report["summary"]["failed_criteria"] == []
    assert report["passed"]


def test_the_manifest_is_one_and_its_range_is_that_of_the_default_reward() -> None:
    manifest = OpenEnvYamlParser().parse(HOME)
    reward = Config().reward
    stake = 0.5 / (1 - 0.5) * reward.verdict[VerdictKind.PROVED]
    least = reward.verdict[VerdictKind.MALFORMED] - stake - reward.max_line_charge
    assert least < reward.no_submission - reward.max_line_charge
    assert reward.line.get(OutcomeKind.SUBMITTED, 0.0) == 0.0
    assert manifest.reward.range == pytest.approx((least, reward.verdict[VerdictKind.PROVED]))


# The command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        code = "from repl_rl.commands.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "serve-env", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_all_that_it_started(
    command: Callable[..., subprocess.Popen[str]], number: signal.Signals, code: int
) -> None:
    process = command("--port", "0", "--sessions", "2", "--set", "sandbox.standby=1")
    assert process.stdout is not None
    rows = [process.stdout.readline() for _ in range(3)]
    assert rows[0] == "task: sympy-proofs, 2 sessions at once\n"
    assert rows[1].startswith("kernels: ")
    url = rows[2].removeprefix("listening: ").strip()
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset(split="held_out", index=1)
        assert client.step({"line": "6 * 7"}).observation["text"] == "42\n>>>"
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(number)
        said = process.communicate(timeout=100)[1]
    assert process.returncode == code
    assert said.strip() == "repl-rl: interrupted"
    assert holds(lambda: not any(child.is_running() for child in children))


def test_an_address_that_is_taken_is_refused_in_a_line(
    command: Callable[..., subprocess.Popen[str]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = command("--port", str(port))
        out, said = process.communicate(timeout=100)
    assert (process.returncode, out) == (2, "")
    assert said == (
        f"repl-rl: --host 127.0.0.1 --port {port}: Address already in use; expected an address "
        f"that is free here\n"
    )


def test_a_task_that_there_is_not_is_refused_in_a_line(
    command: Callable[..., subprocess.Popen[str]],
) -> None:
    process = command("--task", "sympy-prof", "--port", "0")
    out, said = process.communicate(timeout=100)
    assert (process.returncode, out) == (2, "")
    assert said.startswith("repl-rl: unknown task 'sympy-prof'; did you mean 'sympy-proofs'?")


def test_a_server_loads_no_torch() -> None:
    code = "import sys, repl_rl.integrations.openenv; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "False\n"
