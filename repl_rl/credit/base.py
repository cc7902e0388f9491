"""Credit: who of a group is sampled, and what each token of its siblings is worth.

    Attempts -> roll_out -> Scored_G -> line_advantages_GL -> advantages_GT

A credit is a class derived from `Credit`, found by its name in `grpo.credit`. Pure: lists in, lists
out. Knows no tensors, no kernels, no trainer. G siblings of a group, L lines, T completion tokens.

With scale "none" the expected update is the gradient of

    Outcome      E[R]
    LineLocal    E[R] + weight * E[sum r], where no line answers for those after it
    ReturnToGo   E[R] + weight * E[sum r]
    Potential    E[R]
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from repl_rl.config import Config
from repl_rl.config.sections import CREDIT_SETTINGS, GRPOConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Scored, Trajectory
from repl_rl.transcript.format import spans

Lines = Sequence[Sequence[float]]  # [G][L]
More = Callable[[Trajectory], Sequence[Attempt]]
"""The attempts that a trajectory under way asks for, at a state from which it goes on."""


class Run(Protocol):
    """Rolls attempts out, and those that `more` asks for on their way; see `RolloutRunner.run`."""

    def __call__(
        self, attempts: Sequence[Attempt], *, more: More | None = None
    ) -> list[Scored]: ...


class Credit:
    r"""Base of all credits, which is plain GRPO with room for line rewards.

        A[i, k] = (R[i] - mean R) / (std R + eps) + weight * c[i, k]

    R is the outcome reward (arXiv:2402.03300 section 4.1), c the `line_credit`, and the rest are
    settings of `[grpo]`, which are `self.config`. `mean` baselines hold a trajectory itself, which
    shrinks the gradient by (G - 1) / G; `leave_one_out` (RLOO, arXiv:2402.14740 section 2.3) does
    not. Dividing by a group's deviation, as GRPO does, weighs problems: those with a solve rate
    near 0 or 1 count more (arXiv:2503.20783 section 3.1). Line credit is not divided, so siblings
    of nearly equal outcomes do not blow it up.

    An unscorable sibling (outcome None) gets 0 on every line and is part of no baseline. Identical
    siblings get exactly 0. Your own credit overrides the methods that it changes:

        >>> class Plain(Credit):
        ...     reads_line_rewards = False
        >>> Plain(Config().grpo).grows
        False
    """

    takes_potential: ClassVar[bool] = True
    """True where a line answers for those after it, which give a potential back."""

    def __init__(self, config: GRPOConfig) -> None:
        self.config = config

    @property
    def reads_line_rewards(self) -> bool:
        """Say whether line rewards change anything. If not, a reward that has some is refused."""
        return self.config.line_credit_weight != 0

    def check(self, config: Config, *, samples_lines: bool) -> None:
        """Refuse a training run that cannot have this credit: raises ConfigError.

        `samples_lines` is True where trajectories come from the usual loop.
        """
        name, usual = self.config.credit, GRPOConfig()
        for setting, reader in CREDIT_SETTINGS.items():
            value = getattr(self.config, setting)
            if not self.grows and value != getattr(usual, setting):
                text = list(value) if isinstance(value, tuple) else value
                raise ConfigError(
                    f"grpo.{setting} = {text} has no effect with grpo.credit = {name!r}, which "
                    f"does not read it; give grpo.credit = {reader!r}"
                )
        given = f"reward.potential = {config.reward.potential} with grpo.credit = {name!r}"
        if config.reward.potential and not self.reads_line_rewards:
            weight = self.config.line_credit_weight
            raise ConfigError(f"{given} at grpo.line_credit_weight = {weight} has no effect")
        if config.reward.potential and not self.takes_potential:
            raise ConfigError(
                f"{given} would charge the last line, often the submission, for all progress "
                f"before it; expected grpo.credit 'return_to_go' or 'potential'"
            )

    def roll_out(self, attempts: Sequence[Attempt], run: Run) -> list[Scored]:
        """Return a trajectory for each attempt, in their order; `attempts` are of whole groups.

        You may call `run` for some of them first and for others later. Its function `more` gets
        each trajectory under way. One trajectory may stand in several places.
        """
        return run(attempts)

    @property
    def grows(self) -> bool:
        """Say whether the credit has a `roll_out` of its own, so that rows may share lines."""
        return type(self).roll_out is not Credit.roll_out

    def shares(self, scored: Sequence[Scored]) -> list[float]:
        """Weight of each trajectory in means over a step; 1 for a rollout of its own."""
        return [1.0] * len(scored)

    def metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Numbers of its own for a row of `metrics.jsonl`, of the trajectories of a step."""
        return {}

    def advantages(self, siblings: Sequence[Scored], scale: float) -> list[list[float]]:
        """Return an advantage for each token of a group, (G, T), 0 where it was injected.

        A line's tokens share its advantage. Those before the first line get the outcome's: line
        credit belongs to lines. `scale` divides outcomes.
        """
        rows = self.line_advantages(siblings, scale)
        refuse_other_lines(rows, siblings, f"{type(self).__name__}.line_advantages")
        before_G = [0.0] * len(rows)
        if any(one.trajectory.num_before_lines for one in siblings):
            before_G = self.outcome_advantages(siblings, scale)
        return [
            spread(one.trajectory, row, before=before)
            for one, row, before in zip(siblings, rows, before_G, strict=True)
        ]

    def line_advantages(self, siblings: Sequence[Scored], scale: float) -> list[list[float]]:
        """Return an advantage for each line of a group, (G, L); 0 for lines that are copies."""
        shared_G = self.outcome_advantages(siblings, scale)
        rows = [[0.0] * len(one.reward.line_rewards) for one in siblings]
        known = [at for at, one in enumerate(siblings) if one.reward.outcome_reward is not None]
        firsts = [siblings[at].trajectory.num_copied_lines for at in known]
        lines_GL = [
            siblings[at].reward.line_rewards[first:]
            for at, first in zip(known, firsts, strict=True)
        ]
        credit_GL = self.line_credit(lines_GL)
        by = f"{type(self).__name__}.line_credit"
        refuse_other_sizes(credit_GL, [len(lines) for lines in lines_GL], by, "line")
        weight = self.config.line_credit_weight
        for at, first, credit_L in zip(known, firsts, credit_GL, strict=True):
            rows[at][first:] = [shared_G[at] + weight * value for value in credit_L]
        return rows

    def outcome_advantages(self, siblings: Sequence[Scored], scale: float) -> list[float]:
        """Return what plain GRPO gives each sibling, [G]; 0 where it could not be scored."""
        centred_G = iter(centred(outcomes_of(siblings), self.config.baseline))
        outcomes_G = [one.reward.outcome_reward for one in siblings]
        return [0.0 if one is None else next(centred_G) / scale for one in outcomes_G]

    def line_credit(self, lines_GL: Lines) -> list[list[float]]:
        """Return c of `line_advantages` by the rewards of scored siblings' own lines, (G, L)."""
        return [[0.0] * len(lines) for lines in lines_GL]

    def line_weights(self, siblings: Sequence[Scored]) -> list[list[float]]:
        """Return how many rollouts of a group each line stands for, (G, L).

        Summed over tokens, they are the tokens that as many independent rollouts are expected to
        have. If credit `grows`, a loss that divides by the tokens of a step counts tokens by these
        weights.
        """
        return [[1.0] * len(one.trajectory.lines) for one in siblings]


