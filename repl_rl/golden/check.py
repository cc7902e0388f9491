"""Play golden transcripts and check a reward against them.

    GoldenFile -> Played (Trajectory, Verdict | None) -> score: Scored -> misses
    RewardConfig -> mutant, one constant changed -> its result: do the transcripts notice?

A constant that no transcript notices could be wrong unseen. Knows records, the loop and the
reward's signature. Does not know screens or exit codes.

A transcript is played by the real loop on its lines, answered by its outputs:

    Golden -> ScriptedEngine + FakeKernel -> LineSampler -> Trajectory

So the code that names a policy's outcomes names these, never this module. What no output shows (a
deadline, a death) comes from the outcome that the author wrote. `read_written` gives
the same lines to be run again in a real kernel, and to be shown to a model.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from repl_rl.config import Config
from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import RewardFunction
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.errors import ConfigError
from repl_rl.golden.text import NONE, Golden, GoldenFile, GoldenLine, read_file
from repl_rl.records import (
    Attempt,
    Line,
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.rollout.sampler import LineSampler, Written, WrittenLine
from repl_rl.transcript.format import PYTHON, Prompt, strip_line
from repl_rl.transcript.outcomes import submitted_expression
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

_UNLIMITED = 1 << 20
_HEADER = re.compile(r'Traceback \(most recent call last\):|  File "<stdin>", line \d+')
_RAISED = re.compile(r"(?:\w+\.)*(\w+)(?::.*)?")
_ERROR = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception)|OutputLimit)(?::.*)?")

_TOLERANCE = 1e-6


def play(golden: Golden, *, sibling_index: int = 0) -> Trajectory:
    """The trajectory of its lines, as far as the loop takes them; tokens in it are bytes."""
    actor = _Actor(golden)
    sampler = LineSampler(
        ScriptedEngine(ByteCodec(), actor.write),
        ByteCodec(),
        PYTHON,
        SamplingConfig(
            max_lines=len(golden.lines),
            max_line_tokens=_UNLIMITED,
            max_tokens=_UNLIMITED,
            max_observation_tokens=_UNLIMITED,
        ),
        context_tokens=2 * _UNLIMITED,
    )
    attempt = Attempt(
        problem=problem_of(golden),
        group_index=0,
        sibling_index=sibling_index,
        seed=0,
    )
    return asyncio.run(
        sampler.sample(attempt, Prompt.plain(PYTHON.primary), FakeKernel(actor.answer))
    )


def problem_of(golden: Golden) -> Problem:
    """Make the problem of a transcript's head."""
    return Problem(
        id=golden.title,
        statement=golden.statement or golden.title,
        chance=golden.chance,
    )


@dataclass(slots=True)
class _Actor:
    """Says the lines of a transcript, and what the interpreter answered to the last one."""

    golden: Golden
    num_written: int = 0

    def write(self, _: str) -> str:
        line = self.golden.lines[self.num_written]
        self.num_written += 1
        return line.source.removesuffix("\n") if line.kind is OutcomeKind.CUT else line.source

    def answer(self, source: str) -> Execution:
        """Answer as the kernel: `source` may hold lines before the last, or be an expression."""
        line = self.golden.lines[self.num_written - 1]
        error_type = raised(line)
        return Execution(
            status=self._status(line, error_type),
            output=line.output,
            error_type=error_type,
            value=None if error_type else self._value(line, source),
        )

    def _status(self, line: GoldenLine, error_type: str | None) -> ExecStatus:
        if line.kind is not None and line.kind.traits.kernel:
            return ExecStatus(line.kind.value)
        return ExecStatus.ERROR if error_type else ExecStatus.OK

    def _value(self, line: GoldenLine, source: str) -> str | None:
        """`repr` of what is submitted, as the head or the line has it."""
        if submitted_expression(strip_line(line.source)) != source:
            return None
        written = self.golden.head.get("submission")
        return source if written is None else None if written.value is None else str(written.value)


def raised(line: GoldenLine) -> str | None:
    """Class name of the exception that a line's output shows; None where it shows none.

    Below the last header of a traceback: the first line that is not indented. Without a header: the
    last line, if it reads `SomeError: ...` and no backslash stands before it.
    """
    headers = [i for i, row in enumerate(line.output_rows) if _HEADER.match(row)]
    if headers:
        below = (row for row in line.output_rows[headers[-1] + 1 :] if row and row[0] != " ")
        match = _RAISED.fullmatch(next(below, ""))
    else:
        match = _ERROR.fullmatch(line.output_rows[-1] if line.output_rows else "")
    return match[1] if match else None


def read_written(path: Path) -> list[Written]:
    """The transcripts of a file. ConfigError, with file and line, where it is not one."""
    return list(_written(read_file(path)))


