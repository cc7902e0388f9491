"""Distribution that a token is drawn from, made of logits, and the token.

    logits -> without those of forbidden ids -> divided by the temperature -> log-probabilities

This distribution is the policy: what is sampled from it is scored by it. Does not know which ids
are forbidden, nor why.
"""

from __future__ import annotations

from collections.abc import Set

import torch


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
