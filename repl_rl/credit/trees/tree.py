"""Credit by trees: `grpo.credit = "tree"`.

    Attempts -> grown groups (`growth`) -> edges (`edges`) -> advantages and weights of lines

Knows which settings trees do not go with. Does not know trainers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from repl_rl.config import Config
from repl_rl.credit.base import Credit, Run, is_silent
from repl_rl.credit.trees.edges import shares, tree_credit, twigs_of
from repl_rl.credit.trees.growth import grow, tree_metrics
from repl_rl.errors import ConfigError
from repl_rl.types import Attempt, Scored

_MASKS = ("mask_truncated_completions", "off_policy_mask_threshold")
_TAKES_SHARED = "takes the lines of a trajectory out of the loss that others share"
_WHOLE = "what a trajectory shares with others is in the row of one of them"
_LOSSES = {
    "vespo": f"weighs a trajectory whole: {_WHOLE}",
    **dict.fromkeys(("grpo", "sapo", "bnpo"), f"divides by a row's tokens: {_WHOLE}"),
}
"""Losses that trees do not take."""


class Tree(Credit):
    r"""Groups that branch, with the advantage of every line; 0 for lines that are copies.

        A[i, k] = w[i, k] * ((V[edge] - mean V[others]) / (std R + eps) + weight * (r[i, k] - b))

    Values are those of `tree_credit`, and so are weights, times the siblings that `branching` has
    for each trajectory from the prompt. The weights of a group that branches everywhere are so 1 at
    its leaves, as in one without branches, and sum to its size at the prompt. b is the mean of line
    rewards r by these weights, each line once. With scale "none" and `weight` 0 the expected update
    is the gradient of E[R]; line rewards add what they do in `LineLocal`.

    A sibling that stands here again counts once, and gets 0 the second time. An unscorable one gets
    0 and is part of no value. A group that `is_silent` gets 0 everywhere.
    """

    settings = frozenset({"branching", "branch_probability"})
    takes_potential = False

    def roll_out(self, attempts: Sequence[Attempt], run: Run) -> list[Scored]:
        return grow(attempts, self.config, run)

    def shares(self, scored: Sequence[Scored]) -> list[float]:
        return shares(scored)

    def metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        return tree_metrics(scored, self.config.branching)

    def line_advantages(self, siblings: Sequence[Scored], scale: float) -> list[list[float]]:
        rows = [[0.0] * len(one.reward.line_rewards) for one in siblings]
        once = _first(siblings)
        if is_silent(group := [siblings[at] for at in once]):
            return rows
        found, weight = tree_credit(twigs_of(group)), self.config.line_credit_weight
        weighed = [
            (value, w)
            for one, weights in zip(group, found.weights, strict=True)
            for value, w in zip(one.reward.line_rewards, weights, strict=True)
        ]
        total = math.fsum(w for _, w in weighed)
        mean = math.fsum(value * w for value, w in weighed) / total if total else 0.0
        for at, values, weights in zip(once, found.advantages, found.weights, strict=True):
            own_L = siblings[at].reward.line_rewards
            rows[at] = [
                self._num_siblings * w * (value / scale + weight * (own - mean))
                for own, value, w in zip(own_L, values, weights, strict=True)
            ]
        return rows

    def line_weights(self, siblings: Sequence[Scored]) -> list[list[float]]:
        rows = [[0.0] * len(one.reward.line_rewards) for one in siblings]
        once = _first(siblings)
        # Of scored and unscorable siblings alike.
        twigs = [replace(twig, outcome=0.0) for twig in twigs_of([siblings[at] for at in once])]
        for at, weights in zip(once, tree_credit(twigs).weights, strict=True):
            rows[at] = [self._num_siblings * w for w in weights]
        return rows

    @property
    def _num_siblings(self) -> int:
        return math.prod(self.config.branching[1:])

    def check(self, config: Config, *, samples_lines: bool) -> None:
        super().check(config, samples_lines=samples_lines)
        grpo, factors, name = config.grpo, config.grpo.branching, config.grpo.credit
        if len(factors) < 2 or min(factors) < 1 or factors[0] < 2:
            raise ConfigError(
                f"grpo.credit = {name!r} with grpo.branching = {list(factors)}; expected such as "
                f"[4, 2, 2]: 4 trajectories, each left by one other, and again"
            )
        if (size := math.prod(factors)) != grpo.group_size:
            raise ConfigError(
                f"grpo.branching = {list(factors)} makes groups of {size}; expected "
                f"grpo.group_size = {size}, not {grpo.group_size}"
            )
        for wanted, is_fit in (
            ("sampling.sampler = 'lines'", samples_lines),
            ("sampling.max_think_tokens = 0", not config.sampling.max_think_tokens),
            ("grpo.rerolls = 0", not grpo.rerolls),
            *((f"no trl.{one}, which {_TAKES_SHARED}", not config.trl.get(one)) for one in _MASKS),
            *(
                (f"no loss {loss!r}, which {does}", grpo.loss_type != loss)
                for loss, does in _LOSSES.items()
            ),
        ):
            if not is_fit:
                raise ConfigError(f"grpo.credit = {name!r} takes {wanted}")


def _first(siblings: Sequence[Scored]) -> list[int]:
    """Where each sibling of a group stands first."""
    places = [(one.trajectory.sibling_index, at) for at, one in enumerate(siblings)]
    return sorted(dict(reversed(places)).values())
