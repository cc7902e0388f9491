"""`repl-rl play`: a person in the policy's place, with the same loop, kernel, grader and reward.

    prompt -> [keyboard -> Execution -> observation]* -> Trajectory -> Verdict -> Reward

Tokens are bytes, so limits in tokens are lifted. Knows no model and no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from repl_rl.commands import options as shared
from repl_rl.commands.attempts import PROBLEM, find_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.errors import ConfigError, GraderError
from repl_rl.records import Attempt, Origin, OutcomeKind, Scored, StopReason, Trajectory
from repl_rl.rollout.builder import RolloutCancelled, TrajectoryBuilder
from repl_rl.rollout.env import Env
from repl_rl.rollout.plan import TaskPlan, make_task_plan
from repl_rl.rollout.runner import kernel_for
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import unscored
from repl_rl.runs.folder import PLAYED, RunFolder, check_output, new_run_path
from repl_rl.tasks.base import make_prompt
from repl_rl.transcript.format import PYTHON, TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.rollout_view import PlayerConsole, result_rows
from repl_sandbox.render import SURROGATE, clean
from repl_sandbox.types import Kernel, SandboxError

INTERRUPTED = 130
_UNLIMITED = 1 << 30


@click.command()
@shared.with_options(shared.TASK, PROBLEM, shared.SEED, shared.FILES, shared.OVERRIDES)
@click.option("--output", type=Path, metavar="DIR", help="Run folder [runs/play-TASK-TIME].")
def play(problem: str | None, output: Path | None, **options: Any) -> None:
    """Be the policy: write the lines yourself.

    Your lines run in a sealed kernel and earn a policy's reward. Below each line you see its
    outcome, its reward and the sum so far. submit_final_answer(...) ends the game with a verdict.
    Ctrl-D ends it without one, and Ctrl-C cancels it. Tokens are not limited.
    """
    config = shared.resolve(options)
    plan = playable(shared.announced(make_task_plan(config)), config.transcript)
    path = output or new_run_path(f"play-{plan.task_name}", Path("runs"))
    check_output(path)
    with Screen() as screen:
        attempt = find_attempt(plan, problem, screen)
    screen = Screen()
    limit = plan.sampling.max_lines
    screen.say(
        f"problem {attempt.problem.id}, {limit} lines at most. Ctrl-D ends the game, Ctrl-C "
        f"cancels it."
    )
    game = Game(plan=plan, attempt=attempt, console=PlayerConsole(screen))
    scored, origin, failure = asyncio.run(game.play())
    _save(path, scored, origin, screen, code=shared.code_options(plan, options["files"]))
    if failure is not None:
        raise failure
    if scored.trajectory.stop_reason is StopReason.CANCELLED:
        sys.exit(INTERRUPTED)


def _save(
    path: Path, scored: Scored, origin: Origin, screen: Screen, *, code: Sequence[str]
) -> None:
    """Show what it was worth, save it, and say where; nothing is saved without a line."""
    screen.say("")
    if not scored.trajectory.lines:
        screen.say("cancelled before the first line: nothing is kept")
        return
    for row in result_rows(scored):
        screen.say(row)
    folder = RunFolder(path)
    folder.write_config(origin, policy="a person", device="cpu")
    folder.append_trajectories(PLAYED, [scored])
    step = shlex.join(["repl-rl", "replay", str(path), *code])
    screen.say(f"\nrun folder: {path}\nnext: {step}")


def playable(plan: TaskPlan, transcript: str) -> TaskPlan:
    """The plan as a person plays it: no limit in tokens, no time limit, one kernel.

    ConfigError where a person cannot write transcripts of the kind of this name.
    """
    sampling = plan.sampling
    if sampling.sampler != SamplingConfig().sampler:
        raise ConfigError(
            f"sampling.sampler = {sampling.sampler!r} asks a model for more than lines; play needs "
            f"{SamplingConfig().sampler!r}"
        )
    if plan.takes_template:
        raise ConfigError(
            f"transcript = {transcript!r} needs a model's chat template; play with --set "
            f"transcript={PYTHON.name}"
        )
    sampling = replace(
        sampling,
        max_line_tokens=_UNLIMITED,
        max_tokens=_UNLIMITED,
        max_observation_tokens=_UNLIMITED,
        time_limit_s=float(_UNLIMITED),
        engine_timeout_s=float(_UNLIMITED),
        max_in_flight=1,
    )
    # Nothing may run in the background while a person thinks: the event loop stands still.
    return plan.changed(sampling=sampling, sandbox=replace(plan.sandbox, standby=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One attempt by a person; `plan` is as `playable` made it."""

    plan: TaskPlan
    attempt: Attempt
    console: PlayerConsole

    async def play(self) -> tuple[Scored, Origin, SandboxError | GraderError | None]:
        """Play to the end, however it comes. SandboxError and GraderError if it cannot begin.

        If it is called off or ended by a failure of ours, which comes last, the stop reason is
        CANCELLED and the lines so far are kept.
        """
        async with Env(self.plan, self.plan.format(None)) as env:
            kernel = await kernel_for(self.attempt.problem, env.kernels, seed=self.attempt.seed)
            async with contextlib.aclosing(kernel):
                trajectory, lost = await self._write(kernel, env.format)
            scored, failure = await self._score(trajectory, env)
        return scored, env.origin(), lost or failure

    async def _write(
        self, kernel: Kernel, fmt: TranscriptFormat
    ) -> tuple[Trajectory, SandboxError | None]:
        codec = ByteCodec()
        builders: list[TrajectoryBuilder] = []
        sampler = LineSampler(
            ScriptedEngine(codec, _Keyboard(self.console).write),
            codec,
            fmt,
            self.plan.sampling,
            context_tokens=2 * _UNLIMITED,
        )

        def on_line(built: TrajectoryBuilder) -> None:
            builders.append(built)
            self._note_line(built)

        sampler.on_line = on_line
        try:
            prompt = make_prompt(self.plan.task, self.attempt.problem, fmt)
            return await sampler.sample(self.attempt, prompt, kernel), None
        except RolloutCancelled as cancelled:
            _take_back_cancel()
            return cancelled.trajectory, None
        except SandboxError as error:
            if not builders:
                raise
            return builders[-1].build(StopReason.CANCELLED), error

    async def _score(self, trajectory: Trajectory, env: Env) -> tuple[Scored, GraderError | None]:
        problem, failure = self.attempt.problem, None
        if trajectory.stop_reason is not StopReason.CANCELLED:
            try:
                return await env.score(trajectory, problem), None
            except asyncio.CancelledError:
                _take_back_cancel()
            except GraderError as error:
                failure = error
        called_off = replace(trajectory, stop_reason=StopReason.CANCELLED)
        return unscored(called_off, problem), failure

    def _note_line(self, built: TrajectoryBuilder) -> None:
        """Show what the last line printed, and what it is worth so far."""
        line = built.lines[-1]
        if line.outcome.observation:
            self.console.say(Text(clean(line.outcome.observation).rstrip("\n")))
        if line.outcome.kind is OutcomeKind.CUT:
            return
        rewards = self.plan.reward(built.build(StopReason.CANCELLED), None).line_rewards
        self.console.note(
            f"line {len(rewards)} of {self.plan.sampling.max_lines}: {line.outcome.kind} "
            f"{rewards[-1]:+.2f}, all lines {sum(rewards):+.2f}"
        )


def _take_back_cancel() -> None:
    """The interrupt is handled: later code may await again, with deadlines."""
    task = asyncio.current_task()
    assert task is not None
    while task.cancelling():
        task.uncancel()


class _Keyboard:
    """Asks the person for a line where an engine asks a model. The event loop waits meanwhile.

    In a thread the question would survive an interrupt and keep the process alive.
    """

    def __init__(self, console: PlayerConsole) -> None:
        self._console = console
        self._is_first = True

    def write(self, seen: str) -> str:
        """Implement `scripted.Writer`. `seen` ends in the prompt that asks for the line."""
        above, _, prompt = seen.rpartition("\n")
        if self._is_first:
            self._console.say(Text(clean(above), "dim"))
            self._is_first = False
        try:
            typed = self._console.ask(clean(prompt))
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None
        if typed is None:
            return ""
        return f" {SURROGATE.sub(chr(0xFFFD), typed)}\n" if typed else "\n"
