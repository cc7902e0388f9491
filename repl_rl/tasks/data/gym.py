"""Families of reasoning-gym as tasks: `reasoning-gym:leg_counting`, seeded and without end.

    family, split, seed -> problems;  a submission -> its spellings -> the family's own score

A problem carries its entry, all that the score reads. The score is asked in the grader's process,
which never makes the problem again. Some families evaluate an answer as Python to score it. Theirs
are read by `grading.parse` first, which lets only values through. Knows no kernel, no training.

Draws have a process of their own, with the environment of a grader: some families walk over sets of
strings or ask generators that nobody seeds, and a process's hash seed is fixed when it starts.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import io
import itertools
import json
import math
import random
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any

from repl_rl.base.disk import read_text
from repl_rl.base.plugins import nearest
from repl_rl.config.sections import GYM, DataConfig
from repl_rl.errors import ConfigError, GraderError, how_to_install
from repl_rl.grading.grader import clean_environment
from repl_rl.grading.parse import Malformed, parse
from repl_rl.grading.worker import described, private_stdout
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.data.golds import names_in
from repl_rl.tasks.data.reading import Reading, share
from repl_rl.tasks.data.texts import MAX_CHARS, statement_of

CHUNK = 500
"""Problems of one of the library's data sets, as it makes them by default."""
_NOT_SCORED = ("source_dataset", "source_index", "difficulty")
"""Metadata that no score reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GymEntry:
    """A problem as the library makes it."""

    question: str
    answer: str | None
    """None where a family knows no answer of its own."""
    metadata: str
    """Metadata that a score reads, as a literal of Python: JSON has neither tuples nor sets."""
    seed: int
    index: int
    """Index of the problem in the library."""

    def for_score(self) -> dict[str, Any]:
        """Argument for the library's `score_answer`. Raises ValueError for what is no literal."""
        metadata = ast.literal_eval(self.metadata)
        return {"question": self.question, "answer": self.answer, "metadata": metadata}


def entry_at(family: str, *, seed: int, index: int) -> GymEntry:
    """The entry, as this process makes it."""
    with contextlib.redirect_stdout(io.StringIO()):  # some print how far they are
        entry = dataset(family, seed)[index]
    scored = {key: one for key, one in entry["metadata"].items() if key not in _NOT_SCORED}
    answer = entry["answer"]
    return GymEntry(
        question=entry["question"],
        answer=None if answer is None else str(answer),
        metadata=repr(as_literal(scored)),
        seed=seed,
        index=index,
    )


def as_literal(value: Any) -> Any:
    """Return it in types that a literal spells: words and numbers of numpy become Python's."""
    if isinstance(value, Mapping):
        return {as_literal(key): as_literal(one) for key, one in value.items()}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return kind(map(as_literal, value))
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        return as_literal(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | complex | None) else str(value)


def drawn(family: str, seed: str) -> Iterator[GymEntry]:
    """Entries without end, in an order that is a function of the seed, wherever it is asked for.

    Raises GraderError where the process ends.
    """
    command = (sys.executable, "-P", "-m", __name__, family, seed)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # warnings of the library
        env=clean_environment(),
        start_new_session=True,
    )
    assert process.stdout is not None, "started with a pipe"
    with process, contextlib.closing(process.stdout):
        try:
            for line in process.stdout:
                row = json.loads(line)
                if "failure" in row:
                    raise GraderError(f"reasoning-gym:{family} makes no problem: {row['failure']}")
                yield GymEntry(**row)
        finally:
            process.kill()
    raise GraderError(f"reasoning-gym:{family} makes no problem: its process has ended")


def main(family: str, seed: str) -> None:
    """Write entries until nobody reads them; a pipe holds few, so hardly any are made in vain."""
    warnings.simplefilter("ignore")
    output = private_stdout()
    rng = random.Random(seed)
    with contextlib.suppress(BrokenPipeError):
        while True:
            chunk = rng.getrandbits(31)
            for index in range(CHUNK):
                _seed_all(f"{chunk}/{index}")
                try:
                    row = asdict(entry_at(family, seed=chunk, index=index))
                except Exception as error:  # noqa: BLE001 a library's generator may raise anything
                    row = {"failure": described(error)}
                output.write(json.dumps(row).encode() + b"\n")
                output.flush()


def _seed_all(seed: str) -> None:
    """Seed the generators of this process, which some families ask without seeding them."""
    import numpy

    random.seed(seed)
    numpy.random.seed(random.getrandbits(32))


