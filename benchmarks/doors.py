"""Problems whose lines all matter, for `learning.py`: `--task doors:Doors`.

    Doors red, blue, pink, then 3 steps, on day 4.

    x = 3 / x = 10*x + 1 / x = 10*x + 2 / x += 1 / x += 1 / x += 1 / submit_final_answer(x)

A policy begins as one that opens the right door with probability HINT + (1 - HINT) / 5 and mistypes
a share SLIP of its lines. It types half of those again. One wrong door, or one line that is not
typed again, and the answer is wrong, but where two such cancel: of trajectories
0.6 ** 3 * 0.9 ** 6 = 11 % are right.
"""

import random
from collections.abc import Iterator

from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.base import Script

DOORS = {"red": 3, "blue": 1, "green": 2, "black": 0, "white": 4, "brown": 1, "grey": 3, "pink": 2}
"""The right one of five for each colour."""
NUM_DOORS, NUM_STEPS = 3, 3
HINT, SLIP = 0.5, 0.2


class Doors:
    name = "doors"
    prompt = "# Choose a digit for each door, take the steps, submit_final_answer(x).\n{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{seed}/{split}")
        while True:
            colours, day = rng.sample([*DOORS], NUM_DOORS), rng.randint(1, 29)
            # The day is of no account; by it no problem is on both sides.
            if (split is Split.HELD_OUT) == (day % 5 == 0):
                number = int("".join(str(DOORS[colour]) for colour in colours))
                yield Problem(
                    id=f"{'-'.join(colours)}-{day}",
                    statement=f"Doors {', '.join(colours)}, then {NUM_STEPS} steps, on day {day}.",
                    meta={"answer": str(number + NUM_STEPS), "colours": " ".join(colours)},
                )

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        for place, colour in enumerate(problem.meta["colours"].split()):
            digit = DOORS[colour] if rng.random() < HINT else rng.randrange(5)
            yield from _typed(f"x = 10*x + {digit}" if place else f"x = {digit}", rng)
        for _ in range(NUM_STEPS):
            yield from _typed("x += 1", rng)
        yield "submit_final_answer(x)"

    def grade(self, problem: Problem, submission: str) -> Verdict:
        is_right = submission.strip() == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)


def _typed(line: str, rng: random.Random) -> Script:
    is_slip = rng.random() < SLIP
    if is_slip:
        yield line + ")"
    if not is_slip or rng.random() < 0.5:
        yield line
