"""From rewards to one advantage per token: pure functions, lists in, lists out.

    outcomes_G, line_rewards_GL -> line_advantages_GL -> advantages_T

Floor 2. Knows no tensors, no trainer. G siblings of a group, L lines, T completion tokens.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from repl_rl.transcript import spans
from repl_rl.types import Reward, Trajectory

EPSILON = 1e-4
"""Added to the standard deviation, as GRPO implementations do (TRL's value)."""


def line_advantages(
    rewards_G: Sequence[Reward],
    *,
    credit: Literal["outcome", "line_local"],
    weight: float,
    scale_by: float | None = None,
) -> list[list[float]]:
    r"""Advantage of every line of a group of siblings, [G][L].

        A[i, k] = (R_i - mean R) / (std R + eps) + weight * (r[i, k] - b)       (line_local)

    R is the outcome reward (plain GRPO, arXiv:2402.03300 section 4.1), r the line's own reward.
    b is the mean of r over all lines of all siblings: constant within the group, so it asks for no
    particular length and, unlike a baseline per line index, holds no hidden pay for one more turn.
    Credit is local: an error is charged to the tokens of its own line, not to those before it; the
    bias against the gradient of the summed return is that a line is not charged for later errors.

    Where all siblings have the same outcome and the same sum of line rewards, the group says
    nothing and every advantage is exactly 0. An unscorable sibling (outcome None) gets 0 on every
    line and stays out of mean, deviation and b. `scale_by` replaces the group's deviation.
    """
    scored = [reward for reward in rewards_G if reward.outcome_reward is not None]
    outcomes = [reward.outcome_reward for reward in scored if reward.outcome_reward is not None]
    if _all_equal(outcomes) and _all_equal([math.fsum(r.line_rewards) for r in scored]):
        return [[0.0] * len(reward.line_rewards) for reward in rewards_G]
    mean = statistics.fmean(outcomes)
    scale = _deviation(outcomes) if scale_by is None else scale_by
    all_lines = [value for reward in scored for value in reward.line_rewards]
    baseline = statistics.fmean(all_lines) if all_lines else 0.0
    local = weight if credit == "line_local" else 0.0
    advantages_GL = []
    for reward in rewards_G:
        if reward.outcome_reward is None:
            advantages_GL.append([0.0] * len(reward.line_rewards))
            continue
        shared = (reward.outcome_reward - mean) / (scale + EPSILON)
        advantages_GL.append([shared + local * (r - baseline) for r in reward.line_rewards])
    return advantages_GL


def batch_scale(
    rewards: Sequence[Reward], scale: Literal["group", "batch", "none"]
) -> float | None:
    """What `line_advantages` divides by: None for each group's own deviation."""
    if scale == "group":
        return None
    if scale == "none":
        return 1.0 - EPSILON
    return _deviation([r.outcome_reward for r in rewards if r.outcome_reward is not None])


def token_advantages(trajectory: Trajectory, advantages_L: Sequence[float]) -> list[float]:
    """Spread line advantages over tokens, [T]: a line's tokens share its value, injected get 0."""
    advantages_T: list[float] = []
    for span in spans(trajectory):
        value = advantages_L[span.line_index] if span.is_sampled else 0.0
        advantages_T.extend([value] * (span.stop - span.start))
    return advantages_T


def _all_equal(values: Sequence[float]) -> bool:
    return all(math.isclose(value, values[0], abs_tol=1e-12) for value in values[1:])


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
