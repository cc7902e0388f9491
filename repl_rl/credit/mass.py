"""Where the gradient of a step goes: its advantages, by what became of the lines.

    Scored, advantages [T] of each -> sums of one process -> metrics of all

Pure. B trajectories, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repl_rl.credit.advantages import distinct
from repl_rl.types import OutcomeKind, Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSums:
    """Of the trajectories of one process; those of several add up."""

    num_tokens: int
    """Sampled ones."""
    total: float
    """Sum of their advantages."""
    by_kind: Mapping[OutcomeKind, float]
    """Sum of absolute advantages of the tokens of its lines."""


def advantage_sums(scored: Sequence[Scored], rows: Sequence[Sequence[float]]) -> AdvantageSums:
    """Sums over `scored` [B], whose tokens have the advantages `rows` [B][T].

    One that stands here again has the advantages 0 the second time, and counts once.
    """
    by_kind = dict.fromkeys(OutcomeKind, 0.0)
    for item, row_T in zip(scored, rows, strict=True):
        for line in item.trajectory.lines:
            by_kind[line.outcome.kind] += math.fsum(map(abs, row_T[line.start : line.stop]))
    return AdvantageSums(
        num_tokens=sum(item.trajectory.num_sampled for item in distinct(scored)),
        total=math.fsum(map(math.fsum, rows)),
        by_kind=by_kind,
    )


def advantage_metrics(parts: Sequence[AdvantageSums]) -> dict[str, float]:
    """Of all processes together; a step without any advantage has 0 everywhere."""
    masses = {kind: math.fsum(part.by_kind[kind] for part in parts) for kind in OutcomeKind}
    whole = math.fsum(masses.values()) or 1.0
    num_tokens = sum(part.num_tokens for part in parts) or 1
    return {
        # The loss of a token is minus its advantage: the ratio of policies is 1.
        "mean_adv_loss": 0.0 - math.fsum(part.total for part in parts) / num_tokens,
        **{f"line/{kind}/adv_mass": mass / whole for kind, mass in masses.items()},
    }
