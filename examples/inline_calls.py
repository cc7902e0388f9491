"""Another loop in place of the line loop: prose with calls, each answered where it stands.

    The sum is <fn>2 + 3</fn> = 5, so <fn>submit_final_answer(5)</fn>

From this folder, with a model of your own:

    repl-rl train --model PATH --set transcript=inline_calls:PROSE \\
        --set sampling.sampler=inline_calls:InlineCalls

Masks, rewards and the update come with the trajectory: what is injected is never trained.
"""

from dataclasses import dataclass

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import Engine, LineEnd, SampledLine
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.seeds import derive_seed
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import Part, Prompt, TranscriptFormat
from repl_rl.transcript.outcomes import executed_kind, submitted_expression
from repl_rl.transcript.tokens import Codec
from repl_rl.types import Attempt, LineOutcome, OutcomeKind, StopReason, Trajectory
from repl_sandbox.statements import Compiler
from repl_sandbox.types import Kernel

OPEN, CLOSE = "<fn>", "</fn>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose(TranscriptFormat):
    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        return Prompt((Part(f"{statement}\nPython in {OPEN}...{CLOSE} is run at once.\n\n"),))


PROSE = Prose(name="prose", banner="", primary="", secondary="")


class InlineCalls:
    """Samples token by token up to the end of a call: the engine's cache makes that cheap."""

    def __init__(
        self,
        engine: Engine,
        codec: Codec,
        fmt: TranscriptFormat,
        config: SamplingConfig,
        *,
        context_tokens: int,
    ) -> None:
        self._engine = engine
        self._codec = codec
        self._encoding = Encoding(fmt, codec)
        self._config = config
        self._context_tokens = context_tokens

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        built = TrajectoryBuilder(
            attempt, prompt, self._encoding, context_tokens=self._context_tokens
        )
        while True:
            pieces = await self._until_call_ends(built, attempt.seed)
            text = built.add_line(*pieces)
            if pieces[-1].end is LineEnd.EOS:
                return built.build(StopReason.EOS)
            if not text.endswith(CLOSE):
                return built.build(StopReason.MAX_TOKENS)
            answer = self._codec.encode(f" = {await self._call(text, built, kernel)}")
            if built.submission is not None:
                return built.build(StopReason.SUBMITTED)
            if len(answer) >= self._room(built):
                return built.build(StopReason.MAX_TOKENS)
            built.inject(answer)

    def _room(self, built: TrajectoryBuilder) -> int:
        budget = self._config.max_tokens - built.num_completion
        return min(budget, self._context_tokens - len(built.ids))

    async def _until_call_ends(self, built: TrajectoryBuilder, seed: int) -> list[SampledLine]:
        pieces: list[SampledLine] = []
        new: list[int] = []
        while len(new) < self._room(built):
            at = built.num_completion + len(new)
            piece = await self._engine.line(
                [*built.ids, *new], max_tokens=1, seed=derive_seed(seed, at)
            )
            pieces.append(piece)
            new.extend(piece.ids)
            if piece.end is LineEnd.EOS or self._codec.decode(new).endswith(CLOSE):
                break
        return pieces

    async def _call(self, text: str, built: TrajectoryBuilder, kernel: Kernel) -> str:
        """Run the source between the last marks, and return what it shows."""
        source = text.removesuffix(CLOSE).rpartition(OPEN)[2].strip()
        submitted = submitted_expression(source)
        execution = await kernel.evaluate(submitted or source)
        kind = executed_kind(source, execution, set(), syntax=Compiler().syntax(source))
        shown = execution.value or execution.error_type or "nothing"
        if submitted is not None and execution.value is not None:
            built.submission, kind = execution.value, OutcomeKind.SUBMITTED
        built.set_outcome(LineOutcome(kind=kind, observation=shown))
        return shown
