"""A player of verifiers: it asks its model from within this process, and the model reads a script.

verifiers' own players are programs that fetch what they need from a package index.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openai import AsyncOpenAI
from verifiers.v1 import Harness, HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import ProgramResult

__all__ = ["Player"]  # the one name that verifiers looks for


class Player(Harness[HarnessConfig]):  # type: ignore[misc]  # it is not installed everywhere
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, _trace: Any, _runtime: Any, endpoint: str, secret: str, _: Any, data: Any
    ) -> ProgramResult:
        messages = [message_to_wire(one) for one in data.prompt]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=60) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return ProgramResult(exit_code=0, stdout="", stderr="")


@contextlib.contextmanager
def scripted_model(replies: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The address of a model that says `replies` in turn, and what users have said to it."""
    heard: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = replies[len(heard)]
            heard.append(asked["messages"][-1]["content"])
            message = {"role": "assistant", "content": reply}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "scripted"}
            body = json.dumps(answer | {"choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(server.serve_forever)
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", heard
        finally:
            server.shutdown()
