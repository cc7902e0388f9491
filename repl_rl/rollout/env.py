"""Open kernels and a grader: the source of episodes that somebody else samples.

    Plan -> Env -> EnvEpisode -> Scored

Knows kernels, tasks and the grader. Does not know models: no engine is opened here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Origin, Problem, Scored, Trajectory
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.rollout.episode import Episode, Session, Step
from repl_rl.rollout.plan import TaskPlan, TrajectorySampler, make_plan
from repl_rl.rollout.runner import RolloutRunner, kernel_for, kernel_pool
from repl_rl.rollout.scoring import Scorer, open_scorer
from repl_rl.tasks.base import make_prompt
from repl_rl.transcript.chat import ChatTemplate
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec, Codec
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.walls.isolation import Walls

AS_TEXT = """
[sampling]
max_tokens = 1000000
max_line_tokens = 100000
max_observation_tokens = 100000
"""
"""Settings where text is pushed, not tokens: those are bytes then, and `max_lines` and the kernel's
limits are what bounds a session."""


class EnvEpisode(Episode):
    """An episode that has a kernel of its own and can be scored. Close it, or score it."""

    def __init__(
        self, built: TrajectoryBuilder, session: Session, *, scorer: Scorer, **options: Any
    ) -> None:
        super().__init__(built, session, **options)
        self.problem = built.attempt.problem
        self.prompt = built.prompt.text
        """Text that the policy sees first."""
        self._scorer = scorer
        self._is_open = True

    async def line(self, text: str) -> Step:
        """Like `take`, for a line that is given as text, without its newline.

        Raises ConfigError for text that is no line, and the episode stays as it was.
        """
        return await self.take(self.built.encoding.typed_ids(text))

    async def score(self) -> Scored:
        """The trajectory with its verdict and its rewards; the kernel is given back.

        Raises ConfigError while a line is under way, and GraderError if the grader's process cannot
        be started.
        """
        trajectory = self.trajectory()
        await self.aclose()
        return await self._scorer.score(trajectory, self.problem)

    async def aclose(self) -> None:
        """Give the kernel back; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            await self.session.kernel.aclose()


class Env:
    """A plan's kernels, grader and format; with an engine it is a `Runtime`. `open_env` makes one.

    `kernels` are those of the plan unless others are given. `async with` opens them and the
    grader, and closes them however the block ends.

    Each episode has its own kernel, so many may be under way:

        async with open_env("sympy-proofs") as env:
            problem = next(env.plan.task.problems(Split.TRAIN, seed=0))
            episode = await env.episode(problem)
            await episode.line("submit_final_answer(1)")
            scored = await episode.score()
    """

    def __init__(
        self,
        plan: TaskPlan,
        fmt: TranscriptFormat,
        *,
        kernels: KernelPool | None = None,
    ) -> None:
        self.plan = plan
        self.format = fmt
        self.setup = plan.setup(fmt)
        """Sources that a kernel runs before those of a problem."""
        self.kernels = kernels or kernel_pool(plan.sandbox, setup=self.setup)
        self.scorer: Scorer
        self._opened = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.kernels)
            self.scorer = await stack.enter_async_context(open_scorer(self.plan))
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._opened.__aexit__(*raised)

    @property
    def walls(self) -> Walls:
        """The walls around kernels."""
        return self.kernels.walls

    def origin(self, *, tokenizer: str | None = None) -> Origin:
        """The origin of what is sampled in it, in the tokens of `tokenizer` or in bytes."""
        return self.plan.origin(self.format, tokenizer=tokenizer, isolation=str(self.walls))

    def runner(self, sampler: TrajectorySampler) -> RolloutRunner:
        """Runner of many rollouts at once in its kernels."""
        return RolloutRunner(
            task=self.plan.task,
            fmt=self.format,
            sampler=sampler,
            kernels=self.kernels,
            scorer=self.scorer,
            max_in_flight=self.plan.sampling.max_in_flight,
        )

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored:
        """Grade a trajectory from anywhere: return it with its verdict and its rewards.

        Raises GraderError if the grader's process cannot be started.
        """
        return await self.scorer.score(trajectory, problem)

    async def episode(
        self,
        problem: Problem,
        *,
        codec: Codec | None = None,
        seed: int = 0,
        context_tokens: int = 1 << 30,
        group_index: int = 0,
        sibling_index: int = 0,
    ) -> EnvEpisode:
        """Begin a trajectory of `problem`, to be pushed line by line, in its own kernel.

        `codec` belongs to the model that samples, and `context_tokens` is the size of its context.
        Without a codec, tokens are bytes. The same seed, problem and lines give the same outputs.

        Raises ConfigError if the prompt leaves no room for a token, and SandboxError if no kernel
        can be started.
        """
        encoding = Encoding(self.format, ByteCodec() if codec is None else codec)
        prompt = make_prompt(self.plan.task, problem, self.format)
        attempt = Attempt(
            problem=problem, group_index=group_index, sibling_index=sibling_index, seed=seed
        )
        kernel = await kernel_for(problem, self.kernels, seed=seed)
        try:
            return EnvEpisode.begin(
                attempt,
                prompt,
                kernel,
                encoding,
                self.plan.sampling,
                context_tokens,
                running=self.plan.running_reward(),
                scorer=self.scorer,
            )
        except ConfigError:
            await kernel.aclose()
            raise


def open_env(
    task: str = "sympy-proofs",
    *,
    transcript: str = "python",
    overrides: Sequence[str] = (),
    template: ChatTemplate | None = None,
) -> Env:
    """Open kernels and a grader for a task, for your own loop or trainer.

        async with open_env("sympy-proofs", overrides=["sampling.max_lines=20"]) as env:
            problem = next(env.plan.task.problems(Split.TRAIN, seed=0))
            episode = await env.episode(problem)
            step = await episode.line("1 + 1")

    `overrides` are settings as `--set` takes them; `template` is the chat template of a model, for
    transcripts that need one. All processes are gone after the block.

    Raises ConfigError for unknown names, SandboxError and GraderError if kernels or the grader
    cannot be started.
    """
    names = {"task": task, "transcript": transcript, "preset": "none"}
    return env_of(resolve(flags=names, overrides=overrides), template=template)


def env_of(config: Config, *, template: ChatTemplate | None = None) -> Env:
    """Make an environment for a config that needs no policy: see `open_env`."""
    sandbox = config.sandbox
    plan = make_plan(replace(config, sandbox=replace(sandbox, standby=min(4, sandbox.standby))))
    if config.sampling.max_think_tokens:
        raise ConfigError(
            "an environment asks for lines alone; set sampling.max_think_tokens = 0, and let your "
            "loop put what the model thinks into the prompt"
        )
    return Env(plan, plan.format(template))
