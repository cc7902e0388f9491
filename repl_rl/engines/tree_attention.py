"""Attention over rows that share beginnings: each token stands in the forward once.

    rows       a b c d      tokens   a b c d x y
               a b x y      branches a b c d | x y, which follows a b

Knows `transformers`' attention interface. Does not know ids, prompts or losses.

Two forms of one attention, which give the same states and gradients:

| form | calls a layer | for |
|--|--|--|
| `_by_branch` | one a branch, with the keys of all that stands before it | CPUs |
| `_at_once` | one, however many branches there are | GPUs, where launches cost most |

`_at_once` packs each branch's queries with the keys of its path, gathered once a layer, for torch's
flash attention of variable lengths. That takes half precision and a GPU. Elsewhere it is one
attention under a dense mask, which is what the laws hold on a CPU.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from repl_rl.engines.sdpa import attention
from repl_rl.engines.shape import sees_all

NAME = "repl_rl_tree"

AT_ONCE = frozenset({"cuda"})
"""Types of devices that attend to all branches in one call."""
_SHARED_HEADS: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
)
"""Older releases of torch take fewer heads of keys than of queries without being told."""

Run = tuple[int, int]
"""Start and stop of tokens that are neighbours in the forward."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Branches as sequences of variable lengths: B of them, N queries, K keys."""

    keys: torch.Tensor  # [K]
    """Which token of the tree each key is; one that several branches see stands once for each."""
    query_ends: torch.Tensor  # [B + 1]
    key_ends: torch.Tensor  # [B + 1]
    most_queries: int
    most_keys: int


@dataclass(frozen=True, slots=True)
class Branches:
    """Which tokens of a forward see which. Branches lie one behind the other."""

    sizes: list[int]
    """Tokens of each branch."""
    piece_sizes: list[int]
    """Tokens of each piece; pieces are cut wherever a branch leaves another."""
    pieces: tuple[tuple[int, ...], ...]
    """Numbers of the pieces that each branch sees, in order; it ends with its own tokens."""
    _masks: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)
    _packed: list[Packed] = field(default_factory=list)

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

    def dense_mask(self, heads: int, device: torch.device) -> torch.Tensor:
        """(heads * N, N): which tokens each token of the tree sees, for each head."""
        if (heads,) not in self._masks:
            places, own = self._places(), torch.tensor(self.sizes).cumsum(dim=0)
            seen = torch.zeros(int(own[-1]), int(own[-1]), dtype=torch.bool)
            for path, size, stop in zip(places, self.sizes, own.tolist(), strict=True):
                seen[stop - size : stop, path] = True
            # Tokens lie behind all that they see.
            self._masks[heads,] = seen.tril().repeat(heads, 1).to(device)
        return self._masks[heads,]

    def packed(self, device: torch.device) -> Packed:
        """Return the branches one behind the other, each with the keys of its path."""
        if not self._packed:
            places = self._places()
            counts = self.sizes, [len(path) for path in places]
            ends = [torch.tensor([0, *accumulate(sizes)], dtype=torch.int32) for sizes in counts]
            query_ends, key_ends = (each.to(device, non_blocking=True) for each in ends)
            self._packed.append(
                Packed(
                    keys=torch.cat(places).to(device, non_blocking=True),
                    query_ends=query_ends,
                    key_ends=key_ends,
                    most_queries=max(counts[0]),
                    most_keys=max(counts[1]),
                )
            )
        return self._packed[0]

    def _places(self) -> list[torch.Tensor]:
        """Return the tokens that the end of each branch sees, in order."""
        pieces = torch.split(torch.arange(sum(self.piece_sizes)), self.piece_sizes)
        return [torch.cat([pieces[i] for i in path]) for path in self.pieces]


def fits(model: Any) -> bool:  # Any: a PreTrainedModel
    """Whether each token of this model sees all before it, by an attention that can be replaced."""
    config = model.config.get_text_config()
    if not model._supports_attention_backend or config._attn_implementation != "sdpa":
        return False
    return sees_all(config)


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
    attended = _at_once if query.device.type in AT_ONCE else _by_branch
    return attended(query, key, value, branches, scaling), None


def _by_branch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    branches: Branches,
    scaling: float | None,
) -> torch.Tensor:
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
    return torch.cat(parts, dim=1)


def _at_once(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    branches: Branches,
    scaling: float | None,
) -> torch.Tensor:
    device = query.device.type
    if torch.is_autocast_enabled(device):  # which knows no attention of variable lengths
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if device == "cuda" and query.dtype in (torch.bfloat16, torch.float16):
        return _of_variable_lengths(query, key, value, branches, scaling)
    _, heads, size, width = query.shape
    kv_heads = key.shape[1]
    found = attention(
        query.reshape(1, kv_heads, -1, width),
        key,
        value,
        mask=branches.dense_mask(heads // kv_heads, query.device),
        scale=scaling,
    )
    return found.reshape(1, heads, size, -1).transpose(1, 2)


def _of_variable_lengths(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    branches: Branches,
    scaling: float | None,
) -> torch.Tensor:
    packed = branches.packed(query.device)
    keys, values = (x[0].transpose(0, 1).index_select(0, packed.keys) for x in (key, value))
    found = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        keys,
        values,
        packed.query_ends,
        packed.key_ends,
        packed.most_queries,
        packed.most_keys,
        scale=scaling,
        # Aligned at the ends: the last query of a branch sees all of its keys.
        window_size=(-1, 0),
        **_SHARED_HEADS,
    )
    assert isinstance(found, torch.Tensor)  # the only one, where nothing else is asked for
    return found[None]