@lru_cache(maxsize=8)
def dataset(family: str, seed: int) -> Any:  # of the library, which has no types
    """The library's own, of `CHUNK` entries, which are made when they are asked for."""
    return library().create_dataset(family, seed=seed, size=CHUNK)


def library() -> Any:
    """The module `reasoning_gym`. ConfigError where it is not installed."""
    try:
        import reasoning_gym
    except ModuleNotFoundError:
        raise ConfigError(
            f"reasoning-gym:... needs the package reasoning-gym, which is not installed; "
            f"{how_to_install('gym')}"
        ) from None
    return reasoning_gym


_BETWEEN = (", ", ",", " ", "\n", " \u00d7 ", "")
"""Marks that may stand between the elements of a list that is written without brackets."""
_FRACTION = re.compile(r"Fraction\((-?\d+), (\d+)\)")
_DECIMAL = re.compile(r"Decimal\('([-+.\w]+)'\)")
_MATRIX = re.compile(r"\w*Matrix\((\[.*\])\)", re.DOTALL)
_IMAGINARY = re.compile(r"\*?\bI\b")
_WORDS = {True: ("true", "Yes", "yes"), False: ("false", "No", "no"), None: ("null",)}


def spellings(submission: str) -> list[str]:
    """Each text once, its own spelling first; a submitted string is one text, and no other."""
    try:
        value = ast.literal_eval(submission.strip())
        texts = [value] if isinstance(value, str) else [submission, *_spelled(value)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        texts = [submission, *_of_classes(submission.strip())]
    return list(dict.fromkeys(texts))


def _of_classes(text: str) -> Iterator[str]:
    """Value behind the `repr` of fractions, decimals, sympy's matrices and complex numbers."""
    if match := _FRACTION.fullmatch(text):
        yield f"{match[1]}/{match[2]}"
    elif match := _DECIMAL.fullmatch(text):
        yield match[1]
    elif match := _MATRIX.fullmatch(text):
        yield from spellings(match[1])
    elif _IMAGINARY.search(text):
        yield _IMAGINARY.sub("i", text)


def is_same_value(submission: str, answer: str) -> bool:
    """Say whether an answer spells, as Python or JSON, the submitted value; `0.50` is 0.5."""
    try:
        value = ast.literal_eval(submission.strip())
        return not isinstance(value, str) and _plain(value) in map(_plain, _values(answer))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False


def _values(text: str) -> Iterator[Any]:
    for read in (ast.literal_eval, json.loads):
        with contextlib.suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            yield read(text.strip())


def _plain(value: Any) -> Any:
    """Return it with lists for tuples, and truth apart from 1: `True == 1` in Python."""
    if isinstance(value, dict):
        return {_key(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return _key(value)


def _key(value: Any) -> Any:
    return (bool, value) if isinstance(value, bool) else value


def _spelled(value: Any) -> Iterator[str]:
    if isinstance(value, set):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple | dict):
        for separators in ((", ", ": "), (",", ":")):
            yield json.dumps(value, ensure_ascii=False, separators=separators)
        yield json.dumps(value)
    if isinstance(value, list | tuple):
        yield from _joined(value)
    elif isinstance(value, dict):
        yield from _joined([f"{key}={one}" for key, one in value.items()])
    elif isinstance(value, bool | None):
        yield from _WORDS[value]
    elif isinstance(value, complex):
        sign = "-" if value.imag < 0 else "+"
        yield f"{value.real} {sign} {abs(value.imag)}i"


def _joined(elements: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    """The elements without brackets; rows of a matrix one below the other.

    Nothing stands between letters alone: `[1, 2]` is not 12.
    """
    if elements and all(isinstance(row, list | tuple) for row in elements):
        for between in _between(one for row in elements for one in row):
            yield "\n".join(between.join(map(str, row)) for row in elements)
    else:
        for between in _between(elements):
            yield between.join(map(str, elements))


def _between(elements: Iterable[Any]) -> Sequence[str]:
    return _BETWEEN if all(isinstance(one, str) for one in elements) else _BETWEEN[:-1]


_MOST_REPEATED = 20 * CHUNK
"""Entries without a problem of the wanted side, after which there is none."""
_NUM_TRIED = 2
"""Entries on which a family's score is tried before anything begins."""
NONSENSE = ("(", "words", "0")
"""Answers that are not right for every problem of a family."""
_UNCALLED = re.compile(r"[\w\s.,+\-*/%<>!?#|]*", re.ASCII)
"""No bracket of any kind, no quote, no colon."""
_EVALUATORS = {"eval", "exec", "parse_expr", "sympify", "parse_latex"}
_COMPUTES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
    *(ast.List, ast.Tuple, ast.Set, ast.Dict),
)
"""Syntax that calls nothing."""


class GymGrader:
    """Scores what was submitted as the family does; solved is 1.0, and nothing less."""

    def __init__(self, family: str) -> None:
        self._made = dataset(family, 0)  # takes seconds, which no deadline should count
        self._evaluates = evaluates(type(self._made).__module__)

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """The best verdict over all texts that the submitted value may stand for.

        Raises what the score raises on each of them, and RuntimeError for a problem that it cannot
        be asked about.
        """
        entry, texts = entry_of(problem), spellings(submission)
        if entry.answer in texts:
            return Verdict(kind=VerdictKind.PROVED, method="text")
        if entry.answer is not None and is_same_value(submission, entry.answer):
            return Verdict(kind=VerdictKind.PROVED, method="value")
        if self._evaluates:
            if not is_harmless_entry(entry):
                raise RuntimeError("the problem holds what could call something")
            texts = list(filter(is_harmless, texts))
        if not texts:
            evidence = "this family evaluates answers, and this one is no plain value"
            return Verdict(kind=VerdictKind.MALFORMED, method="parse", evidence=evidence)
        score = best_score(self._made.score_answer, texts, entry)
        kind = VerdictKind.SUPPORTED if score == 1.0 else VerdictKind.WRONG
        return Verdict(kind=kind, method="reasoning-gym", evidence=f"score {score:g}")

    def reference(self, problem: Problem) -> str | None:
        """The family's own answer; None where it has none."""
        answer = problem.meta.get("answer")
        return None if answer is None else repr(answer)


class _Graders:
    """`graders.leg_counting()` is the grader of that family: a spec names it, family and all."""

    def __getattr__(self, family: str) -> Callable[[], GymGrader]:
        return partial(GymGrader, family)


graders = _Graders()


class GymTask(GymGrader):
    """One family as a task. A hash of the question chooses its side, whatever the seed."""

    def __init__(self, name: str, data: DataConfig) -> None:
        self.name = name
        self.prompt = read_text("data.txt")
        self._family = name.removeprefix(GYM)
        self._held_out = data.held_out
        _check_family(self._family)
        super().__init__(self._family)

    def read(self) -> Reading:
        """The version of the library, on which its problems depend, and what its score is worth.

        Raises ConfigError where the score calls the family's own answers wrong.
        """
        made_by = f"{self.name}: made by reasoning-gym {version('reasoning-gym')}"
        doubt = doubt_of(self._family)
        return Reading(sides={}, summary=made_by + (doubt and f"; {doubt}"), record=made_by)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Problems of one side in a seeded order; it ends where a family has no others."""
        seen: set[str] = set()
        num_barren = 0
        for entry in drawn(self._family, f"{seed}/{split}"):
            num_barren += 1
            if num_barren > _MOST_REPEATED:
                return
            try:
                problem = problem_of(self._family, entry)
            except ValueError:  # too long to be sent to a grader
                continue
            is_held = share(problem.statement) < self._held_out
            if is_held is (split is Split.HELD_OUT) and problem.id not in seen:
                seen.add(problem.id)
                num_barren = 0
                yield problem


def open_family(name: str, data: DataConfig) -> tuple[GymTask, str]:
    """The task of `reasoning-gym:family`. ConfigError for settings that it does not read."""
    if data != DataConfig(held_out=data.held_out):
        raise ConfigError(
            f"{name!r} makes its own problems: of [data] it reads data.held_out alone"
        )
    return GymTask(name, data), f"{__name__}:graders.{name.removeprefix(GYM)}"


def problem_of(family: str, entry: GymEntry) -> Problem:
    """The problem that an entry is. Raises ValueError for one that is too long."""
    if len(entry.metadata) > MAX_CHARS:
        raise ValueError("too much that a score reads")
    question = _digest(entry.question)
    meta = {
        "family": family,
        "seed": str(entry.seed),
        "index": str(entry.index),
        "question": question,
        "scored": entry.metadata,
    }
    if entry.answer is not None:
        meta["answer"] = entry.answer
    return Problem(id=question[:12], statement=statement_of(entry.question), meta=meta)


def entry_of(problem: Problem) -> GymEntry:
    """The entry of a problem. Raises RuntimeError where it has none and cannot be made again."""
    meta = problem.meta
    seed, index = int(meta["seed"]), int(meta["index"])
    if "scored" in meta:
        answer, metadata = meta.get("answer"), meta["scored"]
        return GymEntry(
            question=problem.statement, answer=answer, metadata=metadata, seed=seed, index=index
        )
    made = entry_at(meta["family"], seed=seed, index=index)  # of a run that stored no entries
    if _digest(made.question) != meta["question"]:
        raise RuntimeError("reasoning-gym makes another problem of the seed here")
    return made


def best_score(
    score: Callable[[str, dict[str, Any]], float], texts: Sequence[str], entry: GymEntry
) -> float:
    """Over all texts. Raises what the score raises where it does so on each."""
    scores, errors = [], []
    for text in texts:
        try:
            scores.append(float(score(text, entry.for_score())))
        except Exception as error:  # noqa: BLE001 of a text that it does not expect, a score may raise anything
            errors.append(error)
    if not scores:
        raise errors[0]
    return max(scores)


def doubt_of(family: str) -> str:
    """A clause on what the score of a family takes for right and is not; empty for nothing.

    Raises ConfigError where it calls the family's own answers wrong, so that nothing can be solved.
    """
    made = dataset(family, 0)
    entries = [entry_at(family, seed=0, index=index) for index in range(_NUM_TRIED)]
    answers = [one.answer for one in entries if one.answer is not None]

    def is_right(text: str, entry: GymEntry) -> bool:
        try:
            return best_score(made.score_answer, [text], entry) == 1.0
        except Exception:  # noqa: BLE001 of a text that it does not expect, a score may raise anything
            return False

    def is_own(text: str, entry: GymEntry) -> bool:
        return text == entry.answer or is_same_value(text, entry.answer or "")

    if answers and not any(is_right(one.answer, one) for one in entries if one.answer is not None):
        raise ConfigError(
            f"reasoning-gym:{family} cannot be trained on: its score calls its own answers wrong, "
            f"such as {answers[0]!r}; expected another family"
        )
    taken = [
        text
        for text, entry in itertools.product(NONSENSE, entries)
        if is_right(text, entry) and not is_own(text, entry)
    ]
    if len(set(answers)) == len(entries) and all(is_right(answers[0], one) for one in entries):
        taken.append(answers[0])
    return f"its score takes {taken[0]!r} for right where it is wrong" if taken else ""


def _check_family(family: str) -> None:
    known = library().factory.DATASETS
    if family not in known:
        hint = nearest(family, known, otherwise=f"it has {', '.join(sorted(known))}")
        raise ConfigError(f"reasoning-gym has no family {family!r}; {hint}")
    try:
        dataset(family, 0)
    except (AssertionError, ValueError, TypeError) as error:
        raise ConfigError(
            f"the family {family!r} of reasoning-gym needs settings: {error}"
        ) from None


def is_harmless_entry(entry: GymEntry) -> bool:
    """Say whether no text in it, such as an integrand, could call anything when evaluated."""
    return all(map(is_harmless, _texts([entry.answer or "", ast.literal_eval(entry.metadata)])))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple | set):
        for one in value:
            yield from _texts(one)


def is_harmless(text: str) -> bool:
    """Say whether evaluating it could only compute: a plain value, or nothing to call."""
    try:
        if all(map(_only_computes, ast.walk(ast.parse(text.strip(), mode="eval")))):
            return True
        parse(text, symbols=names_in(text))
        return True
    except (SyntaxError, ValueError, RecursionError, MemoryError, Malformed):
        return _UNCALLED.fullmatch(text) is not None and "__" not in text


def _only_computes(node: ast.AST) -> bool:
    """A text within a text is as harmless as it is by itself: sympy evaluates it once more."""
    if isinstance(node, ast.Constant):
        value = node.value
        return is_harmless(value) if isinstance(value, str) else not isinstance(value, bytes)
    return isinstance(node, _COMPUTES)


@cache
def evaluates(module: str) -> bool:
    """Say whether the score of a family's module reaches what could run an answer."""
    names: dict[str, set[str]] = defaultdict(set)
    for function in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(function, ast.FunctionDef):
            inside = list(ast.walk(function))
            names[function.name] |= {one.id for one in inside if isinstance(one, ast.Name)}
            names[function.name] |= {one.attr for one in inside if isinstance(one, ast.Attribute)}
    reached, waiting = set[str](), ["score_answer"]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += names.get(name, ())
    return not _EVALUATORS.isdisjoint(reached - names.keys())


def _digest(question: str) -> str:
    return hashlib.blake2b(question.encode(), digest_size=16).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
