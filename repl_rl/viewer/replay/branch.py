"""A policy that continues a trajectory, and what its lines are worth by such continuations.

    Live, Codec -> TrajectoryBuilder;  Trajectory -> Verdict -> Reward;  branches -> [Worth]

Knows tokens and rewards. Does not know engines: the policy comes in from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from repl_rl.credit.ledger import Worth, worths
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.records import (
    Attempt,
    Line,
    OutcomeKind,
    Reward,
    Scored,
    StopReason,
    Trajectory,
)
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.rollout.observations import Answers
from repl_rl.rollout.plan import TaskPlan, TrajectorySampler
from repl_rl.rollout.prefixes import attempts_around, check_asked
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.scoring import Scoring
from repl_rl.tasks.base import Task, make_prompt
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
from repl_rl.viewer.replay.live import Live, LiveLine, set_up
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.types import Kernel, KernelSource

_NO_LIMIT = 1 << 40


class LinePolicy(Protocol):
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


class ScoringPolicy(LinePolicy, Protocol):
    """A policy that also knows how likely a completion is, and makes whole rollouts."""

    def referee(
        self, plan: TaskPlan, scene: Scene, *, kernels: KernelSource, scorer: Scoring
    ) -> Referee:
        """Make a referee by rollouts of a plan. ConfigError for a format without a template."""
        ...

    def score(self, trajectory: Trajectory) -> tuple[float, ...]:
        """Log-probabilities [T], nats; ConfigError for another vocabulary."""
        ...

    def answers(self, scene: Scene) -> Answers:
        """Find answers in trajectories of a scene."""
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
    retained = recorded if is_same else None
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
    built.repeat_opening(recorded, with_ids=is_same)
    answers = {} if retained is None else _answers(retained)
    for line in live.lines:
        sampled = _as_sampled(line, retained, encoding)
        built.add_line(replace(sampled, policy_version=recorded.policy_version))
        if line.recorded is not None and line.recorded.index in answers and _printed_same(line):
            # The record may be shorter than the output here: a cap in tokens had cut it.
            built.set_outcome(line.recorded.outcome)
            built.inject(answers[line.recorded.index])
        else:
            built.set_outcome(line.outcome)
            built.inject(encoding.injected_ids(line.text_after, after=built.ids))
    built.submission = live.session.submission
    return built


def as_trajectory(live: Live) -> Trajectory:
    """Return what ran live, with bytes as tokens: enough for rewards, and for a file of its own."""
    built = begin(live, ByteCodec())
    kind = live.lines[-1].outcome.kind if live.lines else OutcomeKind.BLANK
    return built.build(kind.traits.ends or StopReason.EOS)


def _as_sampled(line: LiveLine, retained: Trajectory | None, encoding: Encoding) -> SampledLine:
    ids: Sequence[int]
    if retained is not None and line.recorded is not None:
        start, stop = line.recorded.start, line.recorded.stop
        ids, logprobs = retained.completion_ids[start:stop], retained.logprobs[start:stop]
    else:
        ids = encoding.line_ids(line.source)
        logprobs = (0.0,) * len(ids)
    return SampledLine(
        ids=tuple(ids), logprobs=tuple(logprobs), end=LineEnd.NEWLINE, policy_version=0
    )


def _answers(retained: Trajectory) -> dict[int, tuple[int, ...]]:
    """The ids that were injected after each line, by its index."""
    return {
        span.line_index: retained.completion_ids[span.start : span.stop]
        for span in spans(retained)
        if not span.is_sampled
    }


def _printed_same(line: LiveLine) -> bool:
    """True where a line printed what its record says; False for a line without a record."""
    return line.recorded is not None and not difference(line.recorded.outcome, line.outcome)


OnProgress = Callable[[int, int], None]
"""Gets (how many continuations are scored, of how many)."""


class Referee:
    """Says what lines of live trajectories were worth, by rollouts of one policy.

    `source` is that of its model, as in `LoadedModel`; `at_once` counts continuations.
    """

    def __init__(
        self,
        sampler: TrajectorySampler,
        encoding: Encoding,
        task: Task,
        scene: Scene,
        *,
        source: str,
        at_once: int,
        kernels: KernelSource,
        scorer: Scoring,
    ) -> None:
        self._encoding, self._task, self._scene, self._source = encoding, task, scene, source
        self._runner = RolloutRunner(
            task=task,
            fmt=encoding.format,
            sampler=sampler,
            kernels=_SetUp(kernels, scene),
            scorer=scorer,
            max_in_flight=at_once,
        )

    async def worth(
        self,
        scored: Scored,
        index: int,
        *,
        num_branches: int,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Worth:
        """Estimate the worth of a line by `num_branches` continuations of each state around it.

        Raises ConfigError where the policy would have been asked in other tokens, and what a
        runner raises.
        """
        problem = scored.problem
        prompt = make_prompt(self._task, problem, self._encoding.format)
        check_asked(scored, prompt, self._encoding.codec, source=self._source)
        attempts = attempts_around(
            scored,
            self._scene.setup_of(problem),
            num_branches=num_branches,
            states=(index, index + 1),
        )
        num_scored = 0

        def count(_: Scored) -> None:
            nonlocal num_scored
            num_scored += 1
            on_progress(num_scored, len(attempts))

        on_progress(0, len(attempts))
        return worths(scored, await self._runner.run(attempts, on_scored=count))[index]

    def by_hand(self, live: Live, *, outcome: float | None) -> Scored:
        """The lines that ran here as a trajectory in the policy's tokens, `outcome` at its end.

        Unless they have ended, a line follows that never ran: others write another in its place.
        """
        built = begin(live, self._encoding.codec, self._encoding.format)
        if not live.is_over:
            ids = tuple(built.encoding.line_ids("\n"))
            unknown = (0.0,) * len(ids)
            built.add_line(
                SampledLine(ids=ids, logprobs=unknown, end=LineEnd.NEWLINE, policy_version=0)
            )
        trajectory = built.build(StopReason.EOS)
        nothing = (0.0,) * len(trajectory.lines)
        reward = Reward(line_rewards=nothing, outcome_reward=outcome if live.is_over else None)
        return replace(live.scored, trajectory=trajectory, verdict=None, reward=reward)


class _SetUp:
    """Kernels that have run all of a scene's setup when they are handed out."""

    def __init__(self, kernels: KernelSource, scene: Scene) -> None:
        self._kernels, self._scene = kernels, scene

    async def acquire(self, *, seed: int) -> Kernel:
        kernel = await self._kernels.acquire(seed=seed)
        try:
            await set_up(kernel, self._scene.run_first)
        except BaseException:
            await kernel.aclose()
            raise
        return kernel
