"""Credits for line rewards r of siblings that are rolled out apart: which lines answer for them.

    line_rewards_GL -> c_GL, which `Credit.line_advantages` adds to the outcome's

With scale "none" the expected update is the gradient of

    Outcome      E[R]
    LineLocal    E[R] + weight * E[sum r], where no line answers for those after it
    ReturnToGo   E[R] + weight * E[sum r]
    Potential    E[R]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repl_rl.credit.base import Credit, Lines, centred, is_silent
from repl_rl.records import Scored


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
