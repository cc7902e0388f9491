"""The tokens of a live trajectory, for the policy that continues it and for its reward.

    Live, Codec -> TrajectoryBuilder;  Trajectory -> Verdict -> Reward

Knows tokens and rewards. Does not know engines: the policy comes in from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.records import Attempt, Line, OutcomeKind, StopReason, Thought, Trajectory
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.rollout.plan import TaskPlan, TrajectorySampler
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import (
    PYTHON,
    Prompt,
    TranscriptFormat,
    spans,
    text_of,
)
from repl_rl.transcript.tokens import ByteCodec, Codec
from repl_rl.viewer.replay.compare import difference
from repl_rl.viewer.replay.live import Live, LiveLine

_NO_LIMIT = 1 << 40


class Policy(Protocol):
    """Continues a live trajectory."""

    @property
    def source(self) -> str | None:
        """Folder or `owner/name` of the model whose tokenizer makes its ids; None: bytes."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of its ids."""
        ...

    async def continue_from(self, live: Live, *, on_line: Callable[[Line], None]) -> Trajectory:
        """Sample to the end and return the whole trajectory.

        `on_line` gets each new line once it has run and stands in `live`. Cancelled, this leaves
        `live` with the lines that ended and its kernel in no known state: `live.back(live.at)`
        gets a fresh one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Sampler that goes on, and the encoding in which it is asked."""

    sampler: TrajectorySampler
    codec: Codec
    fmt: TranscriptFormat
    source: str
    """Of the model, as in `LoadedModel`."""
    at_once: int
    """Continuations."""


class ScoringPolicy(Policy, Protocol):
    """A policy that also knows how likely a completion is, and makes whole rollouts."""

    def asked(self, plan: TaskPlan) -> Asked:
        """Return how to ask for rollouts of a plan. ConfigError for a format without a template."""
        ...

    def score(self, trajectory: Trajectory) -> tuple[float, ...]:
        """Log-probabilities [T], nats; ConfigError for another vocabulary."""
        ...


def is_same_vocabulary(trajectory: Trajectory, codec: Codec) -> bool:
    """True where a codec reads a trajectory's tokens as the texts of its lines."""
    if not trajectory.lines:
        return codec.decode(trajectory.prompt_ids, is_first=True) == trajectory.prompt_text
    ids = trajectory.completion_ids
    return all(
        text_of(one.source, ids[one.start : one.stop], codec.decode) is not None
        for one in trajectory.lines
    )


def begin(
    live: Live,
    codec: Codec,
    fmt: TranscriptFormat = PYTHON,
    *,
    context_tokens: int = _NO_LIMIT,
) -> TrajectoryBuilder:
    """The tokens of the prompt and of the lines that ran, up to the open prompt.

    Recorded tokens are kept if `codec` made them. Lines by hand, and all lines for another codec,
    are encoded as `fmt` puts them into turns, with log-probability 0. Raises ConfigError for a
    prompt that does not fit.
    """
    recorded = live.trajectory
    is_same = is_same_vocabulary(recorded, codec)
    kept = recorded if is_same else None
    attempt = Attempt(
        problem=live.scored.problem,
        group_index=recorded.group_index,
        sibling_index=recorded.sibling_index,
        seed=recorded.seed,
    )
    encoding = Encoding(fmt, codec)
    built = TrajectoryBuilder(
        attempt,
        Prompt.plain(recorded.prompt_text),
        encoding,
        context_tokens=context_tokens,
        ids=recorded.prompt_ids if is_same else None,
    )
    if recorded.thought is not None:
        _rethink(built, recorded, recorded.thought, is_same=is_same)
    answers = {} if kept is None else _answers(kept)
    for line in live.lines:
        sampled = _as_sampled(line, kept, encoding)
        built.add_line(replace(sampled, policy_version=recorded.policy_version))
        if line.recorded is not None and line.recorded.index in answers and _printed_same(line):
            # The record may be shorter than the output here: a cap in tokens had cut it.
            built.set_outcome(line.recorded.outcome)
            built.inject(answers[line.recorded.index])
        else:
            built.set_outcome(line.outcome)
            built.inject(encoding.injected_ids(line.shown_after, after=built.ids))
    built.submission = live.session.submission
    return built


def _rethink(
    built: TrajectoryBuilder, recorded: Trajectory, thought: Thought, *, is_same: bool
) -> None:
    """Append a recorded thought and what followed it, with its own tokens if `is_same`."""
    ids, logprobs = recorded.completion_ids[: thought.stop], recorded.logprobs[: thought.stop]
    first = recorded.lines[0].start if recorded.lines else len(recorded.completion_ids)
    shown = recorded.completion_ids[thought.stop : first]
    if not is_same:
        ids = tuple(built.encoding.codec.encode(thought.source))
        shown = tuple(built.encoding.codec.encode_template(thought.shown))
        logprobs = (0.0,) * len(ids)
    built.put_thought(
        replace(thought, stop=len(ids)),
        SampledLine(
            ids=ids,
            logprobs=logprobs,
            end=LineEnd.LENGTH,
            policy_version=recorded.policy_version,
        ),
        shown=shown,
    )


def as_trajectory(live: Live) -> Trajectory:
    """Return what ran live, with bytes as tokens: enough for rewards, and for a file of its own."""
    built = begin(live, ByteCodec())
    kind = live.lines[-1].outcome.kind if live.lines else OutcomeKind.BLANK
    return built.build(kind.traits.ends or StopReason.EOS)


def _as_sampled(line: LiveLine, kept: Trajectory | None, encoding: Encoding) -> SampledLine:
    ids: Sequence[int]
    if kept is not None and line.recorded is not None:
        start, stop = line.recorded.start, line.recorded.stop
        ids, logprobs = kept.completion_ids[start:stop], kept.logprobs[start:stop]
    else:
        ids = encoding.line_ids(line.source)
        logprobs = (0.0,) * len(ids)
    return SampledLine(
        ids=tuple(ids), logprobs=tuple(logprobs), end=LineEnd.NEWLINE, policy_version=0
    )


def _answers(kept: Trajectory) -> dict[int, tuple[int, ...]]:
    """The ids that were injected after each line, by its index."""
    return {
        span.line_index: kept.completion_ids[span.start : span.stop]
        for span in spans(kept)
        if not span.is_sampled
    }


def _printed_same(line: LiveLine) -> bool:
    """True where a line printed what its record says; False for a line without a record."""
    return line.recorded is not None and not difference(line.recorded.outcome, line.outcome)
