"""Counts of how far sampled tokens reach the update as they were sampled.

    rollouts with a witness at the engine, stored trajectories -> Finding, Finding, ...

Knows requests to engines, codecs and trajectories. Does not know models, rewards or training. What
each finding means stands in docs/design/engines.md, section "Audit".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from repl_rl.engines.base import Engine, EngineWrapper, SampledLine
from repl_rl.records import Finding, Trajectory, runs_on
from repl_rl.transcript.encoding import Encoding, message_source
from repl_rl.transcript.format import Span, TranscriptFormat, source_of, span_mask, spans
from repl_rl.transcript.tokens import Codec

LARGEST_GAP, MEAN_GAP = 1e-4, 0.05
"""Differences of two log-probabilities, nats: the largest in float32, where engines differ by 1e-6
to 1e-5, the mean in bfloat16, where a single token may be off by much more. A wrong token, mask or
position costs whole nats."""

_FEW_TOKENS = 16
"""More than a character has, so that one before a span is whole."""


class Witness(EngineWrapper):
    """Records every request to an engine and its answer, once it watches one."""

    def __init__(self) -> None:
        self.sampled: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        """All tokens before a line -> the lines that were sampled after them."""

    def watch(self, engine: Engine) -> Engine:
        self.engine = engine
        return self

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await super().line(ids, max_tokens=max_tokens, seed=seed)
        self.sampled.setdefault(tuple(ids), []).append(line.ids)
        return line


@dataclass(slots=True)
class Counts:
    """Counts over many trajectories; see `findings`."""

    trajectories: int = 0
    sampled: int = 0
    drifted: int = 0
    """Sampled tokens that the engine did not sample at that position after the same tokens."""
    mask_disagreements: int = 0
    """Tokens for which the mask disagrees with lines and observations."""
    lines: int = 0
    run_on_lines: int = 0
    """Lines with text behind their first newline."""
    misread_lines: int = 0
    """Lines whose tokens, decoded in place, are not the text that ran."""
    observations: int = 0
    misread_observations: int = 0
    """Observations whose tokens, decoded in place, are not the text that was shown."""
    joined: int = 0
    """Observations that would have other tokens if they were encoded together with a neighbour."""
    boundary_gaps: list[float] = field(default_factory=list)
    """Difference of log-probabilities at the first token after an observation, nats."""
    other_gaps: list[float] = field(default_factory=list)

    def take(
        self, trajectory: Trajectory, codec: Codec, fmt: TranscriptFormat | None = None
    ) -> None:
        """Count what a trajectory shows by itself.

        Without its format, observations are not read.
        """
        self.trajectories += 1
        self.sampled += trajectory.num_sampled
        self.mask_disagreements += len(mask_disagreements(trajectory))
        # What is sampled before all lines counts as one, what follows it as an observation.
        self.lines += sum(span.is_sampled for span in _own_spans(trajectory))
        self.run_on_lines += sum(runs_on(line.source) for line in trajectory.own_lines)
        for span in misread(trajectory, codec, fmt):
            self.misread_lines += span.is_sampled
            self.misread_observations += not span.is_sampled
        for before, observation, after in _triples(trajectory):
            self.observations += 1
            self.joined += _is_joined(trajectory, (before, observation), codec) or _is_joined(
                trajectory, (observation, after), codec
            )

    def take_witnessed(self, trajectory: Trajectory, witness: Witness) -> None:
        """Count sampled tokens that the engine did not sample after the tokens before them."""
        whole = trajectory.prompt_ids + trajectory.completion_ids
        for span in _own_spans(trajectory):
            at, stop = (len(trajectory.prompt_ids) + i for i in span[:2])
            while span.is_sampled and at < stop:
                sampled = witness.sampled.get(whole[:at], [])
                # What was sampled before all lines may have been cut; a line is never cut.
                end = stop if span.line_index < 0 else len(whole)
                piece = next((ids for ids in sampled if _begins(ids, whole[at:end])), None)
                if piece is None:
                    self.drifted += stop - at
                    break
                at += len(piece)

    def take_scores(self, trajectory: Trajectory, fresh: Sequence[float]) -> None:
        """Compare the sampler's log-probabilities with those of one forward, `fresh`, [T]."""
        for span in _own_spans(trajectory):
            if span.is_sampled:
                gaps = [abs(fresh[i] - trajectory.logprobs[i]) for i in range(*span[:2])]
                self.boundary_gaps.append(gaps[0])
                self.other_gaps += gaps[1:]

    def findings(self, *, is_exact: bool) -> Iterator[Finding]:
        """A finding for each count, and whether it passed."""
        drifted = f"{self.drifted} of {self.sampled:,} sampled in {self.trajectories} trajectories"
        yield Finding(name="drifted tokens", text=drifted, passed=not self.drifted)
        disagree = self.mask_disagreements
        yield Finding(name="mask disagreements", text=str(disagree), passed=not disagree)
        for name, misread, count in (
            ("misread lines", self.misread_lines, self.lines),
            ("misread observations", self.misread_observations, self.observations),
        ):
            yield Finding(name=name, text=f"{misread} of {count:,}", passed=not misread)
        for name, gaps in (("at boundaries", self.boundary_gaps), ("elsewhere", self.other_gaps)):
            if gaps:
                yield Finding(
                    name=f"gap {name}",
                    text=f"largest {max(gaps):.1e} nats, mean {statistics.fmean(gaps):.1e}",
                    passed=agree(gaps, is_exact=is_exact),
                )
        yield Finding(name="run-on lines", text=f"{self.run_on_lines} of {self.lines:,}")
        share = self.joined / self.observations if self.observations else 0.0
        yield Finding(
            name="joint tokenisation",
            text=f"differs at {share:.1%} of {self.observations} observations",
        )


