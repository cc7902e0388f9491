"""`copying_kind:CopyingKind`: the engine `hf` on a copy of the weights, as a server has one."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from repl_rl.config import Config
from repl_rl.engines.base import Engine, EngineWrapper, SampledLine, Weights
from repl_rl.engines.hf import HF
from repl_rl.errors import EngineError
from repl_rl.models.loading import LoadedModel


class CopyingKind(HF):
    """Lines may be slow, and a version may have none."""

    shares_weights = False
    holds_weights = True
    line_s: ClassVar[float] = 0.0
    fails_at: ClassVar[int] = -1
    """Version of the weights from which on no line beyond a step's probe is sampled."""

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        copied = replace(loaded, model=copy.deepcopy(loaded.model))
        engine = super().open(config, copied, row_tokens=row_tokens)
        return _Copying(engine, copied.model, self)


class _Copying(EngineWrapper):
    def __init__(self, engine: Engine, model: Any, kind: CopyingKind) -> None:
        super().__init__(engine)
        self._own = dict(model.named_parameters())
        self._kind = kind
        self._version = 0

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        if self._kind.line_s:
            await asyncio.sleep(self._kind.line_s)
        if self._version == self._kind.fails_at and len(ids) > 64:
            raise EngineError("the copy is gone")
        return await self.engine.line(ids, max_tokens=max_tokens, seed=seed)

    async def sync(self, weights: Weights, *, version: int) -> None:
        with torch.no_grad():
            for name, weight in weights:
                self._own[name].copy_(weight)
        self._version = version
        await self.engine.sync((), version=version)
