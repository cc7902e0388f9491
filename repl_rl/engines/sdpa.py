"""Attention in the type in which a device is fast.

    queries, keys, values -> what torch's `scaled_dot_product_attention` gives

Knows torch alone.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention


def attention(
    query: torch.Tensor,  # (..., Q, D)
    key: torch.Tensor,  # (..., K, D)
    value: torch.Tensor,  # (..., K, D)
    *,
    mask: torch.Tensor,  # (..., Q, K)
    scale: float | None,
) -> torch.Tensor:
    """(..., Q, D), in the type of the queries.

    A CPU computes it in float32, even where all else is in bfloat16: torch's kernel for bfloat16
    takes three times as long for the few queries of a row.
    """
    if query.device.type != "cpu":
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    with torch.autocast("cpu", enabled=False):
        return scaled_dot_product_attention(
            query.float(), key.float(), value.float(), attn_mask=mask, scale=scale
        ).to(query.dtype)
