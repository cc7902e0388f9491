"""A hub on this machine that takes what is pushed, and one run to push."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from repl_rl.config.resolve import resolve, to_toml

ME = {"name": "me", "orgs": [{"name": "us"}], "auth": {"accessToken": {"role": "write"}}}


class PushHub(ThreadingHTTPServer):
    """Keeps the files of commits. `statuses` answers a path, by how it ends, with an error."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.me: dict[str, Any] = ME
        self.statuses: dict[str, int] = {}
        self.asked: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: PushHub

    def do_GET(self) -> None:
        self._answer(self.server.me if self.path == "/api/whoami-v2" else {"id": "me/it"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        hub, parts = self.server, self.path.partition("?")[0].split("/")
        if self.path == "/api/repos/create":
            hub.made.append(json.loads(body))
            self._answer({"url": f"{hub.address}/me/it"})
        elif "preupload" in parts:
            named = [one["path"] for one in json.loads(body)["files"]]
            kind = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            self._answer({"files": [{"path": name, **kind} for name in named]})
        elif "commit" in parts:
            for row in map(json.loads, body.splitlines()):
                if row["key"] == "file":
                    content = base64.b64decode(row["value"]["content"])
                    hub.files[row["value"]["path"]] = content
            url = f"{hub.address}/me/it/commit/{'1' * 40}"
            self._answer({"success": True, "commitOid": "1" * 40, "commitUrl": url})
        else:
            self._answer({"errors": [], "warnings": []})

    def _answer(self, found: object) -> None:
        path = self.path.partition("?")[0]
        if path != "/api/agent-harnesses":  # which the client asks for once, unbidden
            self.server.asked.append(path)
        ends = (code for end, code in self.server.statuses.items() if path.endswith(end))
        content = json.dumps(found).encode()
        self.send_response(next(ends, 200))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def open_hub() -> Iterator[PushHub]:
    with PushHub() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


def ended_run(path: Path, *settings: str, policy: str = "owner/small", step: int = 40) -> Path:
    """A folder as a run leaves it, with 96 of 200 solved before and 150 after; no weights."""
    path.mkdir(parents=True)
    config = resolve(overrides=[f"model={policy}", f"grpo.steps={step}", *settings])
    (path / "config.toml").write_text(to_toml(config))
    (path / "versions.json").write_text(json.dumps({"policy": policy, "repl_rl": "0.1.0"}))
    rows = [
        {"step": 0, "eval_solve_rate": 0.48, "eval_total": 200},
        {"step": step, "solve_rate": 0.7, "loss": 0.1},
        {"step": step, "eval_solve_rate": 0.75, "eval_total": 200},
    ]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (path / "curve.png").write_bytes(b"a picture")
    checkpoint(path / "checkpoints" / "final")
    return path


def checkpoint(path: Path, *, base: str | None = None) -> Path:
    """A folder of weights, of an adapter where it has a base, with what a trainer keeps beside."""
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "tokenizer.json").write_text("{}")
    (path / "training_args.bin").write_bytes(b"/home/somebody")
    (path / "trainer_state.json").write_text("{}")
    (path / "optimizer.pt").write_bytes(b"moments")
    if base is None:
        (path / "config.json").write_text("{}")
    else:
        text = json.dumps({"base_model_name_or_path": base, "r": 4})
        (path / "adapter_config.json").write_text(text)
    return path
