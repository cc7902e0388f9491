"""What a trajectory earned: a reward for each line and one for its outcome, before any baseline.

Floor 2. Pure: no kernel, no model, no grader is called. The verdict comes in as data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from repl_rl.config import RewardConfig
from repl_rl.errors import ConfigError
from repl_rl.plugins import load_spec
from repl_rl.types import Reward, Trajectory, Verdict

RewardFunction = Callable[[Trajectory, Verdict | None, RewardConfig], Reward]
"""`verdict` is None where nothing was submitted."""


def shaped(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
    """Errors cost, answers pay: the default reward.

    Example: three lines (syntax_error, ok_output, submitted) and the verdict proved give
    line_rewards (-0.3, 0.0, 0.0) and outcome_reward 1.0. Lines that sum to less than
    -max_line_charge are scaled up to it, so no pile of errors outweighs an answer. A verdict that
    is not priced (undecided) gives outcome_reward None: left out of the update, not wrong.
    """
    charges = [config.line.get(line.outcome.kind, 0.0) for line in trajectory.lines]
    total = sum(charges)
    scale = config.max_line_charge / -total if total < -config.max_line_charge else 1.0
    terms: dict[str, float] = {}
    for line, charge in zip(trajectory.lines, charges, strict=True):
        if charge:
            name = f"line/{line.outcome.kind}"
            terms[name] = terms.get(name, 0.0) + charge * scale
    outcome = config.no_submission if verdict is None else config.verdict.get(verdict.kind)
    if outcome is not None:
        terms["outcome/no_submission" if verdict is None else f"outcome/{verdict.kind}"] = outcome
    return Reward(
        line_rewards=tuple(charge * scale for charge in charges),
        outcome_reward=outcome,
        terms=terms,
    )


def load_reward(config: RewardConfig) -> RewardFunction:
    """The function that `reward.function` names, wrapped so that a bad return value says so."""
    function = load_spec(config.function)
    if not callable(function):
        raise ConfigError(f"reward.function = {config.function!r} is not callable")

    def checked(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
        reward = function(trajectory, verdict, config)
        _check(reward, trajectory, config.function)
        assert isinstance(reward, Reward)
        return reward

    return checked


def _check(reward: object, trajectory: Trajectory, name: str) -> None:
    if not isinstance(reward, Reward):
        raise ConfigError(f"{name} returned {type(reward).__name__}; expected a Reward")
    if len(reward.line_rewards) != len(trajectory.lines):
        raise ConfigError(
            f"{name} returned {len(reward.line_rewards)} line rewards for a trajectory of "
            f"{len(trajectory.lines)} lines; expected one per line"
        )
    values = [*reward.line_rewards, reward.outcome_reward or 0.0]
    if not all(math.isfinite(value) for value in values):
        raise ConfigError(f"{name} returned a reward that is not finite: {values}")
