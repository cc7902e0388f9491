"""The engine kind `hf`: transformers, in this process.

Loads no torch: the engine's module is imported where it opens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from repl_rl.config import Config
from repl_rl.engines.base import Engine, EngineKind, common_options

if TYPE_CHECKING:
    from repl_rl.models.loading import LoadedModel


class HF(EngineKind):
    """transformers, with the weights of the trainer."""

    name = "hf"
    shares_weights = True
    holds_keys = True
    rows_grow = True
    most_forbidden = math.inf

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        from repl_rl.engines.hf.engine import HFEngine

        return HFEngine(
            loaded.model,
            dtype=loaded.precision.sampling,
            **common_options(config, loaded, row_tokens),
            num_rows=config.sampling.max_in_flight,
            spare_bytes=loaded.spare_bytes,
        )
