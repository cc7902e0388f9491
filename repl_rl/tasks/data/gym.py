"""Families of reasoning-gym: `reasoning-gym:leg_counting`, seeded and without end.

    family, split, seed -> problems;  a submission -> the family's own score

A problem is a function of (family, seed, index): the grader's process makes it again and asks the
family, in another process than the one that trains. Some families evaluate an answer as Python to
score it. Theirs are read by `grading.parse` first, which lets only values through.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import random
import re
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any

from repl_rl.config import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.grading.parse import Malformed, parse
from repl_rl.tasks.data.golds import names_in
from repl_rl.tasks.data.graders import unquoted
from repl_rl.tasks.data.names import GYM
from repl_rl.tasks.data.reading import Reading, share
from repl_rl.tasks.data.texts import statement_of
from repl_rl.texts import read_text
from repl_rl.types import Problem, Split, Verdict, VerdictKind

SPEC = "repl_rl.tasks.data.gym:GymGrader"
CHUNK = 500
"""Problems of one of the library's data sets, as it makes them by default."""
_MOST_REPEATED = 20
"""Chunks without a problem of the wanted side, after which there is none."""
_UNCALLED = re.compile(r"[\w\s.,+\-*/%<>!?#|]*", re.ASCII)
"""No bracket of any kind, no quote, no colon."""
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify|parse_latex)\(")


class GymGrader:
    """Scores what was submitted as the family does; solved is 1.0, and nothing less."""

    def __init__(self) -> None:
        _library()  # takes seconds, which no deadline should count

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """Raises RuntimeError where the library makes another problem of the seed."""
        meta = problem.meta
        made = dataset(meta["family"], int(meta["seed"]))
        entry = made[int(meta["index"])]
        if _digest(entry["question"]) != meta["question"]:
            raise RuntimeError("this version of reasoning-gym makes another problem of the seed")
        text = unquoted(submission)
        if entry["answer"] is not None and text == str(entry["answer"]):
            return Verdict(kind=VerdictKind.PROVED, method="text")
        if evaluates(type(made).__module__) and not is_harmless(text):
            evidence = "this family evaluates answers, and this one is no plain value"
            return Verdict(kind=VerdictKind.MALFORMED, method="parse", evidence=evidence)
        score = float(made.score_answer(text, entry))
        kind = VerdictKind.SUPPORTED if score == 1.0 else VerdictKind.WRONG
        return Verdict(kind=kind, method="reasoning-gym", evidence=f"score {score:g}")

    def reference(self, problem: Problem) -> str:
        """The family's own answer."""
        return repr(problem.meta["answer"])


class GymTask(GymGrader):
    """One family as a task. A hash of the question chooses its side, whatever the seed."""

    def __init__(self, name: str, data: DataConfig) -> None:
        super().__init__()
        self.name = name
        self.prompt = read_text("data.txt")
        self._family = name.removeprefix(GYM)
        self._held_out = data.held_out
        _check_family(self._family)

    def read(self) -> Reading:
        """The version of the library, on which its problems depend."""
        made_by = f"{self.name}: made by reasoning-gym {version('reasoning-gym')}"
        return Reading(sides={}, said=made_by, record=made_by)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Problems of one side in a seeded order; it ends where a family has no others."""
        rng = random.Random(f"{seed}/{split}")
        seen: set[str] = set()
        num_barren = 0
        while num_barren < _MOST_REPEATED:
            num_barren += 1
            for problem in self._chunk(rng.getrandbits(31)):
                is_held = share(problem.statement) < self._held_out
                if is_held is (split is Split.HELD_OUT) and problem.id not in seen:
                    seen.add(problem.id)
                    num_barren = 0
                    yield problem

    def _chunk(self, seed: int) -> Iterator[Problem]:
        made = dataset(self._family, seed)
        for index in range(CHUNK):
            entry = made[index]
            question = _digest(entry["question"])
            try:
                statement = statement_of(entry["question"])
            except ValueError:  # too long to be sent to a grader
                continue
            meta = {
                "family": self._family,
                "seed": str(seed),
                "index": str(index),
                "question": question,
                "answer": str(entry["answer"]),
            }
            yield Problem(id=question[:12], statement=statement, meta=meta)


def open_family(name: str, data: DataConfig) -> tuple[GymTask, str]:
    """The task of `reasoning-gym:family`. ConfigError for settings that it does not read."""
    if data != DataConfig(held_out=data.held_out):
        raise ConfigError(
            f"{name!r} makes its own problems: of [data] it takes data.held_out alone"
        )
    return GymTask(name, data), SPEC


def _check_family(family: str) -> None:
    known = _library().factory.DATASETS
    if family not in known:
        near = difflib.get_close_matches(family, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
        raise ConfigError(f"reasoning-gym has no family {family!r}; {hint}")
    try:
        dataset(family, 0)
    except (AssertionError, ValueError, TypeError) as error:
        raise ConfigError(
            f"the family {family!r} of reasoning-gym takes settings: {error}"
        ) from None


def is_harmless(text: str) -> bool:
    """Whether evaluating it could only compute: a literal, a plain value, or nothing to call."""
    try:
        ast.literal_eval(text)
        return True
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    try:
        parse(text, symbols=names_in(text))
        return True
    except Malformed:
        return _UNCALLED.fullmatch(text) is not None and "__" not in text


@cache
def evaluates(module: str) -> bool:
    """Whether the module of a family has what could run an answer."""
    return _EVALUATES.search(inspect.getsource(sys.modules[module])) is not None


@lru_cache(maxsize=8)
def dataset(family: str, seed: int) -> Any:  # of the library, which has no types
    return _library().create_dataset(family, seed=seed, size=CHUNK)


def _digest(question: str) -> str:
    return hashlib.blake2b(question.encode(), digest_size=16).hexdigest()


def _library() -> Any:
    try:
        import reasoning_gym
    except ModuleNotFoundError:
        raise ConfigError(
            "reasoning-gym:... takes the package reasoning-gym, which is not installed; install "
            "'repl-rl[gym]'"
        ) from None
    return reasoning_gym
