"""The engine of vLLM servers in front of real ones."""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib.util
import os
import re
import signal
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest
import torch

from fake_vllm import hurry
from repl_rl.engines.base import SampledLine
from repl_rl.engines.vllm.replica import Replica
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.errors import ConfigError, EngineError
from repl_rl.testing.under_test import (
    CONTEXT_TOKENS,
    ENDLESS,
    USUAL,
    EngineOptions,
    Written,
    prompt,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)
from vllm_serve import Farm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(400),  # the first waits for three servers
]

T = TypeVar("T")
Use = Callable[[VLLMServerEngine], Awaitable[T]]
EXACT = 1e-5


def run(
    use: Use[T],
    urls: list[str],
    policy: Any = None,
    *,
    options: EngineOptions = USUAL,
    **settings: Any,
) -> T:
    """Result of `use` on a fresh engine, whose servers have the weights of `policy`."""

    async def inside() -> T:
        engine = VLLMServerEngine(
            urls,
            newline_ids=options.newline_ids,
            eos_ids=options.eos_ids,
            vocabulary=257,
            temperature=options.temperature,
            **{"row_tokens": CONTEXT_TOKENS, **settings},
        )
        try:
            async with asyncio.timeout(60):
                if policy is not None:
                    await engine.sync(policy.named_parameters(), version=0)
                return await use(engine)
        finally:
            await engine.aclose()

    return asyncio.run(inside())


def worst(policy: Any, results: list[Written], options: EngineOptions = USUAL) -> float:
    return max(worst_difference(policy, *one, temperature=options.temperature) for one in results)


def metric(url: str, name: str) -> float:
    """A sum from the server's metrics."""
    text = urllib.request.urlopen(url + "/metrics", timeout=5).read().decode()
    return sum(map(float, re.findall(rf"^vllm:{name}\{{.*\}} (\S+)$", text, re.MULTILINE)))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


# Lines


@pytest.mark.parametrize("options", [USUAL, EngineOptions(temperature=0.7)], ids=["1.0", "0.7"])
def test_logprobs_are_those_of_a_fresh_forward(
    farm: Farm, policy: Any, options: EngineOptions
) -> None:
    async def use(engine: VLLMServerEngine) -> list[Written]:
        return await trajectories(engine, 10, num_lines=8, max_tokens=20)

    results = run(use, farm.urls, policy, options=options)
    assert max(len(ids) for ids, _ in results) > 64
    assert worst(policy, results, options) < EXACT


def test_a_line_is_the_same_whatever_else_is_in_flight_and_wherever(
    farm: Farm, policy: Any
) -> None:
    async def crowd(engine: VLLMServerEngine) -> Written:
        others = (trajectory(engine, prompt(i, 3 + 9 * i), seed=i) for i in range(2, 12))
        *_, mine = await asyncio.gather(*others, trajectory(engine, prompt(0, 20), seed=1))
        return mine

    async def alone(engine: VLLMServerEngine) -> Written:
        return await trajectory(engine, prompt(0, 20), seed=1)

    expected, _ = run(alone, farm.urls[:1], policy)
    assert run(alone, farm.urls[1:], policy)[0] == expected
    assert run(crowd, farm.urls, policy)[0] == expected


def test_most_of_a_request_comes_from_the_cache(farm: Farm, policy: Any) -> None:
    """A request comes from the cache, except what was added since and the rest of a block."""

    async def use(engine: VLLMServerEngine) -> None:
        await trajectories(engine, 8, num_lines=16, max_tokens=12)

    def counted() -> tuple[float, float]:
        names = ("prefix_cache_hits_total", "prefix_cache_queries_total")
        hits, queries = (sum(metric(url, name) for url in farm.urls) for name in names)
        return hits, queries

    before = counted()
    run(use, farm.urls, policy)
    hits, queries = (after - start for after, start in zip(counted(), before, strict=True))
    assert hits > 0.5 * queries


def test_a_cancelled_line_is_given_up_by_the_server(farm: Farm, policy: Any) -> None:
    async def when_running(count: int) -> float:
        for _ in range(100):
            await asyncio.sleep(0.02)
            if (running := metric(url, "num_requests_running")) == count:
                break
        return running

    async def use(engine: VLLMServerEngine) -> list[float]:
        lines = [
            asyncio.ensure_future(engine.line(prompt(i), max_tokens=450, seed=i)) for i in range(4)
        ]
        begun = await when_running(4)
        for line in lines:
            line.cancel()
        return [begun, await when_running(0)]

    url = farm.urls[0]
    assert run(use, [url], policy, options=ENDLESS) == [4, 0]


def test_a_server_that_stands_still_is_passed_over(farm: Farm, policy: Any) -> None:
    """Its process is stopped: connections are made, and nobody answers."""

    async def use(engine: VLLMServerEngine) -> list[Written]:
        stopped = await asyncio.to_thread(processes_at, farm.urls[0])
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            return await trajectories(engine, 4)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

    results = run(use, farm.urls, policy, line_timeout_s=4.0)
    assert worst(policy, results) < EXACT


def processes_at(url: str) -> list[int]:
    port = httpx.URL(url).port
    running = psutil.process_iter(["cmdline"])
    # A process that has ended, and that nobody has waited for, has no words.
    found = [one for one in running if str(port) in (one.info["cmdline"] or ())]
    return [one.pid for parent in found for one in [parent, *parent.children(recursive=True)]]


# Updates


