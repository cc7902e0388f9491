"""Which engine samples, and whether it still samples from the weights that are trained.

    Config, LoadedModel -> Engine;  weights -> engine -> a few tokens, scored on both sides

Knows engines and models. Does not know tasks, kernels or the update.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repl_rl.config import Config
from repl_rl.engines.base import Engine
from repl_rl.engines.hf import HFEngine
from repl_rl.engines.models import LoadedModel, cache_bytes, check_memory, logprobs
from repl_rl.engines.vllm import VLLMEngine
from repl_rl.engines.vllm_server import VLLMServerEngine
from repl_rl.errors import DivergedError, EngineError
from repl_rl.seeds import derive_seed

_PROBE_TOKENS = 8
_NUM_PROBES = 4
"""Lines that are sampled, one after another, until they agree."""
_EXACT_GAP, _HALF_GAP = 1e-3, 0.05
"""Mean difference of log-probabilities, nats. Engines in float32 differ by 1e-6; in bfloat16 by
4e-3, and by far more than this where weights or cached keys are stale."""


def describe(config: Config, loaded: LoadedModel, *, row_tokens: int) -> str:
    """The engine in a few words, with the memory that it will take for keys and values."""
    sampling = config.sampling
    if sampling.engine == "vllm-server":
        return f"vllm-server: {', '.join(sampling.servers)}"
    size = cache_bytes(
        loaded,
        num_rows=sampling.max_in_flight,
        row_tokens=row_tokens,
        dtype=loaded.precision.sampling,
    )
    return (
        f"{sampling.engine}: {sampling.max_in_flight} trajectories at once, keys and values up to "
        f"{size / 2**20:,.0f} MiB"
    )


def make_engine(config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
    """The engine that the config names, for trajectories of `row_tokens` with their prompts.

    Raises ConfigError if those in flight cannot fit in memory, or the engine is not to be had.
    """
    sampling = config.sampling
    stops: Any = {"newline_ids": loaded.codec.newline_ids, "eos_ids": loaded.codec.eos_ids}
    if sampling.engine == "vllm-server":
        return VLLMServerEngine(
            sampling.servers,
            **stops,
            vocabulary=loaded.model.get_input_embeddings().num_embeddings,
            row_tokens=row_tokens,
            temperature=sampling.temperature,
            weights_dir=None if sampling.weights_dir is None else Path(sampling.weights_dir),
        )
    num_rows = sampling.max_in_flight
    check_memory(loaded, num_rows=num_rows, row_tokens=row_tokens)
    if sampling.engine == "vllm":
        return VLLMEngine(
            loaded.source,
            dtype=str(loaded.precision.sampling).removeprefix("torch."),
            device=loaded.model.device.type,
            **stops,
            num_rows=num_rows,
            row_tokens=row_tokens,
            temperature=sampling.temperature,
        )
    return HFEngine(
        loaded.model,
        dtype=loaded.precision.sampling,
        **stops,
        num_rows=num_rows,
        row_tokens=row_tokens,
        temperature=sampling.temperature,
    )


async def sync(
    engine: Engine, loaded: LoadedModel, prompt: Sequence[int], *, version: int, temperature: float
) -> float:
    """Have `engine` sample from the model's weights, and check that it does.

    Returns the mean difference between the log-probabilities of a few tokens after `prompt`, as
    the engine gave them and as the model has them, nats. Raises EngineError if it is too large:
    engines have been seen to keep an old head, and old keys and values. A small update that did not
    arrive shows only after some others. Raises DivergedError for
    weights that are no numbers any more.
    """
    await engine.sync(loaded.model.named_parameters(), version=version)
    limit = _EXACT_GAP if loaded.precision.is_exact else _HALF_GAP
    gaps: list[float] = []
    for probe in range(_NUM_PROBES):
        seed = derive_seed("probe", version, probe)
        line = await engine.line(prompt, max_tokens=_PROBE_TOKENS, seed=seed)
        scored = logprobs(loaded, [*prompt, *line.ids], len(prompt), temperature=temperature)
        if not all(map(math.isfinite, scored)):
            raise DivergedError(
                f"training diverged at step {version}: log-probabilities are not finite; lower "
                f"grpo.learning_rate, or grpo.max_grad_norm"
            )
        gaps += [abs(a - b) for a, b in zip(scored, line.logprobs, strict=True)]
        # One unlikely token, rounded another way, is no sign of other weights.
        if (gap := statistics.fmean(gaps)) <= limit:
            return gap
    raise EngineError(
        f"the engine does not sample from the weights of step {version}: log-probabilities of "
        f"{len(gaps)} tokens differ by {gap:.2g} on average; give a server the run's "
        f"sampling.dtype as --dtype, or use the engine 'hf', which shares the trainer's weights"
    )
