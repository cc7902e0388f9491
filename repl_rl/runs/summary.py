"""Statistics of scored trajectories: rates, shares and their uncertainty.

Pure functions on records. Metric names are those of TRL where TRL has one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from repl_rl.terminal import one_row
from repl_rl.types import OutcomeKind, Scored

MAX_UNGRADED_SHARE = 0.03
"""Share of the trajectories. Beyond it rates say more about the grader than about the policy."""
_SHOWN_CHARS = 60
"""How much a sentence quotes of what a policy or a grader wrote."""


def is_solved(scored: Scored) -> bool:
    return scored.verdict is not None and scored.verdict.is_solved


def is_ungraded(scored: Scored) -> bool:
    """True where the grader reached no verdict: neither solved nor failed."""
    return scored.verdict is not None and scored.reward.outcome_reward is None


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


def solve_counts(scored: Sequence[Scored], key: str | None = None) -> dict[str, tuple[int, int]]:
    """(solved, all) by a key of the problems' meta, or all under "all".

    An ungraded answer is not solved: one that the grader cannot judge must not pay.
    """
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for item in scored:
        name = "all" if key is None else item.problem.meta.get(key, "?")
        solved, total = counts[name]
        counts[name] = solved + is_solved(item), total + 1
    return dict(sorted(counts.items()))


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


def _why_ungraded(scored: Scored) -> str:
    assert scored.verdict is not None
    return scored.verdict.grader_error or scored.verdict.evidence or str(scored.verdict.kind)


def line_shares(scored: Sequence[Scored]) -> dict[OutcomeKind, float]:
    """Share of every outcome among all lines, most frequent first."""
    counts = Counter(line.outcome.kind for item in scored for line in item.trajectory.own_lines)
    total = counts.total() or 1
    return {kind: count / total for kind, count in counts.most_common()}
