"""Rewards of a trajectory: one for each line and one for its outcome, before any baseline.

Pure: no kernel, no model, no grader is called. The verdict comes in as data.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

from repl_rl.base.plugins import load_named, misfit
from repl_rl.config.sections import RewardConfig
from repl_rl.credit.base import Credit
from repl_rl.errors import ConfigError
from repl_rl.records import Line, OutcomeKind, Reward, Trajectory, Verdict, VerdictKind

RewardFunction = Callable[[Trajectory, Verdict | None, RewardConfig], Reward]
"""The verdict is None where nothing was submitted."""
BoundReward = Callable[[Trajectory, Verdict | None], Reward]
"""A reward function with its constants."""


_ENOUGH_RESULTS = 4
"""So many different results are all the progress there can be."""


def shaped(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
    """Errors cost, answers pay: the default reward.

    Example: three lines (syntax_error, ok_output, submitted) and the verdict proved give
    line_rewards (-0.3, 0.0, 0.0) and outcome_reward 1.0. Costs of lines that sum to more than
    max_line_charge are scaled down to it, so no pile of errors outweighs an answer. A verdict that
    is not priced (undecided) gives outcome_reward None: left out of the update, not wrong. If
    `potential` is not 0, `potential_steps` are added. If a guess is right with probability c, a
    wrong answer costs c / (1 - c) of a proved one more, so guessing earns nothing on average (Frary
    1988, Formula scoring of multiple-choice tests). Your own reward may start from it:

        def gentle(trajectory, verdict, config):
            reward = shaped(trajectory, verdict, config)
            return Reward(
                line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=reward.outcome_reward
            )
    """
    charges = _capped([line_charge(line, config) for line in trajectory.lines], config)
    steps = potential_steps(trajectory, weight=config.potential)
    outcome = outcome_reward(verdict, config)
    terms: dict[str, float] = {}
    for line, charge in zip(trajectory.lines, charges, strict=True):
        if charge:
            name = f"line/{line.outcome.kind}"
            terms[name] = terms.get(name, 0.0) + charge
    if config.potential:
        terms["potential"] = math.fsum(steps)
    if outcome is not None:
        terms["outcome/no_submission" if verdict is None else f"outcome/{verdict.kind}"] = outcome
    return Reward(
        line_rewards=tuple(map(sum, zip(charges, steps, strict=True))),
        outcome_reward=outcome,
        terms=terms,
    )


def line_charge(line: Line, config: RewardConfig) -> float:
    """Charge of a line by its outcome, before the cap on the charges of all lines."""
    return config.line.get(line.outcome.kind, 0.0)


def outcome_reward(verdict: Verdict | None, config: RewardConfig) -> float | None:
    """Price of an answer, or of none; None for a verdict that has no price."""
    if verdict is None:
        return config.no_submission
    price = config.verdict.get(verdict.kind)
    if price is None or not verdict.kind.is_failed:
        return price
    stake = verdict.chance / (1 - verdict.chance)
    return price - stake * config.verdict.get(VerdictKind.PROVED, 0.0)


def _capped(charges: list[float], config: RewardConfig) -> list[float]:
    """Charges of lines, [L], scaled to cost at most `max_line_charge` together."""
    total = sum(charges)
    scale = config.max_line_charge / -total if total < -config.max_line_charge else 1.0
    return [charge * scale for charge in charges]


def potential_steps(trajectory: Trajectory, *, weight: float) -> list[float]:
    r"""Change by each line of a potential of the state that it leaves behind, [L].

        F[k] = Phi(s[k+1]) - Phi(s[k]),   Phi(s) = weight * min(1, different results shown / 4)

    Potential-based shaping (Ng, Harada, Russell 1999, Policy invariance under reward
    transformations): the start and the end have the potential 0, so the steps of any trajectory
    sum to 0 and no return changes. Undiscounted (gamma = 1), as returns are here. The last line,
    whatever it is, gives back what was gained: producing results earns nothing.

    Example, weight 0.8: lines that show 1, 2, 2 and a submission give 0.2, 0.2, 0, -0.4.
    """
    potential, last = _PotentialSteps(weight), len(trajectory.lines) - 1
    return [potential.step(line, is_last=at == last) for at, line in enumerate(trajectory.lines)]


class _PotentialSteps:
    """Potential of the state that the lines so far have left; see `potential_steps`."""

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._seen: set[str] = set()
        self._value = 0.0

    def step(self, line: Line, *, is_last: bool) -> float:
        """Return what the next line adds."""
        if line.outcome.kind is OutcomeKind.OK_OUTPUT:
            self._seen.add(line.outcome.observation)
        progress = min(1.0, len(self._seen) / _ENOUGH_RESULTS)
        before, self._value = self._value, 0.0 if is_last else self._weight * progress
        return self._value - before


class RunningReward:
    """Rewards of lines as they come, for loops that reward each line before the next is known.

    Charge and potential of a line are those of `shaped`; only the cap differs. `shaped` scales all
    charges once their sum is known. Here a line gets its reward before, so it is charged at most
    what is left of `max_line_charge`. The sum is the same: if the cap binds, the first lines pay
    more here, and later ones nothing.

        >>> outcome = LineOutcome(kind=OutcomeKind.SYNTAX_ERROR)
        >>> line = Line(index=0, source="", start=0, stop=1, outcome=outcome)
        >>> running = RunningReward(Config().reward)
        >>> [round(running.add(line, is_last=False), 2) for _ in range(3)]
        [-0.3, -0.1, 0.0]
    """

    def __init__(self, config: RewardConfig) -> None:
        self._config = config
        self._left = config.max_line_charge
        self._potential = _PotentialSteps(config.potential)

    def add(self, line: Line, *, is_last: bool) -> float:
        """Return the reward of this line, the next one of its trajectory."""
        charge = max(line_charge(line, self._config), -self._left)
        self._left += min(charge, 0.0)
        return charge + self._potential.step(line, is_last=is_last)


def load_reward(config: RewardConfig, credit: Credit | None = None) -> RewardFunction:
    """The function that `reward.function` names, wrapped so that a bad return value is an error.

    With `credit` a user's own function must not return line rewards that it does not read: they
    would look like a reward that does not work. The default reward may, so that setting
    `grpo.credit = "outcome"` is enough for the ablation.
    """
    function = load_named(config.function, group="repl_rl.rewards")
    if not callable(function):
        raise ConfigError(f"reward.function = {config.function!r} is not callable")
    if misfit(function, None, None, None):
        raise ConfigError(
            f"reward.function = {config.function!r} takes {inspect.signature(function)}; expected "
            f"a function of (trajectory, verdict, config)"
        )
    unread = credit is not None and not credit.reads_line_rewards and function is not shaped

    def checked(trajectory: Trajectory, verdict: Verdict | None, config: RewardConfig) -> Reward:
        reward = function(trajectory, verdict, config)
        _check(reward, trajectory, config.function)
        assert isinstance(reward, Reward)
        if unread and any(reward.line_rewards):
            assert credit is not None
            raise ConfigError(
                f"{config.function} returned line rewards, and grpo.credit = "
                f"{credit.config.credit!r} at grpo.line_credit_weight = "
                f"{credit.config.line_credit_weight} reads none: return zeros, add them to the "
                f"outcome, or choose another credit"
            )
        return reward

    return checked


def bound_reward(config: RewardConfig, credit: Credit | None = None) -> BoundReward:
    """The reward that a config describes, with its constants; raises as `load_reward`."""
    function = load_reward(config, credit)
    return lambda trajectory, verdict: function(trajectory, verdict, config)


def _check(reward: object, trajectory: Trajectory, name: str) -> None:
    if not isinstance(reward, Reward):
        raise ConfigError(f"{name} returned {type(reward).__name__}; expected a Reward")
    if len(reward.line_rewards) != len(trajectory.lines):
        raise ConfigError(
            f"{name} returned {len(reward.line_rewards)} line rewards for a trajectory of "
            f"{len(trajectory.lines)} lines; expected one per line"
        )
    outcome = [] if reward.outcome_reward is None else [reward.outcome_reward]
    values = [*reward.line_rewards, *outcome]
    if not all(isinstance(value, int | float) for value in [*values, *reward.terms.values()]):
        raise ConfigError(f"{name} returned a reward that is no float: {reward}")
    if not all(map(math.isfinite, values)):
        raise ConfigError(f"{name} returned a reward that is not finite: {values}")
    total, terms = math.fsum(values), math.fsum(reward.terms.values())
    if reward.terms and not math.isclose(total, terms, abs_tol=1e-6):
        raise ConfigError(
            f"{name} returned terms that add up to {terms:g} and rewards that add up to {total:g}; "
            f"expected the same, or no terms"
        )
