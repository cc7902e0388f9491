"""Whole weights through memory: their phases, and peers that are dead, silent or refuse."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fake_vllm import FakeServer, hurry, line_of, use
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.vllm.server import VLLMServer, VLLMServerEngine
from repl_rl.engines.vllm.transfer import Client, Transfer, meeting_point
from repl_rl.errors import ConfigError, EngineError

pytestmark = pytest.mark.slow

WEIGHTS = [("w", torch.ones(2)), ("v", torch.zeros(3, 1))]
PHASES = {
    "initialise": "init_weight_transfer_engine",
    "update": "update_weights",
    "finish": "finish_weight_update",
}
CPU = SimpleNamespace(type="cpu")


@dataclass
class Peer:
    """vLLM's side of a transfer: what it was told, and where it fails or falls silent."""

    fails_at: str = ""
    silent_at: str = ""
    told: list[str] = field(default_factory=list)
    got: list[list[tuple[str, tuple[int, ...], float]]] = field(default_factory=list)
    num_groups: int = 0
    left: threading.Event = field(default_factory=threading.Event)

    def open_sender(self, transfer: Transfer) -> Any:
        """As `open_nccl` does, with this in place of the requests and of NCCL."""
        self.num_groups += 1
        client = Client(transfer, self)
        with self._other_half():
            client.init_weight_transfer_engine({})

        def send_weights() -> None:
            client.start_weight_update()
            shapes = [(one.name, tuple(one.shape)) for one in transfer.metadata()]
            with self._other_half():
                client.update_weights({})
            sums = [float(one.sum()) for _, one in transfer]
            self.got.append([(*one, total) for one, total in zip(shapes, sums, strict=True)])
            client.finish_weight_update()

        return SimpleNamespace(send_weights=send_weights)

    def _other_half(self) -> Any:
        """A collective: it waits for ever if its other half has not come."""
        return Collective(self.left)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in (*PHASES.values(), "start_weight_update"):
            raise AttributeError(name)

        def request(*_: Any) -> None:
            self.told.append(name)
            if name == self.silent_at:
                self.left.wait()
            if name == self.fails_at:
                raise OSError("500 Server Error")

        return request


class Collective:
    def __init__(self, left: threading.Event) -> None:
        self._left = left

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self._left.wait()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.left.set()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def by_memory(peer: Peer, *, limit_s: float = 5.0) -> dict[str, Any]:
    sender: dict[str, Any] = {"device": CPU, "limit_s": limit_s, "open_sender": peer.open_sender}
    return {"open_transfer": partial(Transfer, **sender)}


def test_weights_go_through_memory_while_a_server_is_paused(peer: Peer) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[int]:
        await engine.open()
        server.paths.clear()
        versions = []
        for version, weights in enumerate([WEIGHTS, [("w", torch.full((2,), 7.0))]]):
            await engine.sync(iter(weights), version=version)
            versions.append((await line_of(engine)).policy_version)
        return versions

    versions, (server,) = use(act, **by_memory(peer))
    assert versions == [0, 1]
    assert peer.got == [[("w", (2,), 2.0), ("v", (3, 1), 0.0)], [("w", (2,), 14.0)]]
    assert peer.num_groups == 1
    update = ["start_weight_update", "update_weights", "finish_weight_update"]
    assert peer.told == ["init_weight_transfer_engine", *update, *update]
    around = ["/update_weight_version", "/reset_prefix_cache", "/update_weight_version", "/resume"]
    first = ["/pause", "/update_weight_version", "/get_world_size", *around[1:]]
    rest = ["/inference/v1/generate", "/pause", *around, "/inference/v1/generate"]
    assert server.paths == [*first, *rest]


@pytest.mark.usefixtures("jumping_clock")
def test_a_clock_that_jumps_ends_no_phase(peer: Peer) -> None:
    async def act(engine: VLLMServerEngine, _: FakeServer) -> int:
        await engine.sync(WEIGHTS, version=1)
        return (await line_of(engine)).policy_version

    assert use(act, **by_memory(peer))[0] == 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_peer_that_is_silent_ends_the_sync_at_the_deadline_of_the_phase(
    phase: str, peer: Peer
) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> float:
        peer.silent_at = PHASES[phase]
        begun = time.monotonic()
        with pytest.raises(EngineError, match=rf"^{server.url} did not {phase} within 0\.3 s for"):
            await engine.sync(WEIGHTS, version=1)
        taken = time.monotonic() - begun
        assert not server.is_paused
        with pytest.raises(EngineError, match=r"it has the weights '.*-partial', not"):
            await line_of(engine)
        with pytest.raises(
            EngineError, match="cannot be reached through memory any more; start the run"
        ):
            await engine.sync(WEIGHTS, version=2)
        return taken

    assert use(act, **by_memory(peer, limit_s=0.3))[0] < 5.0


