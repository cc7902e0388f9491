"""The engine of vLLM servers when they fail, in front of servers that fail on order."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import Any

import pytest

from fake_vllm import (
    EOS,
    NEWLINE,
    VOCABULARY,
    Answer,
    Drop,
    FakeServer,
    hurry,
    line_of,
    reply,
    use,
    written,
)
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.engines.vllm import replica as vllm_replica
from repl_rl.engines.vllm.replica import Replica
from repl_rl.engines.vllm.server import VLLMServer, VLLMServerEngine
from repl_rl.engines.vllm_worker import PolicyLoader
from repl_rl.errors import ConfigError, EngineError

pytestmark = pytest.mark.slow

FORBIDDEN = 5
EXPECTED = tuple(written([20, 21, 22], 0, 9))
FAILURES: list[Answer | type[Drop]] = [
    Drop,
    (500, {"error": {"message": "EngineCore encountered an issue."}}),
    (503, "no healthy upstream"),
    (200, "<html>"),
    (200, {}),
    (200, {"choices": []}),
    (200, {"choices": [{"token_ids": [20, NEWLINE], "finish_reason": "stop"}]}),
    reply([20, NEWLINE], finish_reason="abort"),
    reply([20, NEWLINE], token_ids=[21, NEWLINE]),
    reply([]),
    reply([20, 21]),
    reply([NEWLINE, 20, NEWLINE]),
    reply([20] * 9 + [NEWLINE]),
    reply([20, NEWLINE], logprob=math.nan),
    (400, {"error": {"message": "Out of range float values are not JSON compliant"}}),
    reply([VOCABULARY, NEWLINE]),
    reply([-1, NEWLINE]),
    reply([20.0, NEWLINE]),  # type: ignore[list-item]
    reply([True, NEWLINE]),
    reply(["20", NEWLINE]),  # type: ignore[list-item]
    reply([10**400, NEWLINE]),
    reply([FORBIDDEN, NEWLINE]),
    reply([20, NEWLINE], logprob=0.5),
    reply([20, NEWLINE], logprob=10**400),
    reply([20, NEWLINE], logprob=-(10**400)),
    reply([20, NEWLINE], logprob=True),
    reply([20, NEWLINE], logprob="-1.5"),  # type: ignore[arg-type]
    reply([20, NEWLINE], finish_reason=[[]]),
    (200, "[" * 100_000),
    (500, "[" * 100_000),
    (500, {"error": {"message": 5}}),
    (200, '{"choices": ' + "9" * 5000 + "}"),
    (200, []),
    (200, {"choices": {"token_ids": [20, NEWLINE]}}),
]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


# Lines


@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: str(one)[:60])
def test_a_line_that_failed_is_asked_for_again(failure: Answer | type[Drop]) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> SampledLine:
        server.trouble = [failure, failure]
        return await line_of(engine)

    line, (server,) = use(act, forbidden_ids={FORBIDDEN})
    assert line.ids == EXPECTED
    assert line.logprobs == (-1.5,) * len(EXPECTED)
    assert server.asked == [server.asked[0]] * 3


@pytest.mark.parametrize(
    ("ids", "end"),
    [([NEWLINE], LineEnd.NEWLINE), ([20, EOS], LineEnd.EOS), ([20] * 9, LineEnd.LENGTH)],
)
def test_a_line_is_ended_by_its_last_token(ids: list[int], end: LineEnd) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> SampledLine:
        server.trouble = [reply(ids)]
        return await line_of(engine)

    assert use(act)[0].end is end


def test_a_server_that_fails_for_good_ends_the_line_in_a_sentence_with_its_address() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.trouble = [(500, {"error": {"message": "out of memory"}})] * 99
        with pytest.raises(EngineError, match=rf"{server.url} does not sample: out of memory; see"):
            await line_of(engine)

    use(act)


def test_a_server_that_is_gone_ends_the_line_at_once() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> float:
        await line_of(engine)
        await server.stop()
        begun = time.monotonic()
        with pytest.raises(EngineError, match="does not sample: ConnectError"):
            await line_of(engine)
        return time.monotonic() - begun

    assert use(act)[0] < 2.0


def test_a_server_that_never_answers_ends_the_line_in_time() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.trouble = [None] * 99
        with pytest.raises(EngineError, match=rf"no line from {server.url} in 0.6 s; see"):
            await line_of(engine)

    use(act, line_timeout_s=0.6)


def test_a_line_that_the_server_refuses_is_the_users_to_mend() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.trouble = [(400, {"error": {"message": "stop_token_ids: too many"}})]
        with pytest.raises(ConfigError, match=r"refuses a line: stop_token_ids: too many"):
            await line_of(engine)

    _, (server,) = use(act)
    assert len(server.asked) == 1


def test_a_cancelled_line_hangs_up() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.trouble = [None]
        line = asyncio.ensure_future(line_of(engine))
        await server.heard("a line")
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)
        assert line.cancelled()
        await server.heard("a hang-up")

    assert use(act)[1][0].num_cut == 1


def test_a_closed_engine_ends_its_lines_and_its_updates_in_an_error() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[object]:
        await engine.open()
        server.trouble = [None, None]
        lines = [asyncio.ensure_future(line_of(engine, seed=seed)) for seed in range(2)]
        await asyncio.sleep(0.1)
        await engine.aclose()
        await engine.aclose()
        with pytest.raises(EngineError, match="closed"):
            await engine.sync([], version=1)
        return await asyncio.gather(*lines, line_of(engine), return_exceptions=True)

    assert [str(one) for one in use(act)[0]] == ["the engine was closed"] * 3


# Several servers


def test_a_line_that_fails_at_one_server_is_sampled_by_the_other() -> None:
    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> list[SampledLine]:
        await engine.open()
        await servers[0].stop()
        return [await line_of(engine, seed=seed) for seed in range(4)]

    lines, servers = use(act, num_servers=2)
    assert [list(line.ids) for line in lines] == [written([20, 21, 22], s, 9) for s in range(4)]
    assert [len(server.asked) for server in servers] == [0, 4]


def test_a_server_that_stands_still_leaves_time_to_ask_the_other() -> None:
    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> SampledLine:
        await engine.open()
        servers[0].trouble = [None]
        return await line_of(engine)

    line, servers = use(act, num_servers=2, line_timeout_s=4.0)
    assert line.ids == EXPECTED
    assert [len(server.asked) for server in servers] == [1, 1]


def test_lines_that_wait_for_a_silent_server_share_its_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight lines, and 0.4 s for each question: one after another they would take 3.2 s."""
    for method in (Replica._ask, Replica._send):
        monkeypatch.setitem(method.__kwdefaults__ or {}, "timeout_s", 0.4)
    monkeypatch.setattr(vllm_replica, "_TRUST_S", 0.0)

    async def act(engine: VLLMServerEngine, *servers: FakeServer) -> float:
        await engine.open()
        servers[0].silent = "/weight_info"
        begun = time.monotonic()
        await asyncio.gather(*(line_of(engine, seed=seed) for seed in range(16)))
        return time.monotonic() - begun

    taken, servers = use(act, num_servers=2)
    assert taken < 2.4
    assert [len(server.asked) for server in servers] == [0, 16]


