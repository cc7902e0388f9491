"""One line decides, the others are forced: `repl-rl train --task bifurcation:Bifurcation`.

What each line is worth is known. With a policy that opens the right door with probability p, the
first line is worth 1 - p where it does and -p where not, and every other line 0, however it is
spelled. So the task shows how far an estimate of credit goes astray as trajectories become longer.
"""

import random
from collections.abc import Generator, Iterator

from repl_rl import Problem, Split, Verdict, VerdictKind

DOORS = {"red": 3, "blue": 1, "green": 2, "black": 0, "white": 4, "brown": 1, "grey": 3, "pink": 2}
"""The right one of five for each colour."""
HINT = 0.25
"""The share of demonstrations that open it on purpose, so that a policy begins to look at colours.
The others open any: it starts at HINT + (1 - HINT) / 5 = 40 %, and rewards must teach the rest."""
STEPS = ("x += 1", "x = x + 1", "x = 1 + x")


class Bifurcation:
    name = "bifurcation"
    prompt = "# Choose a door, take the steps, submit_final_answer(x).\n{{problem}}"
    lengths: tuple[int, ...] = (2, 4, 8, 16)
    """Lines of a trajectory, the first and the submission among them."""

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{seed}/{split}")
        while True:
            colour, length, day = rng.choice([*DOORS]), rng.choice(self.lengths), rng.randint(1, 29)
            # The day is of no account; by it no problem is on both sides.
            if (split is Split.HELD_OUT) == (day % 5 == 0):
                yield Problem(
                    id=f"{colour}-{length}-{day}",
                    statement=f"The {colour} door of 5, {length - 2} steps, on day {day}.",
                    meta={"answer": str(DOORS[colour] + length - 2), "steps": str(length - 2)},
                )

    def demonstrate(self, problem: Problem, rng: random.Random) -> Generator[str, str, None]:
        is_hint = rng.random() < HINT
        yield f"x = {DOORS[problem.statement.split()[1]] if is_hint else rng.randrange(5)}"
        for _ in range(int(problem.meta["steps"])):
            yield rng.choice(STEPS)
        yield "submit_final_answer(x)"

    def grade(self, problem: Problem, submission: str) -> Verdict:
        is_right = submission.strip() == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)


class Bifurcation2(Bifurcation):
    lengths = (2,)


class Bifurcation4(Bifurcation):
    lengths = (4,)


class Bifurcation8(Bifurcation):
    lengths = (8,)


class Bifurcation16(Bifurcation):
    lengths = (16,)
