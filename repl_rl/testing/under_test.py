"""An engine under test: opened for options, kept while the same ones are asked for.

    open(model, folder, options) -> Engine, used by one law after another, closed at the end

Knows how engines are opened and given back their weights. Does not know the laws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from repl_rl.engines.base import Engine
from repl_rl.testing.small_models import CONTEXT_TOKENS, small_model
from repl_rl.transcript.tokens import ByteCodec

T = TypeVar("T")
Use = Callable[[Engine], Awaitable[T]]
NONE: frozenset[int] = frozenset()
TIMEOUT_S = 110.0


class Codec(ByteCodec):
    """Bytes, many of which end a line: random ones are seldom UTF-8 and cannot be decoded."""

    newline_ids = frozenset({10, *range(192, 256)})
    eos_ids = frozenset({256, 5, 6})


CODEC = Codec()


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that an engine is opened with."""

    is_tied: bool = False
    """Whether the model's output layer is its embedding."""
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

        engine = self._kept(options)

        async def inside() -> T:
            async with asyncio.timeout(TIMEOUT_S):
                return await use(engine)

        return asyncio.run(inside())

    def _kept(self, options: EngineOptions) -> Engine:
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
