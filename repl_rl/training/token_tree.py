"""A batch of rows as a tree: what several rows begin with stands in it once.

    ids, mask, labels (B, S) -> tokens [N] and who sees whom, the scored ones [M]

Knows ids. Does not know models or losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from repl_rl.engines.tree_attention import Branches, Run

IGNORED = -100
"""The label of a token that is not trained."""


@dataclass(frozen=True, slots=True)
class TokenTree:
    """N tokens to forward, M labels to score."""

    ids: torch.Tensor  # [N]
    positions: torch.Tensor  # [N]
    """How many tokens stand before each in its rows."""
    branches: Branches
    before: torch.Tensor  # [M]
    """Which token each label follows: several may follow one."""
    labels: torch.Tensor  # [M]
    place: tuple[torch.Tensor, torch.Tensor]  # [M] each
    """Row and column of each label in the batch."""

    def spread(self, scores: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """(B, S) of the scores [M] of labels, 0 elsewhere."""
        return scores.new_zeros(shape).index_put(self.place, scores)


def grow(ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> TokenTree:
    """The tree of rows (B, S), without what stands behind the last label of each.

    Where there is no label at all it has one token, so that a loss of 0 has a gradient.
    """
    # On the host, after one copy: each look at a GPU's tensor waits for all that it has to do.
    device, (ids, mask, labels) = ids.device, torch.stack((ids, mask.to(ids), labels)).cpu()
    rank = mask.cumsum(dim=1) - 1  # (B, S) place of a token in its row
    place = ((labels != IGNORED) & (rank > 0)).nonzero(as_tuple=True)
    lengths = torch.zeros(len(ids), dtype=rank.dtype)
    lengths.scatter_reduce_(0, place[0], rank[place], "amax")
    if not len(place[0]):
        lengths[0] = 1
    rows = [
        row[seen][:length].tolist()
        for row, seen, length in zip(ids, mask.bool(), lengths.tolist(), strict=True)
    ]
    paths, branches = _grown(rows)
    tokens, positions = _along(rows, paths, branches)
    starts = torch.tensor([0, *map(len, rows)]).cumsum(dim=0)[:-1]
    nodes = torch.cat([torch.arange(*run) for path in paths for run in path])
    to_device = partial(torch.Tensor.to, device=device, non_blocking=True)
    return TokenTree(
        ids=to_device(torch.tensor(tokens)),
        positions=to_device(torch.tensor(positions)),
        branches=Branches.of([paths[row] for row in branches]),
        before=to_device(nodes[starts[place[0]] + rank[place] - 1]),
        labels=to_device(labels[place]),
        place=(to_device(place[0]), to_device(place[1])),
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
    """Of one entry of all batches; what has no rows is the same in each."""
    first = values[0]
    if isinstance(first, torch.Tensor) and first.dim():
        return torch.cat(list(values))[list(rows)]
    if isinstance(first, list):
        return [[one for value in values for one in value][row] for row in rows]
    return first


def _grown(rows: Sequence[list[int]]) -> tuple[list[list[Run]], list[int]]:
    """Runs of tokens along each row, and the rows that end in a branch of their own, in order."""
    paths: list[list[Run]] = [[] for _ in rows]
    branches: list[int] = []
    last, size = 0, 0
    # In this order a row shares most with the one before it.
    for row in sorted(range(len(rows)), key=lambda i: rows[i]):
        shared = _num_shared(rows[last], rows[row]) if branches else 0
        paths[row] = _first(paths[last], shared)
        if own := len(rows[row]) - shared:
            paths[row].append((size, size + own))
            branches.append(row)
            size += own
        last = row
    return paths, branches


def _along(
    rows: Sequence[Sequence[int]], paths: Sequence[Sequence[Run]], branches: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Ids and positions of the tokens of all branches."""
    tokens: list[int] = []
    positions: list[int] = []
    for row in branches:
        start, stop = paths[row][-1]
        length = len(rows[row])
        tokens += rows[row][length - (stop - start) :]
        positions += range(length - (stop - start), length)
    return tokens, positions


def _num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _first(runs: Sequence[Run], num_tokens: int) -> list[Run]:
    """The runs of as many tokens from the first on."""
    found: list[Run] = []
    for start, stop in runs:
        if num_tokens > 0:
            found.append((start, min(stop, start + num_tokens)))
        num_tokens -= stop - start
    return found
