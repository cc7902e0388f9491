"""A walk through one trajectory: the current line, what differs, what the branch earns.

    Annotated, Live, Scorer -> Walk: step, go_to, run_to..., by_hand, let, judge, keep
    Worth -> a sentence

Its commands return a message for a person, None where there is nothing to say.
Knows a live kernel, rewards and one file to save to. Does not know screens or keys.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from repl_rl.credit.ledger import Value, Worth
from repl_rl.errors import ConfigError
from repl_rl.records import Line, Origin, OutcomeKind, Scored, Trajectory
from repl_rl.rollout.scoring import Scorer, unscored
from repl_rl.runs.folder import make_origin
from repl_rl.runs.trajectory_file import append
from repl_rl.transcript.tokens import Decode
from repl_rl.viewer.replay.annotated import Annotated
from repl_rl.viewer.replay.branch import LinePolicy, OnProgress, Referee, as_trajectory
from repl_rl.viewer.replay.compare import OutcomeDifference
from repl_rl.viewer.replay.execute import compare, reasons
from repl_rl.viewer.replay.live import NO_KERNEL, Live, LiveLine
from repl_rl.viewer.replay.scene import Scene, token_texts
from repl_rl.viewer.stepper.texts import number
from repl_sandbox.types import KernelSource, SandboxError

# T completion tokens, L lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One line of a trajectory, for a table of its tokens."""

    trajectory: Trajectory
    line: Line
    texts: tuple[str, ...] | None  # [T]
    """None where no vocabulary is at hand."""
    reward: float | None
    """The line's own; None where nobody scores."""
    trainer_logprobs: tuple[float, ...] | None = None  # [T]
    advantage: float | None = None
    """None for a line that was in no update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A trajectory as its policy ended it, in the policy's own tokens."""

    trajectory: Trajectory
    tokenizer: str | None
    """Tokenizer, as in `Origin.tokenizer`."""
    texts: tuple[str, ...] | None  # [T]
    num_before: int
    """Lines that the policy went on after."""
    lines: tuple[LiveLine, ...]
    """All that had run at its end; a line that was cut is in the trajectory alone."""

    @classmethod
    def of(
        cls,
        trajectory: Trajectory,
        live: Live,
        *,
        tokenizer: str | None,
        decode: Decode,
        num_before: int,
    ) -> Sampled:
        """Call it before anything else runs. Slow: it decodes each token by itself."""
        return cls(
            trajectory=trajectory,
            tokenizer=tokenizer,
            texts=token_texts(trajectory, decode),
            num_before=num_before,
            lines=tuple(live.lines),
        )

    def is_all_of(self, live: Live) -> bool:
        """True while `live` holds exactly the lines that the policy left."""
        # By identity: a line by hand may read the same, and was not sampled.
        return len(self.lines) == live.at and all(map(operator.is_, self.lines, live.lines))

    def tokens_of(self, index: int, *, reward: float | None) -> Tokens | None:
        """None for a line that stood there before the policy went on."""
        if index < self.num_before:
            return None
        line = self.trajectory.lines[index]
        return Tokens(trajectory=self.trajectory, line=line, texts=self.texts, reward=reward)


def worth_words(worth: Worth, *, is_end: bool) -> str:
    """`is_end`: nothing follows the line, so the value after it is what was earned.

    >>> from repl_rl.records import Line, LineOutcome, OutcomeKind
    >>> outcome = LineOutcome(kind=OutcomeKind.OK_SILENT)
    >>> line = Line(index=2, source=" x = 2\\n", start=0, stop=7, outcome=outcome)
    >>> before = Value(mean=0.25, error=0.25, count=4)
    >>> print(worth_words(Worth(line=line, before=before, after=None), is_end=False))
    the worth of line 3 is unknown: before it +0.250 (4 continuations), after it unknown \
(its state cannot be restored)
    """
    name, gain = f"line {worth.line.index + 1}", worth.gain
    head = (
        f"the worth of {name} is unknown"
        if gain is None
        else f"{name} was worth {number(gain.mean)}{_error(gain)}"
    )
    after = _value(worth.after, is_end=is_end)
    return f"{head}: before it {_value(worth.before)}, after it {after}"


def _error(gain: Value) -> str:
    return "" if gain.error is None else f", standard error {gain.error:.3f}"


def _value(value: Value | None, *, is_end: bool = False) -> str:
    if value is None:
        return f"unknown ({'it was not scored' if is_end else 'its state cannot be restored'})"
    plural = "" if value.count == 1 else "s"
    how = "where it ended" if is_end else f"{value.count} continuation{plural}"
    return f"{number(value.mean)} ({how})"


NO_POLICY = "no policy is loaded: start with --model PATH"

