"""The engine kind `hf`, the look-up of a kind by its name, and arguments that kinds share.

Loads no torch: the engine's module is imported where it opens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from repl_rl.base.plugins import load_named
from repl_rl.config import Config
from repl_rl.engines.base import Engine, EngineKind
from repl_rl.errors import ConfigError

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
        )


def engine_kind(name: str) -> EngineKind:
    """The kind of engine of a name in the group `repl_rl.engines`, or `module:Class`.

    Raises ConfigError where there is none of that name.
    """
    kind = load_named(name, group="repl_rl.engines")
    if not (isinstance(kind, type) and issubclass(kind, EngineKind)):
        raise ConfigError(
            f"sampling.engine = {name!r} is no engine; expected a subclass of repl_rl.EngineKind"
        )
    return kind()


def common_options(config: Config, loaded: LoadedModel, row_tokens: int) -> dict[str, Any]:
    """Arguments that every engine of the project takes."""
    return {
        "newline_ids": loaded.codec.newline_ids,
        "eos_ids": loaded.codec.eos_ids,
        "forbidden_ids": loaded.forbidden_ids,
        "row_tokens": row_tokens,
        "temperature": config.sampling.temperature,
    }
