"""The shaped reward with what lines are charged summed into the outcome, for an arm of
`learning.py`: every line answers for all errors of its trajectory.
"""

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import shaped
from repl_rl.records import Reward, Trajectory, Verdict


def summed(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
    reward = shaped(trajectory, verdict, config)
    outcome = None if reward.outcome_reward is None else reward.total
    return Reward(
        line_rewards=(0.0,) * len(reward.line_rewards),
        outcome_reward=outcome,
        terms=reward.terms,
    )
