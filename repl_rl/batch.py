"""From scored trajectories to what the update takes: the last step before tensors, and the first.

Floor 3. Knows lists and padding. Does not know how a trajectory came about, nor the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from repl_rl.advantages import batch_scale, line_advantages, token_advantages
from repl_rl.config import GRPOConfig
from repl_rl.types import Scored

# B trajectories, T tokens of the longest completion


def advantage_rows(scored: Sequence[Scored], config: GRPOConfig) -> list[list[float]]:
    """Advantages of every token, one list [T_i] a trajectory; siblings must stand together."""
    rows: list[list[float]] = []
    scale_by = batch_scale([item.reward for item in scored], config.scale)
    for _, siblings in groupby(scored, key=lambda item: item.trajectory.group_index):
        group = list(siblings)
        lines_GL = line_advantages(
            [item.reward for item in group],
            credit=config.credit,
            weight=config.line_credit_weight,
            scale_by=scale_by,
        )
        for item, advantages_L in zip(group, lines_GL, strict=True):
            rows.append(token_advantages(item.trajectory, advantages_L))
    return rows


def pad_right(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    """Rows of different lengths as one float tensor (B, T), zeros after the end of each."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows])
