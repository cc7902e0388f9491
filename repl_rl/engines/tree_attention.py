"""Attention over rows that share beginnings: each token stands in the forward once.

    rows       a b c d      tokens   a b c d x y
               a b x y      branches a b c d | x y, which follows a b

Knows `transformers`' attention interface. Does not know ids, prompts or losses.

A branch is attended to by itself, with the keys of all that stands before it, so nothing is
computed for a pair of tokens of different rows. Heads that share keys become further queries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from repl_rl.engines.row_cache import attention_windows
from repl_rl.engines.sdpa import attention
from repl_rl.errors import ConfigError

NAME = "repl_rl_tree"

Run = tuple[int, int]
"""Start and stop of tokens that are neighbours in the forward."""


@dataclass(frozen=True, slots=True)
class Branches:
    """Which tokens of a forward see which. Branches lie one behind the other."""

    sizes: list[int]
    """Tokens of each branch."""
    piece_sizes: list[int]
    """Tokens of each piece; pieces are cut wherever a branch leaves another."""
    pieces: tuple[tuple[int, ...], ...]
    """Numbers of the pieces that each branch sees, in order; it ends with its own tokens."""
    _masks: dict[tuple[int, int, int], torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Sequence[Sequence[Run]]) -> Branches:
        """Of branches with the runs of all that each one sees, of which the last is its own."""
        cuts = sorted({cut for runs in paths for run in runs for cut in run})
        number = {cut: i for i, cut in enumerate(cuts)}
        return cls(
            sizes=[stop - start for *_, (start, stop) in paths],
            piece_sizes=[stop - start for start, stop in pairwise(cuts)],
            pieces=tuple(
                tuple(i for start, stop in runs for i in range(number[start], number[stop]))
                for runs in paths
            ),
        )

    def mask(self, size: int, num_keys: int, heads: int, device: torch.device) -> torch.Tensor:
        """(heads * size, num_keys): what the last `size` of so many tokens see, for each head."""
        key = size, num_keys, heads
        if key not in self._masks:
            seen = torch.ones(size, num_keys, dtype=torch.bool, device=device)
            self._masks[key] = seen.tril(num_keys - size).repeat(heads, 1)
        return self._masks[key]


def fits(model: Any) -> bool:  # Any: a PreTrainedModel
    """Whether each token of this model sees all before it, by an attention that can be replaced."""
    config = model.config.get_text_config()
    if not model._supports_attention_backend or config._attn_implementation != "sdpa":
        return False
    return sees_all(config)


def sees_all(config: Any) -> bool:  # Any: a config of any model
    """Whether by its config no layer hides keys or holds anything else."""
    try:
        windows = attention_windows(config)
    except ConfigError:
        return False
    text = config.get_text_config()
    return set(windows.values()) == {None} and not getattr(text, "attention_chunk_size", None)


@contextlib.contextmanager
def in_use(model: Any) -> Iterator[None]:  # Any: a PreTrainedModel
    """Let a model that fits take `branches`; a backward that forwards again needs this as well."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # (1, H, N, D)
    key: torch.Tensor,  # (1, KV, N, D)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    branches: Branches | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What `sdpa` gives for each row alone, (1, N, H, D); without branches: what it gives."""
    if branches is None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return found
    # One split and not a slice for each branch: the backward is one `cat` then.
    keys = torch.split(key, branches.piece_sizes, dim=2)
    values = torch.split(value, branches.piece_sizes, dim=2)
    parts = []
    for queries, seen in zip(
        torch.split(query, branches.sizes, dim=2), branches.pieces, strict=True
    ):
        _, heads, size, width = queries.shape
        kv_heads = key.shape[1]
        seen_keys = torch.cat([keys[i] for i in seen], dim=2)
        part = attention(
            queries.reshape(1, kv_heads, -1, width),
            seen_keys,
            torch.cat([values[i] for i in seen], dim=2),
            mask=branches.mask(size, seen_keys.shape[2], heads // kv_heads, query.device),
            scale=scaling,
        )
        parts.append(part.reshape(1, heads, size, -1).transpose(1, 2))
    return torch.cat(parts, dim=1), None
