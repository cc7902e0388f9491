"""Do the tokens that were sampled reach the update as they were sampled? Counted, not assumed.

    rollouts with a witness at the engine, stored trajectories -> Finding, Finding, ...

Knows engines, codecs and trajectories. Does not know rewards or training. What each
finding means stands in ARCHITECTURE.md, section "Audit".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repl_rl.engines.base import Engine, EngineWrapper, SampledLine
from repl_rl.engines.models import LoadedModel, logprobs
from repl_rl.engines.precision import precision
from repl_rl.lines import runs_on
from repl_rl.progress import Progress
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import evaluation_name, read_versions
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training.evaluate import held_out_attempts, run_shown
from repl_rl.training.runtime import load_policy, open_runtime
from repl_rl.transcript.encoding import Encoding, message_source
from repl_rl.transcript.format import Span, TranscriptFormat, span_mask, spans
from repl_rl.transcript.tokens import Codec
from repl_rl.types import Finding, Thought, Trajectory

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
    """What is counted over many trajectories; see `findings`."""

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
        pairs = zip(span_mask(trajectory), trajectory.loss_mask, strict=True)
        self.mask_disagreements += sum(a != b for a, b in pairs)
        self.lines += len(trajectory.own_lines)
        self.run_on_lines += sum(runs_on(line.source) for line in trajectory.own_lines)
        self._read(trajectory, codec, fmt)
        for before, observation, after in _triples(trajectory):
            self.observations += 1
            self.joined += _is_joined(trajectory, (before, observation), codec) or _is_joined(
                trajectory, (observation, after), codec
            )

    def _read(self, trajectory: Trajectory, codec: Codec, fmt: TranscriptFormat | None) -> None:
        ids = trajectory.completion_ids
        end = None if fmt is None else Encoding(fmt, codec).turn_end
        for span in _own_spans(trajectory):
            if span.line_index < 0 and trajectory.thought is not None:
                self._read_thought(trajectory, trajectory.thought, span, codec)
                continue
            line = trajectory.lines[span.line_index]
            ends_turn = ids[line.stop - 1] == end
            if span.is_sampled:
                span = span._replace(stop=span.stop - ends_turn)
                texts = _texts_in_place(trajectory, span, codec)
                if end is not None:
                    texts = (message_source(text, is_ended=ends_turn) for text in texts)
                self.misread_lines += line.source not in texts
            elif fmt is not None:
                span = span._replace(start=span.start - ends_turn)
                texts, shown = _texts_in_place(trajectory, span, codec), line.outcome
                is_read = any(fmt.is_injected(t, shown.observation, shown.kind) for t in texts)
                self.misread_observations += not is_read

    def _read_thought(
        self, trajectory: Trajectory, thought: Thought, span: Span, codec: Codec
    ) -> None:
        """A thought counts as a line, what follows it as an observation."""
        texts = _texts_in_place(trajectory, span, codec)
        if span.is_sampled:
            self.lines += 1
            self.misread_lines += thought.source not in texts
        else:
            self.misread_observations += thought.shown not in texts

    def take_witnessed(self, trajectory: Trajectory, witness: Witness) -> None:
        """Count sampled tokens that the engine did not sample after the tokens before them."""
        whole = trajectory.prompt_ids + trajectory.completion_ids
        for span in _own_spans(trajectory):
            at, stop = (len(trajectory.prompt_ids) + i for i in span[:2])
            while span.is_sampled and at < stop:
                sampled = witness.sampled.get(whole[:at], [])
                # The end of a thought may cut what was sampled; a line is never cut.
                end = stop if span.line_index < 0 else len(whole)
                piece = next((ids for ids in sampled if _begins(ids, whole[at:end])), None)
                if piece is None:
                    self.drifted += stop - at
                    break
                at += len(piece)

    def take_scores(
        self, trajectory: Trajectory, loaded: LoadedModel, *, temperature: float
    ) -> None:
        """Compare the sampler's log-probabilities with those of one forward over everything."""
        ids = [*trajectory.prompt_ids, *trajectory.completion_ids]
        fresh = logprobs(loaded, ids, len(trajectory.prompt_ids), temperature=temperature)
        for span in _own_spans(trajectory):
            if span.is_sampled:
                gaps = [abs(fresh[i] - trajectory.logprobs[i]) for i in range(*span[:2])]
                self.boundary_gaps.append(gaps[0])
                self.other_gaps += gaps[1:]

    def findings(self, *, is_exact: bool) -> Iterator[Finding]:
        """A finding for each count, and whether it passed."""
        yield Finding(
            name="drifted tokens",
            text=f"{self.drifted} of {self.sampled:,} sampled in {self.trajectories} trajectories",
            passed=not self.drifted,
        )
        yield Finding(
            name="mask disagreements",
            text=str(self.mask_disagreements),
            passed=not self.mask_disagreements,
        )
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
                    passed=_agree(gaps, is_exact=is_exact),
                )
        yield Finding(name="run-on lines", text=f"{self.run_on_lines} of {self.lines:,}")
        share = self.joined / self.observations if self.observations else 0.0
        yield Finding(
            name="joint tokenisation",
            text=f"differs at {share:.1%} of {self.observations} observations",
        )


