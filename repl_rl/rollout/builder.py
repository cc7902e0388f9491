"""One trajectory in the making: what was sampled, what was injected, and who wrote what.

    Attempt, Prompt -> ids -> [add_line -> inject]* -> build -> Trajectory

Knows token ids and records. Does not know what a line means, nor when to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from repl_rl.engines.base import SampledLine
from repl_rl.errors import ConfigError, StemError
from repl_rl.records import (
    Attempt,
    Line,
    LineOutcome,
    OutcomeKind,
    Problem,
    Stem,
    StopReason,
    Thought,
    Trajectory,
)
from repl_rl.transcript.encoding import Encoding, prompt_ids
from repl_rl.transcript.format import Prompt, span_mask


def check_prompt(problem: Problem, num_tokens: int, *, context_tokens: int) -> None:
    """ConfigError where a prompt of so many tokens leaves no room for one more."""
    if num_tokens >= context_tokens:
        raise ConfigError(
            f"the prompt of {problem.label} has {num_tokens} tokens, the model's context holds "
            f"{context_tokens}; prompts are never cut: leave such problems out, or give a model "
            f"with a longer context"
        )


class RolloutCancelled(asyncio.CancelledError):
    """A rollout was cancelled; `trajectory` is the part made so far."""

    def __init__(self, trajectory: Trajectory) -> None:
        super().__init__()
        self.trajectory = trajectory


class TrajectoryBuilder:
    """The lists of a trajectory have one length and grow together: here, and nowhere else.

        built = TrajectoryBuilder(attempt, prompt, Encoding(fmt, codec), context_tokens=512)
        built.add_line(await engine.line(built.ids, max_tokens=64, seed=attempt.seed))
        built.set_outcome(LineOutcome(kind=OutcomeKind.OK_SILENT, observation=">>>"))
        built.inject(codec.encode(">>>"))
        trajectory = built.build(StopReason.MAX_LINES)

    `ids` are those of the prompt where they are known already. Raises ConfigError if they leave no
    room for a token in a context of `context_tokens`, and StemError where the attempt begins as a
    trajectory with another prompt.
    """

    def __init__(
        self,
        attempt: Attempt,
        prompt: Prompt,
        encoding: Encoding,
        *,
        context_tokens: int,
        ids: Sequence[int] | None = None,
    ) -> None:
        self.attempt = attempt
        self.prompt = prompt
        self.encoding = encoding
        self.context_tokens = context_tokens
        self._loss_mask: list[bool] = []
        self._logprobs: list[float] = []
        self._policy_version = 0
        self.ids = prompt_ids(prompt, encoding.codec) if ids is None else list(ids)
        """Prompt and completion so far: what the engine goes on after."""
        self.num_prompt = len(self.ids)
        """Tokens of the prompt, P."""
        check_prompt(attempt.problem, self.num_prompt, context_tokens=context_tokens)
        self.lines: list[Line] = []
        self.submission: str | None = None
        self._thought: Thought | None = None
        if attempt.stem is not None:
            self._begin_as(attempt.stem)

    def _begin_as(self, stem: Stem) -> None:
        """Copy the first lines of another trajectory, with all that stands before the next one."""
        other, stop = stem.trajectory, stem.num_tokens
        if tuple(self.ids) != other.prompt_ids:
            raise StemError(f"{other.problem_id} was asked in another prompt")
        assert stem.num_lines <= len(other.lines), "the other one has fewer lines"
        self._extend(other.completion_ids[:stop], other.loss_mask[:stop], other.logprobs[:stop])
        self._policy_version = other.policy_version
        self.lines.extend(other.lines[: stem.num_lines])
        self._thought = other.thought

    @property
    def num_completion(self) -> int:
        """Tokens sampled and injected so far."""
        return len(self.ids) - self.num_prompt

    @property
    def num_copied_lines(self) -> int:
        """Lines at its start that are copied from another trajectory."""
        return 0 if self.attempt.stem is None else self.attempt.stem.num_lines

    def add_line(self, *sampled: SampledLine) -> str:
        """Append what an engine sampled as one line, in one piece or several. Returns its source.

        Its outcome is CUT until `set_outcome` replaces it.
        """
        start = self.num_completion
        for piece in sampled:
            self._take(piece)
        written = self.ids[self.num_prompt + start :]
        text = self.encoding.source_of(written)
        self.lines.append(
            Line(
                index=len(self.lines),
                source=text,
                start=start,
                stop=self.num_completion,
                outcome=LineOutcome(kind=OutcomeKind.CUT),
            )
        )
        return text

    def add_thought(self, *sampled: SampledLine) -> None:
        """Append what an engine sampled before the first line, and what asks for that line."""
        written = [token for piece in sampled for token in piece.ids]
        source = self.encoding.codec.decode(written)
        ids, shown = self.encoding.after_thought(self.prompt.after, source)
        for piece in sampled:
            self._take(piece)
        self.inject(ids)
        self._thought = Thought(source=source, stop=len(written), shown=shown)

    def repeat_opening(self, other: Trajectory, *, with_ids: bool) -> None:
        """Append what another trajectory has before its first line, encoded anew but `with_ids`."""
        if with_ids:
            self._begin_as(Stem(trajectory=other, num_lines=0))
        elif (thought := other.thought) is not None:
            ids = self.encoding.codec.encode(thought.source)
            self._extend(ids, [True] * len(ids), [0.0] * len(ids))
            self._policy_version = other.policy_version
            self.inject(self.encoding.codec.encode_template(thought.shown))
            self._thought = replace(thought, stop=len(ids))

    def _take(self, piece: SampledLine) -> None:
        self._extend(piece.ids, [True] * len(piece.ids), piece.logprobs)
        self._policy_version = piece.policy_version

    def set_outcome(self, outcome: LineOutcome) -> None:
        """Say what became of the last line."""
        self.lines[-1] = replace(self.lines[-1], outcome=outcome)

    def inject(self, ids: Sequence[int]) -> None:
        """Append tokens that the policy did not write: attended to, never trained."""
        self._extend(ids, [False] * len(ids), [0.0] * len(ids))

    def _extend(self, ids: Sequence[int], mask: Sequence[bool], logprobs: Sequence[float]) -> None:
        self.ids.extend(ids)
        self._loss_mask.extend(mask)
        self._logprobs.extend(logprobs)

    def build(self, stop_reason: StopReason) -> Trajectory:
        """The trajectory so far."""
        attempt = self.attempt
        return Trajectory(
            problem_id=attempt.problem.id,
            group_index=attempt.group_index,
            sibling_index=attempt.sibling_index,
            policy_version=self._policy_version,
            seed=attempt.kernel_seed,
            prompt_text=self.prompt.text,
            prompt_ids=tuple(self.ids[: self.num_prompt]),
            completion_ids=tuple(self.ids[self.num_prompt :]),
            loss_mask=tuple(self._loss_mask),
            logprobs=tuple(self._logprobs),
            lines=tuple(self.lines),
            stop_reason=stop_reason,
            submission=self.submission,
            thought=self._thought,
            branch=attempt.branch,
        )


def check_trajectory(trajectory: Trajectory, *, maker: str) -> None:
    """ConfigError that names `maker` unless lists, mask and spans agree and a token is trained."""
    problem = fault(trajectory)
    if problem is None and not trajectory.num_sampled:
        problem = "no token to train"
    if problem is not None:
        raise ConfigError(f"{maker} made a trajectory with {problem}; see repl_rl.rollout.builder")


def fault(trajectory: Trajectory) -> str | None:
    """Say what its lists, mask and spans disagree on; None where they agree."""
    mask, logprobs = trajectory.loss_mask, trajectory.logprobs
    num_tokens = len(trajectory.completion_ids)
    if len(mask) != num_tokens or len(logprobs) != num_tokens:
        return f"{len(mask)} mask entries and {len(logprobs)} logprobs for {num_tokens} tokens"
    lines = (end for line in trajectory.lines for end in (line.start, line.stop))
    ends = [0, trajectory.num_before_lines, *lines, num_tokens]
    if ends != sorted(ends):
        # Checked first: in a foreign file an end may be any number, and a mask takes memory for
        # each token.
        return "lines that overlap or lie beyond its tokens"
    if list(mask) != span_mask(trajectory):
        return "a loss mask that disagrees with its lines"
    if any(logprob and not is_sampled for logprob, is_sampled in zip(logprobs, mask, strict=True)):
        return "log-probabilities at tokens that were not sampled"
    return None
