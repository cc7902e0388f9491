"""A batch of rows as a tree: what several rows begin with stands in it once.

    ids, mask, labels (B, S) -> TokenTree: tokens [N], Labels to score [M], Branches (who sees whom)
    queries, keys, values (1, H, N, D), Branches -> each token attends to its own row alone

While `in_use`, a model that fits takes `branches` in place of a mask. Knows ids and attention. Does
not know losses, nor the rest of a model.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from repl_rl.engines.hf.attention import attention, register

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
    """Token of the tree for each key; one that several branches see stands once for each."""
    query_ends: torch.Tensor  # [B + 1]
    key_ends: torch.Tensor  # [B + 1]
    most_queries: int
    most_keys: int


@dataclass(frozen=True, slots=True)
class Branches:
    """Branches of one forward, one behind the other, and the tokens that each of them sees."""

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
        """Make branches from the runs of all that each one sees, of which the last is its own."""
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
            size = sum(self.sizes)
            seen = torch.zeros(size, size, dtype=torch.bool)
            own = torch.split(seen, self.sizes)
            for rows, path in zip(own, self._places(), strict=True):
                rows[:, path] = True
            # Tokens lie behind all that they see.
            mask = seen.tril().repeat(heads, 1)
            self._masks[heads,] = mask.to(device, non_blocking=True)
        return self._masks[heads,]

    def packed(self, device: torch.device) -> Packed:
        """Return the branches one behind the other, each with the keys of its path."""
        if not self._packed:
            paths = self._places()
            counts = self.sizes, [len(path) for path in paths]
            ends = [torch.tensor([0, *accumulate(sizes)], dtype=torch.int32) for sizes in counts]
            query_ends, key_ends = (each.to(device, non_blocking=True) for each in ends)
            self._packed.append(
                Packed(
                    keys=torch.cat(paths).to(device, non_blocking=True),
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


@contextlib.contextmanager
def in_use(model: Any) -> Iterator[None]:  # Any: a PreTrainedModel
    """Let a model that fits take `branches`; a backward that forwards again needs this as well."""
    register(NAME, attend)
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
    """Attend as `sdpa` does for each row alone, (1, N, H, D), or for all without branches."""
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
        seen_keys = torch.cat([keys[i] for i in seen], dim=2)
        seen_values = torch.cat([values[i] for i in seen], dim=2)
        sizes = queries.shape[2], seen_keys.shape[2]
        mask = branches.mask(*sizes, query.shape[1] // key.shape[1], query.device)
        parts.append(_folded(queries, seen_keys, seen_values, mask, scaling))
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
    mask = branches.dense_mask(query.shape[1] // key.shape[1], query.device)
    return _folded(query, key, value, mask, scaling)


def _folded(
    query: torch.Tensor,  # (1, H, Q, D)
    key: torch.Tensor,  # (1, KV, K, D)
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float | None,
) -> torch.Tensor:
    """Attention with query heads that share keys as further queries, (1, Q, H, D)."""
    _, heads, size, width = query.shape
    folded = query.reshape(1, key.shape[1], -1, width)
    attended = attention(folded, key, value, mask=mask, scale=scaling)
    return attended.reshape(1, heads, size, -1).transpose(1, 2)


def _of_variable_lengths(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    branches: Branches,
    scaling: float | None,
) -> torch.Tensor:
    packed = branches.packed(query.device)
    keys, values = (x[0].transpose(0, 1).index_select(0, packed.keys) for x in (key, value))
    attended = varlen_attn(
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
    assert isinstance(attended, torch.Tensor)  # the only one, where nothing else is asked for
    return attended[None]


IGNORED = -100
"""The label of a token that is not trained."""


@dataclass(frozen=True, slots=True)
class Labels:
    """M labels to score, of rows (B, S)."""

    ids: torch.Tensor  # [M]
    before: torch.Tensor  # [M]
    """Number of the token that each follows, of all that are forwarded: several may follow one."""
    place: tuple[torch.Tensor, torch.Tensor]  # [M] each
    """Row and column of each."""

    def to(self, device: torch.device) -> Labels:
        """Copy them, without waiting for what the device has to do."""
        move = partial(torch.Tensor.to, device=device, non_blocking=True)
        rows, columns = self.place
        return Labels(
            ids=move(self.ids), before=move(self.before), place=(move(rows), move(columns))
        )

    def spread(self, scores: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """(B, S) of the scores [M] of labels, 0 elsewhere."""
        return scores.new_zeros(shape).index_put(self.place, scores)


@dataclass(frozen=True, slots=True)
class TokenTree:
    """N tokens to forward, and what to score behind them."""

    ids: torch.Tensor  # [N]
    positions: torch.Tensor  # [N]
    """Number of tokens that stand before each in its rows."""
    branches: Branches
    labels: Labels


def labels_of_rows(labels: torch.Tensor) -> Labels:
    """Find the labels of rows (B, S) that are forwarded as they are, on the host."""
    device, labels = labels.device, labels.cpu()
    rows, columns = (labels[:, 1:] != IGNORED).nonzero(as_tuple=True)
    place = rows, columns + 1
    before = rows * labels.shape[1] + columns
    return Labels(ids=labels[place], before=before, place=place).to(device)


def grow(ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> TokenTree:
    """The tree of rows (B, S), without what stands behind the last label of each.

    Where there is no label at all it has one token, so that a loss of 0 has a gradient.
    """
    # On the host, after one copy: each look at a GPU's tensor waits for all that it has to do.
    device, (ids, mask, labels) = ids.device, torch.stack((ids, mask.to(ids), labels)).cpu()
    rank = mask.cumsum(dim=1) - 1  # (B, S) place of a token in its row
    at_row, at_column = ((labels != IGNORED) & (rank > 0)).nonzero(as_tuple=True)
    ranks = rank[at_row, at_column]
    lengths = torch.zeros(len(ids), dtype=rank.dtype)
    lengths.scatter_reduce_(0, at_row, ranks, "amax")
    if not len(at_row):
        lengths[0] = 1
    rows = [
        row[seen][:length].tolist()
        for row, seen, length in zip(ids, mask.bool(), lengths.tolist(), strict=True)
    ]
    paths, branches, tokens, positions = _runs(rows)
    starts = torch.tensor([0, *map(len, rows)]).cumsum(dim=0)[:-1]
    nodes = torch.cat([torch.arange(*run) for path in paths for run in path])
    scored = Labels(
        ids=labels[at_row, at_column],
        before=nodes[starts[at_row] + ranks - 1],
        place=(at_row, at_column),
    )
    to_device = partial(torch.Tensor.to, device=device, non_blocking=True)
    return TokenTree(
        ids=to_device(torch.tensor(tokens)),
        positions=to_device(torch.tensor(positions)),
        branches=Branches.of([paths[row] for row in branches]),
        labels=scored.to(device),
    )


def siblings_together(batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of these micro-batches, dealt out anew to as many: by their prompts."""
    prompts = [row for batch in batches for row in batch["prompt_ids"].tolist()]
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    size = len(prompts) // len(batches)
    parts = [order[at : at + size] for at in range(0, len(order), size)]
    return [
        {name: _rows([batch[name] for batch in batches], part) for name in batches[0]}
        for part in parts
    ]


