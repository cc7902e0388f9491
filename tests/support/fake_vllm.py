"""A vLLM server in a few lines, in the test's own event loop: for trouble to order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from repl_rl.engines.base import SampledLine
from repl_rl.engines.vllm import replica as vllm_replica
from repl_rl.engines.vllm.server import VLLMServerEngine

T = TypeVar("T")
VOCABULARY, NEWLINE, EOS = 48, 10, 3
NO_TOKEN = (400, {"error": {"message": "allowed_token_ids contains out-of-vocab token id!"}})

Answer = tuple[int, Any]
"""A status and what is sent as JSON."""


class Drop(Exception):
    """Raised in place of an answer: the connection ends without one."""


@dataclass
class FakeServer:
    """Samples letters and a newline, the same ones for the same ids and seed."""

    trouble: list[Answer | type[Drop] | None] = field(default_factory=list)
    """What the next lines get instead; None stands for no answer ever."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """What else a path answers."""
    silent: str | None = None
    """A path that never answers."""
    held_until: str | None = None
    """The path that lines wait for."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The lines that it was asked for."""
    paths: list[str] = field(default_factory=list)
    """All that it was asked for since it was opened."""
    label: str = "default"
    takes_adapters: bool = False
    loaded: dict[str, str] = field(default_factory=dict)
    """Paths of the adapters that lines can be asked for with, by their names."""
    names: list[str] = field(default_factory=list)
    """All names that an adapter was loaded under."""
    sizes: list[int] = field(default_factory=list)
    """Bytes of the files that it was told to load."""
    is_paused: bool = False
    num_cut: int = 0
    """Connections that ended before their answer."""
    host: str = "127.0.0.1"
    context_tokens: int = 512
    _heard: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    _resumed: asyncio.Event = field(default_factory=asyncio.Event)
    _serving: set[asyncio.Task[Any]] = field(default_factory=set)

    async def __aenter__(self) -> FakeServer:
        self._resumed.set()
        self._server = await asyncio.start_server(self._serve, self.host, 0)
        self.url = f"http://{self.host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def heard(self, path: str) -> None:
        """Wait until it is asked for this.

        `a line` is one that is no probe, `a hang-up` is that of a client before its answer.
        """
        await self._heard[path].wait()

    async def stop(self) -> None:
        """Stop as if its process had been killed."""
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        # One that is cancelled has been told to stop, and is not listened to by anyone.
        with contextlib.suppress(Drop, EOFError, ConnectionError, asyncio.CancelledError):
            while True:
                path, body = await _request(await reader.readuntil(b"\r\n\r\n"), reader)
                writer.write(_response(*await self._cut_short(reader, self._answer(path, body))))
        writer.close()

    async def _cut_short(self, reader: asyncio.StreamReader, work: Awaitable[Answer]) -> Answer:
        """`work`, unless the other side hangs up before."""
        answer = asyncio.ensure_future(work)
        hung_up = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([answer, hung_up], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            self.num_cut += 1
            self._heard["a hang-up"].set()
            answer.cancel()
            raise Drop
        hung_up.cancel()
        await asyncio.wait([hung_up])
        return answer.result()

    async def _answer(self, path: str, body: Any) -> Answer:
        self.paths.append(path)
        self._heard[path].set()
        if path == self.silent:
            await asyncio.Event().wait()
        if path in self.answers:
            return self.answers[path]
        if path == "/inference/v1/generate":
            return await self._line(body)
        if path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            return self._adapter(body)
        if path == "/update_weight_version":
            self.label = body["new_version"]
        if path in ("/pause", "/resume"):
            self.is_paused = path == "/pause"
            (self._resumed.clear if self.is_paused else self._resumed.set)()
            await asyncio.sleep(0 if self.is_paused else 0.05)  # lines overtake the answer
        return 200, {
            "data": [
                {"id": "base", "max_model_len": self.context_tokens},
                *({"id": one} for one in self.loaded),
            ],
            "is_paused": self.is_paused,
            "weight_version": self.label,
            "world_size": 1,
            "results": [{"error": None}],
            "success": True,
        }

    def _adapter(self, body: Any) -> Answer:
        name = body["lora_name"]
        if not self.takes_adapters:
            return 404, {"detail": "Not Found"}
        if "lora_path" not in body:
            is_there = self.loaded.pop(name, None) is not None
            return (200, "Success") if is_there else (404, "cannot be found")
        if name in self.loaded:
            return 400, {"error": {"message": f"{name} has already been loaded"}}
        files = [one for one in Path(body["lora_path"]).iterdir() if one.is_file()]
        self.sizes.append(sum(one.stat().st_size for one in files))
        self.loaded[name] = body["lora_path"]
        self.names.append(name)
        return 200, "Success"

    def start_anew(self) -> None:
        """Forget what it was given, as a process that takes the place of another."""
        self.label, self.is_paused = "default", False
        self.loaded.clear()

    async def _line(self, body: Any) -> Answer:
        params = body["sampling_params"]
        if allowed := params.get("allowed_token_ids"):
            return reply([*allowed], logprob=0.0) if allowed[0] < VOCABULARY else NO_TOKEN
        if "model" in body and body["model"] not in self.loaded:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        path = self.loaded.get(body.get("model"))
        self.asked.append(body)
        self._heard["a line"].set()
        if self.trouble:
            trouble = self.trouble.pop(0)
            if trouble is None:
                await asyncio.Event().wait()
                raise AssertionError
            if isinstance(trouble, type):
                raise trouble
            return trouble
        if self.held_until is not None:
            await self.heard(self.held_until)
        await self._resumed.wait()
        await asyncio.sleep(0.01)
        # vLLM reads the files again if it had to make room.
        assert path is None or (Path(path) / "adapter_model.safetensors").is_file()
        return reply(written(body["token_ids"], params["seed"], params["max_tokens"]))


def written(ids: Sequence[int], seed: int, max_tokens: int) -> list[int]:
    rng = random.Random(f"{list(ids)} {seed}")
    letters = [rng.randint(11, VOCABULARY - 1) for _ in range(rng.randint(1, 4))]
    return [*letters, NEWLINE][:max_tokens]


def reply(
    ids: Sequence[int], *, logprob: float = -1.5, logprobs: Sequence[float] = (), **other: Any
) -> Answer:
    pairs = zip(ids, logprobs or [logprob] * len(ids), strict=True)
    content = [{"token": f"token_id:{token}", "logprob": one} for token, one in pairs]
    choice = {"token_ids": list(ids), "logprobs": {"content": content}, "finish_reason": "stop"}
    return 200, {"choices": [{**choice, **other}]}


async def _request(head: bytes, reader: asyncio.StreamReader) -> tuple[str, Any]:
    first, *headers = head.decode().split("\r\n")
    lengths = [line for line in headers if line.lower().startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0].split(":")[1]) if lengths else 0)
    return first.split(" ")[1].partition("?")[0], json.loads(body or "null")


