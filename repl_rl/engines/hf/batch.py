"""Batch of one forward: its tokens, and where their keys and values are written.

    rows and what they are to hold -> tokens (B, Q), their positions and places -> a forward

Tokens and places alone. Does not know tensors, models or requests.

Packed, all tokens stand one behind the other (B = 1): it takes an attention that finds keys by
itself. Padded, each row of the cache has a row of the batch.

A packed batch gives each token the same bits whatever else is in it. So what a trajectory is does
not depend on how fast the kernels of others answer, and a run that goes on after a stop samples
what it would have sampled. Found out on x86 with MKL, for one thread and for two:

- A product with fewer than 4 rows for a thread adds up in another order: a batch has at least 6.
- Elementwise functions go 32 numbers at a time, and differ in the last bit in what is left over: a
  batch has a multiple of 4 tokens, which have a multiple of 8 numbers in any model.
- Sums over keys go 16 at a time: a row looks back on a multiple of 64 columns. Those behind its own
  are masked, and add zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

# B rows of a forward, Q tokens in each, P parts


COLUMNS = 64
"""Rows of a cache have a multiple of this many columns."""
_FEWEST_TOKENS = 6
_MULTIPLE = 4


class BatchPart(NamedTuple):
    """A row of the cache, and what it is to hold: at least one token more than it does."""

    row: int
    num_cached: int
    """Leading ids that the row holds."""
    ids: list[int]

    @property
    def num_new(self) -> int:
        return len(self.ids) - self.num_cached


class RowRun(NamedTuple):
    """Neighbouring rows of the cache whose tokens are neighbours in a packed batch."""

    at: int
    """Place of the first token, in the batch."""
    row: int
    """Index of the first row, in the cache."""
    size: int
    """Rows."""
    width: int
    """Tokens of each."""
    num_keys: int
    """Columns that they look back on: a multiple of `COLUMNS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward."""

    tokens: list[list[int]]  # [B][Q]
    positions: list[list[int]]  # [B][Q]
    rows: list[list[int]]  # [1][Q] or [B][1]
    """The rows of the cache that tokens are written to."""
    writes: list[list[int]]  # [B][Q]
    """Their columns."""
    ends: list[int]  # [P, or as many as are fewest], empty where padded: it is the last column
    """Place of each part's last token, from whose logits it goes on."""
    num_keys: int
    """Columns in sight of the token that sees most."""
    runs: list[RowRun]
    """Whose keys its tokens look back on; empty where padded."""


def packed(parts: Sequence[BatchPart], *, spare: int, num_threads: int) -> Batch:
    """All new tokens of `parts`, those with one new token first.

    Tokens and ends without a meaning make up for what is too few; they are written to the column
    `spare`.
    """
    fewest = _FEWEST_TOKENS * num_threads
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    ends = [0] * max(len(parts), fewest)
    runs: list[RowRun] = []
    for at in sorted(range(len(parts)), key=lambda at: (parts[at].num_new > 1, parts[at].row)):
        part, num_all = parts[at], len(parts[at].ids)
        num_keys = up_to_multiple(num_all, COLUMNS)
        _add(runs, RowRun(len(tokens), part.row, 1, part.num_new, num_keys))
        tokens += part.ids[part.num_cached :]
        positions += range(part.num_cached, num_all)
        rows += [part.row] * part.num_new
        ends[at] = len(tokens) - 1
    padding = [0] * (up_to_multiple(max(fewest, len(tokens)), _MULTIPLE) - len(tokens))
    return Batch(
        tokens=[tokens + padding],
        positions=[positions + padding],
        rows=[rows + padding],
        writes=[positions + [spare] * len(padding)],
        ends=ends,
        num_keys=max(run.num_keys for run in runs),
        runs=runs,
    )


def padded(parts: Sequence[BatchPart], *, spare: int) -> Batch:
    """A row for each part, padded on the left, so that the last column is each row's last token.

    Padding is written to the column `spare`.
    """
    width = max(part.num_new for part in parts)
    paddings = [width - part.num_new for part in parts]
    columns = [list(range(part.num_cached, len(part.ids))) for part in parts]
    return Batch(
        tokens=[
            [0] * padding + part.ids[part.num_cached :]
            for padding, part in zip(paddings, parts, strict=True)
        ],
        positions=[[0] * padding + own for padding, own in zip(paddings, columns, strict=True)],
        rows=[[part.row] for part in parts],
        writes=[[spare] * padding + own for padding, own in zip(paddings, columns, strict=True)],
        ends=[],
        num_keys=max(len(part.ids) for part in parts),
        runs=[],
    )


def up_to_multiple(number: int, unit: int) -> int:
    """The smallest multiple of `unit` that is not below `number`."""
    return -(-number // unit) * unit


def _add(runs: list[RowRun], run: RowRun) -> None:
    """Append a run of one row, or add it to the last one if they are neighbours of one token."""
    last = runs[-1] if runs else None
    if last is None or (last.row + last.size, last.width, run.width) != (run.row, 1, 1):
        runs.append(run)
        return
    num_keys = max(last.num_keys, run.num_keys)
    runs[-1] = last._replace(size=last.size + 1, num_keys=num_keys)
