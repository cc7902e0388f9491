"""Problems whose lines all matter, for `learning.py`: `--task doors:Doors`.

    Doors red, blue, pink, then 3 steps, on day 4.

    x = 3 / x = 10*x + 1 / x = 10*x + 2 / x += 1 / x += 1 / x += 1 / submit_final_answer(x)

A policy begins as one that opens the right door with probability HINT + (1 - HINT) / 5 and mistypes
a share SLIP of its lines. It types half of those again. One wrong door, or one line that is not
typed again, and the answer is wrong, but where two such cancel: of trajectories
0.6 ** 3 * 0.9 ** 6 = 11 % are right.
"""

import itertools
import random
from collections.abc import Iterator

from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.base import Script

DOORS = {"red": 3, "blue": 1, "green": 2, "black": 0, "white": 4, "brown": 1, "grey": 3, "pink": 2}
"""The right one of five for each colour."""
HINT, SLIP = 0.5, 0.2


class Doors:
    name = "doors"
    num_doors, num_steps = 3, 3
    hint, slip = HINT, SLIP
    prompt = "# Choose a digit for each door, take the steps, submit_final_answer(x).\n{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{seed}/{split}")
        while True:
            colours, day = rng.sample([*DOORS], self.num_doors), rng.randint(1, 29)
            # The day is of no account; by it no problem is on both sides.
            if (split is Split.HELD_OUT) == (day % 5 == 0):
                number = int("".join(str(DOORS[colour]) for colour in colours))
                steps = f"then {self.num_steps} steps, on day {day}"
                yield Problem(
                    id=f"{'-'.join(colours)}-{day}",
                    statement=f"Doors {', '.join(colours)}, {steps}.",
                    meta={"answer": str(number + self.num_steps), "colours": " ".join(colours)},
                )

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        for place, colour in enumerate(problem.meta["colours"].split()):
            digit = DOORS[colour] if rng.random() < self.hint else rng.randrange(5)
            yield from self._typed(f"x = 10*x + {digit}" if place else f"x = {digit}", rng)
        for _ in range(self.num_steps):
            yield from self._typed("x += 1", rng)
        yield "submit_final_answer(x)"

    def grade(self, problem: Problem, submission: str) -> Verdict:
        is_right = submission.strip() == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)

    def _typed(self, line: str, rng: random.Random) -> Script:
        is_slip = rng.random() < self.slip
        if is_slip:
            yield line + ")"
        if not is_slip or rng.random() < 0.5:
            yield line


class HintedDoors(Doors):
    """The same problems, whose demonstrations open four doors of five right: with as many slips
    0.8 ** 3 * 0.9 ** 6 = 27 % of trajectories are right.
    """

    name = "hinted-doors"
    hint = 0.75


class SixDoors(Doors):
    """Six doors: 0.6 ** 6 * 0.9 ** 9 = 1.8 % of trajectories are right."""

    name = "six-doors"
    num_doors = 6


class EightDoors(Doors):
    """Eight doors: 0.6 ** 8 * 0.9 ** 11 = 0.5 % of trajectories are right."""

    name = "eight-doors"
    num_doors = 8


class SixOpened(SixDoors):
    """The same problems, whose demonstrations open the right doors and mistype nothing."""

    hint, slip = 1.0, 0.0


class EightOpened(EightDoors):
    """The same problems, whose demonstrations open the right doors and mistype nothing."""

    hint, slip = 1.0, 0.0


class SixAgain(SixDoors):
    """Eight of these problems, which come back. Nobody shows how they are solved."""

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        endless = super().problems(split, seed=seed)
        return itertools.islice(endless, 8) if split is Split.TRAIN else endless

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        yield "submit_final_answer(0)"
