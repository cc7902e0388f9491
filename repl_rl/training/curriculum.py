"""Draw families and tiers more often where groups neither fail nor succeed as a whole.

    problem number -> cell by weight -> Problem;  groups of a step -> rates of cells -> weights

A cell's state is one number, its recent rate, which stands in each row of `metrics.jsonl`: a run
that goes on reads it there. Knows cells and rates. Does not know the update.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from repl_rl.runs.summary import is_solved, is_ungraded
from repl_rl.seeds import derive_seed
from repl_rl.tasks.base import Cell, TieredTask
from repl_rl.types import Problem, Scored, Split

PREFIX = "curriculum/"
LOW, HIGH = 0.2, 0.8
"""Between these rates a group has right and wrong answers to compare."""
LEAST = 0.1
"""Weight of a cell that is always or never solved, beside 1 between the bounds: it may change."""
MEMORY = 0.8
"""Of a rate, what stays when a group of its cell comes in."""

Outcome = tuple[str, int, float, bool]
"""Cell, group, how much of a rollout one of its trajectories stands for, and whether that one
solved the problem."""


class Curriculum:
    """Training problems by number, as `ProblemSequence` has them, drawn by what was solved so far.

    `rates` are those of cells at the step that a run goes on from.
    """

    def __init__(
        self, task: TieredTask, *, seed: int, rates: Mapping[str, float] | None = None
    ) -> None:
        self._task = task
        self._seed = seed
        self._rates = dict(rates or {})
        self._drawn: dict[int, Problem] = {}

    def __getitem__(self, number: int) -> Problem:
        """The same until `hear` is called."""
        if number not in self._drawn:
            weights = self.weights()
            rng = random.Random(derive_seed(self._seed, "cell", number))
            (cell,) = rng.choices(list(weights), list(weights.values()))
            seed = derive_seed(self._seed, "problem", number)
            self._drawn[number] = self._task.problem(cell, Split.TRAIN, seed=seed)
        return self._drawn[number]

    def weights(self) -> dict[Cell, float]:
        """How often each chosen cell is drawn, compared with the others."""
        choice = self._task.choice
        families = choice.families_of(Split.TRAIN)
        cells = [
            cell
            for cell in self._task.cells
            if cell.family in families and cell.tier in choice.tiers
        ]
        tiers = defaultdict[str, int](int)
        for cell in cells:
            tiers[cell.family] += 1
        return {
            cell: choice.weight(cell.family) / tiers[cell.family] * self._factor(cell)
            for cell in cells
        }

    def _factor(self, cell: Cell) -> float:
        """1 between the bounds and for a cell that is not known, down to `LEAST` at 0 and 1."""
        rate = self._rates.get(str(cell), LOW)
        beyond = max(LOW - rate, rate - HIGH, 0.0) / LOW
        return 1.0 - (1.0 - LEAST) * beyond

    def hear(self, outcomes: Iterable[Outcome]) -> None:
        """What became of the trajectories of a step, those of all ranks."""
        groups = defaultdict[tuple[str, int], list[tuple[float, bool]]](list)
        for name, group, weight, solved in outcomes:
            groups[name, group].append((weight, solved))
        for (name, _), found in sorted(groups.items()):
            rate = math.fsum(w for w, solved in found if solved) / math.fsum(w for w, _ in found)
            before = self._rates.get(name, rate)
            self._rates[name] = MEMORY * before + (1 - MEMORY) * rate
        self._drawn.clear()

    def metrics(self) -> dict[str, float]:
        return {PREFIX + name: rate for name, rate in sorted(self._rates.items())}


def outcomes(scored: Sequence[Scored], shares: Sequence[float]) -> list[Outcome]:
    """Those of one rank, for `hear`; what could not be graded says nothing of a cell."""
    return [
        (str(cell_of(item.problem)), item.trajectory.group_index, weight, is_solved(item))
        for item, weight in zip(scored, shares, strict=True)
        if not is_ungraded(item)
    ]


def cell_of(problem: Problem) -> Cell:
    return Cell(family=problem.meta["family"], tier=int(problem.meta["tier"]))


def rates_in(numbers: Mapping[str, float]) -> dict[str, float]:
    """The rates of cells in a row of metrics."""
    return {
        name.removeprefix(PREFIX): rate for name, rate in numbers.items() if name.startswith(PREFIX)
    }
