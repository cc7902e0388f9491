"""Weights on their way to vLLM servers that fail on order."""

from __future__ import annotations

import asyncio
import glob
from pathlib import Path

import pytest
import torch

from fake_vllm import Answer, FakeServer, engine_of, hurry, line_of, use, written
from repl_rl.engines.base import SampledLine, answered_within
from repl_rl.engines.vllm import replica as vllm_replica
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.errors import ConfigError, EngineError

pytestmark = pytest.mark.slow

EXPECTED = tuple(written([20, 21, 22], 0, 9))
WEIGHTS = [("w", torch.ones(2))]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def test_an_update_pauses_loads_resets_and_resumes(tmp_path: Path) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> int:
        await engine.open()
        server.paths.clear()
        await engine.sync(WEIGHTS, version=7)
        return (await line_of(engine)).policy_version

    version, (server,) = use(act, weights_dir=tmp_path)
    assert version == 7
    assert server.paths == [
        "/pause",
        "/update_weight_version",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/update_weight_version",
        "/resume",
        "/inference/v1/generate",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "answer", "error", "message"),
    [
        ("/pause", (404, {"detail": "Not Found"}), ConfigError, "VLLM_SERVER_DEV_MODE=1"),
        (
            "/collective_rpc",
            (500, {"error": {"message": "Method 'load_policy' is not implemented."}}),
            ConfigError,
            "--worker-extension-cls",
        ),
        (
            "/collective_rpc",
            (200, {"results": [{"error": None}, {"error": "no such file"}]}),
            EngineError,
            "did not take the weights: .*no such file",
        ),
        ("/collective_rpc", (200, {"results": []}), EngineError, "no worker"),
        ("/reset_prefix_cache", (200, {"success": False}), EngineError, "keeps keys and values"),
        ("/update_weight_version", (500, "crash"), EngineError, "does not take new weights: crash"),
    ],
)
def test_weights_that_do_not_arrive_are_an_error_and_nothing_is_sampled_with_them(
    path: str, answer: Answer, error: type[Exception], message: str, tmp_path: Path
) -> None:
    """A server that has begun to load says so to whoever asks, this run or another."""
    left = "default" if path in ("/pause", "/update_weight_version") else r"\w+-1-partial"

    async def act(engine: VLLMServerEngine, server: FakeServer) -> SampledLine:
        await line_of(engine)
        server.answers = {path: answer}
        with pytest.raises(error, match=message):
            await engine.sync(WEIGHTS, version=1)
        assert not server.is_paused
        assert not any(glob.glob(f"{tmp_path}/*/*"))
        with pytest.raises(EngineError, match=rf"it has the weights '{left}', not"):
            await line_of(engine)
        server.answers = {}
        await engine.sync(WEIGHTS, version=2)
        return await line_of(engine)

    assert use(act, weights_dir=tmp_path)[0].policy_version == 2


def test_a_line_that_an_update_fails_below_is_not_taken() -> None:
    """It goes on when the server does, before the trainer hears of that."""

    async def act(engine: VLLMServerEngine, server: FakeServer) -> tuple[object, ...]:
        await engine.open()
        server.answers = {"/reset_prefix_cache": (200, {"success": False})}
        server.held_until = "/resume"
        line = asyncio.ensure_future(line_of(engine))
        await server.heard("a line")
        failed = asyncio.ensure_future(engine.sync(WEIGHTS, version=1))
        return await asyncio.gather(line, failed, return_exceptions=True)

    results, (server,) = use(act)
    assert [type(one) for one in results] == [EngineError, EngineError]
    assert len(server.asked) == 1


def test_a_line_that_is_asked_for_during_an_update_has_the_weights_of_the_update() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[int]:
        await engine.open()
        update = asyncio.create_task(engine.sync(WEIGHTS, version=3))
        await server.heard("/pause")
        lines = await asyncio.gather(*(line_of(engine, seed=seed) for seed in range(4)))
        await update
        return [line.policy_version for line in lines]

    assert use(act)[0] == [3] * 4


def test_an_update_that_is_cancelled_leaves_no_server_paused() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> bool:
        await engine.open()
        update = asyncio.create_task(engine.sync(WEIGHTS, version=3))
        await server.heard("/pause")
        update.cancel()
        await asyncio.gather(update, return_exceptions=True)
        return server.is_paused

    assert use(act)[0] is False


