"""The task itself: draws from the families, splits by hash, grades by rule.

    seed -> family -> tier -> rule -> Draft -> Problem on one side of the split

Knows families by their rules only; demonstrations are found by the family's name, too.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from repl_rl.base.disk import read_text
from repl_rl.grading.parse import Malformed
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.base import Cell, Choice, Script
from repl_rl.tasks.sympy_proofs.demonstration import demonstration
from repl_rl.tasks.sympy_proofs.family import FAMILIES, Draft, Rule

PROMPT_FILE = "sympy-proofs.txt"
HELD_OUT_ONE_IN = 8

SHORT = Choice(families=("identity", "equation", "modular", "calculus"), tiers=(1,))
"""Problems that one call solves: what the starter has been shown."""


class SympyProofs:
    """Exact problems of eleven families in five tiers, endless and seeded."""

    def __init__(self, choice: Choice = SHORT) -> None:
        self.name = "sympy-proofs"
        self.prompt = read_text(PROMPT_FILE)
        self.choice = choice
        self.baselines = known().baselines
        self.cells = tuple(
            Cell(family=name, tier=tier) for name, one in FAMILIES.items() for tier in one.tiers
        )

    def with_choice(self, choice: Choice) -> SympyProofs:
        """Another one, whose `problems` draws from `choice`."""
        return SympyProofs(choice)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Families take turns unless they have weights; tiers and rules are drawn; endless."""
        if split is Split.HELD_OUT and self.choice.is_frozen:
            yield from self._frozen()
            return
        rng = random.Random(f"{seed}/{split}")
        families = self.choice.families_of(split)
        turns = itertools.cycle(families)
        weights = [self.choice.weights.get(family, 1.0) for family in families]
        while True:
            is_even = len(set(weights)) == 1
            family = next(turns) if is_even else rng.choices(families, weights)[0]
            tiers = [tier for tier in FAMILIES[family].tiers if tier in self.choice.tiers]
            # One tier takes no random number: sequences of tier 1 alone stay what they are.
            tier = tiers[0] if len(tiers) == 1 else rng.choice(tiers)
            yield draw(Cell(family=family, tier=tier), split, rng)

    def _frozen(self) -> Iterator[Problem]:
        """Yield the frozen problems of the chosen cells, which take turns."""
        lists = [
            [self.problem(cell, Split.HELD_OUT, seed=seed) for seed in seeds]
            for cell in self.cells
            if cell.family in self.choice.families and cell.tier in self.choice.tiers
            for seeds in [known().frozen.get(str(cell), ())]
        ]
        for problems in itertools.zip_longest(*lists):
            yield from filter(None, problems)

    def problem(self, cell: Cell, split: Split, *, seed: int) -> Problem:
        """One of a cell; the same for the same seed."""
        return draw(cell, split, random.Random(f"{seed}/{split}/{cell}"))

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """Judge `submission` by the rule that made the problem; never evaluates it."""
        family = FAMILIES[problem.meta["family"]]
        tier, kind = problem.meta.get("tier"), problem.meta.get("kind", "")
        rules = family.rules_at(int(tier)) if tier else family.rules
        rule = rules.get(kind) or next(iter(rules.values()))
        try:
            return rule.grade(problem, submission)
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, method="parse", evidence=str(error))

    def reference(self, problem: Problem) -> str:
        """The answer that the problem was made from."""
        return problem.meta["answer"]

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        """One attempt: the solution of a rule that has one, else a strategy drawn by weight."""
        return demonstration(problem, rng)


class Known(msgspec.Struct, frozen=True):
    """Measurements of the cells: `benchmarks/sympy_proofs.py --write` makes the file."""

    baselines: dict[str, dict[str, float]]
    """Shares of problems, by `best single call` and `guessing`, by cell."""
    frozen: dict[str, tuple[int, ...]]
    """Seeds of held-out problems by cell; from tier 2 on no call alone solves one."""
    digest: str
    """Digest of all problems of `frozen`, by which a test tells a change of them."""


@cache
def known() -> Known:
    path = Path(__file__).with_name("known.json")
    return msgspec.json.decode(path.read_bytes(), type=Known)


def split_of(question: str) -> Split:
    """The side of the wall that `question` stands on, whatever the seed."""
    bucket = hashlib.blake2b(question.encode(), digest_size=8, person=b"split").digest()
    return Split.HELD_OUT if bucket[0] % HELD_OUT_ONE_IN == 0 else Split.TRAIN


def draw(cell: Cell, split: Split, rng: random.Random) -> Problem:
    """A problem of a cell on one side of the split."""
    # Some rules make no training problems.
    rules = {
        name: rule
        for name, rule in FAMILIES[cell.family].rules_at(cell.tier).items()
        if not (rule.is_held_out and split is Split.TRAIN)
    }
    while True:
        kind = rng.choice(tuple(rules))
        draft = rules[kind].draft(rng, cell.tier)
        points = f"{rng.getrandbits(64):016x}"
        if rules[kind].is_held_out or split_of(_identifying_text(draft)) is split:
            return _problem(cell, kind, rules[kind], draft, points)


def _identifying_text(draft: Draft) -> str:
    """All that tells one problem from another. The form is no part of it: a clearer word there
    moves no problem across the split."""
    return "\n".join([*draft.setup, draft.question])


def _problem(cell: Cell, kind: str, rule: Rule, draft: Draft, points: str) -> Problem:
    meta = {
        **draft.facts,
        "family": cell.family,
        "kind": kind,
        "tier": str(cell.tier),
        "answer": draft.answer,
        "points": points,
    }
    if draft.solution:
        meta["solution"] = "\n".join(draft.solution)
    return Problem(
        id=hashlib.blake2b(_identifying_text(draft).encode(), digest_size=6).hexdigest(),
        statement=f"{draft.question}\nAnswer: {draft.form}.",
        meta=meta,
        setup=draft.setup,
        chance=rule.chance,
    )
