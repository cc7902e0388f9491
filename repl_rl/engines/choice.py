"""Choose the engine that samples, where `sampling.engine` leaves it to the machine.

    Config -> chosen -> Chosen(kind, reason)

Loads no torch but where vLLM is installed beside a driver of NVIDIA's. Does not know how an engine
samples.
"""

from __future__ import annotations

import ctypes
import importlib.util
from typing import NamedTuple

from repl_rl.base.concurrency import num_processes
from repl_rl.config import Config
from repl_rl.engines.base import AUTO, EngineKind, engine_kind
from repl_rl.engines.hf import HF
from repl_rl.errors import ConfigError


class Chosen(NamedTuple):
    kind: EngineKind
    why: str
    """Reason for which `auto` came to it; empty where a person named it."""


def chosen(config: Config) -> Chosen:
    """The kind of engine for a config, as `sampling.engine` names it.

    `auto` is `vllm-server` where servers are listed, else `vllm` on a GPU where vLLM is installed
    and can do what the config asks for, else `hf`. Whether it serves the model shows when it
    opens. Raises ConfigError as `engine_kind`.

    >>> kind, why = chosen(Config(sampling=SamplingConfig(device="cpu")))
    >>> kind.name, why
    ('hf', "sampling.device = 'cpu'")
    """
    if config.sampling.engine != AUTO:
        return Chosen(engine_kind(config.sampling.engine), "")
    if config.sampling.servers:
        return Chosen(engine_kind("vllm-server"), "sampling.servers lists some")
    if why := _why_not_vllm(config):
        return Chosen(HF(), why)
    return Chosen(engine_kind("vllm"), "vLLM is installed, and there is a GPU")


def _why_not_vllm(config: Config) -> str:
    """Empty where nothing is known that keeps vLLM from sampling under this config."""
    if config.sampling.device == "cpu":
        return "sampling.device = 'cpu'"
    if not has_driver():
        return "no NVIDIA GPU"
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed"
    if config.sampling.run_on == "forbid":  # which ids that are, a vocabulary says
        return "vLLM forbids few tokens, and sampling.run_on = 'forbid'"
    kind = engine_kind("vllm")
    try:
        kind.check(config)
        if num_processes() > 1:
            kind.check_ranks()
    except ConfigError as error:
        return str(error).partition(";")[0]  # behind it stands how to go on with vLLM
    return "" if sees_gpu() else "torch sees no GPU"


def has_driver() -> bool:
    """Say whether a driver of NVIDIA's is installed."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def sees_gpu() -> bool:
    """Say whether torch sees a GPU. Imports it."""
    import torch

    return torch.cuda.is_available()
