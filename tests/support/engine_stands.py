"""Engines that the contract is held against. Another engine takes one entry in `OPENERS`."""

from __future__ import annotations

import asyncio
import importlib.util
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from transformers import Qwen3Config

from attempt_kit import an_attempt
from engine_kit import SIZE, random_model
from plain_engine import PlainEngine
from repl_rl.config import SamplingConfig
from repl_rl.engines.base import Engine, SampledLine, Weights
from repl_rl.engines.hf import HFEngine
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.engines.vllm import VLLMEngine
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import PYTHON, Part, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.types import Trajectory
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution
from vllm_serve import open_vllm_server

T = TypeVar("T")
Use = Callable[[Engine], Awaitable[T]]
CONTEXT_TOKENS = 512
NONE: frozenset[int] = frozenset()


class Codec(ByteCodec):
    """Bytes of which many end a line: random ones are seldom UTF-8, and decode to no bytes."""

    newline_ids = frozenset({10, *range(192, 256)})
    eos_ids = frozenset({256, 5, 6})


CODEC = Codec()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What an engine is opened for."""

    is_tied: bool = False
    """Whether the model's output layer is its embedding."""
    temperature: float = 1.0
    has_stops: bool = True

    @property
    def newline_ids(self) -> frozenset[int]:
        return CODEC.newline_ids if self.has_stops else NONE

    @property
    def eos_ids(self) -> frozenset[int]:
        return CODEC.eos_ids if self.has_stops else NONE


PLAIN, ENDLESS = Wish(), Wish(has_stops=False)


def contract_model(*, is_tied: bool) -> Any:
    """Heads as large as vLLM's kernels for a CPU ask for."""
    config = {
        **SIZE,
        "vocab_size": 257,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": CONTEXT_TOKENS,
        "tie_word_embeddings": is_tied,
    }
    return random_model(lambda: Qwen3Config(**config))


def open_hf(model: Any, folder: Path, wish: Wish) -> Engine:
    return HFEngine(
        model,
        newline_ids=wish.newline_ids,
        eos_ids=wish.eos_ids,
        num_rows=8,
        temperature=wish.temperature,
    )


def open_plain(model: Any, folder: Path, wish: Wish) -> Engine:
    """The example of an engine that somebody else brings."""
    made: Engine = PlainEngine(
        model,
        newline_ids=wish.newline_ids,
        eos_ids=wish.eos_ids,
        temperature=wish.temperature,
    )
    return made


def open_vllm(model: Any, folder: Path, wish: Wish) -> Engine:
    return VLLMEngine(
        str(folder),
        dtype="float32",
        device="cpu",
        newline_ids=wish.newline_ids,
        eos_ids=wish.eos_ids,
        num_rows=8,
        row_tokens=CONTEXT_TOKENS,
        temperature=wish.temperature,
    )


OPENERS: Mapping[str, Callable[[Any, Path, Wish], Engine]] = {
    "hf": open_hf,
    "plain": open_plain,
    **(
        {"vllm": open_vllm, "vllm-server": open_vllm_server}
        if importlib.util.find_spec("vllm")
        else {}
    ),
}
"""Name -> an engine of 8 rows that samples with the weights of a model, also saved in a folder."""


class Runner(Protocol):
    def run(self, use: Use[T], *, seed: int = 0) -> T:
        """What `use` makes of an engine."""
        ...


class Stand:
    """Engines of one kind, one at a time: opened for a wish, kept while that is asked for again."""

    def __init__(self, name: str, folder: Path) -> None:
        self._open = OPENERS[name]
        self._folder = folder
        self._models: dict[bool, Any] = {}
        self._engine: Engine | None = None
        self._wish = PLAIN

    def model(self, wish: Wish = PLAIN) -> Any:
        """The model whose weights the engine has, or is to get by `sync`."""
        if wish.is_tied not in self._models:
            self._models[wish.is_tied] = contract_model(is_tied=wish.is_tied)
        return self._models[wish.is_tied]

    def run(self, use: Use[T], *, seed: int = 0, wish: Wish = PLAIN) -> T:
        """What `use` makes of the engine, which keeps what it has cached; nothing may hang."""

        async def inside() -> T:
            async with asyncio.timeout(110):
                return await use(engine)

        engine = self._engine
        if engine is None or wish != self._wish:
            engine = self._engine = self.open(wish)
            self._wish = wish
        return asyncio.run(inside())

    def open(self, wish: Wish = PLAIN) -> Engine:
        """An engine that whoever asks for it closes; the one that was kept is closed."""
        self.close()
        model = self.model(wish)
        folder = self._folder / f"tied-{wish.is_tied}"
        if not folder.exists():
            model.save_pretrained(folder)
        return self._open(model, folder, wish)

    def restore(self) -> None:
        """The weights that the models were made with, in the engine too."""
        for is_tied, model in self._models.items():
            model.load_state_dict(contract_model(is_tied=is_tied).state_dict())
        engine = self._engine
        if engine is not None:
            weights = self.model(self._wish).named_parameters()
            asyncio.run(engine.sync(weights, version=0))

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            asyncio.run(engine.aclose())


class ScriptedStand:
    """Writes lines of one to seven letters; one of four ends the sequence."""

    def run(self, use: Use[T], *, seed: int = 0) -> T:
        rng = random.Random(seed)

        def write(_: str) -> str:
            letters = "".join(rng.choices("abcxyz", k=rng.randint(1, 7)))
            return letters + rng.choice(["\n", "\n", "\n", ""])

        async def inside() -> T:
            return await use(ScriptedEngine(CODEC, write))

        return asyncio.run(inside())


SAMPLING = SamplingConfig(max_lines=6, max_line_tokens=6, max_tokens=400)


@dataclass
class Witness:
    """Passes requests on and keeps them, and what came back."""

    engine: Engine
    num_sampled: int = 0
    asked: list[tuple[int, ...]] = field(default_factory=list)
    lines: list[SampledLine] = field(default_factory=list)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await self.engine.line(ids, max_tokens=max_tokens, seed=seed)
        assert len(line.ids) <= max_tokens
        self.asked.append(tuple(ids))
        self.lines.append(line)
        return line

    async def sync(self, weights: Weights, *, version: int) -> None:
        await self.engine.sync(weights, version=version)

    async def aclose(self) -> None:
        await self.engine.aclose()


def answer(source: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=f"{len(source)} characters\n")


Rolled = tuple[Witness, Trajectory]


def roll_out(runner: Runner, seed: int) -> Rolled:
    """One trajectory after `>>>` with an output after every line."""

    async def use(engine: Engine) -> Rolled:
        witness = Witness(engine)
        sampler = LineSampler(witness, CODEC, PYTHON, SAMPLING, context_tokens=500)
        start = Prompt(parts=(Part(">>>"),))
        attempt = an_attempt(seed=seed)
        return witness, await sampler.sample(attempt, start, FakeKernel(answer))

    return runner.run(use, seed=seed)
