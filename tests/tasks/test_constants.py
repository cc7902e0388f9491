"""A policy of constants earns nothing on any cell of sympy-proofs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from repl_rl.commands.tasks import CONSTANTS
from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import outcome_reward
from repl_rl.records import Problem, Split, Verdict
from repl_rl.tasks.base import Cell
from repl_rl.tasks.sympy_proofs import SympyProofs

TASK = SympyProofs()
NUM_PROBLEMS = 16
MOST_ERRORS = 3.0
"""Standard errors that no luck explains: one in 700."""


def judged(problem: Problem, answer: str) -> Verdict:
    return replace(TASK.grade(problem, answer), chance=problem.chance)


def luck(problem: Problem) -> float:
    """The variance of a guess that is right with the chance c and earns nothing on average: it
    gets 1, or loses c / (1 - c)."""
    return problem.chance / (1 - problem.chance)


@pytest.mark.slow
@pytest.mark.parametrize("cell", TASK.cells, ids=str)
def test_no_constant_earns_more_than_nothing_on_a_cell(cell: Cell) -> None:
    """The default reward: a right answer gets 1 (supported: 0.8), a wrong one loses c / (1 - c)
    where the best blind answer is right with the chance c, a malformed one 0.1 more. So a constant
    that is right for the share c of a cell's problems earns 0 there, and less below. Where no
    chance is declared, nothing may be right. An undecided answer has no price: no constant may be
    one. What a cell pays on average is measured on a sample, so luck may pay a little more.
    """
    split = Split.TRAIN
    problems = [TASK.problem(cell, split, seed=seed) for seed in range(NUM_PROBLEMS)]
    most = MOST_ERRORS * math.sqrt(sum(map(luck, problems)))
    for answer in CONSTANTS:
        rewards = []
        for problem in problems:
            reward = outcome_reward(judged(problem, answer), RewardConfig())
            assert reward is not None, f"{answer} has no price: {problem.statement}"
            rewards.append(reward)
        assert math.fsum(rewards) <= most, f"{answer} earns {math.fsum(rewards)}"