def test_a_server_that_never_takes_the_weights_ends_the_update_in_time() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> bool:
        server.silent = "/collective_rpc"
        with pytest.raises(EngineError, match=r"took more than 0\.4 s for the weights"):
            async with answered_within(0.4, "the weights of step 1"):
                await engine.sync(WEIGHTS, version=1)
        return server.is_paused

    assert use(act)[0] is False


def test_a_server_that_was_started_anew_samples_nothing_until_it_has_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lest the weights it was started with pass for those of step 1."""

    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> list[int]:
        await engine.sync(WEIGHTS, version=1)
        for server in servers:
            server.asked.clear()
        servers[0].label = "default"
        lines = [await line_of(engine, seed=seed) for seed in range(4)]
        await engine.sync(WEIGHTS, version=2)
        lines += [await line_of(engine, seed=seed) for seed in range(4)]
        return [line.policy_version for line in lines]

    monkeypatch.setattr(vllm_replica, "_TRUST_S", 0.0)
    versions, servers = use(act, num_servers=2)
    assert versions == [1] * 4 + [2] * 4
    assert len(servers[0].asked) <= 4


def test_a_server_with_the_weights_of_another_run_samples_nothing_until_it_has_ours() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> SampledLine:
        server.label = "5d2f-40"
        with pytest.raises(EngineError, match="it has the weights '5d2f-40', not 'default'"):
            await line_of(engine)
        await engine.sync(WEIGHTS, version=0)
        return await line_of(engine)

    assert use(act)[0].ids == EXPECTED


def test_a_server_that_tells_nothing_of_its_weights_samples() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> SampledLine:
        not_found = (404, {"detail": "Not Found"})
        server.answers = {"/is_paused": not_found, "/weight_info": not_found}
        return await line_of(engine)

    assert use(act)[0].policy_version == 0


def test_weights_that_somebody_else_sends_while_lines_flow_are_found_at_the_end_of_the_phase() -> (
    None
):
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        await engine.sync(WEIGHTS, version=1)
        await line_of(engine)
        server.label = "5d2f-40"
        await line_of(engine)
        with pytest.raises(EngineError, match="it has the weights '5d2f-40'"):
            await engine.sleep()

    use(act)


@pytest.mark.usefixtures("jumping_clock")
def test_a_clock_that_jumps_changes_neither_lines_nor_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vllm_replica, "_TRUST_S", 0.0)

    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> list[SampledLine]:
        servers[0].trouble = [(503, "busy")]
        lines = []
        for version in (1, 2):
            async with answered_within(15, "the weights"):
                await engine.sync(WEIGHTS, version=version)
            lines += [await line_of(engine, seed=seed) for seed in range(3)]
        return lines

    lines, _ = use(act, num_servers=2)
    assert [line.policy_version for line in lines] == [1] * 3 + [2] * 3
    assert [list(one.ids) for one in lines] == 2 * [written([20, 21, 22], s, 9) for s in range(3)]


def test_another_process_adopts_weights_without_sending_any() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> tuple[int, list[str]]:
        other = engine_of(server)
        try:
            await engine.sync(WEIGHTS, version=3)
            server.paths.clear()
            await other.adopt(engine.label, version=3)
            version = (await line_of(other)).policy_version
            await other.sleep()
            sent = [path for path in server.paths if path in ("/pause", "/collective_rpc")]
            await engine.sync(WEIGHTS, version=4)
            with pytest.raises(EngineError, match="it has the weights"):
                await other.sleep()
        finally:
            await other.aclose()
        return version, sent

    assert use(act)[0] == (3, [])


async def lines_for_a_while(engine: VLLMServerEngine) -> None:
    for seed in range(200):
        await line_of(engine, seed=seed)
        await asyncio.sleep(0.01)


def test_lines_do_not_put_off_the_question_whose_weights_a_server_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vllm_replica, "_TRUST_S", 0.2)

    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        await engine.sync(WEIGHTS, version=1)
        server.label = "5d2f-40"
        with pytest.raises(EngineError, match="it has the weights '5d2f-40'"):
            await lines_for_a_while(engine)

    use(act)


def test_a_folder_for_weights_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async def act(engine: VLLMServerEngine, _: FakeServer) -> None:
        with pytest.raises(ConfigError, match=r"cannot write weights to .*nowhere: No such file"):
            await engine.sync(WEIGHTS, version=1)

    use(act, weights_dir=tmp_path / "nowhere")
