"""`answering_kind:AnsweringKind`: an engine that submits what a statement asks for, or a part."""

from __future__ import annotations

import re
from collections.abc import Sequence

from repl_rl.config import Config
from repl_rl.engines.base import Engine, SampledLine
from repl_rl.engines.hf import HF
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.models.loading import LoadedModel
from scripted_kind import ScriptedKind


class AnsweringKind(ScriptedKind):
    """`What is 6 * 7?` is answered right, `What is 6 + 7?` by 6; nothing else is answered."""

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        return _Answering(HF().open(config, loaded, row_tokens=row_tokens), loaded)


class _Answering:
    """Trajectories may be under way side by side: each line is a function of the text before it."""

    def __init__(self, probed: Engine, loaded: LoadedModel) -> None:
        self._probed, self._codec = probed, loaded.codec
        self.num_sampled = 0
        self.sync, self.sleep, self.aclose = probed.sync, probed.sleep, probed.aclose

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        asked = re.search(r"# .*What is (\d+) ([*+]) (.+)\?\n", self._codec.decode(ids))
        if asked is None and len(ids) <= 64:  # the check of an engine's weights
            return await self._probed.line(ids, max_tokens=max_tokens, seed=seed)
        left, sign, right = asked.groups() if asked else ("", "", "")
        line = f" submit_final_answer({left if sign == '+' else f'{left}*{right}'})\n"
        engine = ScriptedEngine(self._codec, lambda _: line if asked else "")
        return await engine.line(ids, max_tokens=max_tokens, seed=seed)
