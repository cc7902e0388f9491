"""Adapters and whole weights on a real vLLM server that takes adapters."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from adapter_kit import CPU
from fake_vllm import hurry
from repl_rl.config.sections import LoraConfig
from repl_rl.engines.vllm import replica as vllm_replica
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.models import lora
from repl_rl.models.lora import tuned_layers
from repl_rl.models.weights import leaving_weights
from repl_rl.testing.under_test import (
    CONTEXT_TOKENS,
    USUAL,
    prompt,
    shake,
    small_model,
    trajectories,
    worst_difference,
)
from vllm_serve import ADAPTERS, LOADER, PROCESSED, Server, small_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(900),  # a server takes half a minute, or minutes beside other work
]
FLAGS = (*PROCESSED, *LOADER, *ADAPTERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    small_model(is_tied=True).save_pretrained(folder)
    return folder


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    hurry(monkeypatch)
    monkeypatch.setattr(vllm_replica, "_TRUST_S", 0.0)
    server = small_server(folder, folder.with_suffix(".log"), flags=FLAGS)
    try:
        server.wait()
        yield server
    finally:
        server.kill()


def adapted(folder: Path, *, rank: int) -> Any:
    """The served model with an adapter that changes what it says."""
    base = small_model(is_tied=True)
    made = lora.new_adapter(LoraConfig(rank=rank), lambda: small_model(is_tied=True), base="m")
    model = lora.attach(base.to(CPU), made).eval()
    shake_adapter(model)
    return model


@torch.no_grad()
def shake_adapter(model: Any) -> None:
    for layer in tuned_layers(model).values():
        layer.lora_B["default"].weight.normal_(std=0.05)


def opened(url: str) -> VLLMServerEngine:
    return VLLMServerEngine(
        [url],
        newline_ids=USUAL.newline_ids,
        eos_ids=USUAL.eos_ids,
        vocabulary=257,
        row_tokens=CONTEXT_TOKENS,
    )


async def gap(engine: VLLMServerEngine, policy: Any) -> float:
    written = await trajectories(engine, 4)
    return max(worst_difference(policy, *one, temperature=1.0) for one in written)


def test_a_server_samples_from_each_adapter_and_gets_it_again_and_takes_whole_weights_after(
    server: Server, folder: Path
) -> None:
    policy = adapted(folder, rank=4)
    large = adapted(folder, rank=32)  # a server takes 16 unless it is told

    async def versions() -> list[float]:
        engine = opened(server.url)
        try:
            gaps = []
            for version in range(4):
                shake_adapter(policy)
                await engine.sync(leaving_weights(policy), version=version)
                gaps.append(await gap(engine, policy))
            assert "alone" in engine.about
            server.kill()
            anew = small_server(folder, folder.with_suffix(".log2"), flags=FLAGS, port=server.port)
            try:
                await asyncio.to_thread(anew.wait)
                line = await engine.line(prompt(0), max_tokens=2, seed=0)
                assert line.policy_version == 3
                gaps.append(await gap(engine, policy))
                return [*gaps, *await others()]
            finally:
                await engine.aclose()
                anew.kill()
        finally:
            await engine.aclose()

    async def others() -> list[float]:
        engine, plain = opened(server.url), small_model(is_tied=True)
        try:
            await engine.sync(leaving_weights(large), version=0)
            assert "LoRA rank 32 is greater than max_lora_rank 16" in engine.about
            gaps = [await gap(engine, large)]
            shake(plain)  # the embedding, which is the output layer, among them
            await engine.sync(leaving_weights(plain), version=1)
            return [*gaps, await gap(engine, plain)]
        finally:
            await engine.aclose()

    gaps = asyncio.run(versions())
    assert len(gaps) == 7
    assert max(gaps) < 1e-5
