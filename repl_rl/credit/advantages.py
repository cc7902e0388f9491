"""Advantages per token of scored trajectories, and the importance ratios that weigh them.

    GRPOConfig -> Credit;  Scored (B) -> groups -> Credit.advantages -> checked rows (B, T)
    the engine's and the trainer's log-probabilities_T -> ratios_L -> weights_L -> advantages_T

Engine and trainer hold the same weights but compute differently, so lines come from a policy q that
is not quite the updated p. Truncated importance sampling, with the line as its unit, weighs each by
min(cap, p(line) / q(line)). The ratio of a whole trajectory is a product over thousands of tokens,
which leaves long ones next to nothing; that of a token forgets that the rest of its line came from
q as well.

min(r A, c A) w = min(r A w, c A w) for every w >= 0, so weighing an advantage weighs the token's
term of the loss, whatever is clipped. This fails for VESPO (arXiv:2602.10693), whose gate depends
on the ratio of the trajectory.

Knows no tensors, no trainer. B trajectories, L lines, T completion tokens.
"""

from __future__ import annotations

import inspect
import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import compress, groupby
from operator import not_

from repl_rl.base.plugins import load_named, misfit, users_code
from repl_rl.config.sections import Baseline, GRPOConfig, Scale
from repl_rl.credit.base import Credit, Run, refuse_other_lines, refuse_other_sizes, spread
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Reward, Scored, Trajectory

EPSILON = 1e-4
"""Added to the standard deviation, as GRPO implementations do (TRL's value)."""


def advantages(
    scored: Sequence[Scored],
    *,
    credit: str = "line_local",
    baseline: Baseline = "mean",
    scale: Scale = "group",
    line_credit_weight: float = 0.5,
    branching: Sequence[int] = (),
) -> list[list[float]]:
    """Advantage of each token of each trajectory, [T] a trajectory; 0 where it was not sampled.

    Siblings share a `group_index` and must be neighbours. Use it in your own trainer; the settings
    are those of `GRPOConfig`.

        rows = advantages(scored, credit="line_local")
        rows[0][0]    # of scored[0].trajectory.completion_ids[0]
    """
    config = GRPOConfig(
        credit=credit,
        baseline=baseline,
        scale=scale,
        line_credit_weight=line_credit_weight,
        branching=tuple(branching),
    )
    return advantage_rows(scored, load_credit(config))


def credit_class(name: str) -> type[Credit]:
    """The class that `grpo.credit` names; raises ConfigError unless it is derived from `Credit`."""
    named = load_named(name, group="repl_rl.credits")
    if not (isinstance(named, type) and issubclass(named, Credit)):
        raise ConfigError(
            f"grpo.credit = {name!r} is no credit; expected a class derived from repl_rl.Credit"
        )
    return named


def load_credit(config: GRPOConfig) -> Credit:
    """The credit of a config.

    Raises as `credit_class`, and for a method that cannot be called as that of `Credit` is.
    """
    made = credit_class(config.credit)
    with users_code(f"{config.credit}(config)"):
        credit = made(config)
    _check_methods(credit)
    return credit


def _check_methods(credit: Credit) -> None:
    for name, usual in inspect.getmembers(Credit, inspect.isfunction):
        _, *expected = inspect.signature(usual).parameters.values()
        by_name = {one.name: None for one in expected if one.kind is one.KEYWORD_ONLY}
        by_place = [None] * (len(expected) - len(by_name))
        if why := misfit(getattr(credit, name), *by_place, **by_name):
            raise ConfigError(
                f"{type(credit).__name__}.{name}: {why}; expected a method of "
                f"({', '.join(one.name for one in expected)})"
            )


def rolled_out(credit: Credit, attempts: Sequence[Attempt], run: Run) -> list[Scored]:
    """Return what a credit rolls out for whole groups of attempts, one each, in their order.

    Raises ConfigError, which names the class, where it returned others.
    """
    scored = credit.roll_out(attempts, run)
    expected = [one.group_index for one in attempts]
    groups = [one.trajectory.group_index if isinstance(one, Scored) else one for one in scored]
    if groups != expected:
        raise ConfigError(
            f"{type(credit).__name__}.roll_out returned trajectories of the groups {groups} for "
            f"attempts of {expected}; expected one for each, in their order"
        )
    return scored


def advantage_rows(
    scored: Sequence[Scored], credit: Credit, *, scale_by: float | None = None
) -> list[list[float]]:
    """Advantages of every token, one list [T_i] a trajectory; siblings must stand together.

    `scale_by` is the `batch_scale` of the step where `scored` is a part of it. Raises ConfigError,
    which names the class, for rows that no update can take.
    """
    if scale_by is None:
        scale_by = batch_scale([one.reward for one in distinct(scored)], credit.config.scale)
    rows: list[list[float]] = []
    for siblings in _groups(scored):
        group_rows = credit.advantages(siblings, divisor(siblings, scale_by))
        _check(group_rows, siblings, type(credit).__name__)
        rows += group_rows
    return rows


def weight_rows(scored: Sequence[Scored], credit: Credit) -> list[list[float]]:
    """Weights of every token, [B][T], by the `line_weights` of its line; 0 where injected.

    Raises ConfigError, which names the class, unless there is one a line.
    """
    rows: list[list[float]] = []
    for siblings in _groups(scored):
        weights_GL = credit.line_weights(siblings)
        refuse_other_lines(weights_GL, siblings, f"{type(credit).__name__}.line_weights")
        rows += [
            spread(one.trajectory, weights_L, before=1.0)
            for one, weights_L in zip(siblings, weights_GL, strict=True)
        ]
    return rows