def test_logprobs_are_those_of_the_weights_after_every_update_on_every_server(
    farm: Farm, policy: Any, tmp_path: Path
) -> None:
    """The prompts are the same ones, so keys of old weights would be found again."""

    async def use(engine: VLLMServerEngine) -> list[float]:
        gaps = []
        for version in range(1, 4):
            shake(policy)
            await engine.sync(policy.named_parameters(), version=version)
            gaps.append(worst(policy, await trajectories(engine, 8)))
        return gaps

    assert max(run(use, farm.urls, policy, weights_dir=tmp_path)) < EXACT
    assert list(tmp_path.iterdir()) == []


def test_an_update_of_the_embedding_alone_reaches_the_output_layer_that_is_tied_to_it(
    farm: Farm, policy: Any
) -> None:
    async def use(engine: VLLMServerEngine) -> Written:
        with torch.no_grad():
            policy.get_input_embeddings().weight.mul_(1.5)
        await engine.sync(policy.named_parameters(), version=1)
        return await trajectory(engine, prompt(0, 40), seed=2)

    assert worst(policy, [run(use, farm.urls[:1], policy)]) < EXACT


def logprobs_of(policy: Any, ids: list[int], start: int) -> torch.Tensor:
    with torch.no_grad():
        scores = torch.log_softmax(policy(torch.tensor([ids])).logits[0, start - 1 : -1], -1)
    return scores.gather(-1, torch.tensor(ids[start:])[:, None])[:, 0]


def test_a_line_in_flight_goes_on_with_the_new_weights_after_an_update(
    farm: Farm, policy: Any
) -> None:
    """Its tokens are those of the old weights, and from one on those of the new ones.

    A machine may write the whole line before the update comes to the server: it is tried again.
    """

    async def use(engine: VLLMServerEngine) -> tuple[SampledLine, list[int]]:
        line = asyncio.create_task(engine.line(prompt(0), max_tokens=400, seed=1))
        await asyncio.sleep(0.3)
        shake(changed)
        await engine.sync(changed.named_parameters(), version=1)
        later = await engine.line(prompt(1), max_tokens=2, seed=1)
        return await line, [later.policy_version]

    start = len(prompt(0))
    for _ in range(10):
        changed = copy.deepcopy(policy)
        line, versions = run(use, farm.urls[:1], changed, options=ENDLESS)
        ids, found = [*prompt(0), *line.ids], torch.tensor(line.logprobs)
        is_new = (logprobs_of(changed, ids, start) - found).abs() < EXACT
        if is_new[-1] and not is_new.all():
            break
    turn = int(is_new.nonzero()[0])
    while not is_new[turn:].all():
        turn += 1
    assert 0 < turn < 399
    is_old = (logprobs_of(policy, ids, start) - found).abs() < EXACT
    assert is_old[:turn].all()
    assert [line.policy_version, *versions] == [1, 1]


def test_weights_of_which_some_are_missing_are_refused(farm: Farm, policy: Any) -> None:
    async def use(engine: VLLMServerEngine) -> Written:
        some = [pair for pair in policy.named_parameters() if "layers.1.mlp" not in pair[0]]
        with pytest.raises(EngineError, match=r"no weights came for .*layers\.1\.mlp"):
            await engine.sync(some, version=1)
        with pytest.raises(EngineError, match="does not sample: it has the weights"):
            await engine.line(prompt(0), max_tokens=2, seed=0)
        await engine.sync(policy.named_parameters(), version=2)
        return await trajectory(engine, prompt(0), seed=0)

    assert worst(policy, [run(use, farm.urls[:1], policy)]) < EXACT


def test_weights_that_are_no_numbers_end_lines_in_an_error(farm: Farm, policy: Any) -> None:
    async def use(engine: VLLMServerEngine) -> None:
        weights = dict(policy.named_parameters())
        broken = {"model.norm.weight": torch.full_like(weights["model.norm.weight"], torch.nan)}
        await engine.sync({**weights, **broken}.items(), version=1)
        try:
            with pytest.raises(EngineError, match="logits are not finite"):
                await engine.line(prompt(0), max_tokens=2, seed=0)
        finally:
            await engine.sync(weights.items(), version=2)

    run(use, farm.urls[:1], policy)


def test_a_server_with_the_weights_of_another_run_is_not_sampled_from(
    farm: Farm, policy: Any
) -> None:
    async def use(engine: VLLMServerEngine) -> None:
        with pytest.raises(EngineError, match="not 'default'"):
            await engine.line(prompt(0), max_tokens=2, seed=0)

    run(lambda engine: engine.open(), farm.urls[:1], policy)
    run(use, farm.urls[:1])


# Servers that were started for something else


def test_a_server_that_gives_raw_logprobs_is_refused(farm: Farm) -> None:
    with pytest.raises(ConfigError, match="another distribution than the one it samples from"):
        run(lambda engine: engine.open(), [farm.raw_url])


def test_a_server_without_our_loader_refuses_weights_with_the_flag_that_is_missing(
    farm: Farm, tmp_path: Path
) -> None:
    async def update() -> None:
        async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as client:
            replica = Replica(farm.raw_url, client)
            load = functools.partial(replica.load, tmp_path / "w")
            await replica.update(load, version=1, label="a-1")

    with pytest.raises(ConfigError, match=r"--worker-extension-cls repl_rl\.engines"):
        asyncio.run(update())


def test_a_server_of_a_shorter_context_is_refused(farm: Farm, policy: Any) -> None:
    with pytest.raises(ConfigError, match="start it with --max-model-len 600"):
        run(lambda engine: engine.open(), farm.urls, row_tokens=600)
