"""A group that branches, small enough to work out by hand: three leaves with the outcomes 1, 0, 0.

1 leaves 0 after two of its three lines. The state that they share is worth 1/2, and the prompt the
mean of that and 0, which is 1/4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from repl_rl.records import Branch, OutcomeKind, Problem, Reward, Scored, Trajectory

OUTPUT, SILENT, SUBMITTED = OutcomeKind.OK_OUTPUT, OutcomeKind.OK_SILENT, OutcomeKind.SUBMITTED
SHARED = ((" x = 1\n", SILENT, ">>>"), (" x + 1\n", OUTPUT, "2\n>>>"))
LEAVES = (
    (*SHARED, (" submit_final_answer(_)\n", SUBMITTED, None)),
    (*SHARED, (" x + 2\n", OUTPUT, "3\n>>>"), (" submit_final_answer(3)\n", SUBMITTED, None)),
    ((" submit_final_answer(4)\n", SUBMITTED, None),),
)
OUTCOMES, SUBMISSIONS = (1.0, 0.0, 0.0), ("2", "3", "4")


def three_leaves(build: Callable[..., Trajectory]) -> list[Scored]:
    """In the order of siblings; `build` is the fixture `make_trajectory`."""
    left = (None, Branch(sibling_index=0, num_lines=2, seed=5), None)
    return [
        Scored(
            trajectory=replace(
                build(parts, sibling_index=sibling, submission=submission), branch=branch
            ),
            problem=Problem(id="p", statement="What is 1 + 1?"),
            verdict=None,
            reward=Reward(line_rewards=(0.0,) * len(parts), outcome_reward=outcome),
        )
        for sibling, (parts, outcome, submission, branch) in enumerate(
            zip(LEAVES, OUTCOMES, SUBMISSIONS, left, strict=True)
        )
    ]
