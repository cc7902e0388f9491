"""Statistics of scored trajectories: rates, shares and their uncertainty.

    Scored ... -> attempts solved of each problem -> Rate, Difference

Pure functions on records. An attempt that could not be graded counts as not solved.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from repl_rl.base.terminal import one_row
from repl_rl.records import OutcomeKind, Scored, StopReason

MAX_UNGRADED_SHARE = 0.03
"""Share of the trajectories. Beyond it rates say more about the grader than about the policy."""
MAX_SLOW_SHARE = 0.03
"""Share of the trajectories. Beyond it rates say more about the machine than about the policy."""
_SHOWN_CHARS = 60
"""Most characters that a sentence quotes of what a policy or a grader wrote."""

Interval = tuple[float, float]
Baselines = Mapping[str, Mapping[str, float]]
"""Rates of others by their names, such as `guessing`, and by the cell of a problem, `ode-3`."""
NO_BASELINES: Baselines = {}


def is_solved(scored: Scored) -> bool:
    return scored.verdict is not None and scored.verdict.is_solved


def is_ungraded(scored: Scored) -> bool:
    """True for an unsolved trajectory whose verdict has no outcome reward, such as unknown."""
    is_unscored = scored.verdict is not None and scored.reward.outcome_reward is None
    return is_unscored and not is_solved(scored)


def wilson_interval(solved: float, total: float, *, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a rate, 95 % at the default z (Wilson 1927).

    Example: 8 of 10 gives (0.490, 0.943). No trials give (0, 1).
    """
    if total == 0:
        return 0.0, 1.0
    rate = solved / total
    centre = rate + z * z / (2 * total)
    spread = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # Rounding may carry a rate of 0 or 1 a hair beyond the ends.
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def ungraded_warning(scored: Sequence[Scored]) -> str | None:
    """A sentence on ungraded trajectories, with an example; None where their share is small."""
    left = [item for item in scored if is_ungraded(item)]
    if len(left) <= MAX_UNGRADED_SHARE * len(scored):
        return None
    (reason, _), *_ = Counter(map(_why_ungraded, left)).most_common()
    example = next(item for item in left if _why_ungraded(item) == reason)
    texts = (example.problem.id, example.trajectory.submission or "", reason)
    name, answer, why = (one_row(text)[:_SHOWN_CHARS] for text in texts)
    return (
        f"{len(left)} of {len(scored)} trajectories could not be graded and count as not solved; "
        f"look at problem {name} with the answer {answer}; the grader says: {why}"
    )


def slow_warning(scored: Sequence[Scored]) -> str | None:
    """A sentence on trajectories that ran out of time; None where their share is small."""
    left = sum(item.trajectory.stop_reason is StopReason.TIME_LIMIT for item in scored)
    if left <= MAX_SLOW_SHARE * len(scored):
        return None
    return (
        f"{left} of {len(scored)} trajectories ended at sampling.time_limit_s and count as not "
        f"solved, so the rate depends on how fast this machine is; raise that limit"
    )


def _why_ungraded(scored: Scored) -> str:
    assert scored.verdict is not None
    return scored.verdict.grader_error or scored.verdict.evidence or str(scored.verdict.kind)


def line_shares(scored: Sequence[Scored]) -> dict[OutcomeKind, float]:
    """Share of every outcome among all lines, most frequent first."""
    counts = Counter(line.outcome.kind for item in scored for line in item.trajectory.own_lines)
    total = counts.total() or 1
    return {kind: count / total for kind, count in counts.most_common()}


