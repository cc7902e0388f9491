"""A task with families and tiers: `repl-rl tasks arithmetic:Arithmetic` shows its problems."""

import random
from collections.abc import Iterator
from hashlib import blake2b

from repl_rl import Malformed, Problem, Split, Verdict, VerdictKind, compare, parse

FAMILIES = {"sum": "+-", "product": "*", "fraction": "+-*/"}


class Arithmetic:
    name = "arithmetic"
    prompt = "from sympy import *\n# Answer exactly: submit_final_answer(...).\n{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{seed}/{split}")
        while True:
            for family, operators in FAMILIES.items():
                tier = rng.randint(1, 3)  # operators beyond the first
                text = str(rng.randint(2, 99))
                for _ in range(tier + 1):
                    text = f"({text} {rng.choice(operators)} {rng.randint(2, 99)})"
                statement = f"What is {text}? Answer: an integer or a Rational."
                # A hash of the statement, not the seed, says on which side a problem is.
                id_ = blake2b(statement.encode(), digest_size=6).hexdigest()
                if (split is Split.HELD_OUT) == (int(id_, 16) % 8 == 0):
                    meta = {"family": family, "tier": str(tier), "answer": text}
                    yield Problem(id=id_, statement=statement, meta=meta)

    def grade(self, problem: Problem, submission: str) -> Verdict:
        try:
            got = parse(submission)  # through a whitelist: a submission is never evaluated
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, evidence=str(error))
        return compare(got, parse(problem.meta["answer"]), seed=problem.id)

    def reference(self, problem: Problem) -> str:
        return problem.meta["answer"]
