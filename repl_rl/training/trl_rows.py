"""Trajectories as the rows that TRL takes.

    Scored -> ids, log-probabilities, masks, outcomes: lists, one row each

Pure. Knows who sampled which token. Does not know advantages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repl_rl.types import Scored


def rollout_rows(
    scored: Sequence[Scored], is_left_out: Sequence[bool] | None = None
) -> dict[str, Any]:
    """What TRL takes of trajectories: lists, one row each. A token of `env_mask` 0 has no loss.

    Those are the injected ones, those that another branch has already, and all of rows that are
    left out.
    """
    trajectories = [item.trajectory for item in scored]
    left_out = [False] * len(scored) if is_left_out is None else is_left_out
    return {
        "prompt_ids": [list(t.prompt_ids) for t in trajectories],
        "completion_ids": [list(t.completion_ids) for t in trajectories],
        "logprobs": [list(t.logprobs) for t in trajectories],
        "env_mask": [
            [int(is_own and not is_out) for is_own in t.own_mask]
            for t, is_out in zip(trajectories, left_out, strict=True)
        ],
        "outcome_reward": [item.reward.outcome_reward for item in scored],
    }
