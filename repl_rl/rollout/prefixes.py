"""Beginnings that a trajectory shares with another, and which states can be restored.

    Stem -> Session in the state that the other one had
    stored Scored -> continuations of each of its states
    sources -> why each line may do something else next time, None where it may not

Nothing begins behind a line that names a clock or a draw: a list of words decides. Knows sessions.
Does not know engines, groups or training.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

from repl_rl.base.concurrency import derive_seed
from repl_rl.errors import ConfigError, StemError
from repl_rl.records import Attempt, Line, LineOutcome, OutcomeKind, Scored, Stem
from repl_rl.rollout.episode import Session
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import Prompt, strip_line
from repl_rl.transcript.tokens import Codec

# Modules stand for all that they hold: whoever imports it names them first. `random` and `sys` are
# missing, as most of what they hold is the same each time.
_LISTED: Mapping[str, str] = {
    "a clock": "time timed timethis timeit timeutils datetime sched asyncio profile cProfile",
    "a draw without a seed": "secrets uuid urandom SystemRandom Random seed tempfile randMatrix "
    "default_rng RandomState SeedSequence MT19937 PCG64 PCG64DXSM Philox SFC64",
    "a place in memory": "id hash",
    "what a process uses": "gc resource tracemalloc psutil getrefcount getallocatedblocks",
    "the system": "os posix platform socket",
    "threads": "threading _thread concurrent multiprocessing signal",
    "a module by its text": "__import__ importlib import_module",
}
_KINDS = {word: kind for kind, words in _LISTED.items() for word in words.split()}
_FILES = re.compile(r"/proc\b|/sys/|/dev/u?random")
"""Paths under which the system describes itself, or draws."""
_WORD = re.compile(r"[^\W\d]\w*")

_MAX_OPEN_CHARS = 1 << 15
_MAX_SOURCE_CHARS = 1 << 14
"""A longer source is searched for words, and not parsed."""


class _RanLine(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def outcome(self) -> LineOutcome: ...


def kernel_sources(lines: Sequence[_RanLine]) -> list[str]:
    """Sources that a kernel got, [L]: the end of the open lines before each line, then the line."""
    sources: list[str] = []
    pending = ""
    for line in lines:
        sources.append(pending + strip_line(line.source))
        is_open = line.outcome.kind is OutcomeKind.INCOMPLETE
        # Uncut, each of thousands of open lines would hold all before it: gigabytes.
        pending = f"{sources[-1]}\n"[-_MAX_OPEN_CHARS:] if is_open else ""
    return sources


def volatile_lines(sources: Sequence[str], *, setup: Iterable[str] = ()) -> list[str | None]:
    """Reasons for which each line may do something else next time, [L]; None where none is found.

    `sources` are what the kernel got, `setup` is what it had run before. Lines count from 1.
    """
    named = next(filter(None, map(_named, setup)), None)
    behind = None if named is None else f"runs after a setup that {named}"
    reasons: list[str | None] = []
    for number, own in enumerate(naming_lines(sources), 1):
        reasons.append(own or behind)
        if own is not None and behind is None:
            behind = f"runs after line {number}, which {own}"
    return reasons


def naming_lines(sources: Sequence[str]) -> list[str | None]:
    """The first listed word of each line, as `names a clock: time`; None where there is none, [L].

    A line of an open statement comes with the open lines before it, so the last line stands for
    the whole statement and the others ran nothing.
    """
    following = [*sources[1:], ""]
    return [
        None if source and after.startswith(f"{source}\n") else _named(source)
        for source, after in zip(sources, following, strict=False)
    ]


def _named(source: str) -> str | None:
    nodes = nodes_of(source)
    texts = [source] if nodes is None else [text for node in nodes for text in _texts(node)]
    for text in texts:
        for word in _WORD.findall(unicodedata.normalize("NFKC", text)):  # as the parser reads names
            # `random` holds `_urandom` and `_os`.
            if kind := _KINDS.get(word) or _KINDS.get(word.lstrip("_")):
                return f"names {kind}: {word}"
        if path := _FILES.search(text):
            return f"names the system: {path[0]}"
    return None


def _texts(node: ast.AST) -> list[str]:
    return [value for value in vars(node).values() if isinstance(value, str)]


def nodes_of(source: str) -> list[ast.AST] | None:
    """The nodes of all statements of a source; None for one that is too long or nested too deeply.

    Where it does not parse, the statements are those of its lines, without blocks.
    """
    if len(source) > _MAX_SOURCE_CHARS:
        return None
    with warnings.catch_warnings():
        # `"\d"` or `1 is 1` in a policy's line is not worth a warning here.
        warnings.simplefilter("ignore")
        try:
            statements = _parsed(source)
            if statements is None:
                parts = [part for line in source.split("\n") for part in _parsed(line) or []]
                statements = [part for part in parts if not _has_block(part)]
        except RecursionError:
            return None
    return [node for statement in statements for node in ast.walk(statement)]


def _parsed(source: str) -> list[ast.stmt] | None:
    try:
        return ast.parse(source).body
    # A NUL byte is a ValueError, deep nesting a MemoryError: a kernel runs neither.
    except (SyntaxError, ValueError, MemoryError):
        return None


def _has_block(node: ast.stmt) -> bool:
    inner = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return any(isinstance(part, inner) for part in ast.iter_child_nodes(node))


def can_leave(before: Sequence[Line]) -> bool:
    """Say whether another trajectory can leave one behind these lines of it, as far as they show.

    The next line begins a statement, and no line before it met a limit or had its output cut.
    Whether lines print the same again is what `can_be_had_again` reads their sources for.
    """
    return _why_not_left(before) is None


def _why_not_left(before: Sequence[Line]) -> str | None:
    for line in before:
        kind = line.outcome.kind
        if line.outcome.is_truncated:
            return f"the output of line {line.index + 1} was cut"
        if kind.traits.is_limit or kind.traits.ends:
            return f"line {line.index + 1} is {kind}"
    if before and before[-1].outcome.kind is OutcomeKind.INCOMPLETE:
        return f"line {before[-1].index + 1} is {OutcomeKind.INCOMPLETE}"
    return None


def can_be_had_again(before: Sequence[Line], setup: Sequence[str]) -> bool:
    """Say whether another kernel gets into the state behind these lines, run after `setup`."""
    return can_leave(before) and not any(volatile_lines(kernel_sources(before), setup=setup))


def why_not_again(lines: Sequence[Line], setup: Sequence[str]) -> list[str | None]:
    """Reasons for which the state before each line cannot be had again, [L]; None where it can."""
    reasons_L = volatile_lines(kernel_sources(lines), setup=setup)
    named = [why and f"line {number} {why}" for number, why in enumerate(reasons_L, 1)]
    return [
        _why_not_left(lines[:at]) or next(filter(None, named[:at]), None)
        for at in range(len(lines))
    ]


async def run_again(stem: Stem, session: Session) -> None:
    """Bring a fresh session into the state after the lines of `stem`.

    Raises StemError where a line is not what it was, and SandboxError if our own side fails.
    """
    for line in stem.trajectory.lines[: stem.num_lines]:
        outcome = await session.run(strip_line(line.source))
        was = line.outcome
        if (outcome.kind, outcome.observation) != (was.kind, was.observation):
            differs = f"is {outcome.kind}, and was {was.kind},"
            if outcome.kind is was.kind:
                differs = "prints something else"
            raise StemError(
                f"line {line.index + 1} of {stem.trajectory.problem_id} {differs} when run again"
            )
        session.advance(outcome.kind)


def check_asked(scored: Scored, prompt: Prompt, codec: Codec, *, source: str) -> None:
    """ConfigError where the model from `source` would have been asked in other tokens."""
    if tuple(prompt_ids(prompt, codec)) != scored.trajectory.prompt_ids:
        raise ConfigError(
            f"the prompt of problem {scored.problem.id} has other tokens with {source!r}; give "
            f"the model that sampled its trajectory"
        )


def attempts_around(
    scored: Scored,
    setup: Sequence[str],
    *,
    num_branches: int,
    states: Container[int] | None = None,
) -> list[Attempt]:
    """`num_branches` for each state before a line that can be restored; `group_index` is the line.

    `setup` is what its kernel had run before the first line. `states` are the lines that are asked
    for, by default all.
    """
    trajectory = scored.trajectory
    attempts = []
    for at, why in enumerate(why_not_again(trajectory.lines, setup)):
        if why is not None or (states is not None and at not in states):
            continue
        attempts += [
            Attempt(
                problem=scored.problem,
                group_index=at,
                sibling_index=sibling,
                seed=derive_seed(trajectory.seed, "branches", at, sibling),
                stem=Stem(trajectory=trajectory, num_lines=at) if at else None,
            )
            for sibling in range(num_branches)
        ]
    return attempts
