"""Distribution that a token is drawn from, made of logits, and the token.

    logits -> without those of forbidden ids -> divided by the temperature -> log-probabilities
    forbidden ids -> a bias (V,) -> the head gives their logits as good as minus infinity

This distribution is the policy: what is sampled from it is scored by it. In an update TRL
multiplies by a head's weight and adds its bias, without calling the head, so there the bias changes
while a forward scores tokens. Does not know which ids are forbidden, nor why.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import torch

from repl_rl.errors import ConfigError

_LOWEST = -1e9
"""Its exponential is 0 after any scale and temperature. Minus infinity times 0 is NaN in TRL's
entropy."""


class Policy:
    """Distribution that engine and trainer sample and score by. At temperature 0 it takes the
    likeliest token, and scores at 1."""

    def __init__(
        self, *, temperature: float, forbidden_ids: Set[int], device: torch.device
    ) -> None:
        self._temperature = temperature
        self.divisor = divisor(temperature)
        self._forbidden = torch.tensor(sorted(forbidden_ids), dtype=torch.long, device=device)

    def logprobs(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (..., V) in nats; minus infinity for ids that are forbidden."""
        logits = logits.float()
        if len(self._forbidden):
            logits = logits.index_fill(-1, self._forbidden, -torch.inf)
        return torch.log_softmax(logits / self.divisor, dim=-1)

    def draw(self, logprobs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """A token for each row (B, V) -> (B,), by inverse transform with one number in [0, 1) each,
        (B,) in float64.

        What a row draws depends on its own seed alone, never on what else is in the batch.
        """
        if not self._temperature:
            return logprobs.argmax(-1)
        # Above 0, else it would be reached before the first id that has a probability.
        thresholds = uniform.clamp_min(2.0**-54)
        cumulative = logprobs.double().exp().cumsum(-1)
        drawn = (cumulative < thresholds[:, None] * cumulative[:, -1:]).sum(-1)
        return drawn.clamp_max(logprobs.shape[-1] - 1)


def divisor(temperature: float) -> float:
    """Divisor of logits. At 0 the likeliest token is taken, with its log-probability at 1."""
    return temperature or 1.0


def forbidding_bias(forbidden_ids: Set[int], head: torch.nn.Module) -> torch.Tensor | None:
    """Return the bias (V,) to add to the logits of `head`; None where no id is forbidden."""
    if not forbidden_ids:
        return None
    weight: Any = head.weight  # (V, H)
    bias = torch.zeros(len(weight), device=weight.device)
    bias[sorted(forbidden_ids)] = _LOWEST
    return bias


@contextmanager
def head_biased(head: torch.nn.Module, bias: torch.Tensor | None) -> Iterator[None]:
    """Within the block `head` adds `bias` (V,) to its own, if there is one."""
    if bias is None:
        yield
        return
    own = head._parameters.pop("bias")
    head.bias = bias if own is None else own + bias
    try:
        yield
    finally:
        del head.bias
        head.register_parameter("bias", own)


def check_trainable(forbidden_ids: Set[int], config: Any) -> None:  # Any: a PreTrainedConfig
    """ConfigError for a model that bounds its logits: no bias would take an id's probability."""
    bound = getattr(config.get_text_config(), "final_logit_softcapping", None)
    if forbidden_ids and bound is not None:
        raise ConfigError(
            f"sampling.run_on = 'forbid' with a {config.model_type} model, which bounds its logits "
            f"to {bound:g} (final_logit_softcapping), so an update cannot forbid a token; expected "
            f"'allow'"
        )