def _response(status: int, content: Any) -> bytes:
    body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def engine_of(*servers: FakeServer, **settings: Any) -> VLLMServerEngine:
    wanted = {
        "newline_ids": frozenset({NEWLINE}),
        "eos_ids": frozenset({EOS}),
        "vocabulary": VOCABULARY,
        "row_tokens": 400,
        "line_timeout_s": 10.0,
    }
    return VLLMServerEngine([server.url for server in servers], **{**wanted, **settings})


def use(
    act: Callable[..., Awaitable[T]], *, num_servers: int = 1, **settings: Any
) -> tuple[T, list[FakeServer]]:
    """Result of `act(engine, *servers)`, and the servers; nothing may hang."""

    async def inside() -> tuple[T, list[FakeServer]]:
        servers = [FakeServer() for _ in range(num_servers)]
        async with asyncio.timeout(20):
            for server in servers:
                await server.__aenter__()
            engine = engine_of(*servers, **settings)
            try:
                return await act(engine, *servers), servers
            finally:
                await engine.aclose()
                for server in servers:
                    await server.stop()

    return asyncio.run(inside())


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try as often as ever, without the pauses."""
    monkeypatch.setattr(vllm_replica, "_PAUSES_S", (0.01,) * 6)


def line_of(engine: VLLMServerEngine, *, seed: int = 0) -> Awaitable[SampledLine]:
    return engine.line([20, 21, 22], max_tokens=9, seed=seed)