@pytest.mark.parametrize("phase", PHASES)
def test_a_peer_that_refuses_is_said_at_once_though_the_other_half_waits_for_ever(
    phase: str, peer: Peer
) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        peer.fails_at = PHASES[phase]
        with pytest.raises(EngineError, match=rf"did not {phase} for .*: 500 Server Error; start"):
            await engine.sync(WEIGHTS, version=1)

    use(act, **by_memory(peer, limit_s=60.0))


def test_a_server_that_stands_still_hides_no_reason(peer: Peer) -> None:
    """It does not resume either, which is not what was wrong first."""

    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        peer.fails_at = "update_weights"
        server.answers = {"/resume": (503, "busy")}
        with pytest.raises(EngineError, match="did not update for"):
            await engine.sync(WEIGHTS, version=1)

    use(act, **by_memory(peer))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((404, {"detail": "Not Found"}), ConfigError, "does not take new weights: .*Not Found"),
        ((200, {"world_size": "two"}), EngineError, "does not say how many workers it has; see"),
        ((200, {"world_size": 0}), EngineError, "does not say how many workers it has; see"),
        ((200, []), EngineError, "its reply has no 'world_size'"),
    ],
)
def test_a_server_that_does_not_count_its_workers_gets_no_weights(
    answer: Any, error: type[Exception], message: str, peer: Peer
) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.answers = {"/get_world_size": answer}
        with pytest.raises(error, match=message):
            await engine.sync(WEIGHTS, version=1)
        assert not server.is_paused

    use(act, **by_memory(peer))
    assert peer.told == []


def test_an_update_that_is_cancelled_waits_for_nobody(peer: Peer) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        peer.silent_at = "update_weights"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.sync(WEIGHTS, version=1), 0.3)
        assert not server.is_paused

    use(act, **by_memory(peer, limit_s=60.0))


LEFT = """
import asyncio, threading
from types import SimpleNamespace
from repl_rl.engines.vllm.transfer import Transfer

wait_for_ever = threading.Event().wait
device = SimpleNamespace(type="cpu")
sender = SimpleNamespace(send_weights=wait_for_ever)
transfer = Transfer(
    "http://h", num_workers=1, device=device, limit_s=0.1, open_sender=lambda _: sender
)
asyncio.run(transfer.send([]))
"""


def test_a_process_ends_though_a_thread_of_it_waits_for_ever() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "EngineError: http://h did not initialise within 0.1 s" in ended.stderr


def test_each_server_has_a_group_of_its_own(peer: Peer) -> None:
    async def act(engine: VLLMServerEngine, *_: FakeServer) -> None:
        for version in (0, 1):
            await engine.sync(WEIGHTS, version=version)

    use(act, num_servers=2, **by_memory(peer))
    assert (peer.num_groups, len(peer.got)) == (2, 4)


def test_the_meeting_point_is_an_address_of_this_machine_that_can_be_bound() -> None:
    address, port = meeting_point("http://127.0.0.1:8000")
    assert address == "127.0.0.1"
    assert 1024 <= port < 1 << 16


def test_memory_takes_a_gpu_and_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = ("http://127.0.0.1:9",)
    sampling = SamplingConfig(engine="vllm-server", servers=servers, weights="nccl")
    config = Config(model="m", sampling=sampling)
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "vllm" else find(name)
    )
    with pytest.raises(
        ConfigError, match=r"needs vLLM in the trainer's environment, .* `make vllm`"
    ):
        VLLMServer().check(config)
    loaded: Any = SimpleNamespace(model=SimpleNamespace(device=CPU))
    with pytest.raises(ConfigError, match="from a GPU, and the model is on the CPU; give"):
        VLLMServer().open(config, loaded, row_tokens=9)