def spread(trajectory: Trajectory, values_L: Sequence[float], *, before: float) -> list[float]:
    """Return a value a token, [T]: that of its line, 0 where it was injected or copied."""
    values_T: list[float] = []
    num_copied = trajectory.num_copied
    for span in spans(trajectory):
        value = before if span.line_index < 0 else values_L[span.line_index]
        value = value if span.is_sampled and span.start >= num_copied else 0.0
        values_T.extend([value] * (span.stop - span.start))
    return values_T


def refuse_other_lines(rows: object, siblings: Sequence[Scored], by: str) -> None:
    """Raise ConfigError where the method `by` returned other than a number a line, (G, L)."""
    refuse_other_sizes(rows, [len(one.trajectory.lines) for one in siblings], by, "line")


def refuse_other_sizes(rows: object, expected: Sequence[int], by: str, unit: str) -> None:
    """Raise ConfigError where the method `by` returned other than a number a unit of siblings."""
    lists = rows if isinstance(rows, list | tuple) else [rows]
    sizes = [len(row) if isinstance(row, list | tuple) else row for row in lists]
    if sizes != expected:
        raise ConfigError(
            f"{by} returned {sizes} numbers for siblings of {expected} {unit}s; expected a row for "
            f"each, with one number a {unit}"
        )


def outcomes_of(siblings: Sequence[Scored]) -> list[float]:
    """Outcome rewards of those that could be scored."""
    outcomes = (one.reward.outcome_reward for one in siblings)
    return [one for one in outcomes if one is not None]


def is_silent(siblings: Sequence[Scored]) -> bool:
    """True where the scored ones have equal outcomes, and equal sums of line rewards."""
    known = [one.reward for one in siblings if one.reward.outcome_reward is not None]
    sums = [math.fsum(one.line_rewards) for one in known]
    return all_equal(outcomes_of(siblings)) and all_equal(sums)


