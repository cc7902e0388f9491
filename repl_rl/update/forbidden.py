"""Bias against ids that a policy never samples: they have no probability in the update either.

    ids -> a bias (V,) -> the head gives their logits as good as minus infinity

TRL multiplies by a head's weight and adds its bias, without calling the head. So the bias is
what changes here, while a forward scores tokens. Does not know which ids are forbidden, nor why.
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
