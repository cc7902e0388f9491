"""Scripts of a task in other forms than a line at a time; `form_samplers.py` samples these forms.

    lines that an author types, one by one -> blocks, a script, a text

Statements and answers are those of the lines. A line may slip, by a bracket too many, and be typed
again.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace

from form_sessions import BlockSession

from repl_rl import (
    Attempt,
    Encoding,
    Episode,
    LineEnd,
    LineOutcome,
    OutcomeKind,
    Prompt,
    SampledLine,
    SamplingConfig,
    StopReason,
    Trajectory,
    TrajectoryBuilder,
)
from repl_rl.rollout.episode import Session
from repl_rl.rollout.sampler import ScriptSampler, answered
from repl_rl.transcript.format import SUBMIT, line_of
from repl_rl.transcript.outcomes import parse
from repl_sandbox import Kernel

Typed = list[tuple[str, str | None]]
"""Lines as they are typed, and as they were meant; None where nobody types it again."""
Ran = Sequence[tuple[str, LineOutcome]]


class BlockScripts(ScriptSampler):
    """Shows scripts in blocks, each up to the first value that its author wants to see.

    Errors are seen behind the block alone. A slip keeps all of it from running: its author types
    the block again, with that line as it was meant, or without it where nobody types it again.
    """

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        built = begun(self, attempt, prompt)
        session = BlockSession(kernel, self.encoding.format, number=prompt.next_number)
        episode = Episode(built, session, limits=self.limits, seed=attempt.seed)
        script, block = self.write(attempt), Typed()
        line = answered(script, None)
        while line is not None and episode.stop is None:
            meant, seen = slip(line), ""
            if meant is not None and (following := answered(script, "")) != meant:
                block.append((line, None))
                line = following
                continue
            if line:  # a blank one would end the block
                block.append((line, line if meant is None else meant))
            if is_look(line if meant is None else meant):
                seen, block = await self._run(episode, block), Typed()
            line = answered(script, seen)
        await self._run(episode, block)
        if episode.stop is None:
            episode.end(StopReason.EOS)
        return episode.trajectory()

    async def _run(self, episode: Episode, block: Typed) -> str:
        """Run a block, again and again while a line slips. Returns what is seen in the end."""
        seen = ""
        while block and episode.stop is None:
            text = line_of("\n".join(typed for typed, _ in block)) + "\n"
            whole = as_sampled(self.encoding, text, room(episode.built, self.limits))
            seen = (await episode.take_line(whole)).outcome.observation
            slips = [at for at, (typed, meant) in enumerate(block) if typed != meant]
            if not slips:
                break
            meant = block[slips[0]][1]
            block[slips[0] : slips[0] + 1] = [] if meant is None else [(meant, meant)]
        return seen


class WholeScripts(ScriptSampler):
    """Shows a script as one block: slips stand in it, and what is typed again does not.

    The lines run one by one, and the script takes the ways that they take.
    """

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        built = begun(self, attempt, prompt)
        session, script = Session(kernel, self.encoding.format), self.write(attempt)
        ran: list[tuple[str, LineOutcome]] = []
        line = answered(script, None)
        while line is not None and session.submission is None:
            outcome = await session.run(line)
            ran.append((line, await self.noted(session, line, outcome)))
            line = answered(script, outcome.observation)
        text = line_of(self.text(ran, session.submission))
        whole = as_sampled(self.encoding, text, room(built, self.limits))
        built.add_line(whole)
        if whole.end is not LineEnd.NEWLINE:
            return built.build(StopReason.MAX_TOKENS)
        kind = self.kind(ran, session.submission)
        built.set_outcome(LineOutcome(kind=kind))
        if kind is not OutcomeKind.SUBMITTED:
            return built.build(StopReason.EOS)
        built.submission = session.submission
        return built.build(StopReason.SUBMITTED)

    async def noted(self, session: Session, line: str, outcome: LineOutcome) -> LineOutcome:
        """The outcome of a line as the form shows it."""
        return outcome

    def text(self, ran: Ran, submission: str | None) -> str:
        again = {at + 1 for at, (line, _) in enumerate(ran[:-1]) if slip(line) == ran[at + 1][0]}
        lines = [line for at, (line, _) in enumerate(ran) if line and at not in again]
        return "\n".join(lines) + "\n"

    def kind(self, ran: Ran, submission: str | None) -> OutcomeKind:
        """That of the first error, behind which nothing runs."""
        kinds = [one.kind for _, one in ran]
        return next((kind for kind in kinds if kind.traits.is_error), kinds[-1])


class WrittenScripts(WholeScripts):
    """Shows a script as a text: lines that did not fail, each with its value, and the answer."""

    async def noted(self, session: Session, line: str, outcome: LineOutcome) -> LineOutcome:
        """With the value of an assignment, unless that stands in the line."""
        if outcome.kind is not OutcomeKind.OK_SILENT or (name := assigned(line)) is None:
            return outcome
        value = (await session.run(f"print({name})")).observation
        is_there = line.endswith(f" = {value.rstrip()}")
        return outcome if is_there else replace(outcome, observation=value)

    def text(self, ran: Ran, submission: str | None) -> str:
        right = [(line, one) for line, one in ran if line and not one.kind.traits.is_error]
        shown = [f"{line}\n{one.observation}" for line, one in right if not line.startswith(SUBMIT)]
        last = "" if submission is None else f"{SUBMIT}({submission})"
        return ("".join(shown) + last).removesuffix("\n")

    def kind(self, ran: Ran, submission: str | None) -> OutcomeKind:
        return OutcomeKind.COMMENT if submission is None else OutcomeKind.SUBMITTED


def slip(line: str) -> str | None:
    """Return the line that one with a bracket too many was meant to be; None for any other line."""
    is_slip = line.endswith(")") and parse(line) is None and parse(line[:-1]) is not None
    return line[:-1] if is_slip else None


def assigned(line: str) -> str | None:
    """Return what a line assigns to, such as `x` of `x += 1`; None for any other line."""
    match parse(line):
        case ast.Module(body=[ast.Assign(targets=[target]) | ast.AugAssign(target=target)]):
            return ast.unparse(target)
    return None


def is_look(line: str) -> bool:
    """True for a bare expression: its author wants to see the value before going on."""
    tree = parse(line)
    found = tree is not None and any(isinstance(node, ast.Expr) for node in tree.body)
    return found and not line.startswith(SUBMIT)


def begun(scripts: ScriptSampler, attempt: Attempt, prompt: Prompt) -> TrajectoryBuilder:
    tokens = scripts.context_tokens
    return TrajectoryBuilder(attempt, prompt, scripts.encoding, context_tokens=tokens)


def room(built: TrajectoryBuilder, limits: SamplingConfig) -> int:
    """Tokens that are left for a trajectory."""
    return min(limits.max_tokens - built.num_completion, built.context_tokens - len(built.ids))


def as_sampled(encoding: Encoding, text: str, most: int) -> SampledLine:
    """A text as a policy that is sure of it would sample it, as far as there is room."""
    ids = encoding.line_ids(text)
    end = LineEnd.NEWLINE if len(ids) <= most else LineEnd.LENGTH
    kept = tuple(ids[:most])
    return SampledLine(ids=kept, logprobs=(0.0,) * len(kept), end=end, policy_version=0)
