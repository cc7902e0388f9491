"""Laws of asking the hub: once, said before, and answered in words; the hub is a server here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from repl_rl.errors import ConfigError
from repl_rl.models import hub


class Hub(ThreadingHTTPServer):
    """Answers everything with one status; none: never."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status: int | None = 200
        self.asked: list[str] = []
        self.is_over = threading.Event()


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.server.asked.append(self.path)
        if self.server.status is None:
            self.server.is_over.wait(30)
            return
        self.send_response(self.server.status)
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def point_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point to an address as HF_ENDPOINT would, which is read when the library is imported."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + template)
    monkeypatch.setattr(constants, "ENDPOINT", address)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with Hub() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        point_to(f"http://127.0.0.1:{made.server_port}", monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield made
        made.is_over.set()
        made.shutdown()


def test_a_model_on_the_hub_is_asked_for_once_and_it_is_said_before(server: Hub) -> None:
    said: list[tuple[str, int]] = []
    hub.check("owner/name", say=lambda text: said.append((text, len(server.asked))))
    assert said == [("asking the hub for owner/name", 0)]
    assert server.asked == ["/owner/name/resolve/main/config.json"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "the hub has no model 'owner/name', or none that it shows you, and no"),
        (401, "the hub has no model 'owner/name', or none that it shows you, and no"),
        (403, "the hub has no model 'owner/name', or none that it shows you, and no"),
        (503, "the hub did not answer for 'owner/name' (503 Service Unavailable)"),
    ],
)
def test_what_the_hub_has_not_is_refused_after_one_question(
    server: Hub, status: int, message: str
) -> None:
    server.status = status
    with pytest.raises(ConfigError) as refused:
        hub.check("owner/name", say=lambda _: None)
    assert str(refused.value).startswith(message)
    assert len(server.asked) == 1


def test_a_hub_that_is_silent_is_not_waited_for(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status = None
    monkeypatch.setattr(hub, "PATIENCE_S", 0.2)
    # The client has the same patience; which of the two ends first is chance.
    silent = r"did not answer for 'owner/name' \((no answer in 0.2 s|timed out)\)"
    with pytest.raises(ConfigError, match=silent):
        hub.check("owner/name", say=lambda _: None)
    assert len(server.asked) <= 1


def test_a_machine_without_a_way_out_asks_once(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_to("http://127.0.0.1:1", monkeypatch)
    with pytest.raises(ConfigError, match=r"did not answer for 'owner/name' \(.*refused"):
        hub.check("owner/name", say=lambda _: None)


def test_what_is_in_the_cache_is_not_asked_for(server: Hub, tmp_path: Path) -> None:
    home = tmp_path / "hub" / "models--owner--name"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("1" * 40)
    (home / "snapshots" / ("1" * 40)).mkdir(parents=True)
    (home / "snapshots" / ("1" * 40) / "config.json").write_text("{}")
    said: list[str] = []
    hub.check("owner/name", say=said.append)
    assert (said, server.asked) == ([], [])


def test_offline_nothing_is_asked(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    said: list[str] = []
    with pytest.raises(ConfigError, match=r"no folder 'owner/name', .* HF_HUB_OFFLINE is"):
        hub.check("owner/name", say=said.append)
    assert (said, server.asked) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("train", "--model"), ("eval",), ("audit",), ("rollout", "--model")],
    ids=lambda command: command[0],
)
def test_no_command_loads_torch_to_ask(server: Hub, command: tuple[str, ...]) -> None:
    """A fresh interpreter, for this one holds everything."""
    server.status = 404
    code = (
        f"import sys; sys.argv = {['repl-rl', *command, 'owner/name']!r}\n"
        "from repl_rl.commands.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
    )
    environment = {**os.environ, "HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout == "2 False\n"
    rows = done.stderr.splitlines()
    assert rows[0] == "repl-rl: asking the hub for owner/name"
    assert rows[1].startswith("repl-rl: the hub has no model 'owner/name'")
    assert len(rows) == 2
    assert server.asked == ["/owner/name/resolve/main/config.json"]
