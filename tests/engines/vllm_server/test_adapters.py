"""Adapters on their way to vLLM servers: names, versions, and servers that take none."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fake_vllm import FakeServer, engine_of, hurry, line_of, use, written
from repl_rl.engines.base import SampledLine
from repl_rl.engines.vllm import adapters as vllm_adapters
from repl_rl.engines.vllm import replica as vllm_replica
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.errors import ConfigError, EngineError

pytestmark = pytest.mark.slow

EXPECTED = tuple(written([20, 21, 22], 0, 9))
WHOLE = (
    *("/pause", "/update_weight_version", "/collective_rpc", "/reset_prefix_cache"),
    *("/update_weight_version", "/resume"),
)
GONE = (503, "no healthy upstream")


@dataclass
class Adapted:
    """A model of one matrix and an adapter of 10 bytes, in files of 7 and 3."""

    reason: str | None = None

    def why_whole(self) -> str | None:
        return self.reason

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter([("w", torch.ones(2))])

    def save_adapter(self, folder: Path) -> None:
        (folder / "adapter_model.safetensors").write_bytes(b"weights")
        (folder / "adapter_config.json").write_bytes(b"{ }")


WEIGHTS = Adapted()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are asked before each line whether they were started anew."""
    monkeypatch.setattr(vllm_replica, "_TRUST_S", 0.0)


def version_of(body: dict[str, Any]) -> int:
    return int(body["model"].rpartition("-v")[2])


def test_an_adapter_goes_alone_and_nothing_is_paused_or_reset(tmp_path: Path) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> tuple[int, str]:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=7)
        line = await line_of(engine)
        assert line.ids == EXPECTED
        return line.policy_version, engine.about

    (version, about), (server,) = use(act, weights_dir=tmp_path)
    assert version == 7
    assert about == "the servers get the adapter alone, 0.0 MiB a version"
    assert server.sizes == [10]
    assert version_of(server.asked[0]) == 7
    assert not set(WHOLE) & set(server.paths)
    assert (server.label, server.loaded) == ("default", {})
    assert list(tmp_path.iterdir()) == []


def test_a_line_in_flight_keeps_the_adapter_that_it_began_with() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[int]:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=1)
        server.held_until = "/v1/unload_lora_adapter"
        old = asyncio.ensure_future(line_of(engine))
        await server.heard("a line")
        for version in (2, 3, 4):
            await engine.sync(WEIGHTS, version=version)
        assert [name.rpartition("-v")[2] for name in server.loaded] == ["1", "3", "4"]
        server.held_until = None
        new = await line_of(engine)
        lines = [await old, new]
        assert [line.ids for line in lines] == [EXPECTED, EXPECTED]
        return [line.policy_version for line in lines]

    versions, (server,) = use(act)
    assert versions == [1, 4]
    assert list(map(version_of, server.asked)) == [1, 4]


def test_servers_keep_two_versions_and_folders_go_with_them(tmp_path: Path) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[list[str]]:
        server.takes_adapters = True
        kept = []
        for version in range(4):
            await engine.sync(WEIGHTS, version=version)
            folders = sorted(map(os.path.basename, glob.glob(f"{tmp_path}/*/*")))
            assert folders == sorted(server.loaded)
            kept.append([name.rpartition("-v")[2] for name in folders])
        return kept

    assert use(act, weights_dir=tmp_path)[0] == [["0"], ["0", "1"], ["1", "2"], ["2", "3"]]


def test_no_name_is_used_twice_by_a_run_nor_by_another() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.takes_adapters = True
        other = engine_of(server)
        for version in (0, 0, 1):
            await engine.sync(WEIGHTS, version=version)
            await other.sync(WEIGHTS, version=version)
        await other.aclose()

    _, (server,) = use(act)
    assert len(set(server.names)) == 6


@pytest.mark.usefixtures("watchful")
def test_a_server_that_was_started_anew_gets_its_newest_adapter_again() -> None:
    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> list[SampledLine]:
        for server in servers:
            server.takes_adapters = True
        for version in (1, 2):
            await engine.sync(WEIGHTS, version=version)
        servers[0].start_anew()
        lines = [await line_of(engine, seed=seed) for seed in range(6)]
        assert {name.rpartition("-v")[2] for name in servers[0].loaded} == {"2"}
        return lines

    lines, servers = use(act, num_servers=2)
    assert [line.policy_version for line in lines] == [2] * 6
    assert [list(one.ids) for one in lines] == [written([20, 21, 22], s, 9) for s in range(6)]
    assert servers[0].asked


