"""The packaged task for `prefixes.py`, measured on what was trained on alone.

Each family has a rule that makes held-out problems only. It makes 42 % of those of tier 2 and 63 %
of tier 3, as of problems by other rules one in eight is held out. So the task's own measurement
tells more of what carries over to another kind of problem than of whether a tier was learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from repl_rl.records import Problem, Split
from repl_rl.tasks.base import Choice
from repl_rl.tasks.sympy_proofs import SHORT, SympyProofs
from repl_rl.tasks.sympy_proofs.family import FAMILIES


class TrainedRules(SympyProofs):
    """`sympy-proofs` whose held-out problems are by rules that make training problems, too."""

    def __init__(self, choice: Choice = SHORT) -> None:
        super().__init__(choice)
        self.name = "tier_tasks:TrainedRules"

    def with_choice(self, choice: Choice) -> TrainedRules:
        return TrainedRules(choice)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        if split is Split.TRAIN:
            yield from super().problems(split, seed=seed)
            return
        families = [
            SympyProofs(replace(self.choice, families=(name,))).problems(split, seed=seed)
            for name in self.choice.families_of(split)
        ]
        # Frozen families have an end, and not the same one.
        for problems in zip_longest(*(filter(is_trained, one) for one in families)):
            yield from filter(None, problems)


def is_trained(problem: Problem) -> bool:
    meta = problem.meta
    return not FAMILIES[meta["family"]].rules_at(int(meta["tier"]))[meta["kind"]].is_held_out
