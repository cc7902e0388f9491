"""The task itself: draws from the families, splits by hash, grades by family.

    seed -> family in turn -> kind -> Draft -> Problem on one side of the split

Knows families by their tables only; demonstrations are found by the family's name, too.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping

from repl_rl.grading.parse import Malformed
from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs import calculus, equation, identity, modular
from repl_rl.tasks.sympy_proofs.demonstration import demonstration
from repl_rl.tasks.sympy_proofs.draft import Draft, Kind
from repl_rl.texts import read_text
from repl_rl.types import Problem, Split, Verdict, VerdictKind

PROMPT_FILE = "sympy-proofs.txt"
HELD_OUT_ONE_IN = 8

FAMILIES: Mapping[str, Mapping[str, Kind]] = {
    "identity": identity.KINDS,
    "equation": equation.KINDS,
    "modular": modular.KINDS,
    "calculus": calculus.KINDS,
}
_GRADERS: Mapping[str, Callable[[Problem, str], Verdict]] = {
    "identity": identity.grade,
    "equation": equation.grade,
    "modular": modular.grade,
    "calculus": calculus.grade,
}


class SympyProofs:
    """Identities, equations, number theory and calculus, endless and seeded."""

    def __init__(self) -> None:
        self.name = "sympy-proofs"
        self.prompt = read_text(PROMPT_FILE)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Families take turns, kinds are drawn; endless."""
        rng = random.Random(f"{seed}/{split}")
        while True:
            for family, kinds in FAMILIES.items():
                yield _draw(family, kinds, split, rng)

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """Judge `submission` by the rules of the problem's family; never evaluates it."""
        try:
            return _GRADERS[problem.meta["family"]](problem, submission)
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, method="parse", evidence=str(error))

    def reference(self, problem: Problem) -> str:
        """The answer that the problem was made from."""
        return problem.meta["answer"]

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        """One attempt by a strategy drawn from the weights of `demonstration`."""
        return demonstration(problem, rng)


def split_of(question: str) -> Split:
    """The side of the wall that `question` stands on, whatever the seed."""
    bucket = hashlib.blake2b(question.encode(), digest_size=8, person=b"split").digest()
    return Split.HELD_OUT if bucket[0] % HELD_OUT_ONE_IN == 0 else Split.TRAIN


def _draw(family: str, kinds: Mapping[str, Kind], split: Split, rng: random.Random) -> Problem:
    while True:
        kind = rng.choice(tuple(kinds))
        draft = kinds[kind](rng)
        points = f"{rng.getrandbits(64):016x}"
        if split_of(draft.question) is split:
            return _problem(family, kind, draft, points)


def _problem(family: str, kind: str, draft: Draft, points: str) -> Problem:
    meta = {
        **draft.facts,
        "family": family,
        "kind": kind,
        "tier": str(draft.tier),
        "answer": draft.answer,
        "points": points,
    }
    # The form is not hashed: a clearer word in it moves no problem across the split.
    id_ = hashlib.blake2b(draft.question.encode(), digest_size=6).hexdigest()
    statement = f"{draft.question}\nAnswer: {draft.form}."
    return Problem(id=id_, statement=statement, meta=meta)