def dead_groups(scored: Sequence[Scored], credit: Credit) -> set[int]:
    """`group_index` of the groups that teach nothing: all advantages of all siblings are 0."""
    groups = {item.trajectory.group_index for item in scored}
    rows = advantage_rows(scored, credit)
    return groups - {
        item.trajectory.group_index for item, row in zip(scored, rows, strict=True) if any(row)
    }


def divisor(siblings: Sequence[Scored], scale_by: float | None) -> float:
    """Return the divisor of a group's outcomes; `scale_by` None: the group's own deviation."""
    rewards = [one.reward for one in distinct(siblings)]
    return (_deviation(rewards) if scale_by is None else scale_by) + EPSILON


def batch_scale(rewards: Sequence[Reward], scale: Scale) -> float | None:
    """Return the divisor of a step's outcomes; None: each group's own deviation."""
    if scale == "group":
        return None
    if scale == "none":
        return 1.0 - EPSILON  # the divisor is 1: see above
    return _deviation(rewards)


def _deviation(rewards: Sequence[Reward]) -> float:
    outcomes = [one.outcome_reward for one in rewards if one.outcome_reward is not None]
    return statistics.stdev(outcomes) if len(outcomes) > 1 else 0.0


def distinct(scored: Sequence[Scored]) -> list[Scored]:
    """Each trajectory once, in their order: credit may have one stand in several rows."""
    return list({id(one): one for one in scored}.values())


def _groups(scored: Sequence[Scored]) -> Iterator[list[Scored]]:
    for _, siblings in groupby(scored, key=lambda item: item.trajectory.group_index):
        yield list(siblings)


def _check(rows: Sequence[Sequence[float]], siblings: Sequence[Scored], name: str) -> None:
    """ConfigError, which names the class of a credit, unless its rows fit the siblings."""
    expected = [len(one.trajectory.completion_ids) for one in siblings]
    refuse_other_sizes(rows, expected, f"{name}.advantages", "token")
    for row, one in zip(rows, siblings, strict=True):
        is_number = [isinstance(value, int | float) and math.isfinite(value) for value in row]
        if odd := [*compress(row, map(not_, is_number))]:
            raise ConfigError(f"{name} returned the advantage {odd[0]!r}; expected finite numbers")
        if any(compress(row, map(not_, one.trajectory.own_mask))):
            raise ConfigError(
                f"{name} returned an advantage at a token that was injected or copied; expected 0 "
                f"where own_mask is False"
            )


_MAX_LOG_RATIO = 100.0
"""The largest argument of exp. It is far above every cap; a float ends at exp(709)."""


def line_ratios(trajectory: Trajectory, trainer_T: Sequence[float]) -> list[float]:
    """p(line) / q(line) of every line of its own, [L]: injected tokens are in no line, so none
    counts. The trainer scores a line that others share for the one alone who sampled it.

    Example: two tokens of -1.0 and -2.0 to the engine, -1.2 and -1.5 to the trainer, give exp(0.3).
    """
    gaps_T = _gaps(trajectory, trainer_T)
    sums_L = [math.fsum(gaps_T[line.start : line.stop]) for line in trajectory.own_lines]
    return [math.exp(min(total, _MAX_LOG_RATIO)) for total in sums_L]


def largest_gap(trajectory: Trajectory, trainer_T: Sequence[float]) -> float:
    """The most that engine and trainer differ by at a token that was sampled for it, nats."""
    gaps = compress(_gaps(trajectory, trainer_T), trajectory.own_mask)
    return max(map(abs, gaps), default=0.0)


def divergence(trajectory: Trajectory, trainer_T: Sequence[float]) -> tuple[float, int]:
    """(sum of the estimate k3 of KL(engine || trainer), nats, over tokens that were sampled for it;
    their number).

    k3 is r - 1 - ln r with r = p / q: never negative (Schulman 2020, Approximating KL Divergence).
    """
    gaps = list(compress(_gaps(trajectory, trainer_T), trajectory.own_mask))
    return math.fsum(math.expm1(min(gap, _MAX_LOG_RATIO)) - gap for gap in gaps), len(gaps)


def weigh_lines(
    trajectory: Trajectory,
    advantages_T: Sequence[float],
    ratios_L: Sequence[float],
    *,
    cap: float,
    trainer_T: Sequence[float] = (),
) -> list[float]:
    """Advantages [T], each multiplied by the ratio of its line, at most `cap`.

    A token before the first line has its own ratio, by `trainer_T`: there may be thousands.
    """
    weighed_T = list(advantages_T)
    if num_before := trajectory.num_before_lines:
        for token, gap in enumerate(_gaps(trajectory, trainer_T)[:num_before]):
            weighed_T[token] *= min(math.exp(min(gap, _MAX_LOG_RATIO)), cap)
    for line, ratio in zip(trajectory.own_lines, ratios_L, strict=True):
        for token in range(line.start, line.stop):
            weighed_T[token] *= min(ratio, cap)
    return weighed_T


def importance_metrics(
    ratios: Sequence[float], gaps: Sequence[float], *, cap: float
) -> dict[str, float]:
    """Metrics of the distance between a step's engine and trainer.

    `ratios` are of all its lines, `gaps` the largest gap of each of its trajectories.
    """
    return {
        "importance/ratio_mean": statistics.fmean(ratios),
        "importance/ratio_min": min(ratios),
        "importance/ratio_max": max(ratios),
        "importance/truncated": statistics.fmean(ratio > cap for ratio in ratios),
        "importance/largest_gap": max(gaps),
    }


def _gaps(trajectory: Trajectory, trainer_T: Sequence[float]) -> list[float]:
    return [
        trainer - engine for trainer, engine in zip(trainer_T, trajectory.logprobs, strict=True)
    ]