def _begins(sampled: tuple[int, ...], kept: tuple[int, ...]) -> bool:
    """Whether what was kept begins with what was sampled, or is its beginning."""
    size = min(len(sampled), len(kept))
    return sampled[:size] == kept[:size]


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
    """Those behind what it copied, which count where they were sampled."""
    return (span for span in spans(trajectory) if span.start >= trajectory.num_copied)


def _triples(trajectory: Trajectory) -> Iterator[tuple[Span | None, Span, Span | None]]:
    """Each observation with the line before and after it, if there is one."""
    found = [None, *_own_spans(trajectory), None]
    for before, span, after in zip(found, found[1:], found[2:], strict=False):
        if span is not None and not span.is_sampled:
            yield before, span, after


def _is_joined(
    trajectory: Trajectory, neighbours: tuple[Span | None, Span | None], codec: Codec
) -> bool:
    """Whether two neighbours, encoded as one text, have other tokens than encoded one by one."""
    texts = [
        codec.decode(trajectory.completion_ids[span.start : span.stop])
        for span in neighbours
        if span is not None
    ]
    apart = [i for text in texts for i in codec.encode(text)]
    return codec.encode("".join(texts)) != apart


def audit(plan: Plan, *, count: int, run: Path | None, progress: Progress) -> list[Finding]:
    """Sample on `count` held-out problems with the plan's model, and check; raises as `train`.

    A run's stored trajectories are checked as well; those that its last checkpoint sampled are
    scored, too.
    """
    config = plan.config
    assert config.model is not None
    loaded = load_policy(plan, config.model, say=progress.say)
    temperature = config.sampling.temperature
    counts, witness = Counts(), Witness()
    fmt = plan.format(loaded.chat_template) if plan.samples_lines else None
    attempts = held_out_attempts(plan.task, count=count, seed=config.seed)
    with open_runtime(plan, loaded, watch=witness.watch) as runtime:
        gap = runtime.sync(0)
        for item in run_shown(runtime, attempts, "sampling to audit", progress):
            counts.take(item.trajectory, loaded.codec, fmt)
            counts.take_witnessed(item.trajectory, witness)
            counts.take_scores(item.trajectory, loaded, temperature=temperature)
    for path in sorted((run / "trajectories").glob("*.jsonl")) if run else []:
        for item in read_trajectories(path):
            counts.take(item.trajectory, loaded.codec, fmt)
            if path.stem in (evaluation_name(config.grpo.steps), "after"):
                counts.take_scores(item.trajectory, loaded, temperature=temperature)
    return [
        *_vocabulary(loaded),
        Finding(name="weights at the engine", text=f"log-probabilities differ by {gap:.1e} nats"),
        *counts.findings(is_exact=loaded.precision.is_exact and _was_exact(plan, run)),
    ]


def _was_exact(plan: Plan, run: Path | None) -> bool:
    """Whether a run stored log-probabilities of float32 on the device where it ran."""
    device = read_versions(run).get("device", "cpu") if run else "cpu"
    return precision(plan.config, plan.engine, device=device).is_exact


def _agree(gaps: Sequence[float], *, is_exact: bool) -> bool:
    """False for a NaN among them."""
    if is_exact:
        return all(gap <= LARGEST_GAP for gap in gaps)
    return statistics.fmean(gaps) <= MEAN_GAP


def _vocabulary(loaded: LoadedModel) -> Iterator[Finding]:
    codec = loaded.codec
    what = "is never sampled" if loaded.forbidden_ids else "makes a line of several"
    yield Finding(
        name="stop ids",
        text=f"{len(codec.newline_ids):,} end a line, {len(codec.eos_ids)} end the sequence",
        passed=bool(codec.newline_ids),
    )
    yield Finding(
        name="run-on ids",
        text=f"{len(codec.run_on_ids):,} have text after their first newline; such an id {what}",
    )