def test_a_server_that_lost_its_adapter_within_a_moment_gets_it_before_the_next_try() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> int:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=1)
        await line_of(engine)
        server.start_anew()
        return (await line_of(engine)).policy_version

    assert use(act)[0] == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, {"detail": "Not Found"}), r".*Not Found.* \(HTTP 404\)"),
        ((500, {"error": {"message": "LoRA is not enabled."}}), "LoRA is not enabled"),
        ((500, {"error": {"message": "LoRA rank 32 is greater than 16."}}), "LoRA rank 32 is gr"),
    ],
)
def test_servers_of_which_one_takes_no_adapter_all_get_whole_weights(
    answer: Any, reason: str, tmp_path: Path
) -> None:
    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> str:
        for server in servers:
            server.takes_adapters = True
        servers[1].answers = {"/v1/load_lora_adapter": answer}
        for version in (0, 1):
            await engine.sync(WEIGHTS, version=version)
            assert {(await line_of(engine)).policy_version for _ in range(4)} == {version}
        return engine.about

    about, servers = use(act, num_servers=2, weights_dir=tmp_path)
    for server in servers:
        assert server.loaded == {}
        assert [path for path in server.paths if path in WHOLE] == [*WHOLE, *WHOLE]
        assert server.paths.count("/v1/load_lora_adapter") == 1
        assert not any("model" in body for body in server.asked)
    expected = rf"^the servers get all weights, .*: {servers[1].url} does not load it: {reason}"
    assert re.search(expected, about)
    assert "restart it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1" in about
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_that_servers_would_read_otherwise_is_never_shown_to_them() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> str:
        server.takes_adapters = True
        await engine.sync(Adapted("vLLM does not read the adapter's rank_pattern"), version=0)
        return engine.about

    about, (server,) = use(act)
    assert about.endswith("the adapter added: vLLM does not read the adapter's rank_pattern")
    assert server.names == []
    assert "/collective_rpc" in server.paths


def test_a_server_with_the_weights_of_another_run_gets_all_weights() -> None:
    """An adapter is for the weights that a server has started with."""

    async def act(engine: VLLMServerEngine, server: FakeServer) -> str:
        server.takes_adapters, server.label = True, "5d2f-40"
        await engine.sync(WEIGHTS, version=0)
        assert (await line_of(engine)).ids == EXPECTED
        return engine.about

    about, (server,) = use(act)
    assert f"{server.url} does not load it: it has the weights '5d2f-40', not 'default'" in about
    assert "restart it with" in about
    assert server.names == []


@pytest.mark.usefixtures("watchful")
def test_a_server_whose_own_weights_another_run_replaces_samples_nothing_with_an_adapter() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=1)
        server.label = "5d2f-40"
        with pytest.raises(EngineError, match="it has the weights '5d2f-40', not 'default'"):
            await line_of(engine)

    use(act)


def test_a_server_that_tells_nothing_of_its_weights_takes_adapters() -> None:
    """It needs neither the endpoints for weights nor our loader."""

    async def act(engine: VLLMServerEngine, server: FakeServer) -> int:
        not_found = (404, {"detail": "Not Found"})
        server.takes_adapters = True
        server.answers = dict.fromkeys(("/is_paused", "/weight_info", "/pause"), not_found)
        await engine.sync(WEIGHTS, version=1)
        return (await line_of(engine)).policy_version

    assert use(act)[0] == 1


def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> int:
        server.takes_adapters = True
        await engine.open()
        server.answers = {"/v1/load_lora_adapter": GONE}
        sync = asyncio.ensure_future(engine.sync(WEIGHTS, version=1))
        await server.heard("/v1/load_lora_adapter")
        server.answers = {}
        await sync
        return (await line_of(engine)).policy_version

    assert use(act)[0] == 1


def test_a_later_version_that_does_not_load_ends_the_sync_in_a_sentence() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> int:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=1)
        server.answers = {"/v1/load_lora_adapter": (500, {"error": {"message": "no memory"}})}
        with pytest.raises(EngineError, match=rf"{server.url} does not load it: no memory .*log"):
            await engine.sync(WEIGHTS, version=2)
        return (await line_of(engine)).policy_version

    assert use(act)[0] == 1


def test_a_server_that_is_gone_ends_the_sync_in_a_sentence_with_its_address() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=1)
        await server.stop()
        with pytest.raises(EngineError, match=f"^{server.url} does not take the adapter: Connect"):
            await engine.sync(WEIGHTS, version=2)

    use(act)


def test_an_engine_with_adapters_closes_in_time_and_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_adapters, "_FAREWELL_S", 0.2)

    async def act(engine: VLLMServerEngine, server: FakeServer) -> float:
        server.takes_adapters = True
        await engine.sync(WEIGHTS, version=1)
        server.silent = "/v1/unload_lora_adapter"
        begun = time.monotonic()
        await engine.aclose()
        await engine.aclose()
        return time.monotonic() - begun

    assert use(act)[0] < 2.0


def test_two_runs_with_adapters_share_a_server_and_neither_sees_the_other() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[int]:
        server.takes_adapters = True
        other = engine_of(server)
        try:
            await engine.sync(WEIGHTS, version=5)
            await other.sync(WEIGHTS, version=9)
            lines = await asyncio.gather(line_of(engine), line_of(other))
            await engine.sleep()
            await other.sleep()
        finally:
            await other.aclose()
        return [line.policy_version for line in lines]

    assert use(act)[0] == [5, 9]


@pytest.mark.usefixtures("watchful")
def test_another_process_adopts_an_adapter_and_gives_it_to_a_server_started_anew() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[int]:
        server.takes_adapters = True
        other = engine_of(server)
        try:
            await engine.sync(WEIGHTS, version=3)
            await other.adopt(engine.label, version=3)
            lines = [await line_of(other)]
            server.start_anew()
            lines += await asyncio.gather(line_of(other), line_of(engine), line_of(other))
            await other.sleep()
        finally:
            await other.aclose()
        assert len(server.loaded) == 1
        return [line.policy_version for line in lines]

    assert use(act)[0] == [3] * 4


def test_an_adapter_that_the_disk_refuses_is_said_with_its_folder(tmp_path: Path) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.takes_adapters = True
        with pytest.raises(ConfigError, match=r"cannot write weights to .*nowhere: No such file"):
            await engine.sync(WEIGHTS, version=1)

    use(act, weights_dir=tmp_path / "nowhere")
