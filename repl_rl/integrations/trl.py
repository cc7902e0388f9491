"""A task as TRL's trainers take one: data, rollouts, rewards, and a trainer with credit on lines.

    ReplSpec -> train_dataset, rollout_func, reward_funcs, trainer_class -> somebody's script

Carried exactly: token ids, the mask of injected tokens, log-probabilities. With `trainer_class`
advantages are those of `[grpo]`, line by line. A stock GRPOTrainer has credit for the outcome
alone: line rewards are lost. A trajectory that nobody could grade is in no baseline of a stock
trainer, and has no advantage.

Without `rollout_func` TRL samples by itself: `environment_factory` gives it sessions whose lines
are calls of a tool, and `chat_dataset` the problems. Knows TRL's seams. Does not know the update.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from datasets import Dataset
from transformers import TrainerCallback

from repl_rl.base.concurrency import derive_seed
from repl_rl.base.disk import read_text
from repl_rl.config.resolve import resolve
from repl_rl.credit.advantages import load_credit
from repl_rl.errors import ConfigError
from repl_rl.models.loading import LoadedModel, adopted
from repl_rl.models.policy import check_trainable, forbidding_bias
from repl_rl.models.precision import precision
from repl_rl.records import Attempt, Problem, Scored, Split, StopReason
from repl_rl.rollout.env import AS_TEXT, Env, EnvEpisode, env_of
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.runs.folder import RunFolder, check_output, rollouts_name
from repl_rl.tasks.base import NumberedProblems, make_prompt
from repl_rl.training.runtime import Runtime, open_runtime
from repl_rl.transcript.format import PROBLEM_MARKER, PYTHON
from repl_rl.update.grpo import LineGRPOTrainer, outcome_reward, rollout_rows
from repl_rl.update.ranks import launched, refuse_shards
from repl_rl.update.trainer import by_name, sections_by, weighs_lines

T = TypeVar("T")


class Tools:
    """Kernels and a grader for many sessions at once, in an event loop on a thread of its own.

    The first session starts them. They end with `close` or with this object.
    """

    def __init__(
        self, task: str, problems: Sequence[Problem], prompt: str, overrides: Sequence[str]
    ) -> None:
        self.problems = problems
        self._prompt = prompt
        names = {"task": task, "preset": "none"}
        self._config = resolve(saved=AS_TEXT, flags=names, overrides=overrides)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._env: Env | None = None
        self._resources = contextlib.AsyncExitStack()
        self._end: Callable[[], object] = lambda: None
        self._sessions = weakref.WeakSet[ReplTools]()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each problem: messages, and its `number`."""
        text = self._prompt.replace(PROBLEM_MARKER, "").strip()
        instruction = read_text("tools.txt").strip().replace("{{session}}", text)
        return [
            {
                "prompt": [
                    {"role": "user", "content": "\n".join([instruction, "", *p.setup, p.statement])}
                ],
                "number": number,
            }
            for number, p in enumerate(self.problems)
        ]

    def open(self) -> ReplTools:
        """A session that begins with its `reset`."""
        session = ReplTools(self)
        self._sessions.add(session)
        return session

    def close(self) -> None:
        """End all sessions, kernels and the grader. A later session starts new ones."""
        for session in list(self._sessions):
            session._leave()
        self._end()
        self._loop = self._env = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` on the thread and return its result."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=[self._loop], daemon=True)
            thread.start()
            self._end = weakref.finalize(self, _end, self._loop, thread, self._resources)
        return asyncio.run_coroutine_threadsafe(main, self._loop).result()

    async def episode(self, number: int) -> EnvEpisode:
        """Begin an episode of the problem of this number."""
        if self._env is None:
            self._env = await self._resources.enter_async_context(env_of(self._config))
        return await self._env.episode(self.problems[number])


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _end(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, resources: contextlib.AsyncExitStack
) -> None:
    """Called wherever garbage is collected: on the thread itself, too, which cannot wait."""
    closed = asyncio.run_coroutine_threadsafe(resources.aclose(), loop)
    closed.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    if threading.current_thread() is not thread:
        thread.join()


class ReplTools:
    """One session. Its public methods, `reset` and `get_reward` apart, are the model's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._episode: EnvEpisode | None = None
        self._failure: BaseException | None = None
        """Failure on our side in this episode."""

    def reset(self, *, number: int | None = None, **_: Any) -> None:
        """Begin the problem of a row of `chat_dataset`; a session that is under way ends."""
        if number is None:
            raise ConfigError("environment_factory needs spec.chat_dataset as train_dataset")
        self._leave()
        self._failure = None
        self._episode = self._tools.run(self._tools.episode(number))

    def run_line(self, line: str) -> str:
        """
        Run a line of Python in the session, and see what the interpreter prints.

        Args:
            line: The line, without a prompt. Several lines run one after another.

        Returns:
            What the interpreter prints.
        """
        if self._episode is None:
            raise ConfigError("run_line before reset")
        if not isinstance(line, str):
            raise ConfigError(f"run_line needs a string, not {line!r}")
        try:
            return self._tools.run(_typed(self._episode, line))
        except ConfigError:  # the model reads it
            raise
        except BaseException as error:
            self._failure = error
            raise

    def get_reward(self) -> float | None:
        """The reward of the whole trajectory; None where nobody could grade it.

        Raises the failure of our side that a line met: TRL has shown it to the model and continued.
        """
        if self._failure is not None:
            self._leave()
            raise self._failure
        episode, self._episode = self._episode, None
        if episode is None:
            raise ConfigError("get_reward was called before reset, or twice")
        if episode.stop is None:
            episode.end(StopReason.EOS)
        reward = self._tools.run(episode.score()).reward
        return None if reward.outcome_reward is None else reward.total

    def _leave(self) -> None:
        if self._episode is not None:
            self._tools.run(self._episode.aclose())
            self._episode = None


async def _typed(episode: EnvEpisode, text: str) -> str:
    """Run these lines and return the interpreter's answers, without its prompts."""
    outputs: list[str] = []
    # One newline ends the last line; another is a blank line, which closes a block.
    for line in text.removesuffix("\n").split("\n"):
        if episode.stop is not None:
            ended = f"the session has ended ({episode.stop}); nothing more is run"
            if not outputs:
                raise ConfigError(ended)
            return "".join([*outputs, ended, "\n"])
        step = await episode.line(line)
        outputs.append(step.outcome.observation)
    return "".join(outputs) + ("..." if episode.session.pending else "")


_OURS = (
    *("task.", "data.", "sampling.", "sandbox.", "reward."),
    *("grpo.credit", "grpo.baseline", "grpo.line_credit_weight", "grpo.importance"),
)
_SAID_BY_TRL = ("sampling.temperature", "sampling.max_tokens")


class ReplSpec:
    """Arguments of a GRPOTrainer, for one task.

        with ReplSpec("sympy-proofs") as spec:
            trainer = spec.trainer_class(
                model="PATH",
                args=GRPOConfig(num_generations=8, max_completion_length=256),
                train_dataset=spec.train_dataset,
                rollout_func=spec.rollout_func,
                reward_funcs=spec.reward_funcs,
            )
            trainer.train()

    It draws `num_problems` problems, and merges those that read the same. `overrides` are settings
    as `--set` takes them; temperature, length, siblings and scale are those of TRL's arguments.
    `output` is a folder for the trajectories of one training, which `repl-rl show` and
    `repl-rl replay` read. Kernels start with the first rollout. They end with a training that ends
    by itself, or with the block.

    Raises ConfigError for unknown names and for settings that cannot work here.
    """

    def __init__(
        self,
        task: str = "sympy-proofs",
        *,
        transcript: str = PYTHON.name,
        num_problems: int = 1000,
        seed: int = 0,
        overrides: Sequence[str] = (),
        output: str | Path | None = None,
    ) -> None:
        for text in overrides:
            if not text.startswith(_OURS) or text.startswith(_SAID_BY_TRL):
                raise ConfigError(f"{text!r} is no setting of a ReplSpec; is it GRPOConfig's?")
        names = {"task": task, "transcript": transcript, "preset": "none", "seed": seed}
        config = resolve(flags=names, overrides=overrides)
        if load_credit(config.grpo).grows:
            raise ConfigError(
                f"grpo.credit = {config.grpo.credit!r} grows groups that only `repl-rl train` "
                f"rolls out; expected outcome, line_local, return_to_go or potential"
            )
        self._plan = make_plan(config, to_train=True)
        self._output = None if output is None else Path(output)
        if self._output is not None:
            if (self._output / "config.toml").exists():
                raise ConfigError(
                    f"{str(output)!r} already holds a run; give another output, even to resume "
                    f"from a checkpoint"
                )
            check_output(self._output)
        own = self._plan.task
        drawn = NumberedProblems(own, seed=seed, most=num_problems).all(Split.TRAIN)
        self._by_prompt = {make_prompt(own, one, PYTHON).text: one for one in drawn}
        self._tools = Tools(task, list(self._by_prompt.values()), own.prompt, overrides)
        self._resources = contextlib.ExitStack()
        weakref.finalize(self, self._resources.close)
        self._runtime: Runtime | None = None
        self._folder: RunFolder | None = None
        self._at = (-1, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def train_dataset(self) -> Dataset:
        """A row for each problem. Its `prompt` is what the format `python` shows; a rollout begins
        as the transcript of this spec does."""
        return Dataset.from_dict({"prompt": list(self._by_prompt)})

    @cached_property
    def chat_dataset(self) -> Dataset:
        """Problems of the task as messages: the `train_dataset` of `environment_factory`."""
        return Dataset.from_list(self._tools.rows())

    @property
    def environment_factory(self) -> Any:
        """Factory of `ReplTools`, for chat models that call tools. It goes with `chat_dataset`."""
        return self._tools.open

    @property
    def reward_funcs(self) -> list[Any]:
        """Reward of the outcome. `trainer_class` only logs it, because its update has its own."""
        return [outcome_reward]

    @cached_property
    def trainer_class(self) -> Any:  # a GRPOTrainer: TRL has no types
        """A GRPOTrainer whose advantages are those of `[grpo]`, one per token."""
        spec = self

        class ReplTrainer(LineGRPOTrainer):
            def __init__(self, *args: Any, **named: Any) -> None:
                given = by_name(*args, **named)
                own = {"rollout_func": spec.rollout_func, "reward_funcs": spec.reward_funcs}
                if any(given.pop(name, None) not in (None, one) for name, one in own.items()):
                    raise ConfigError("trainer_class needs its spec's rollout_func, reward_funcs")
                super().__init__(
                    roll_out=lambda prompts, _: spec.roll_out(prompts, self),
                    line_config=spec._plan.grpo,
                    credit=spec._plan.credit,
                    ranks=launched(),
                    **given,
                )
                plan = spec._plan_of(self)
                loaded = _loaded(plan, self)
                self._line_config, self._credit = plan.grpo, plan.credit
                self._weighs_lines = weighs_lines(plan.grpo, loaded.precision)
                self._bias = forbidding_bias(loaded.forbidden_ids, self._head(self.model))

        return ReplTrainer

    def rollout_func(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Ids, masks, log-probabilities and rewards as TRL takes them, one row a prompt."""
        return rollout_rows(self.roll_out(prompts, trainer))

    def roll_out(self, prompts: Sequence[str], trainer: Any) -> list[Scored]:
        """A trajectory for each prompt of `train_dataset`, by the trainer's present weights."""
        if unknown := [one for one in prompts if one not in self._by_prompt]:
            raise ConfigError(f"{str(unknown[0])[:60]!r} is no prompt of spec.train_dataset")
        step = trainer.state.global_step
        self._at = (step, self._at[1] + 1 if self._at[0] == step else 0)
        runtime = self._open(trainer)
        runtime.sync(step)
        scored = runtime.run(self._attempts(prompts, trainer))
        gathered = launched().gather_first(scored)
        if self._folder is not None and trainer.model.training:
            self._folder.append_trajectories(rollouts_name(step), gathered)
        return scored

    def close(self) -> None:
        """End kernels and graders, those of tools, too. A later use starts new ones."""
        self._runtime = None
        self._resources.close()
        self._tools.close()

    def _attempts(self, prompts: Sequence[str], trainer: Any) -> list[Attempt]:
        """Siblings stand together in the batch of all processes, as TRL repeats prompts."""
        is_training = trainer.model.training
        size = trainer.num_generations if is_training else trainer.num_generations_eval
        about = (self._plan.seed, "rollout" if is_training else "eval", *self._at)
        return [
            Attempt(
                problem=self._by_prompt[prompt],
                group_index=row // size,
                sibling_index=row % size,
                seed=derive_seed(*about, row),
            )
            for row, prompt in enumerate(prompts, launched().rank * len(prompts))
        ]

    def _plan_of(self, trainer: Any) -> Plan:
        if trainer.tools:
            raise ConfigError("rollout_func takes no tools; they go with environment_factory")
        is_ours = isinstance(trainer, LineGRPOTrainer)
        if self._plan.sampling.run_on == "forbid" and not is_ours:
            raise ConfigError(
                "sampling.run_on = 'forbid' with a trainer of TRL's own, which forbids no token; "
                "expected spec.trainer_class, or 'allow'"
            )
        refuse_shards()
        sections = sections_by(trainer.args, self._plan, weights=trainer.model.dtype)
        return self._plan.changed(model=trainer.model.config.name_or_path or None, **sections)

    def _open(self, trainer: Any) -> Runtime:
        if self._runtime is None:
            plan = self._plan_of(trainer)
            loaded = _loaded(plan, trainer)
            self._runtime = self._resources.enter_context(
                open_runtime(plan, loaded, ranks=launched())
            )
            trainer.remove_callback(_Ending)  # of a training before this one
            trainer.add_callback(_Ending(self))
            if self._output is not None and self._folder is None and launched().is_first:
                self._folder = RunFolder(self._output)
                self._runtime.begin_folder(self._folder, policy=loaded.source)
        return self._runtime


def _loaded(plan: Plan, trainer: Any) -> LoadedModel:
    """The trainer's model, for the engine; ConfigError for ids that one of them cannot forbid."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    loaded = adopted(
        model,
        trainer.processing_class,
        precision=precision(plan, plan.engine, device=model.device.type),
        run_on=plan.sampling.run_on,
    )
    plan.engine.check_forbidden(len(loaded.forbidden_ids))
    check_trainable(loaded.forbidden_ids, loaded.config)
    return loaded


class _Ending(TrainerCallback):
    def __init__(self, spec: ReplSpec) -> None:
        self._spec = spec

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._spec.close()
