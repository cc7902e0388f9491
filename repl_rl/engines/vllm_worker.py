"""Loader of new weights for a worker of vLLM, in this process or in a server's.

    vllm serve MODEL --worker-extension-cls repl_rl.engines.vllm_worker.PolicyLoader ...

It stands beside `engines/vllm`: the command of a server has its full name. Knows vLLM. Does not
know lines, policies or HTTP.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from repl_rl.engines.base import Weights
from repl_rl.errors import EngineError


class PolicyLoader:
    """vLLM adds the methods to its own worker; `self` is that worker."""

    def sees_policy(self: Any, path: str) -> dict[str, str | None]:
        """Look for a file where weights will be; `error` says that it is not there."""
        return {"error": None if Path(path).is_file() else "it is not there"}

    def load_policy(self: Any, path: str) -> dict[str, str | None]:
        """Load all weights from a safetensors file; `error` says what went wrong.

        Keys and values made with the old weights stay where they are.
        """
        try:
            take_weights(self, _tensors(path))
        # Data, not an exception: a server would report one as "internal error".
        except Exception as error:  # noqa: BLE001
            return {"error": f"{type(error).__name__}: {error}"}
        return {"error": None}


def _tensors(path: str) -> Iterator[tuple[str, Any]]:
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        for name in names:
            yield name, file.get_tensor(name)


def take_weights(worker: Any, weights: Weights) -> None:
    """Load `weights` into a worker's model. Keys and values made with the old ones stay.

    Raises EngineError if some of the model's were not among them: vLLM only logs it.
    """
    model = worker.model_runner.get_model()
    missing = {_in_checkpoint(name) for name, _ in model.named_parameters()}
    load = model.load_weights

    def watched(given: Weights) -> Any:
        loaded = load(given)
        missing.difference_update(missing if loaded is None else map(_in_checkpoint, loaded))
        return loaded

    model.load_weights = watched
    try:
        worker.reload_weights(weights_iterator=weights)
    finally:
        del model.load_weights
    if missing:
        raise EngineError(f"no weights came for {', '.join(sorted(missing)[:4])}")
    _mend_tied_head(model)


def _in_checkpoint(name: str) -> str:
    """The name of a parameter without the wrappers that take adapters."""
    return name.replace(".base_layer.", ".")


def _mend_tied_head(model: Any) -> None:
    """Pack an output layer that shares the embedding anew: on a CPU a reload keeps the old one."""
    platform = importlib.import_module("vllm.platforms").current_platform
    if not platform.is_cpu():
        return
    utils = importlib.import_module("vllm.model_executor.layers.utils")
    for layer in model.modules():
        if hasattr(layer, "cpu_linear") and layer.weight.numel():
            utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
