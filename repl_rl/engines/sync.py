"""Probe of an engine: does it sample from the weights that are trained?

    weights -> engine -> a few tokens, scored on both sides

Knows engines and models. Does not know tasks, kernels or the update.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from repl_rl.base.concurrency import derive_seed
from repl_rl.engines.base import Engine, answered_within
from repl_rl.errors import DivergedError, EngineError
from repl_rl.models.loading import LoadedModel, logprobs
from repl_rl.models.precision import Precision
from repl_rl.models.weights import named_weights

_PROBE_TOKENS = 8
_NUM_PROBES = 4
"""Lines that are sampled, one after another, until they agree."""
_EXACT_GAP, _HALF_GAP = 1e-3, 0.2
"""Root mean square of the difference of log-probabilities, nats. Engines in float32 differ by 1e-6
to 1e-5. In bfloat16, whose logits near 16 lie 1/16 apart or more, they differ by 0.1 where a token
was in doubt and by 1e-4 where none other was likely; weights that are stale differ by 1 and more
where they do. Squares tell these two apart: lines of few tokens may hold nothing but doubt."""


async def sync(
    engine: Engine,
    loaded: LoadedModel,
    prompt: Sequence[int],
    *,
    version: int,
    temperature: float,
    timeout_s: float = 600.0,
) -> float:
    """Give `engine` the model's weights, and check that it samples from them.

    Returns the root mean square of the difference between the log-probabilities of a few tokens
    after `prompt`, as the engine gave them and as the model has them, nats. Raises EngineError if
    it is too large: engines have been seen to keep an old output layer, or old keys and values. A
    small update that is lost shows only after some more. Raises DivergedError for weights that are
    no longer finite.
    Raises EngineError as well if it takes more than `timeout_s` for the weights, or for a line.
    """
    async with answered_within(timeout_s, f"the weights of step {version}"):
        await engine.sync(named_weights(loaded.model), version=version)
    limit = _EXACT_GAP if loaded.precision.is_exact else _HALF_GAP
    squares: list[float] = []
    for probe in range(_NUM_PROBES):
        seed = derive_seed("probe", version, probe)
        async with answered_within(timeout_s, "a line"):
            line = await engine.line(prompt, max_tokens=_PROBE_TOKENS, seed=seed)
        scored = logprobs(loaded, [*prompt, *line.ids], len(prompt), temperature=temperature)
        if not all(map(math.isfinite, scored)):
            raise DivergedError(
                f"training diverged at step {version}: log-probabilities are not finite; lower "
                f"grpo.learning_rate, or grpo.max_grad_norm"
            )
        squares += [(a - b) ** 2 for a, b in zip(scored, line.logprobs, strict=True)]
        # One unlikely token that is rounded another way is no sign of other weights.
        if (gap := math.sqrt(statistics.fmean(squares))) <= limit:
            return gap
    raise EngineError(
        f"the engine does not sample from the weights of step {version}: log-probabilities of "
        f"{len(squares)} tokens differ by {gap:.2g} (root mean square); {_remedy(loaded.precision)}"
    )


def _remedy(precision: Precision) -> str:
    if not precision.is_shared:
        return (
            "give a server the run's sampling.dtype as --dtype, or use the engine 'hf', which "
            "shares the trainer's weights"
        )
    if precision.is_exact:
        return "it shares the trainer's model, so its cache reads that model wrongly; use 'vllm'"
    return "give grpo.dtype = 'float32' to see whether it is rounding alone"