# L lines


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRewards:
    """Rewards of a branch, as scored here."""

    line_rewards: tuple[float, ...]  # [L]
    scored: Scored | None
    """None while it has not ended."""

    @property
    def total(self) -> float:
        return sum(self.line_rewards) if self.scored is None else self.scored.reward.total


class Walk:
    """Needs `begin` before anything else, and `aclose` at the end."""

    def __init__(
        self, item: Annotated, scene: Scene, kernels: KernelSource, *, scorer: Scorer | None
    ) -> None:
        self.item = item
        self.scene = scene
        self.live = Live(item.ledger.scored, scene, kernels)
        self.worth: BranchRewards | None = None
        """None where there is no branch or no scorer."""
        self._scorer = scorer
        self._sampled: Sampled | None = None
        self._reasons_L = reasons(item.ledger.scored, scene)

    async def aclose(self) -> None:
        await self.live.aclose()

    @property
    def recorded(self) -> tuple[Line, ...]:
        return self.live.trajectory.lines

    @property
    def at_hand(self) -> LiveLine | None:
        """The line that ran last; None where none has."""
        return self.live.lines[-1] if self.live.lines else None

    @property
    def beside(self) -> Line | None:
        """The recorded line at the place of the one at hand."""
        index = self.live.at - 1
        return self.recorded[index] if 0 <= index < len(self.recorded) else None

    @property
    def prompt(self) -> str:
        """Prompt before the next line."""
        before = self.at_hand.text_after if self.at_hand else self.live.trajectory.prompt_text
        return before.rpartition("\n")[2]

    @property
    def sampled(self) -> Sampled | None:
        """Trajectory that a policy left here; None once another line ran or the walk went back."""
        sampled = self._sampled
        return sampled if sampled is not None and sampled.is_all_of(self.live) else None

    @property
    def is_changed(self) -> bool:
        """True where the lines here are not the beginning of the record."""
        return self.live.is_branch or self.sampled is not None

    def difference(self, line: LiveLine) -> OutcomeDifference | None:
        """Return how a line differs from its record; None where it has none or agrees."""
        if line.recorded is None:
            return None
        mismatch = compare(self.live, line, self._reasons_L)
        return None if mismatch is None else mismatch.difference

    def surprise(self, line: LiveLine) -> float | None:
        """Surprise at a recorded answer, nats a token; None where it is unknown or not this one."""
        if line.recorded is None or self.difference(line) is not None:
            return None
        return self.item.surprises.get(line.recorded.index)

    def why_not(self) -> str:
        """Explain why no recorded line follows."""
        last = self.at_hand
        if self.live.session.submission is not None:
            return "an answer was submitted, so nothing follows"
        if last is not None and self.live.is_over:
            return f"the kernel is gone ({last.outcome.kind}); b goes back to a fresh one"
        if self.live.is_branch:
            return "a branch: i continues by hand, m with the policy, b goes back"
        if self.live.at < len(self.recorded):
            return "the next line was cut while it was sampled, and never ran"
        return "that was the last line; i continues by hand"

    async def step(self) -> str | None:
        """Run the next line."""
        return self.why_not() if await self.live.next() is None else None

    async def go_to(self, num_lines: int) -> str | None:
        """Go to the state after `num_lines` lines, or after the last that can run."""
        if num_lines < self.live.at or not self.live.has_kernel:
            await self._back(min(max(0, num_lines), self.live.at))
        while self.live.at < num_lines:
            if await self.live.next() is None:
                return self.why_not()
        return None

    async def run_to_end(self) -> str | None:
        await self.live.run_to(lambda line: False)
        return None

    async def run_to_error(self) -> str | None:
        return await self._run_to("error", lambda line: line.outcome.kind.traits.is_error)

    async def run_to_reward(self) -> str | None:
        return await self._run_to("reward", lambda line: self.live.predicted(line) != 0)

    async def run_to_difference(self) -> str | None:
        return await self._run_to("difference", lambda line: self.difference(line) is not None)

    async def _run_to(self, name: str, is_there: Callable[[LiveLine], bool]) -> str | None:
        if self.live.upcoming is None:
            return self.why_not()
        line = await self.live.run_to(is_there)
        return f"no further {name}" if line is None else None

    async def renew(self) -> None:
        """Run the same lines in a fresh kernel, after a line that was called off."""
        await self._back(self.live.at)

    async def by_hand(self, text: str) -> str | None:
        """Run a line in place of the next one."""
        line = await self.live.edit(text)
        await self._weigh()
        return self.why_not() if line is None else None

    async def let(self, policy: LinePolicy | None, *, on_line: Callable[[], None]) -> str | None:
        """Let a policy go on to its end, and score the result."""
        if policy is None:
            return NO_POLICY
        if self.live.is_over:
            return self.why_not()
        if not self.live.has_kernel:
            raise SandboxError(NO_KERNEL)
        num_before = self.live.at
        self.worth = None  # out of date at the policy's first line, even if the policy fails later
        done = await self._continue_from(policy, on_line)
        self._sampled = await asyncio.to_thread(
            Sampled.of,
            done,
            self.live,
            tokenizer=policy.source,
            decode=policy.decode,
            num_before=num_before,
        )
        await self._weigh()
        return f"the policy ended: {done.stop_reason}"

    async def _continue_from(self, policy: LinePolicy, on_line: Callable[[], None]) -> Trajectory:
        try:
            return await policy.continue_from(self.live, on_line=lambda line: on_line())
        except SandboxError:
            await self.live.aclose()  # nobody knows what has run in that kernel
            raise

    def why_not_judged(self, *, has_referee: bool) -> str | None:
        """Explain why nobody judges the line at hand; None where somebody does."""
        if not has_referee:
            return NO_POLICY
        return "nothing has run yet; n runs line 1" if self.at_hand is None else None

    async def judge(
        self, referee: Referee | None, *, num_branches: int, on_progress: OnProgress
    ) -> str | None:
        """Estimate the worth of the line at hand by other continuations of the states around it."""
        if referee is None or self.at_hand is None:
            return self.why_not_judged(has_referee=referee is not None)
        scored = await asyncio.to_thread(self._as_it_stands, referee)
        worth = await referee.worth(
            scored, self.live.at - 1, num_branches=num_branches, on_progress=on_progress
        )
        return worth_words(worth, is_end=self.live.at == len(scored.trajectory.lines))

    def _as_it_stands(self, referee: Referee) -> Scored:
        """The record, or what stands here in its place. Slow where thousands of lines do."""
        live = self.live
        if not live.is_branch:
            return live.scored
        branch = None if self.worth is None else self.worth.scored
        if self.sampled is not None:
            return branch or unscored(self.sampled.trajectory, live.scored.problem)
        outcome = None if branch is None else branch.reward.outcome_reward
        return referee.by_hand(live, outcome=outcome)

    async def keep(self, path: Path, *, isolation: str) -> str | None:
        """Write what ran here to a file of its own, as a trajectory like any other.

        Raises ConfigError where the file is there already or cannot be written.
        """
        path = _at_home(path)
        scored = await self._judged()
        origin = await asyncio.to_thread(self._origin, isolation)
        try:
            _write(path, scored, origin)
        except FileExistsError:
            raise ConfigError(f"{str(path)!r} is there already; give another name") from None
        except OSError as error:
            raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from None
        return f"saved; replay it with: repl-rl replay {path}"

    def _origin(self, isolation: str) -> Origin:
        """The origin of what ran here. Slow: it looks up what is installed."""
        return make_origin(
            self.scene.config,
            setup=self.scene.setup,
            tokenizer=None if self.sampled is None else self.sampled.tokenizer,
            isolation=isolation,
        )

    async def _back(self, to: int) -> None:
        await self.live.back(to)
        await self._weigh()

    async def _judged(self) -> Scored:
        """Score what ran here as if it ended here."""
        if self.worth is not None and self.worth.scored is not None:
            return self.worth.scored
        problem, trajectory = self.live.scored.problem, await self._trajectory()
        if self._scorer is not None:
            return await self._scorer.score(trajectory, problem)
        return unscored(trajectory, problem)

    async def _trajectory(self) -> Trajectory:
        """Return the trajectory as a policy sampled it, else in bytes: long ones take seconds."""
        if self.sampled is not None:
            return self.sampled.trajectory
        return await asyncio.to_thread(as_trajectory, self.live)

    async def _weigh(self) -> None:
        self.worth = None
        if self._scorer is None or not self.live.is_branch:
            return
        trajectory = await self._trajectory()
        if self.sampled is not None or self.live.is_over:
            scored = await self._scorer.score(trajectory, self.live.scored.problem)
            self.worth = BranchRewards(line_rewards=scored.reward.line_rewards, scored=scored)
        else:
            self.worth = BranchRewards(
                line_rewards=self._scorer.reward(trajectory, None).line_rewards, scored=None
            )


def _at_home(path: Path) -> Path:
    """The path with the home folder in place of a `~` in front."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(f"no home folder for {str(path)!r}; give the full path") from None


def _write(path: Path, scored: Scored, origin: Origin) -> None:
    """A file of its own, whole or not at all."""
    path.open("x").close()
    try:
        append(path, [scored], origin=origin)
    except BaseException:
        path.unlink()
        raise


def opens_a_block(line: Line | LiveLine | None) -> bool:
    """True where the line after this one stands in the same statement."""
    return line is not None and line.outcome.kind is OutcomeKind.INCOMPLETE