def centred(values_G: Sequence[float], baseline: str) -> list[float]:
    """Each value minus the mean of all, or of all others; exactly 0 where all are equal."""
    if all_equal(values_G):
        return [0.0] * len(values_G)
    mean = statistics.fmean(values_G)
    # x - (sum - x) / (G - 1) is (x - mean) G / (G - 1).
    factor = len(values_G) / (len(values_G) - 1) if baseline == "leave_one_out" else 1.0
    return [factor * (value - mean) for value in values_G]


def all_equal(values: Sequence[float]) -> bool:
    return all(math.isclose(value, values[0], abs_tol=1e-12) for value in values[1:])


class Outcome(Credit):
    """Plain GRPO: c is 0."""

    reads_line_rewards = False


class LineLocal(Credit):
    """c[i, k] = r[i, k] - b: a line answers for its own reward alone.

    b is the mean of r over all lines of all siblings (`leave_one_out`: of all others): constant
    within a trajectory, so it asks for no particular length and, unlike a baseline per line index,
    does not reward one more turn as such (verl#7244).

    Three biases against the gradient of E[sum r]. A line is not charged for later errors that it
    causes. Where all siblings have the same outcome and the same sum of line rewards, every
    advantage is 0, though the lines may differ. And a `mean` b includes the trajectory's own lines:
    with L lines each this takes away 1 / (G L) of the gradient of E[sum r].
    """

    takes_potential = False

    def line_advantages(self, siblings: Sequence[Scored], scale: float) -> list[list[float]]:
        if is_silent(siblings):
            return [[0.0] * len(one.reward.line_rewards) for one in siblings]
        return super().line_advantages(siblings, scale)

    def line_credit(self, lines_GL: Lines) -> list[list[float]]:
        sums_G = [math.fsum(lines) for lines in lines_GL]
        total, count = math.fsum(sums_G), sum(map(len, lines_GL))
        is_own_out, credit_GL = self.config.baseline == "leave_one_out", []
        for lines, own_sum in zip(lines_GL, sums_G, strict=True):
            among = count - len(lines) if is_own_out else count
            mean = (total - own_sum if is_own_out else total) / among if among else 0.0
            credit_GL.append([value - mean for value in lines])
        return credit_GL


class ReturnToGo(Credit):
    """c[i, k] = g[i, k] - mean g[., k], where g[i, k] = r[i, k] + r[i, k+1] + ...: causal credit.

    A line answers for its own reward and all later ones. After a trajectory's end g is 0, and the
    mean is over all siblings at every k, still running or not: the mean of whole sums, less what
    siblings have earned before line k. Its terms do not depend on who is still running, so one more
    turn earns nothing as such. With a mean over those that have a line k, or a z-score, it would
    (verl#7244). With the mean of whole sums at every k identical siblings would be pushed.

    Unbiased for rewards that do not depend on later lines. The default reward is one up to
    `max_line_charge`. Beyond it an error makes earlier ones cheaper, which is not seen here.
    """

    def line_credit(self, lines_GL: Lines) -> list[list[float]]:
        to_go_GL = [[math.fsum(lines[k:]) for k in range(len(lines))] for lines in lines_GL]
        return _centred_by_index(to_go_GL, self.config.baseline)


class Potential(Credit):
    """c[i, k] = mean Phi[., k] - Phi[i, k], where Phi[i, k] = r[i, 0] + ... + r[i, k-1].

    Line rewards are read as the steps of a potential that the end of a trajectory takes back
    (Ng, Harada, Russell 1999; terminal potential 0): their return to go is -Phi, they change
    nobody's return, and no line reward can be farmed. They stand in for a critic: a right answer
    counts for more after errors (low Phi) than after a good start. After a trajectory's end Phi is
    0. Unbiased, for the gradient of E[R], where `ReturnToGo` is.
    """

    def line_credit(self, lines_GL: Lines) -> list[list[float]]:
        back_GL = [[-math.fsum(lines[:k]) for k in range(len(lines))] for lines in lines_GL]
        return _centred_by_index(back_GL, self.config.baseline)


def _centred_by_index(values_GL: Lines, baseline: str) -> list[list[float]]:
    """Each value minus the baseline of its index over all siblings, 0 where one has ended."""
    longest = max(map(len, values_GL), default=0)
    padded_GL = [[*values, *[0.0] * (longest - len(values))] for values in values_GL]
    columns_LG = [centred(column, baseline) for column in zip(*padded_GL, strict=True)]
    return [[columns_LG[k][i] for k in range(len(values))] for i, values in enumerate(values_GL)]
