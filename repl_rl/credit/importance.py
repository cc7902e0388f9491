"""Importance ratios of lines: the trainer's probability over that of the engine that sampled.

    the engine's and the trainer's log-probabilities_T -> ratios_L -> weights_L -> advantages_T

Knows no tensors, no trainer. L lines, T completion tokens.

Engine and trainer hold the same weights but compute differently, so lines come from a policy q that
is not quite the updated p. Truncated importance sampling, with the line as its unit, weighs each by
min(cap, p(line) / q(line)). The ratio of a whole trajectory is a product over thousands of tokens,
which leaves long ones next to nothing; that of a token forgets that the rest of its line came from
q as well.

min(r A, c A) w = min(r A w, c A w) for every w >= 0, so weighing an advantage weighs the token's
term of the loss, whatever is clipped. This fails for VESPO (arXiv:2602.10693), whose gate depends
on the ratio of the trajectory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import compress

from repl_rl.records import Trajectory

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
