"""Reason for the default reward: a flat charge for errors teaches silence.

A policy of three choices (leave a line blank, compute, submit), in at most ten lines: a softmax
before its first result, and one behind it. The beginner's code fails more often than not, and next
to none of its answers are right. The learner has a chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from credit_kit import line_advantages
from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, RewardConfig
from repl_rl.credit.rewards import shaped
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Reward, Trajectory, Verdict, VerdictKind

KIND = OutcomeKind
MakeTrajectory = Callable[..., Trajectory]
NUM_LINES = 10
NUM_UPDATES = 10
NUM_GROUPS = 32
LEARNING_RATE = 20.0
BLANK, COMPUTE, SUBMIT = ACTIONS = range(3)

PROTOTYPE = RewardConfig(
    line=dict.fromkeys((KIND.SYNTAX_ERROR, KIND.NAME_ERROR, KIND.RUNTIME_ERROR), -0.3),
    max_line_charge=100.0,
    no_submission=0.0,
)
"""-0.3 for every error, no price for silence: what one writes first, and `Config` refuses."""


class Odds(NamedTuple):
    """Odds that code runs, a submission is well formed, an answer behind a result is right."""

    runs: float
    submits: float
    right: float


BEGINNER = Odds(0.2, 0.5, 0.02)
LEARNER = Odds(0.3, 0.7, 0.7)
LUCK = 0.02
"""How often an answer without a result is right."""

Logits = list[list[float]]  # [2 states, 3 actions]


class Played(NamedTuple):
    """A trajectory, and what its policy chose in which state."""

    trajectory: Trajectory
    verdict: Verdict | None
    choices: list[tuple[int, int]]


def softmax(logits: Sequence[float]) -> list[float]:
    weights = [math.exp(value) for value in logits]
    return [weight / sum(weights) for weight in weights]


def play(make: MakeTrajectory, logits: Logits, odds: Odds, rng: random.Random) -> Played:
    choices: list[tuple[int, int]] = []
    kinds: list[OutcomeKind] = []
    while len(kinds) < NUM_LINES and KIND.SUBMITTED not in kinds:
        state = int(KIND.OK_OUTPUT in kinds)
        (action,) = rng.choices(ACTIONS, softmax(logits[state]))
        choices.append((state, action))
        kinds.append(answer(action, odds, rng))
    verdict = None
    if kinds[-1] is KIND.SUBMITTED:
        is_right = rng.random() < (odds.right if KIND.OK_OUTPUT in kinds else LUCK)
        verdict = Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)
    return Played(make([("x\n", kind, None) for kind in kinds]), verdict, choices)


def answer(action: int, odds: Odds, rng: random.Random) -> OutcomeKind:
    if action == BLANK:
        return KIND.BLANK
    if action == COMPUTE:
        return KIND.OK_OUTPUT if rng.random() < odds.runs else KIND.NAME_ERROR
    return KIND.SUBMITTED if rng.random() < odds.submits else KIND.NAME_ERROR


def update(logits: Logits, groups: Sequence[Sequence[Played]], config: RewardConfig) -> Logits:
    """One policy-gradient step on the mean over lines, with the default advantages."""
    grpo = GRPOConfig()
    moved = [list(row) for row in logits]
    num_lines = sum(len(played.choices) for group in groups for played in group)
    for group in groups:
        rewards: list[Reward] = [shaped(p.trajectory, p.verdict, config) for p in group]
        advantages = line_advantages(rewards, credit=grpo.credit, weight=grpo.line_credit_weight)
        for played, lines in zip(group, advantages, strict=True):
            for (state, action), value in zip(played.choices, lines, strict=True):
                for other, p in enumerate(softmax(logits[state])):
                    step = LEARNING_RATE * value / num_lines
                    moved[state][other] += step * ((other == action) - p)
    return moved


def train(make: MakeTrajectory, config: RewardConfig, odds: Odds) -> list[list[Played]]:
    """Games played at each update, from an even policy on, and once after the last."""
    rng = random.Random(0)
    logits: Logits = [[0.0] * 3, [0.0] * 3]
    seen = []
    for _ in range(NUM_UPDATES + 1):
        size = GRPOConfig().group_size
        groups = [[play(make, logits, odds, rng) for _ in range(size)] for _ in range(NUM_GROUPS)]
        seen.append([played for group in groups for played in group])
        logits = update(logits, groups, config)
    return seen


def blank_share(played: Sequence[Played]) -> float:
    chosen = [action for one in played for _, action in one.choices]
    return chosen.count(BLANK) / len(chosen)


def solve_rate(played: Sequence[Played]) -> float:
    return sum(p.verdict is not None and p.verdict.is_solved for p in played) / len(played)


def submit_rate(played: Sequence[Played]) -> float:
    return sum(p.verdict is not None for p in played) / len(played)


def test_a_flat_charge_for_errors_teaches_silence(make_trajectory: MakeTrajectory) -> None:
    """Blank lines: from 0.32 to 0.93 of all."""
    seen = train(make_trajectory, PROTOTYPE, BEGINNER)
    assert blank_share(seen[0]) == pytest.approx(1 / 3, abs=0.05)
    assert blank_share(seen[-1]) > 0.9


def test_the_default_reward_keeps_the_same_beginner_talking(
    make_trajectory: MakeTrajectory,
) -> None:
    """Blank lines: from 0.32 to 0.07 of all. With nothing to be won it guesses early."""
    seen = train(make_trajectory, RewardConfig(), BEGINNER)
    assert blank_share(seen[-1]) < 0.1
    assert submit_rate(seen[-1]) > 0.95


def test_the_default_reward_teaches_a_learner_to_compute(make_trajectory: MakeTrajectory) -> None:
    """Solved: from 0.19 to 0.65, where 0.7 is the most there is."""
    seen = train(make_trajectory, RewardConfig(), LEARNER)
    assert solve_rate(seen[0]) < 0.25
    assert solve_rate(seen[-1]) > 0.6


def test_a_config_refuses_the_flat_charge() -> None:
    with pytest.raises(ConfigError, match="would make silence a better deal"):
        Config(reward=PROTOTYPE)
