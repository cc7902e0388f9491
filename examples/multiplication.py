"""A whole task: `repl-rl train --task multiplication:Multiplication` from this folder."""

import random
from collections.abc import Iterator

from repl_rl import Problem, Split, Verdict, VerdictKind


class Multiplication:
    name = "multiplication"
    prompt = "# Answer with submit_final_answer(...).\n{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        rng = random.Random(seed)
        while True:
            a, b = rng.randint(2, 99), rng.randint(2, 99)
            # One product in five is held out, whatever the seed: no problem is on both sides.
            if (split is Split.HELD_OUT) == ((a + b) % 5 == 0):
                yield Problem(
                    id=f"{a}x{b}", statement=f"What is {a} * {b}?", meta={"answer": str(a * b)}
                )

    def grade(self, problem: Problem, submission: str) -> Verdict:
        is_right = submission.strip() == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)