def mask_disagreements(trajectory: Trajectory) -> list[int]:
    """Return the positions at which the mask disagrees with lines and observations."""
    pairs = zip(span_mask(trajectory), trajectory.loss_mask, strict=True)
    return [t for t, (by_lines, by_mask) in enumerate(pairs) if by_lines != by_mask]


def misread(
    trajectory: Trajectory, codec: Codec, fmt: TranscriptFormat | None = None
) -> Iterator[Span]:
    """Spans whose tokens, decoded in place, are not the text that ran or was shown.

    Without the format, observations are not read.
    """
    end = None if fmt is None else Encoding(fmt, codec).turn_end
    for span in _own_spans(trajectory):
        if not _is_read(trajectory, span, codec, fmt, end):
            yield span


def _is_read(
    trajectory: Trajectory, span: Span, codec: Codec, fmt: TranscriptFormat | None, end: int | None
) -> bool:
    """Return True where a span's tokens are its text; `end` is the token that ends a turn."""
    if span.line_index < 0:
        text = source_of(trajectory, span) if span.is_sampled else trajectory.opening
        return text in _texts_in_place(trajectory, span, codec)
    line = trajectory.lines[span.line_index]
    ends_turn = trajectory.completion_ids[line.stop - 1] == end
    if span.is_sampled:
        span = span._replace(stop=span.stop - ends_turn)
        texts = _texts_in_place(trajectory, span, codec)
        if end is not None:
            texts = (message_source(text, is_ended=ends_turn) for text in texts)
        return line.source in texts
    if fmt is None:
        return True
    span, shown = span._replace(start=span.start - ends_turn), line.outcome
    texts = _texts_in_place(trajectory, span, codec)
    return any(fmt.is_injected(text, shown.observation, shown.kind) for text in texts)


def agree(gaps: Sequence[float], *, is_exact: bool) -> bool:
    """Return True where log-probabilities are near enough; False for a NaN among their gaps."""
    if is_exact:
        return all(gap <= LARGEST_GAP for gap in gaps)
    return statistics.fmean(gaps) <= MEAN_GAP


def _begins(sampled: tuple[int, ...], line: tuple[int, ...]) -> bool:
    """Return whether `line` begins with `sampled`, or is its beginning."""
    size = min(len(sampled), len(line))
    return sampled[:size] == line[:size]


def _texts_in_place(trajectory: Trajectory, span: Span, codec: Codec) -> Iterator[str]:
    """The text that a span's tokens add to the few tokens, or the one token, before them.

    Two readings, since invalid UTF-8 before a character may spoil it.
    """
    at, stop = (len(trajectory.prompt_ids) + i for i in span[:2])
    whole = trajectory.prompt_ids + trajectory.completion_ids
    for num_before in (_FEW_TOKENS, 1):
        before = whole[max(at - num_before, 0) : at]
        yield codec.decode(before + whole[at:stop]).removeprefix(codec.decode(before))


def _own_spans(trajectory: Trajectory) -> Iterator[Span]:
    """Return the spans behind the copied ones, which count where they were sampled."""
    return (span for span in spans(trajectory) if span.start >= trajectory.num_copied)


def _triples(trajectory: Trajectory) -> Iterator[tuple[Span | None, Span, Span | None]]:
    """Each observation with the line before and after it, if there is one."""
    padded = [None, *_own_spans(trajectory), None]
    for before, span, after in zip(padded, padded[1:], padded[2:], strict=False):
        if span is not None and not span.is_sampled:
            yield before, span, after


def _is_joined(
    trajectory: Trajectory, neighbours: tuple[Span | None, Span | None], codec: Codec
) -> bool:
    """Return whether two neighbours, encoded as one text, have other tokens than one by one."""
    texts = [
        codec.decode(trajectory.completion_ids[span.start : span.stop])
        for span in neighbours
        if span is not None
    ]
    apart = [i for text in texts for i in codec.encode(text)]
    return codec.encode("".join(texts)) != apart
