"""Check a reward against golden transcripts: what is written, what the code gives, what differs.

    GoldenFile -> Played (Trajectory, Verdict | None) -> score: Scored -> misses

Knows records and the reward's signature. Does not know screens or exit codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import RewardFunction
from repl_rl.errors import ConfigError
from repl_rl.golden.play import play, problem_of
from repl_rl.golden.text import NONE, Golden, GoldenFile, GoldenLine
from repl_rl.rollout.scoring import judged_lemmas
from repl_rl.types import (
    JudgedLemma,
    Line,
    OutcomeKind,
    Reward,
    Scored,
    Trajectory,
    Verdict,
    VerdictKind,
)

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One difference between a file and the code."""

    path: Path
    number: int
    """Of the line in the file."""
    title: str
    shown: str
    """The line of the transcript that it concerns; empty if it concerns the whole."""
    expected: str
    got: str

    def __str__(self) -> str:
        shown = f"    {self.shown}\n" if self.shown else ""
        return (
            f"{self.path}:{self.number}: {self.title}\n{shown}"
            f"    expected  {self.expected}\n    got       {self.got}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A transcript with the trajectory that it became: all that does not depend on the reward."""

    file: GoldenFile
    golden: Golden
    trajectory: Trajectory
    verdict: Verdict | None


def play_one(file: GoldenFile, index: int) -> Played:
    """The transcript at `index`. ConfigError if it submits and states no verdict."""
    golden = file.goldens[index]
    trajectory = play(golden, sibling_index=index)
    verdict = None
    if trajectory.submission is not None:
        wanted = golden.head.get("verdict")
        if wanted is None:
            raise ConfigError(
                f"{file.path}:{golden.number}: {golden.title!r} submits "
                f"{trajectory.submission!r}; expected `verdict: KIND`, for nothing is graded here"
            )
        verdict = None if wanted.value is None else _verdict(golden, trajectory, str(wanted.value))
    return Played(file=file, golden=golden, trajectory=trajectory, verdict=verdict)


def _verdict(golden: Golden, trajectory: Trajectory, word: str) -> Verdict:
    """What the head says of answer and lemmas; which of them are used follows from the lines."""
    kind = VerdictKind(word)
    said = {one.lemma.name: one.kind for one in golden.lemmas}
    claimed = [
        JudgedLemma(name=claim.name, line=claim.line, kind=said[claim.name])
        for claim in trajectory.claims
    ]
    problem = problem_of(golden)
    lemmas = judged_lemmas(claimed, problem.lemmas, is_solved=kind.is_solved)
    return Verdict(kind=kind, chance=problem.chance, lemmas=lemmas)


def score(played: Played, function: RewardFunction, config: RewardConfig) -> Scored:
    """The played transcript with its reward."""
    return Scored(
        trajectory=played.trajectory,
        problem=problem_of(played.golden),
        verdict=played.verdict,
        reward=function(played.trajectory, played.verdict, config),
    )


def misses(played: Played, reward: Reward) -> list[Miss]:
    """Where transcript and code differ, in the order of the lines."""
    return [*_head_misses(played, reward), *_line_misses(played, reward)]


def _head_misses(played: Played, reward: Reward) -> Iterator[Miss]:
    trajectory = played.trajectory
    is_submitted = trajectory.submission is not None
    got: dict[str, float | str | None] = {
        # The written kind is taken as it is; that something is submitted is checked.
        "verdict": _verdict_word(played) if is_submitted else None,
        "chance": played.golden.chance,
        "outcome": reward.outcome_reward,
        "stop": trajectory.stop_reason,
        "submission": trajectory.submission,
    }
    for key, wanted in played.golden.head.items():
        if not _is_met(wanted.value, got[key]):
            expected = f"{key}: {_word(wanted.value)}"
            yield _head_miss(played, wanted.number, expected, got=f"{key}: {_word(got[key])}")
    yield from _lemma_misses(played)


def _lemma_misses(played: Played) -> Iterator[Miss]:
    """The written kinds are taken as they are; which lemmas are claimed is checked."""
    claimed = {claim.name for claim in played.trajectory.claims}
    for wanted in played.golden.lemmas:
        name, kind = wanted.lemma.name, wanted.kind
        if (kind is not None) != (name in claimed):
            got = f"lemma: {name} {'something claimed' if name in claimed else NONE}"
            yield _head_miss(played, wanted.number, f"lemma: {name} {_word(kind)}", got=got)


def _head_miss(played: Played, number: int, expected: str, *, got: str) -> Miss:
    return Miss(
        path=played.file.path,
        number=number,
        title=played.golden.title,
        shown="",
        expected=expected,
        got=got,
    )


def _verdict_word(played: Played) -> str:
    return "something submitted" if played.verdict is None else str(played.verdict.kind)


def _line_misses(played: Played, reward: Reward) -> Iterator[Miss]:
    trajectory = played.trajectory
    is_continued = False
    for index, wanted in enumerate(played.golden.lines):
        if index == len(trajectory.lines):
            end = f"the end: {trajectory.stop_reason}"
            yield _miss(played, wanted, wanted.number, "one more line", end)
            return
        line = trajectory.lines[index]
        if wanted.is_continued != is_continued:
            prompts = ("...", ">>>") if wanted.is_continued else (">>>", "...")
            yield _miss(played, wanted, wanted.number, *(f"the prompt {p}" for p in prompts))
        is_continued = line.outcome.kind is OutcomeKind.INCOMPLETE
        yield from _value_misses(played, wanted, line, reward.line_rewards[index])
        if wanted.output != line.outcome.observation:
            outputs = (wanted.output, line.outcome.observation)
            yield _miss(played, wanted, wanted.number, *(f"the output {o!r}" for o in outputs))


def _value_misses(played: Played, wanted: GoldenLine, line: Line, reward: float) -> Iterator[Miss]:
    kind = line.outcome.kind
    is_kind_met = wanted.kind in (None, kind)
    if is_kind_met and (wanted.reward is None or _is_met(wanted.reward, reward)):
        return
    yield _miss(
        played,
        wanted,
        wanted.expect_number,
        _expectation(wanted.kind, wanted.reward),
        # The outcome explains a different number, so show it even where none is written.
        _expectation(kind, None if wanted.reward is None else reward),
    )


def _miss(played: Played, line: GoldenLine, number: int, expected: str, got: str) -> Miss:
    prompt = "..." if line.is_continued else ">>>"
    return Miss(
        path=played.file.path,
        number=number,
        title=played.golden.title,
        shown=prompt + line.source.removesuffix("\n"),
        expected=expected,
        got=got,
    )


def _is_met(wanted: float | str | None, got: float | str | None) -> bool:
    if isinstance(wanted, float) and isinstance(got, int | float):
        return math.isclose(wanted, got, rel_tol=0.0, abs_tol=_TOLERANCE)
    return wanted == got


def _expectation(kind: OutcomeKind | None, reward: float | None) -> str:
    words = [kind, None if reward is None else _word(reward)]
    return " ".join(["<-", *(str(word) for word in words if word is not None)])


def _word(value: float | str | None) -> str:
    if value is None:
        return NONE
    return value if isinstance(value, str) else f"{value:g}"
