"""`--engine scripted_kind:ScriptedKind`: a real model whose lines are what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from repl_rl.config import Config
from repl_rl.engines.base import Engine, SampledLine, Weights
from repl_rl.engines.hf import HF
from repl_rl.engines.scripted import ScriptedEngine, Writer, script
from repl_rl.models.loading import LoadedModel
from repl_rl.transcript.tokens import Codec

_PROBE_TOKENS = 64
"""The most that the check of an engine's weights asks it to go on after."""


class ScriptedKind(HF):
    """A test sets its lines, and reads after which texts they were written."""

    lines: ClassVar[Sequence[str]] = ()
    seen: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self._rest = script(*self.lines)

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        probed = super().open(config, loaded, row_tokens=row_tokens)
        return _Written(probed, loaded.codec, self._write)

    def _write(self, text: str) -> str:
        self.seen.append(text)
        return self._rest(text)


class _Written(ScriptedEngine):
    """The probes of `training.runtime` are answered by the model, everything else by the script."""

    def __init__(self, probed: Engine, codec: Codec, write: Writer) -> None:
        super().__init__(codec, write)
        self._probed = probed

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        if len(ids) <= _PROBE_TOKENS:
            return await self._probed.line(ids, max_tokens=max_tokens, seed=seed)
        return await super().line(ids, max_tokens=max_tokens, seed=seed)

    async def sync(self, weights: Weights, *, version: int) -> None:
        await self._probed.sync(weights, version=version)

    async def aclose(self) -> None:
        await self._probed.aclose()
