"""A reward of your own: `--set reward.function=no_charge_reward:outcome_only` from this folder.

Lines cost nothing. A right answer pays less the more lines it took.
"""

from repl_rl.config.sections import RewardConfig
from repl_rl.types import Reward, Trajectory, Verdict


def outcome_only(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
    outcome: float | None = config.no_submission
    if verdict is not None:
        outcome = config.verdict.get(verdict.kind)
        if verdict.is_solved and outcome is not None:
            outcome -= 0.01 * len(trajectory.lines)
    return Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=outcome)
