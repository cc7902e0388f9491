"""Tasks for `forms.py`, beside those that are there: their demonstrations suit every form.

Euclid        a family of reasoning-gym whose next line is made of the value of the last one
NamedEuclid   the same problems by a loop over names: whoever writes it needs no value
Words         the kinds of `examples/word_problems.py`, without end
"""

import random
from collections.abc import Iterator
from hashlib import blake2b

from repl_rl.config.sections import DataConfig
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.rollout.sampler import fixed_script
from repl_rl.tasks.base import Script
from repl_rl.tasks.data.gym import open_family
from word_problems import draw

SLIP, EARLY = 0.1, 0.3
"""Shares of lines that are mistyped, half of them typed again, and of chains that end too early."""


class Euclid:
    """`reasoning-gym:gcd` by Euclid's chain of remainders, each typed from the answer before it."""

    name = "euclid"
    prompt = "# One remainder after the other, then submit_final_answer(...).\n{{problem}}"

    def __init__(self) -> None:
        self._family, _ = open_family("reasoning-gym:gcd", DataConfig())

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        return self._family.problems(split, seed=seed)

    def grade(self, problem: Problem, submission: str) -> Verdict:
        return self._family.grade(problem, submission)

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        a, b = numbers_of(problem)
        while b:
            yield from typed(f"{a} % {b}", rng)
            a, b = b, a % b
            if b and rng.random() < EARLY / 4:
                break
        yield f"submit_final_answer({a})"


class NamedEuclid(Euclid):
    """The same in two lines. Ends too early where the loop is forgotten."""

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        a, b = numbers_of(problem)
        step = "a, b = b, a % b"
        yield from typed(f"a, b = {a}, {b}", rng)
        yield from typed(step if rng.random() < EARLY else f"while b: {step}", rng)
        yield "submit_final_answer(a)"


def numbers_of(problem: Problem) -> tuple[int, int]:
    """Return the two numbers whose divisor is sought."""
    a, b = problem.statement.partition(": ")[2].partition(".")[0].split(", ")
    return int(a), int(b)


def typed(line: str, rng: random.Random) -> Script:
    """A line as it is typed: mistyped at times, and then perhaps again."""
    if is_slip := rng.random() < SLIP:
        yield line + ")"
    if not is_slip or rng.random() < 0.5:
        yield line


class Words:
    name = "words"
    prompt = "# Answer with submit_final_answer(...).\n{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        for statement, (line, submitted, answer) in draw(random.Random(f"{seed}/{split}")):
            id_ = blake2b(statement.encode(), digest_size=6).hexdigest()
            if (split is Split.HELD_OUT) == (int(id_, 16) % 8 == 0):
                meta = {"answer": str(answer), "lines": f"{line}\nsubmit_final_answer({submitted})"}
                yield Problem(id=id_, statement=statement, meta=meta)

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        return fixed_script(problem.meta["lines"].split("\n"))

    def grade(self, problem: Problem, submission: str) -> Verdict:
        is_right = submission.strip() == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)
