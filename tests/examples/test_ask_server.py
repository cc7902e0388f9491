"""The example that asks a server: a scripted one on this machine stands for vLLM and its like."""

from __future__ import annotations

import json
import runpy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kernel

EXAMPLE = Path(__file__).parents[2] / "examples" / "ask_server.py"
Ask = Callable[..., tuple[object, str, list[dict[str, Any]]]]


class Completions(ThreadingHTTPServer):
    """Answers each request with the next line, and keeps what it was asked."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rest = iter(lines)
        self.asked: list[dict[str, Any]] = []  # JSON

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Completions

    def do_POST(self) -> None:  # the name that http.server calls
        assert self.path == "/v1/completions"
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        body = json.dumps({"choices": [{"text": next(self.server.rest, "")}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ask]:
    """`ask(*lines)`: what a person sees who asks a server that writes these lines."""
    servers = []

    def run(*lines: str) -> tuple[object, str, list[dict[str, Any]]]:
        server = Completions(lines)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(sys, "argv", ["ask_server.py", server.url, "mine", "What is 6*7?"])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        return end.value.code, capsys.readouterr().out, server.asked

    yield run
    for server in servers:
        server.shutdown()
        server.server_close()


def test_each_line_runs_and_the_server_sees_what_it_printed(ask: Ask) -> None:
    lines = (" for k in (6, 7):", "     k", "", " 6*7", " submit_final_answer(_)\nprint(1)")
    code, out, asked = ask(*lines)
    assert not code
    assert out.split(">>> # What is 6*7?\n")[1] == (
        ">>> for k in (6, 7):\n...     k\n...\n6\n7\n>>> 6*7\n42\n"
        ">>> submit_final_answer(_)\n\nanswer: 42\n"
    )
    assert {(one["model"], *one["stop"]) for one in asked} == {("mine", "\n")}
    assert asked[-1]["prompt"].endswith(">>> 6*7\n42\n>>>")
    assert asked[-1]["prompt"].startswith(asked[0]["prompt"])


def test_a_model_that_ends_without_an_answer_is_exit_code_1(ask: Ask) -> None:
    code, out, asked = ask(" x = 1")
    assert code == 1
    assert out.endswith("\nanswer: None\n")
    assert len(asked) == 2


def test_a_server_that_is_not_there_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setattr(Completions, "url", "http://127.0.0.1:9")
    code, _, _ = ask()
    assert str(code).startswith("http://127.0.0.1:9 does not answer: ")