async def trajectory(engine: VLLMServerEngine, first: int) -> list[int]:
    """Six lines with an observation after each."""
    ids = [20, 21, 22]
    for index in range(6):
        line = await engine.line(ids, max_tokens=9, seed=100 * first + index)
        ids += [*line.ids, 30 + index, 31]
        await asyncio.sleep(0.003 * (first % 3))
    return ids


def test_a_trajectory_stays_with_the_server_that_holds_its_keys() -> None:
    """Eight siblings of one prompt, half of them with each of two servers."""

    async def act(engine: VLLMServerEngine, *_: FakeServer) -> list[list[int]]:
        return await asyncio.gather(*(trajectory(engine, first) for first in range(1, 9)))

    whole, servers = use(act, num_servers=2)
    homes = [
        {at for at, server in enumerate(servers) for body in server.asked if began(ids, body)}
        for ids in whole
    ]
    assert sorted(map(sorted, homes)) == [[0]] * 4 + [[1]] * 4


def began(ids: list[int], body: dict[str, Any]) -> bool:
    """Return whether a line was asked for as part of this trajectory, after its prompt."""
    asked: list[int] = body["token_ids"]
    return len(asked) > 3 and ids[: len(asked)] == asked


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/collective_rpc", (200, []), "its reply has no 'results'"),
        ("/collective_rpc", (200, {"results": 5}), "did not take the weights: no worker"),
        ("/collective_rpc", (200, {"results": [{}]}), "its reply has no 'error'"),
        ("/collective_rpc", (200, {"results": [{"error": [[]]}]}), "the weights: list"),
        ("/reset_prefix_cache", (200, []), "its reply has no 'success'"),
        ("/weight_info", (200, []), "its reply has no 'weight_version'"),
        ("/weight_info", (200, {"weight_version": [[]]}), "it has the weights list, not"),
    ],
)
def test_what_a_server_says_of_new_weights_is_no_traceback(
    path: str, answer: Answer, message: str
) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.answers = {path: answer}
        await engine.sync([], version=1)
        await engine.sleep()

    with pytest.raises(EngineError, match=message):
        use(act)


