"""What any trainer needs of a trajectory, token for token: five lists of one length.

    Scored, advantages [T] -> Row

Knows rewards and who wrote what. Does not know frameworks. T completion tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from repl_rl.errors import ConfigError
from repl_rl.types import Scored, Trajectory


class Row(NamedTuple):
    """The completion of one trajectory, [T] each, for a framework that has no function here.

    ids, mask, logprobs, advantages, rewards = row_of(scored, advantages)
    """

    ids: list[int]
    """Sampled and injected tokens; those of the prompt are not among them."""
    mask: list[int]
    """1 where a token is trained: sampled, and no copy of another trajectory's token."""
    logprobs: list[float]
    """Under the policy that sampled, nats; 0.0 where `mask` is 0."""
    advantages: list[float]
    """0.0 where `mask` is 0."""
    rewards: list[float]
    """That of a line stands at its last token, the outcome's at the last sampled token. Their sum
    is `Reward.total`."""


def row_of(scored: Scored, advantages: Sequence[float]) -> Row:
    """The lists of one trajectory; `advantages` [T] are one row of `repl_rl.advantages`.

    Raises ConfigError for lists of different lengths, and for a trajectory without a sampled token.
    """
    trajectory = scored.trajectory
    _check(trajectory, advantages, num_rewards=len(scored.reward.line_rewards))
    mask = [int(is_own) for is_own in trajectory.own_mask]
    return Row(
        ids=list(trajectory.completion_ids),
        mask=mask,
        logprobs=_where(mask, trajectory.logprobs),
        advantages=_where(mask, advantages),
        rewards=_rewards(scored),
    )


def _check(trajectory: Trajectory, advantages: Sequence[float], *, num_rewards: int) -> None:
    name, num_tokens = trajectory.problem_id, len(trajectory.completion_ids)
    counts = {
        "advantages": (len(advantages), "tokens", num_tokens),
        "entries of the loss mask": (len(trajectory.loss_mask), "tokens", num_tokens),
        "log-probabilities": (len(trajectory.logprobs), "tokens", num_tokens),
        "line rewards": (num_rewards, "lines", len(trajectory.lines)),
    }
    for what, (found, of, expected) in counts.items():
        if found != expected:
            raise ConfigError(
                f"{found} {what} and {expected} {of} in a trajectory of problem {name}; expected "
                f"one for each, in the order of the trajectories"
            )
    if not any(trajectory.loss_mask):
        raise ConfigError(
            f"a trajectory of problem {name} holds no sampled token among {num_tokens}; leave it "
            f"out, nothing can be trained on it"
        )


def _where(mask: Sequence[int], values: Sequence[float]) -> list[float]:
    return [float(value) if counts else 0.0 for counts, value in zip(mask, values, strict=True)]


def _rewards(scored: Scored) -> list[float]:
    trajectory, reward = scored.trajectory, scored.reward
    rewards = [0.0] * len(trajectory.completion_ids)
    for line, value in zip(trajectory.lines, reward.line_rewards, strict=True):
        rewards[line.stop - 1] += value
    last = max(at for at, is_sampled in enumerate(trajectory.loss_mask) if is_sampled)
    rewards[last] += reward.outcome_reward or 0.0
    return rewards