def _rows(values: Sequence[Any], rows: Sequence[int]) -> Any:
    """Take rows of one entry of all batches; an entry without rows is the same in each."""
    first = values[0]
    if isinstance(first, torch.Tensor) and first.dim():
        return torch.cat(list(values))[list(rows)]
    if isinstance(first, list):
        return [[one for value in values for one in value][row] for row in rows]
    return first


def _runs(rows: Sequence[list[int]]) -> tuple[list[list[Run]], list[int], list[int], list[int]]:
    """Runs of tokens along each row, and the rows that end in a branch of their own, in order;
    ids and positions of the tokens of all branches."""
    paths: list[list[Run]] = [[] for _ in rows]
    branches: list[int] = []
    tokens: list[int] = []
    positions: list[int] = []
    last = 0
    # In this order a row shares most with the one before it.
    for row in sorted(range(len(rows)), key=lambda i: rows[i]):
        shared = _num_shared(rows[last], rows[row]) if branches else 0
        paths[row] = _first(paths[last], shared)
        if shared < len(rows[row]):
            start = len(tokens)
            tokens += rows[row][shared:]
            positions += range(shared, len(rows[row]))
            paths[row].append((start, len(tokens)))
            branches.append(row)
        last = row
    return paths, branches, tokens, positions


def _num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _first(runs: Sequence[Run], num_tokens: int) -> list[Run]:
    """The runs of as many tokens from the first on."""
    first: list[Run] = []
    for start, stop in runs:
        if num_tokens > 0:
            first.append((start, min(stop, start + num_tokens)))
        num_tokens -= stop - start
    return first
