"""Attention over rows of a cache in place: no step copies their keys together.

Knows `transformers`' attention interface. Does not know tokens, requests or caches.

A batch of neighbouring rows is a slice of the cache. Any other batch is a few such slices, each
attended to by itself. Copying the keys of a batch together would cost as much as attending to them.
So would repeating keys for the query heads that share them: here such heads become further queries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "repl_rl_rows"


class Run(NamedTuple):
    """Rows of a batch that are neighbours in the cache."""

    at: int
    """Index of the first, in the batch."""
    row: int
    """Index of the first, in the cache."""
    size: int
    num_keys: int
    """Keys of the longest."""


_in_view: Sequence[Run] = ()


def install() -> None:
    """Register the attention under its name; a second call does nothing."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)


@contextlib.contextmanager
def in_view(runs: Sequence[Run]) -> Iterator[None]:
    """Set whose keys the forwards inside read; empty: the batch's own."""
    global _in_view
    _in_view = runs
    try:
        yield
    finally:
        _in_view = ()


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # (B, H, Q, D)
    key: torch.Tensor,  # (rows, KV, K, D); (B, KV, K, D) where nothing is in view
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # (B, 1, Q, K), True where a key is seen
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What `sdpa` gives for the rows in view, (B, Q, H, D)."""
    if not _in_view:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return found
    assert attention_mask is not None
    batch, heads, width, _ = query.shape
    kv_heads = key.shape[1]
    queries = query.reshape(batch, kv_heads, -1, query.shape[-1])
    seen = attention_mask.repeat(1, 1, heads // kv_heads, 1)
    parts = [
        scaled_dot_product_attention(
            queries[at : at + size],
            key[row : row + size, :, :num_keys],
            value[row : row + size, :, :num_keys],
            attn_mask=seen[at : at + size, :, :, :num_keys],
            scale=scaling,
        )
        for at, row, size, num_keys in _in_view
    ]
    together = parts[0] if len(parts) == 1 else torch.cat(parts)
    return together.reshape(batch, heads, width, -1).transpose(1, 2).contiguous(), None
