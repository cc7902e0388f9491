"""Attention over rows of a cache in place: no step copies their keys together.

    in_view(runs): a model's forward -> attend -> attention of each run over its rows

A packed batch is a few runs of neighbouring rows: slices of the cache, each attended to by itself.
Copying the keys of a batch together would cost as much as attending to them. So would repeating
keys for the query heads that share them: here such heads become further queries.

Knows `transformers`' attention interface, in which it registers. `attention`, the product alone,
serves the trees of an update as well. Does not know tokens, requests or caches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from repl_rl.engines.hf.cache import RowRun


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


NAME = "repl_rl_rows"


_in_view: Sequence[RowRun] = ()


def register(name: str, attend: Callable[..., tuple[torch.Tensor, None]]) -> None:
    """Let models attend by this function, with the masks of `sdpa`; a second call does nothing."""
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, sdpa_mask)


@contextlib.contextmanager
def in_view(runs: Sequence[RowRun]) -> Iterator[None]:
    """Set whose keys the forwards inside read; empty: the batch's own."""
    global _in_view
    _in_view = runs
    try:
        yield
    finally:
        _in_view = ()


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # (B, H, Q, D); B = 1 where runs are in view
    key: torch.Tensor,  # (rows, KV, K, D); (B, KV, K, D) where nothing is in view
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # (B, 1, Q, K), True where a key is seen
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of the runs in view, as by `sdpa`, (B, Q, H, D); 0 for tokens of no run."""
    if not _in_view:
        attended: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return attended
    assert attention_mask is not None
    parts = [
        _attend_run(run, query[0], key, value, attention_mask[0, 0], scaling) for run in _in_view
    ]
    together = parts[0] if len(parts) == 1 else torch.cat(parts)
    return pad(together, (0, 0, 0, 0, 0, query.shape[2] - len(together)))[None], None


def _attend_run(
    run: RowRun,
    query: torch.Tensor,  # (H, Q, D)
    key: torch.Tensor,  # (rows, KV, K, D)
    value: torch.Tensor,
    seen: torch.Tensor,  # (Q, K)
    scaling: float | None,
) -> torch.Tensor:
    """Attention of the tokens of one run to their rows, (size * width, H, D)."""
    at, row, size, width, num_keys = run
    heads, kv_heads = query.shape[0], key.shape[1]
    shared = heads // kv_heads
    queries = query[:, at : at + size * width].reshape(kv_heads, shared, size, width, -1)
    attended = attention(
        queries.permute(2, 0, 1, 3, 4).reshape(size, kv_heads, shared * width, -1),
        key[row : row + size, :, :num_keys],
        value[row : row + size, :, :num_keys],
        mask=seen[at : at + size * width, :num_keys]
        .reshape(size, 1, width, num_keys)
        .repeat(1, 1, shared, 1),
        scale=scaling,
    ).reshape(size, kv_heads, shared, width, -1)
    return attended.permute(0, 3, 1, 2, 4).reshape(size * width, heads, -1)
