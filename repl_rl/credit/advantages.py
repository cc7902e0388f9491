"""From rewards to one advantage per token: pure functions, lists in, lists out.

    outcomes_G, line_rewards_GL -> line_advantages_GL -> advantages_T

Knows no tensors, no trainer. G siblings of a group, L lines, T completion tokens.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from repl_rl.config.sections import Baseline, Credit, GRPOConfig, Scale
from repl_rl.credit.tree import Twig, tree_credit
from repl_rl.transcript.format import spans
from repl_rl.types import Branch, Reward, Scored, Trajectory

EPSILON = 1e-4
"""Added to the standard deviation, as GRPO implementations do (TRL's value)."""

Lines = Sequence[Sequence[float]]  # [G][L]


def advantages(
    scored: Sequence[Scored],
    *,
    credit: Credit = "line_local",
    baseline: Baseline = "mean",
    scale: Scale = "group",
    line_credit_weight: float = 0.5,
    branching: Sequence[int] = (),
) -> list[list[float]]:
    """An advantage for each token of each trajectory, [T] a trajectory, 0 where none was sampled.

    Siblings (one `group_index`) must be neighbours. For trainers of your own; the settings are
    those of `GRPOConfig`.

        rows = advantages(scored, credit="line_local")
        rows[0][0]    # of scored[0].trajectory.completion_ids[0]
    """
    return advantage_rows(
        scored,
        GRPOConfig(
            credit=credit,
            baseline=baseline,
            scale=scale,
            line_credit_weight=line_credit_weight,
            branching=tuple(branching),
        ),
    )


def advantage_rows(
    scored: Sequence[Scored], config: GRPOConfig, *, scale_by: float | None = None
) -> list[list[float]]:
    """Advantages of every token, one list [T_i] a trajectory; siblings must stand together.

    `scale_by` is the `batch_scale` of the step where `scored` is a part of it.
    """
    lines = line_rows([earned(item) for item in scored], config, scale_by=scale_by)
    thoughts = _thought_values(scored, config, scale_by=scale_by)
    return [
        token_advantages(item.trajectory, advantages_L, thought=thought)
        for item, advantages_L, thought in zip(scored, lines, thoughts, strict=True)
    ]


def _thought_values(
    scored: Sequence[Scored], config: GRPOConfig, *, scale_by: float | None
) -> list[float]:
    """What thoughts answer for: the outcome of their trajectory. Line credit belongs to lines."""
    if all(item.trajectory.thought is None for item in scored):
        return [0.0] * len(scored)
    # A line of each: the outcome's advantage does not depend on lines.
    items = [
        earned(item)._replace(reward=replace(item.reward, line_rewards=(0.0,))) for item in scored
    ]
    outcome = replace(config, credit="outcome")
    return [values[0] for values in line_rows(items, outcome, scale_by=scale_by)]


class Earned(NamedTuple):
    """As much of a trajectory as the advantages of its lines depend on."""

    group_index: int
    sibling_index: int
    branch: Branch | None
    reward: Reward


def earned(scored: Scored) -> Earned:
    """The same of what was scored."""
    one = scored.trajectory
    return Earned(one.group_index, one.sibling_index, one.branch, scored.reward)


def line_rows(
    items: Sequence[Earned], config: GRPOConfig, *, scale_by: float | None = None
) -> list[list[float]]:
    """Advantages of every line, one list [L_i] a trajectory: see `advantage_rows`."""
    if scale_by is None:
        rewards = [item.reward for item in items]
        if config.credit == "tree":  # one may stand in the rows of those that would have left it
            once = {(item.group_index, item.sibling_index): item.reward for item in items}
            rewards = [*once.values()]
        scale_by = batch_scale(rewards, config.scale)
    rows: list[list[float]] = []
    for _, group in groupby(items, key=lambda item: item.group_index):
        siblings = list(group)
        if config.credit == "tree":
            rows += tree_advantages(
                siblings,
                weight=config.line_credit_weight,
                branching=config.branching,
                scale_by=scale_by,
            )
            continue
        rows += line_advantages(
            [item.reward for item in siblings],
            credit=config.credit,
            weight=config.line_credit_weight,
            baseline=config.baseline,
            scale_by=scale_by,
        )
    return rows


def tree_advantages(
    siblings: Sequence[Earned],
    *,
    weight: float,
    branching: Sequence[int] = (),
    scale_by: float | None = None,
) -> list[list[float]]:
    r"""Advantage of every line of a group that branches, [G][L]; 0 for lines that are copies.

        A[i, k] = w[i, k] * ((V[edge] - mean V[others]) / (std R + eps) + weight * (r[i, k] - b))

    Values are those of `tree_credit`, and so are weights, times the siblings that `branching` has
    for each trajectory from the prompt. The weights of a group that branches everywhere are so 1 at
    its leaves, as in one without branches, and sum to its size at the prompt. b is the mean of line
    rewards r by these weights, each line once. With scale "none" and `weight` 0 the expected update
    is the gradient of E[R]; line rewards add what they do in `line_local`.

    A sibling that stands here again counts once, and gets 0 the second time. An unscorable one gets
    0 and is part of no value. Where all outcomes and all sums of line rewards are equal, all is 0.
    """
    places = _first_places(siblings)
    rows = [[0.0] * len(item.reward.line_rewards) for item in siblings]
    known = [siblings[at].reward for at in places]
    scored = [one for one in known if one.outcome_reward is not None]
    outcomes = [one.outcome_reward for one in scored if one.outcome_reward is not None]
    if _all_equal(outcomes) and _all_equal(_sums([one.line_rewards for one in scored])):
        return rows
    scale = (_deviation(outcomes) if scale_by is None else scale_by) + EPSILON
    found = tree_credit([_twig(siblings[at]) for at in places])
    weighed = [
        (value, w)
        for reward, weights in zip(known, found.weights, strict=True)
        for value, w in zip(reward.line_rewards, weights, strict=True)
    ]
    total = math.fsum(w for _, w in weighed)
    mean = math.fsum(value * w for value, w in weighed) / total if total else 0.0
    num_siblings = math.prod(branching[1:])
    for at, reward, values, weights in zip(
        places, known, found.advantages, found.weights, strict=True
    ):
        rows[at] = [
            num_siblings * w * (value / scale + weight * (own - mean))
            for own, value, w in zip(reward.line_rewards, values, weights, strict=True)
        ]
    return rows


def tree_weights(items: Sequence[Earned], branching: Sequence[int]) -> list[list[float]]:
    """w of `tree_advantages` for every line, [B][L], of scored and unscorable siblings alike.

    Summed over tokens, they are the tokens that as many independent rollouts are expected to have.
    """
    num_siblings = math.prod(branching[1:])
    rows: list[list[float]] = []
    for _, group in groupby(items, key=lambda item: item.group_index):
        siblings = list(group)
        places = _first_places(siblings)
        twigs = [replace(_twig(siblings[at]), outcome=0.0) for at in places]
        weights = dict(zip(places, tree_credit(twigs).weights, strict=True))
        for at, item in enumerate(siblings):
            weights_L = weights.get(at, [0.0] * len(item.reward.line_rewards))
            rows.append([num_siblings * w for w in weights_L])
    return rows


def _first_places(siblings: Sequence[Earned]) -> list[int]:
    """Where each sibling of a group stands first."""
    return sorted(
        {item.sibling_index: at for at, item in reversed([*enumerate(siblings)])}.values()
    )


def _twig(item: Earned) -> Twig:
    return Twig(
        sibling_index=item.sibling_index,
        branch=item.branch,
        num_lines=len(item.reward.line_rewards),
        outcome=item.reward.outcome_reward,
    )


def dead_groups(scored: Sequence[Scored], config: GRPOConfig) -> set[int]:
    """`group_index` of the groups that teach nothing: all advantages of all siblings are 0."""
    groups = {item.trajectory.group_index for item in scored}
    rows = advantage_rows(scored, config)
    return groups - {
        item.trajectory.group_index for item, row in zip(scored, rows, strict=True) if any(row)
    }


def line_advantages(
    rewards_G: Sequence[Reward],
    *,
    credit: Credit,
    weight: float,
    baseline: Baseline = "mean",
    scale_by: float | None = None,
) -> list[list[float]]:
    r"""Advantage of every line of a group of siblings, [G][L].

        A[i, k] = (R[i] - mean R) / (std R + eps) + weight * c[i, k]

    R is the outcome reward (plain GRPO, arXiv:2402.03300 section 4.1), and c the credit for line
    rewards r: 0 (`outcome`), or as in `_local`, `_to_go` and `_potential`. With scale "none" the
    expected update is the gradient of

        outcome        E[R]
        line_local     E[R] + weight * E[sum r], where no line answers for those after it
        return_to_go   E[R] + weight * E[sum r]
        potential      E[R]

    `mean` baselines hold a trajectory itself, which shrinks that gradient by (G - 1) / G
    (`_local` says how its own differs); `leave_one_out` (RLOO, arXiv:2402.14740 section 2.3) does
    not. Dividing by a group's deviation, as GRPO does, weighs problems: those with a solve rate
    near 0 or 1 count more (arXiv:2503.20783 section 3.1). Line credit is not divided, so siblings
    of nearly equal outcomes do not blow it up.

    An unscorable sibling (outcome None) gets 0 on every line and is part of no baseline. Identical
    siblings get exactly 0. `scale_by` replaces the group's deviation.
    """
    scored = [i for i, reward in enumerate(rewards_G) if reward.outcome_reward is not None]
    lines_GL = [rewards_G[i].line_rewards for i in scored]
    outcomes_G = [r.outcome_reward for r in rewards_G if r.outcome_reward is not None]
    advantages_GL = [[0.0] * len(reward.line_rewards) for reward in rewards_G]
    if credit == "line_local" and _all_equal(outcomes_G) and _all_equal(_sums(lines_GL)):
        return advantages_GL
    scale = (_deviation(outcomes_G) if scale_by is None else scale_by) + EPSILON
    shared_G = [value / scale for value in _centred(outcomes_G, baseline)]
    credit_GL = _CREDIT[credit](lines_GL, baseline)
    for i, shared, credit_L in zip(scored, shared_G, credit_GL, strict=True):
        advantages_GL[i] = [shared + weight * value for value in credit_L]
    return advantages_GL


def _none(lines_GL: Lines, _: Baseline) -> list[list[float]]:
    return [[0.0] * len(lines) for lines in lines_GL]


def _local(lines_GL: Lines, baseline: Baseline) -> list[list[float]]:
    """c[i, k] = r[i, k] - b: a line answers for its own reward alone.

    b is the mean of r over all lines of all siblings (`leave_one_out`: of all others): constant
    within a trajectory, so it asks for no particular length and, unlike a baseline per line index,
    does not reward one more turn as such (verl#7244).

    Three biases against the gradient of E[sum r]. A line is not charged for later errors that it
    causes. Where all siblings have the same outcome and the same sum of line rewards, every
    advantage is 0, though the lines may differ. And a `mean` b includes the trajectory's own lines:
    with L lines each this takes away 1 / (G L) of the gradient of E[sum r].
    """
    sums, counts = _sums(lines_GL), [len(lines) for lines in lines_GL]
    total, count = math.fsum(sums), sum(counts)
    credit_GL = []
    for lines, own_sum, own_count in zip(lines_GL, sums, counts, strict=True):
        is_own_out = baseline == "leave_one_out"
        among = count - own_count if is_own_out else count
        mean = (total - own_sum if is_own_out else total) / among if among else 0.0
        credit_GL.append([value - mean for value in lines])
    return credit_GL


def _to_go(lines_GL: Lines, baseline: Baseline) -> list[list[float]]:
    """c[i, k] = g[i, k] - mean g[., k], where g[i, k] = r[i, k] + r[i, k+1] + ...: causal credit.

    A line answers for its own reward and all later ones. After a trajectory's end g is 0, and the
    mean is over all siblings at every k, still running or not: the mean of whole sums, less what
    siblings have earned before line k. Its terms do not depend on who is still running, so one more
    turn earns nothing as such. With a mean over those that have a line k, or a z-score, it would
    (verl#7244). With the mean of whole sums at every k identical siblings would be pushed.

    Unbiased for rewards that do not depend on later lines. The default reward is one up to
    `max_line_charge`. Beyond it an error makes earlier ones cheaper, which is not seen here.
    """
    return _centred_by_index([_rest(lines) for lines in lines_GL], baseline)


def _potential(lines_GL: Lines, baseline: Baseline) -> list[list[float]]:
    """c[i, k] = mean Phi[., k] - Phi[i, k], where Phi[i, k] = r[i, 0] + ... + r[i, k-1].

    Line rewards are read as the steps of a potential that the end of a trajectory takes back
    (Ng, Harada, Russell 1999; terminal potential 0): their return to go is -Phi, they change
    nobody's return, and no line reward can be farmed. They stand in for a critic: a right answer
    counts for more after errors (low Phi) than after a good start. After a trajectory's end Phi is
    0. Unbiased, for the gradient of E[R], where `_to_go` is.
    """
    paid_back_GL = []
    for lines in lines_GL:
        paid_back_GL.append([-math.fsum(lines[:k]) for k in range(len(lines))])
    return _centred_by_index(paid_back_GL, baseline)


_CREDIT = {
    "outcome": _none,
    "line_local": _local,
    "return_to_go": _to_go,
    "potential": _potential,
}


def _rest(lines: Sequence[float]) -> list[float]:
    return [math.fsum(lines[k:]) for k in range(len(lines))]


def _centred_by_index(values_GL: Lines, baseline: Baseline) -> list[list[float]]:
    """Each value minus the baseline of its index over all siblings, 0 where one has ended."""
    longest = max(map(len, values_GL), default=0)
    padded_GL = [[*values, *[0.0] * (longest - len(values))] for values in values_GL]
    columns_LG = [_centred(column, baseline) for column in zip(*padded_GL, strict=True)]
    return [[columns_LG[k][i] for k in range(len(values))] for i, values in enumerate(values_GL)]


def _centred(values_G: Sequence[float], baseline: Baseline) -> list[float]:
    """Each value minus the mean of all, or of all others; exactly 0 where all are equal."""
    if _all_equal(values_G):
        return [0.0] * len(values_G)
    mean = statistics.fmean(values_G)
    # x - (sum - x) / (G - 1) is (x - mean) G / (G - 1).
    factor = len(values_G) / (len(values_G) - 1) if baseline == "leave_one_out" else 1.0
    return [factor * (value - mean) for value in values_G]


def _sums(lines_GL: Lines) -> list[float]:
    return [math.fsum(lines) for lines in lines_GL]


def batch_scale(rewards: Sequence[Reward], scale: Scale) -> float | None:
    """What `line_advantages` divides by: None for each group's own deviation."""
    if scale == "group":
        return None
    if scale == "none":
        return 1.0 - EPSILON  # the divisor is 1: `line_advantages` adds EPSILON
    return _deviation([r.outcome_reward for r in rewards if r.outcome_reward is not None])


def token_advantages(
    trajectory: Trajectory, advantages_L: Sequence[float], *, thought: float = 0.0
) -> list[float]:
    """Spread line advantages over tokens, [T]: a line's tokens share its value, injected get 0.

    Those of a thought get `thought`.
    """
    advantages_T: list[float] = []
    for span in spans(trajectory):
        value = thought if span.line_index < 0 else advantages_L[span.line_index]
        value = value if span.is_sampled else 0.0
        advantages_T.extend([value] * (span.stop - span.start))
    return advantages_T


def _all_equal(values: Sequence[float]) -> bool:
    return all(math.isclose(value, values[0], abs_tol=1e-12) for value in values[1:])


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