def _written(file: GoldenFile) -> Iterator[Written]:
    for golden in file.goldens:
        lines = (
            WrittenLine(
                source=strip_line(line.source),
                output=line.output,
                place=f"{file.path}:{line.number}",
            )
            for line in golden.lines
        )
        yield Written(problem=problem_of(golden), lines=tuple(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One difference between a file and the code."""

    path: Path
    number: int
    """Number of the line in the file."""
    title: str
    line: str
    """The line of the transcript that it concerns; empty if it concerns the whole."""
    expected: str
    got: str

    def __str__(self) -> str:
        line = f"    {self.line}\n" if self.line else ""
        return (
            f"{self.path}:{self.number}: {self.title}\n{line}"
            f"    expected  {self.expected}\n    got       {self.got}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedGolden:
    """A transcript with the trajectory that it became: all that does not depend on the reward."""

    file: GoldenFile
    golden: Golden
    trajectory: Trajectory
    verdict: Verdict | None


def play_one(file: GoldenFile, index: int) -> PlayedGolden:
    """The transcript at `index`. ConfigError if it submits and states no verdict."""
    golden = file.goldens[index]
    trajectory = play(golden, sibling_index=index)
    verdict = None
    if trajectory.submission is not None:
        written = golden.head.get("verdict")
        if written is None:
            raise ConfigError(
                f"{file.path}:{golden.number}: {golden.title!r} submits {trajectory.submission!r}; "
                f"expected `verdict: KIND`, because nothing is graded here"
            )
        if written.value is not None:
            verdict = Verdict(kind=VerdictKind(str(written.value)), chance=golden.chance)
    return PlayedGolden(file=file, golden=golden, trajectory=trajectory, verdict=verdict)


def score(played: PlayedGolden, function: RewardFunction, config: RewardConfig) -> Scored:
    """The played transcript with its reward."""
    return Scored(
        trajectory=played.trajectory,
        problem=problem_of(played.golden),
        verdict=played.verdict,
        reward=function(played.trajectory, played.verdict, config),
    )


def misses(played: PlayedGolden, reward: Reward) -> list[Miss]:
    """Misses where transcript and code differ, in the order of the lines."""
    return [*_head_misses(played, reward), *_line_misses(played, reward)]


def _head_misses(played: PlayedGolden, reward: Reward) -> Iterator[Miss]:
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
    for key, written in played.golden.head.items():
        if not _is_met(written.value, got[key]):
            values = (f"{key}: {_word(value)}" for value in (written.value, got[key]))
            yield _miss(played, written.number, *values)


def _verdict_word(played: PlayedGolden) -> str:
    return "something submitted" if played.verdict is None else str(played.verdict.kind)


def _line_misses(played: PlayedGolden, reward: Reward) -> Iterator[Miss]:
    trajectory = played.trajectory
    is_continued = False
    for index, written in enumerate(played.golden.lines):
        if index == len(trajectory.lines):
            end = f"the end: {trajectory.stop_reason}"
            yield _miss(played, written.number, "one more line", end, line=written)
            return
        line = trajectory.lines[index]
        if written.is_continued != is_continued:
            prompts = ("...", ">>>") if written.is_continued else (">>>", "...")
            yield _miss(played, written.number, *(f"the prompt {p}" for p in prompts), line=written)
        is_continued = line.outcome.kind is OutcomeKind.INCOMPLETE
        yield from _value_misses(played, written, line, reward.line_rewards[index])
        if written.output != line.outcome.observation:
            outputs = (written.output, line.outcome.observation)
            yield _miss(
                played, written.number, *(f"the output {o!r}" for o in outputs), line=written
            )


def _value_misses(
    played: PlayedGolden, written: GoldenLine, line: Line, reward: float
) -> Iterator[Miss]:
    kind = line.outcome.kind
    is_kind_met = written.kind in (None, kind)
    if is_kind_met and (written.reward is None or _is_met(written.reward, reward)):
        return
    yield _miss(
        played,
        written.expect_number,
        _expectation(written.kind, written.reward),
        # The outcome explains a different number, so show it even where none is written.
        _expectation(kind, None if written.reward is None else reward),
        line=written,
    )


def _miss(
    played: PlayedGolden, number: int, expected: str, got: str, *, line: GoldenLine | None = None
) -> Miss:
    prompt = "..." if line is not None and line.is_continued else ">>>"
    return Miss(
        path=played.file.path,
        number=number,
        title=played.golden.title,
        line="" if line is None else prompt + line.source.removesuffix("\n"),
        expected=expected,
        got=got,
    )


def _is_met(written: float | str | None, got: float | str | None) -> bool:
    if isinstance(written, float) and isinstance(got, int | float):
        return math.isclose(written, got, rel_tol=0.0, abs_tol=_TOLERANCE)
    return written == got


def _expectation(kind: OutcomeKind | None, reward: float | None) -> str:
    words = [kind, None if reward is None else _word(reward)]
    return " ".join(["<-", *(str(word) for word in words if word is not None)])


def _word(value: float | str | None) -> str:
    if value is None:
        return NONE
    return value if isinstance(value, str) else f"{value:g}"


# Mutants


@dataclass(frozen=True, slots=True)
class Mutant:
    """A reward config with one constant changed."""

    key: str
    """Below `[reward]`, such as `line.timeout`."""
    change: str
    """Old value and new one, such as `-0.3 -> 0.3`."""
    field: str
    """The field of `RewardConfig` that differs."""
    value: Any
    """Value of that field. Any: a number or a mapping of numbers."""


class MutantResult(StrEnum):
    """Result of a mutant under the transcripts."""

    NOTICED = "noticed"
    """A transcript misses under it."""
    REFUSED = "refused"
    """The config itself refuses it."""
    UNWRITTEN = "unwritten"
    """It changes a reward, but no transcript states that reward."""
    UNTOUCHED = "untouched"
    """It changes no reward: no transcript reaches the constant, or the reward does not read it."""

    @property
    def is_survivor(self) -> bool:
        return self in (MutantResult.UNWRITTEN, MutantResult.UNTOUCHED)


def mutants(config: RewardConfig) -> Iterator[Mutant]:
    """Each constant with its sign flipped, as zero and doubled; a zero as 0.1 and -0.1.

    An outcome or verdict that the config does not name counts as a zero: to leave it out is a
    decision, too.
    """
    hints = get_type_hints(RewardConfig)
    for one in fields(config):
        value = getattr(config, one.name)
        if isinstance(value, Mapping):
            for name in get_args(hints[one.name])[0]:
                for change, changed in _changes(value.get(name)):
                    key = f"{one.name}.{name}"
                    yield Mutant(key, change, one.name, {**value, name: changed})
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for change, changed in _changes(value):
                yield Mutant(one.name, change, one.name, changed)


def _changes(value: float | None) -> Iterator[tuple[str, float]]:
    for changed in (-value, 0.0, 2 * value) if value else (0.1, -0.1):
        yield f"{'none' if value is None else f'{value:g}'} -> {changed:g}", changed


def _watched(config: RewardConfig, read: set[str]) -> RewardConfig:
    """Copy the config; the names of all fields read from any copy go to `read`."""

    class Watched(RewardConfig):
        def __getattribute__(self, name: str) -> Any:  # Any: whatever a field holds
            read.add(name)
            return super().__getattribute__(name)

    return Watched(**{one.name: getattr(config, one.name) for one in fields(config)})


_FIELDS = tuple(one.name for one in fields(RewardConfig) if one.name != "function")


def fields_unread(
    function: RewardFunction, config: RewardConfig, played: Sequence[PlayedGolden]
) -> tuple[str, ...]:
    """Fields of the config that the function does not read as it scores the transcripts.

    Empty for the default function: a constant that no transcript reaches could be wrong, too.
    """
    if config.function == RewardConfig().function:
        return ()
    read: set[str] = set()
    for one in played:
        score(one, function, _watched(config, read))
    return tuple(name for name in _FIELDS if name not in read)


def try_mutant(
    mutant: Mutant,
    config: Config,
    function: RewardFunction,
    played: Sequence[PlayedGolden],
    rewards: Sequence[Reward],
) -> MutantResult:
    """Try a mutant; `rewards` is what the transcripts earn under the unchanged config."""
    try:
        reward = replace(config.reward, **{mutant.field: mutant.value})
        changed = replace(config, reward=reward).reward
    except ConfigError:
        return MutantResult.REFUSED
    result = MutantResult.UNTOUCHED
    for one, earned in zip(played, rewards, strict=True):
        mutated = score(one, function, changed).reward
        if misses(one, mutated):
            return MutantResult.NOTICED
        if mutated != earned:
            result = MutantResult.UNWRITTEN
    return result


def gather(results: Sequence[tuple[Mutant, MutantResult]]) -> list[tuple[Mutant, MutantResult]]:
    """One result for each mutant over several files: the best, in the order of `MutantResult`."""
    best: dict[tuple[str, str], tuple[Mutant, MutantResult]] = {}
    order = list(MutantResult)
    for mutant, one in results:
        name = mutant.key, mutant.change
        if name not in best or order.index(one) < order.index(best[name][1]):
            best[name] = mutant, one
    return list(best.values())