# Several attempts at each problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Rate of solved attempts."""

    solved: int
    total: int
    """One at least: nothing measured has no rate."""
    ungraded: int
    """Number of attempts in `total` that are neither solved nor failed."""
    interval: Interval
    """Interval of 95 %; see `clustered_interval`."""
    passes: Mapping[int, float]
    """pass@k by k: see `pass_rates`."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """The rates that others have on problems like these, by name."""

    @property
    def rate(self) -> float:
        """The mean of all attempts, avg@k where each problem has k."""
        return self.solved / self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class RateDifference:
    """Gain of one policy over another in solved attempts at the same problems."""

    mean: float
    interval: Interval
    """Interval of 95 %."""


def rate_of(scored: Sequence[Scored], baselines: Baselines = NO_BASELINES) -> Rate:
    """The rate of these attempts, as many at each problem as at any other."""
    assert scored, "nothing measured has no rate"
    shares = _shares(scored)
    samples = len(scored) // len(shares)
    return Rate(
        solved=sum(map(is_solved, scored)),
        total=len(scored),
        ungraded=sum(map(is_ungraded, scored)),
        interval=clustered_interval(list(shares.values())),
        passes=pass_rates(scored, samples),
        baselines={name: _mean(scored, rates) for name, rates in baselines.items()},
    )


def _mean(scored: Sequence[Scored], rates: Mapping[str, float]) -> float:
    """Mean of the rates of the problems' cells; 0 for a cell without one."""
    cells = ("{family}-{tier}".format_map(defaultdict(str, item.problem.meta)) for item in scored)
    return statistics.fmean(rates.get(cell, 0.0) for cell in cells)


def rates_by(
    scored: Sequence[Scored], key: str, baselines: Baselines = NO_BASELINES
) -> dict[str, Rate]:
    """The rate of each group of problems with one value of this key of their meta.

    Empty where no problem has one: the only row would repeat the total.
    """
    groups: dict[str, list[Scored]] = defaultdict(list)
    for item in scored:
        groups[item.problem.meta.get(key, "?")].append(item)
    if set(groups) == {"?"}:
        return {}
    return {name: rate_of(groups[name], baselines) for name in sorted(groups)}


def clustered_interval(shares: Sequence[float]) -> Interval:
    """95 % interval of the mean of the problems' solved shares.

    Attempts at one problem are alike, so they count for less than as many problems. Wilson's score
    interval is taken at the number of independent attempts that would vary as much (the effective
    sample size of Kish 1965). With one attempt a problem this is Wilson's interval itself.
    Example: two problems, always and never solved in 100 attempts each, say as much as 2 attempts.
    """
    rate, spread = statistics.fmean(shares), statistics.pvariance(shares)
    size = len(shares) * rate * (1 - rate) / spread if spread else float(len(shares))
    return wilson_interval(rate * size, size)


def difference(one: Sequence[Scored], other: Sequence[Scored]) -> RateDifference:
    """Gain of `one` over `other` in solved attempts at the same problems: paired, so problems that
    both solve or fail say nothing.

    Normal approximation over problems. Raises ValueError where these differ.
    """
    shares, others = _shares(one), _shares(other)
    if shares.keys() != others.keys():
        raise ValueError("the attempts are at different problems")
    gaps = [share - others[problem] for problem, share in shares.items()]
    mean = statistics.fmean(gaps) if gaps else 0.0
    half = 1.96 * statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else 1.0
    return RateDifference(mean=mean, interval=(max(-1.0, mean - half), min(1.0, mean + half)))


def _shares(scored: Sequence[Scored]) -> dict[int, float]:
    """The solved share of the attempts at each problem, by its number."""
    by_problem: dict[int, list[bool]] = defaultdict(list)
    for item in scored:
        by_problem[item.trajectory.group_index].append(is_solved(item))
    return {problem: statistics.fmean(solved) for problem, solved in by_problem.items()}


def pass_at(k: int, *, num_samples: int, num_solved: int) -> float:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    It is the share of the choices of k among the n samples that hold a solved one. `k` <= n.
    Example: of n = 4 samples c = 1 is solved; of the 6 pairs 3 hold it, so k = 2 gives 0.5.
    """
    assert 1 <= k <= num_samples
    return 1.0 - math.comb(num_samples - num_solved, k) / math.comb(num_samples, k)


def pass_rates(scored: Sequence[Scored], samples: int) -> dict[int, float]:
    """Means over problems, of `samples` attempts each, by k: 1, 2, 4, ... and `samples`."""
    solved = [round(share * samples) for share in _shares(scored).values()]
    sizes = sorted({samples, *(1 << power for power in range(samples.bit_length()))})
    return {
        k: statistics.fmean(pass_at(k, num_samples=samples, num_solved=num) for num in solved)
        for k in sizes
        if k <= samples and solved
    }
