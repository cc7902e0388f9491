"""Our engines keep the laws of all. The example of another one: `test_third_party`."""

from __future__ import annotations

import asyncio
import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest

from repl_rl.engines.base import Engine
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.engines.vllm.engine import VLLMEngine
from repl_rl.testing import EngineContract, EngineOptions, LoopContract
from repl_rl.testing.engine import LoopRun
from repl_rl.testing.under_test import CODEC, T, Use
from vllm_serve import open_vllm_server

pytestmark = pytest.mark.slow

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)


class TestHF(EngineContract):
    is_fixed = False

    def open(self, model: Any, folder: Path, options: EngineOptions) -> Engine:
        return HFEngine(
            model,
            newline_ids=options.newline_ids,
            eos_ids=options.eos_ids,
            num_rows=options.num_rows,
            temperature=options.temperature,
            forbidden_ids=options.forbidden_ids,
            is_fixed=self.is_fixed,
        )


class TestHFInStepsOfFixedShape(TestHF):
    """Steps that a GPU launches as a whole, op by op on a CPU."""

    is_fixed = True


@needs_vllm
class TestVLLM(EngineContract):
    def open(self, model: Any, folder: Path, options: EngineOptions) -> Engine:
        return VLLMEngine(
            str(folder),
            dtype="float32",
            device="cpu",
            newline_ids=options.newline_ids,
            eos_ids=options.eos_ids,
            num_rows=options.num_rows,
            row_tokens=options.context_tokens,
            temperature=options.temperature,
            forbidden_ids=options.forbidden_ids,
        )


@needs_vllm
@pytest.mark.timeout(400)  # the first waits for a server
class TestVLLMServer(EngineContract):
    def open(self, model: Any, folder: Path, options: EngineOptions) -> Engine:
        return open_vllm_server(model, folder, options)


class TestScripted(LoopContract):
    @pytest.fixture
    def run(self) -> LoopRun:
        """Lines of one to seven letters; one of four ends the sequence."""

        def run_once(use: Use[T], *, seed: int = 0) -> T:
            rng = random.Random(seed)

            def write(_: str) -> str:
                letters = "".join(rng.choices("abcxyz", k=rng.randint(1, 7)))
                return letters + rng.choice(["\n", "\n", "\n", ""])

            async def inside() -> T:
                return await use(ScriptedEngine(CODEC, write))

            return asyncio.run(inside())

        return run_once