# What a server is


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"/v1/models": (200, {"data": [{"max_model_len": 399}]})}, "--max-model-len 400"),
        ({"/v1/models": (200, "<html>")}, "no vLLM server answers at .* no JSON"),
        ({"/v1/models": (404, "not found")}, "refuses a request: not found"),
        ({"/v1/models": (200, {"data": []})}, "what answers is no vLLM server"),
        ({"/inference/v1/generate": (404, {"detail": "Not Found"})}, "--enable-scale-out"),
        ({"/inference/v1/generate": reply([47])}, "does not have the 48 tokens of the"),
        ({"/is_paused": (200, {"is_paused": True})}, "is paused: .* start it again"),
        ({"/is_paused": (200, [])}, "its reply has no 'is_paused'; start it with"),
        ({"/v1/models": (200, "[" * 100_000)}, "no vLLM server .* no JSON"),
        ({"/v1/models": (200, '{"data": [{"max_model_len": Infinity}]}')}, "is no vLLM server"),
        ({"/v1/models": (400, {"error": {"message": 5}})}, "refuses a request: 5 "),
        ({"/inference/v1/generate": reply([47, 47])}, "sampled 2 tokens where one was asked for"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused(answers: dict[str, Answer], message: str) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        server.answers = answers
        for _ in range(2):
            with pytest.raises(ConfigError, match=message):
                await line_of(engine)

    use(act)


@pytest.mark.parametrize("vocabulary", [47, 49])
def test_a_server_of_another_vocabulary_is_refused(vocabulary: int) -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        with pytest.raises(ConfigError, match=f"does not have the {vocabulary} tokens"):
            await engine.open()

    use(act, vocabulary=vocabulary)


def test_a_server_that_is_not_there_is_said_with_how_to_start_it() -> None:
    async def act(engine: VLLMServerEngine, server: FakeServer) -> None:
        await server.stop()
        with pytest.raises(ConfigError, match=f"no vLLM server answers at {server.url}: Connect"):
            await engine.open()

    use(act)


@pytest.mark.parametrize(
    ("urls", "settings", "message"),
    [
        ([], {}, "has no server; name some in sampling.servers"),
        (["localhost:8000"], {}, "'localhost:8000'; expected an address such as 'http://"),
        (["http://"], {}, "expected an address"),
        (["http://a"], {"temperature": 2.5}, "temperature 2.5; a vLLM server takes 0.01 to 2"),
        (["http://a"], {"temperature": 0.0}, "temperature 0.0; a vLLM"),
    ],
)
def test_settings_that_no_server_could_serve_are_refused(
    urls: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        VLLMServerEngine(
            urls,
            newline_ids=frozenset({NEWLINE}),
            eos_ids=frozenset({EOS}),
            vocabulary=48,
            row_tokens=400,
            **settings,
        )


# Before weights are read


def reached(tmp_path: Path, **trouble: Any) -> None:
    """Return what `VLLMServer.reach` says of a server with this trouble."""

    async def inside() -> None:
        async with FakeServer(**trouble) as server:
            sampling = SamplingConfig(servers=(server.url,), weights_dir=str(tmp_path))
            await asyncio.to_thread(VLLMServer().reach, Config(model="m", sampling=sampling))

    asyncio.run(inside())


def test_a_server_that_sees_the_folder_of_weights_is_reached_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    reached(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_server_does_not_see_is_refused_before_weights_are_read(
    tmp_path: Path,
) -> None:
    unseen = (200, {"results": [{"error": None}, {"error": "it is not there"}]})
    with pytest.raises(ConfigError) as refused:
        reached(tmp_path, answers={"/collective_rpc": unseen})
    assert f"does not see '{tmp_path}/repl-rl-weights-" in str(refused.value)
    assert "give sampling.weights_dir a folder that is the same for it" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    sampling = SamplingConfig(servers=("http://127.0.0.1:1",), weights_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"^http://127.0.0.1:1 does not take new weights: Conn"):
        VLLMServer().reach(Config(model="m", sampling=sampling))


def test_a_worker_says_whether_it_sees_a_file(tmp_path: Path) -> None:
    worker: Any = None
    (tmp_path / "there").touch()
    assert PolicyLoader.sees_policy(worker, str(tmp_path / "there")) == {"error": None}
    assert PolicyLoader.sees_policy(worker, str(tmp_path / "gone")) == {"error": "it is not there"}
