"""Whole weights through memory to a real vLLM server, over another transport than NCCL."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from fake_vllm import hurry
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.engines.vllm.transfer import Transfer
from repl_rl.errors import EngineError
from repl_rl.testing.under_test import (
    CONTEXT_TOKENS,
    USUAL,
    shake,
    small_model,
    trajectories,
    worst_difference,
)
from vllm_serve import PROCESSED, Server, serving, small_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(400),  # the server takes half a minute
]
SUPPORT = str(Path(__file__).parents[2] / "support")
FLAGS = (
    *PROCESSED,
    *("--worker-extension-cls", "store_transfer.StoreTransfer"),
    *("--weight-transfer-config", '{"backend": "nccl"}'),
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    hurry(monkeypatch)
    small_model(is_tied=False).save_pretrained(tmp_path / "model")
    monkeypatch.setenv("PYTHONPATH", f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}")
    server = small_server(tmp_path / "model", tmp_path / "log", flags=FLAGS)
    with serving(server):
        yield server


def test_logprobs_are_those_of_the_weights_after_every_update_and_a_dead_server_is_one_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cuda.current_stream", "accelerator.synchronize"):
        monkeypatch.setattr(f"torch.{name}", lambda *_: None)
    importlib.import_module("store_transfer")
    policy: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()

    async def use() -> list[float]:
        engine = VLLMServerEngine(
            [server.url],
            newline_ids=USUAL.newline_ids,
            eos_ids=USUAL.eos_ids,
            vocabulary=257,
            row_tokens=CONTEXT_TOKENS,
            open_transfer=partial(Transfer, device=torch.device("cpu"), limit_s=60.0),
        )
        gaps = []
        try:
            for version in range(1, 4):
                shake(policy)
                await engine.sync(policy.named_parameters(), version=version)
                written = await trajectories(engine, 4)
                gaps.append(max(worst_difference(policy, *one, temperature=1.0) for one in written))
            server.kill()
            with pytest.raises(EngineError, match=f"{server.url} does not take new weights: Conn"):
                await engine.sync(policy.named_parameters(), version=4)
        finally:
            await engine.aclose()
        return gaps

    assert max(asyncio.run(use())) < 1e-5
