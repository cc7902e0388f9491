"""Advantages of lines by rewards alone: siblings without a token, for laws worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from repl_rl.config.sections import Baseline, GRPOConfig
from repl_rl.credit.advantages import divisor, load_credit
from repl_rl.records import Branch, Problem, Reward, Scored, StopReason, Trajectory

CREDITS = ("line_local", "outcome", "potential", "return_to_go")
"""Those of siblings that do not branch."""
PROBLEM = Problem(id="p", statement="What is 1 + 1?")


load = cache(load_credit)  # entry points are read from disk


@cache
def nothing(group: int, index: int, branch: Branch | None) -> Trajectory:
    return Trajectory(
        problem_id="p",
        group_index=group,
        sibling_index=index,
        policy_version=0,
        seed=0,
        prompt_text="",
        prompt_ids=(0,),
        completion_ids=(),
        loss_mask=(),
        logprobs=(),
        lines=(),
        stop_reason=StopReason.SUBMITTED,
        branch=branch,
    )


def sibling(index: int, branch: Branch | None, reward: Reward, *, group: int = 0) -> Scored:
    trajectory = nothing(group, index, branch)
    return Scored(trajectory=trajectory, problem=PROBLEM, verdict=None, reward=reward)


def line_advantages(
    rewards: Sequence[Reward],
    *,
    credit: str,
    weight: float,
    baseline: Baseline = "mean",
    scale_by: float | None = None,
) -> list[list[float]]:
    """Advantages of a group of these rewards, [G][L]; `scale_by` replaces its deviation."""
    config = GRPOConfig(credit=credit, line_credit_weight=weight, baseline=baseline)
    siblings = [sibling(i, None, reward) for i, reward in enumerate(rewards)]
    return load(config).line_advantages(siblings, divisor(siblings, scale_by))


def tree_advantages(
    siblings: Sequence[Scored],
    *,
    weight: float,
    branching: Sequence[int] = (),
    scale_by: float | None = None,
) -> list[list[float]]:
    """Advantages of a group that branches, [G][L]."""
    config = GRPOConfig(credit="tree", line_credit_weight=weight, branching=tuple(branching))
    return load(config).line_advantages(siblings, divisor(siblings, scale_by))
