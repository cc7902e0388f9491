"""Engines by their names in the entry point group `repl_rl.engines`.

Loads no torch: an engine's module is imported where it opens.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repl_rl.base.plugins import load_named
from repl_rl.config import Config
from repl_rl.engines.base import Engine, EngineKind
from repl_rl.engines.vllm.engine import MOST_FORBIDDEN, prepare
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
            **_common(config, loaded, row_tokens),
            num_rows=config.sampling.max_in_flight,
        )


class VLLM(EngineKind):
    """vLLM in this process, with a copy of the weights."""

    name = "vllm"
    holds_weights = True
    holds_keys = True
    most_forbidden = MOST_FORBIDDEN
    needs_one_process = True

    def check(self, config: Config) -> None:
        _check_model(self, config)
        if config.sampling.temperature == 0:
            raise ConfigError("sampling.temperature = 0 takes the engine 'hf', not 'vllm'")
        prepare()

    def prepare(self) -> None:
        prepare()

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        from repl_rl.engines.vllm.engine import VLLMEngine

        return VLLMEngine(
            loaded.base,
            dtype=str(loaded.precision.sampling).removeprefix("torch."),
            device=loaded.model.device.type,
            **_common(config, loaded, row_tokens),
            num_rows=config.sampling.max_in_flight,
        )


class VLLMServer(EngineKind):
    """vLLM servers, to which weights are sent."""

    name = "vllm-server"
    most_forbidden = MOST_FORBIDDEN

    def check(self, config: Config) -> None:
        from repl_rl.engines.vllm.replica import check_settings

        _check_model(self, config)
        check_settings(config.sampling.servers, temperature=config.sampling.temperature)

    def about(self, config: Config) -> str:
        return ", ".join(config.sampling.servers)

    def open(self, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        from repl_rl.engines.vllm.server import VLLMServerEngine

        weights_dir = config.sampling.weights_dir
        return VLLMServerEngine(
            config.sampling.servers,
            **_common(config, loaded, row_tokens),
            vocabulary=loaded.model.get_input_embeddings().num_embeddings,
            weights_dir=None if weights_dir is None else Path(weights_dir),
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


def _check_model(kind: EngineKind, config: Config) -> None:
    if config.model is None and config.preset == "starter":
        raise ConfigError(
            f"the starter's heads are too small for vLLM; give --model PATH, or use the engine "
            f"'hf' in place of {kind.name!r}"
        )


def _common(config: Config, loaded: LoadedModel, row_tokens: int) -> dict[str, Any]:
    return {
        "newline_ids": loaded.codec.newline_ids,
        "eos_ids": loaded.codec.eos_ids,
        "forbidden_ids": loaded.forbidden_ids,
        "row_tokens": row_tokens,
        "temperature": config.sampling.temperature,
    }
