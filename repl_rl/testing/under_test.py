"""An engine under test: opened for options, kept while the same ones are asked for.

    open(model, folder, options) -> Engine, used by one law after another, closed at the end

Small models and texts written by an engine stand here too. Knows how engines are opened and given
back their weights. Does not know the laws.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, Qwen3Config

from repl_rl.engines.base import Engine, SampledLine
from repl_rl.transcript.tokens import ByteCodec

CONTEXT_TOKENS = 512
"""Tokens that a small model attends to."""
VOCABULARY = 257
"""Bytes, and one more id that ends a sequence."""


def random_model(make: Callable[[], PretrainedConfig], *, seed: int = 0, scale: float = 3.0) -> Any:
    """Weights three times as large as usual: flat distributions would hide a wrong position."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


def small_model(*, is_tied: bool) -> Any:
    """A Qwen3 in float32, the same at each call, with heads as large as vLLM's kernels for a CPU
    ask for; `is_tied` says whether its output layer is its embedding."""

    def config() -> PretrainedConfig:
        return Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=CONTEXT_TOKENS,
            bos_token_id=None,
            eos_token_id=3,
            pad_token_id=None,
            tie_word_embeddings=is_tied,
        )

    return random_model(config)


def shake(model: Any) -> None:
    """Other weights, as after an update; the same ones for the same model."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Models of this size compute faster than two threads find each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


T = TypeVar("T")
Use = Callable[[Engine], Awaitable[T]]
NONE: frozenset[int] = frozenset()
TIMEOUT_S = 110.0
NUM_DRAWS = 2000


class SmallCodec(ByteCodec):
    """Bytes, many of which end a line: random ones are seldom UTF-8 and cannot be decoded."""

    newline_ids = frozenset({10, *range(192, 256)})
    eos_ids = frozenset({256, 5, 6})


CODEC = SmallCodec()


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that an engine is opened with."""

    is_tied: bool = False
    """True where the model's output layer is its embedding."""
    temperature: float = 1.0
    has_stops: bool = True
    forbidden_ids: frozenset[int] = NONE
    """Ids that are never sampled: the others share their probability."""
    num_rows: int = 8
    """Trajectories that it samples at once; laws ask for more, which wait."""
    context_tokens: int = CONTEXT_TOKENS
    """Tokens of a request, those to be sampled among them: what the model attends to."""

    @property
    def newline_ids(self) -> frozenset[int]:
        return CODEC.newline_ids if self.has_stops else NONE

    @property
    def eos_ids(self) -> frozenset[int]:
        return CODEC.eos_ids if self.has_stops else NONE


USUAL, ENDLESS = EngineOptions(), EngineOptions(has_stops=False)
FORBIDDING = EngineOptions(
    temperature=0.7, forbidden_ids=frozenset(range(0, 256, 3)) - CODEC.eos_ids
)
"""A third of all ids, the first one and many that end a line among them."""

Open = Callable[[Any, Path, EngineOptions], Engine]
"""An engine that samples with the weights of a model, which is also saved in the folder."""


class EngineUnderTest:
    """Engines of one kind, one at a time."""

    def __init__(self, open: Open, folder: Path) -> None:
        self._open = open
        self._folder = folder
        self._models: dict[bool, Any] = {}
        self._engine: Engine | None = None
        self._options = USUAL

    def model(self, options: EngineOptions = USUAL) -> Any:
        """The model whose weights the engine has, or is to get by `sync`."""
        if options.is_tied not in self._models:
            self._models[options.is_tied] = small_model(is_tied=options.is_tied)
        return self._models[options.is_tied]

    def run(self, use: Use[T], *, seed: int = 0, options: EngineOptions = USUAL) -> T:
        """Return the result of `use` on the engine, which keeps its cache; nothing may hang."""

        engine = self._engine_for(options)

        async def inside() -> T:
            async with asyncio.timeout(TIMEOUT_S):
                return await use(engine)

        return asyncio.run(inside())

    @functools.cached_property
    def first_tokens(self) -> list[SampledLine]:
        """Lines [2000] of one token after the same prompt."""

        async def use(engine: Engine) -> list[SampledLine]:
            lines = [engine.line(prompt(0), max_tokens=1, seed=seed) for seed in range(NUM_DRAWS)]
            return await asyncio.gather(*lines)

        return self.run(use)

    def _engine_for(self, options: EngineOptions) -> Engine:
        if self._engine is None or options != self._options:
            self._engine, self._options = self.open(options), options
        return self._engine

    def open(self, options: EngineOptions = USUAL) -> Engine:
        """An engine that the caller must close; the kept one is closed before."""
        self.close()
        model = self.model(options)
        folder = self._folder / f"tied-{options.is_tied}"
        if not folder.exists():
            model.save_pretrained(folder)
        return self._open(model, folder, options)

    def restore(self) -> None:
        """Put back the weights that the models were made with, in the engine, too."""
        for is_tied, model in self._models.items():
            model.load_state_dict(small_model(is_tied=is_tied).state_dict())
        engine = self._engine
        if engine is not None:
            weights = self.model(self._options).named_parameters()
            asyncio.run(engine.sync(weights, version=0))

    def close(self) -> None:
        """Close the kept engine, if there is one."""
        engine, self._engine = self._engine, None
        if engine is not None:
            asyncio.run(engine.aclose())


Written = tuple[list[int], list[float | None]]
"""All ids of a trajectory, and the log-probability of each that was sampled."""


def prompt(seed: int, length: int = 7) -> list[int]:
    """Random ids [length], none of which ends a line of a small model."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(11, 48, (length,), generator=generator).tolist()
    return ids


async def trajectory(
    engine: Engine, ids: Sequence[int], *, seed: int, num_lines: int = 4, max_tokens: int = 12
) -> Written:
    """Lines with observations of several lengths between them."""
    ids = list(ids)
    logprobs: list[float | None] = [None] * len(ids)
    for index in range(num_lines):
        line = await engine.line(ids, max_tokens=max_tokens, seed=1000 * seed + index)
        ids += line.ids
        logprobs += line.logprobs
        observation = prompt(77 * seed + index, 1 + (seed + 3 * index) % 6)
        ids += observation
        logprobs += [None] * len(observation)
        await asyncio.sleep(0.001 * (seed % 3))
    return ids, logprobs


async def trajectories(engine: Engine, count: int, **lengths: int) -> list[Written]:
    """Several at once, after prompts of several lengths."""
    return await asyncio.gather(
        *(trajectory(engine, prompt(i, 4 + i), seed=i, **lengths) for i in range(count))
    )


def worst_difference(
    model: Any,
    ids: Sequence[int],
    logprobs: Sequence[float | None],
    *,
    temperature: float = 1.0,
    forbidden_ids: Set[int] = frozenset(),
) -> float:
    """Largest gap between the engine's log-probabilities and a fresh forward of the same ids."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float() / temperature
    logits[:, sorted(forbidden_ids)] = -torch.inf
    fresh = torch.log_softmax(logits, -1)
    gaps = [
        abs(fresh[at - 1, ids[at]].item() - logprob)
        for at, logprob in enumerate(logprobs)
        if logprob is not None
    ]
    assert gaps
    return max(gaps)
