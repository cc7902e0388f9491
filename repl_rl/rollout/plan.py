"""Plans: the objects that a config names, found once; whoever holds a plan reads no name again.

    Config -> TaskPlan: task, format, reward -> Plan: sampler, credit, engine

`plan_of_model` makes one for a stored model under settings. Loads no torch: a wrong name shows
within a second, before gigabytes of weights are read or minutes are spent on a starter. Opens no
kernel, grader or engine.
"""

from __future__ import annotations

import heapq
import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeGuard, TypeVar

from repl_rl.base.plugins import check_repository, load_named, resolve_model
from repl_rl.config import Config
from repl_rl.config.resolve import read_config, resolve, toml_value, user_settings
from repl_rl.config.sections import SamplingConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.credit.base import Credit
from repl_rl.credit.rewards import BoundReward, RunningReward, bound_reward, shaped
from repl_rl.engines.base import AUTO, EngineKind
from repl_rl.engines.choice import chosen
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Origin, Problem, Split, Trajectory
from repl_rl.rollout.prefixes import volatile_lines
from repl_rl.rollout.sampler import LineSampler, ScriptSampler
from repl_rl.runs.folder import make_origin, model_of, refuse_foreign_run, run_of
from repl_rl.runs.sink import check_trackers
from repl_rl.tasks.base import (
    StoredTask,
    Task,
    choose,
    demonstrable,
    load_task,
    make_prompt,
    make_setup,
)
from repl_rl.transcript.chat import ChatTemplate
from repl_rl.transcript.conventions import FormatMaker, find_format
from repl_rl.transcript.format import PYTHON, Prompt, TranscriptFormat, setup_sources
from repl_sandbox.types import Kernel
from repl_sandbox.walls.isolation import find_options

T = TypeVar("T")
_NUM_SAMPLES = 16
"""Problems of each split that are drawn to judge lengths by."""


class TrajectorySampler(Protocol):
    """Makes one trajectory in one kernel."""

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory: ...


def samples_lines(made: object) -> bool:
    """True for a class that says so itself; one that is derived from it may have another loop."""
    return getattr(made, "__dict__", {}).get("samples_lines") is True


def is_line_loop(sampler: TrajectorySampler) -> TypeGuard[LineSampler]:
    """True for a sampler of such a class: it has `on_line`, and its `sample` takes `on_state`."""
    return samples_lines(type(sampler))


class _Section(Generic[T]):
    """A part of a plan's config, which the plan has under its own name."""

    def __init__(self, read: Callable[[Config], T]) -> None:
        self._read = read

    def __get__(self, owner: TaskPlan, _: type) -> T:
        return self._read(owner.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """Part of a plan that says problems, transcript and reward: enough where no model samples."""

    config: Config
    task: Task
    task_spec: str
    """`module:attribute` from which a grader's process imports the task."""
    reward: BoundReward
    named_format: TranscriptFormat | FormatMaker
    """The format, or the function that makes it from a model's chat template."""
    is_graded: bool = True
    """False where nobody knows the answers: no grader is opened, and nothing is scored."""

    task_name = _Section(lambda config: config.task.name)
    seed = _Section(lambda config: config.seed)
    sampling = _Section(lambda config: config.sampling)
    sandbox = _Section(lambda config: config.sandbox)
    grading = _Section(lambda config: config.grading)

    @property
    def takes_template(self) -> bool:
        """True where the format is made from a model's chat template."""
        return not isinstance(self.named_format, TranscriptFormat)

    def format(self, template: ChatTemplate | None) -> TranscriptFormat:
        """The transcript format, for a model with this chat template.

        Raises ConfigError for a format that takes a template where there is none.
        """
        named = self.named_format
        made = named if isinstance(named, TranscriptFormat) else named(template)
        return made.with_thinking() if self.sampling.max_think_tokens else made

    def setup(self, fmt: TranscriptFormat) -> tuple[str, ...]:
        """Sources that a kernel runs before the policy's first line."""
        return make_setup(self.task, fmt)

    def running_reward(self) -> RunningReward | None:
        """Rewards of an episode's lines as they come; None where a function needs all of them."""
        config = self.config.reward
        is_shaped = load_named(config.function, group="repl_rl.rewards") is shaped
        return RunningReward(config) if is_shaped else None

    def origin(self, fmt: TranscriptFormat, *, tokenizer: str | None, isolation: str) -> Origin:
        """The origin of what is sampled under this plan; see `make_origin`."""
        return make_origin(
            self.config,
            setup=self.setup(fmt),
            tokenizer=tokenizer,
            isolation=isolation,
            data=self.task.read().record if isinstance(self.task, StoredTask) else None,
        )

    def changed(self, **sections: object) -> Self:
        """Change limits of the plan: `sections` name no other task, reward and so on."""
        return replace(self, config=replace(self.config, **sections))  # type: ignore[arg-type]  # by name


@dataclass(frozen=True, kw_only=True)  # without slots, which `cached_property` cannot use
class Plan(TaskPlan):
    """The objects that all of a config's names stand for.

    >>> plan = make_plan(resolve())
    >>> plan.task.name, plan.engine.name, plan.samples_lines
    ('sympy-proofs', 'hf', True)
    """

    make_sampler: Callable[..., TrajectorySampler]
    """Takes the arguments of `LineSampler`."""
    make_credit: type[Credit]
    engine: EngineKind
    """The one that `sampling.engine` of its config names, where `auto` is never left."""
    why_engine: str = ""
    """Reason why `sampling.engine = "auto"` chose it; empty where a person named it."""

    model = _Section(lambda config: config.model)
    grpo = _Section(lambda config: config.grpo)
    lora = _Section(lambda config: config.lora)
    trl = _Section(lambda config: config.trl)
    eval = _Section(lambda config: config.eval)
    report = _Section(lambda config: config.report)
    warmstart = _Section(lambda config: config.warmstart)
    workers = _Section(lambda config: config.workers)

    @cached_property
    def credit(self) -> Credit:
        """Credit: which trajectories of a group are sampled, and what their lines are worth."""
        return self.make_credit(self.grpo)

    @cached_property
    def sample_problems(self) -> Sequence[Problem]:
        """A few problems of both splits, by which lengths of prompts are judged."""
        return [
            problem
            for split in Split
            for problem in itertools.islice(self.task.problems(split, seed=0), _NUM_SAMPLES)
        ]

    @cached_property
    def longest_problems(self) -> Sequence[Problem]:
        """Problems with the longest statements, in bytes; none where a task draws without end."""
        if not isinstance(self.task, StoredTask):
            return []
        read = itertools.chain.from_iterable(self.task.read().sides.values())
        return heapq.nlargest(_NUM_SAMPLES, read, key=lambda one: len(one.statement.encode()))

    @property
    def samples_lines(self) -> bool:
        """True where trajectories come from the usual loop; a user's own loop may show anything."""
        return samples_lines(self.make_sampler)

    @property
    def about_engine(self) -> str:
        """Its engine's name, with the reason for it: `hf (no NVIDIA GPU)`."""
        return f"{self.engine.name} ({self.why_engine})" if self.why_engine else self.engine.name

    def sampled_by(self, engine: EngineKind, why: str) -> Self:
        """Change the engine, by its name in the group `repl_rl.engines`."""
        made = self.changed(sampling=replace(self.sampling, engine=engine.name))
        return replace(made, engine=engine, why_engine=why)

    def sampling_as(self, sampling: SamplingConfig) -> Self:
        """Change the section `sampling`; an engine that `auto` chose is chosen again.

        Raises ConfigError where its engine cannot sample so.
        """
        made = self.changed(sampling=sampling)
        if self.why_engine:
            undecided = replace(made.config, sampling=replace(sampling, engine=AUTO))
            made = made.sampled_by(*chosen(undecided))
        made.engine.check(made.config)
        return made

    def require_policy(self) -> None:
        """ConfigError for a plan whose lines are sampled elsewhere."""
        if self.model is None and self.config.preset != "starter":
            raise ConfigError(
                f"preset = {self.config.preset!r} without a model names no policy; give --model "
                f"PATH, or preset = 'starter'"
            )

    def require_adapter(self) -> None:
        """ConfigError unless training makes an adapter, which can be merged."""
        if not self.config.lora.rank:
            raise ConfigError(
                "--merge needs an adapter; give --set lora.rank=16, or leave --merge out"
            )


def make_task_plan(config: Config) -> TaskPlan:
    """Find the task, the transcript and the reward of `config`; its model is not looked at.

    Raises ConfigError for a name that is wrong, and for a prompt without its marker.
    """
    named_format = find_format(config.transcript)
    reward = bound_reward(config.reward)
    task, task_spec = load_task(config.task.name, config.data)
    task = choose(task, config.task)
    plan = TaskPlan(
        config=config, task=task, task_spec=task_spec, reward=reward, named_format=named_format
    )
    if not plan.takes_template:  # a template is in a model's folder
        make_prompt(task, Problem(id="", statement="?"), plan.format(None))
    return plan


def make_plan(config: Config, *, to_train: bool = False) -> Plan:
    """Find all that `config` names.

    Raises ConfigError or SettingError for all that a run of this config would refuse before it
    loads anything. With `to_train` it also refuses what can be sampled but not trained.

        >>> make_plan(resolve(overrides=["sampling.temperature=0"]), to_train=True)
        Traceback (most recent call last):
        repl_rl.errors.ConfigError: sampling.temperature = 0 is greedy, so siblings would be the ...
    """
    if to_train:
        if config.sampling.temperature == 0:
            raise ConfigError(
                "sampling.temperature = 0 is greedy, so siblings would be the same; expected more "
                "than 0"
            )
        check_trackers(config.report.trackers)
        if config.report.hub:
            check_repository(config.report.hub, given="report.hub =")
    make_sampler = sampler_class(config.sampling.sampler)
    if config.sampling.max_think_tokens and not samples_lines(make_sampler):
        raise ConfigError(
            f"sampling.max_think_tokens needs sampling.sampler = 'lines', not "
            f"{config.sampling.sampler!r}, which has another loop; set it to 0"
        )
    credit = load_credit(config.grpo)
    if to_train:
        credit.check(config, samples_lines=samples_lines(make_sampler))
    engine, why = chosen(config)
    engine.check(config)
    if to_train and config.grpo.staleness:
        engine.check_staleness()
    if to_train and config.workers.count:
        _check_workers(config, engine, credit)
    if config.sampling.run_on == "forbid":
        engine.check_forbidden(1)  # how many there are, a vocabulary says
    find_options(config.sandbox.isolation, config.sandbox.preload)
    task_plan = make_task_plan(config)
    if to_train and config.grpo.prefix_share:
        _check_prefixes(config, credit, task_plan.task, samples_lines=samples_lines(make_sampler))
    if config.model is None and config.preset == "starter":
        _check_starter(task_plan, config, script_sampler(make_sampler))
    plan = Plan(
        config=config,
        task=task_plan.task,
        task_spec=task_plan.task_spec,
        reward=bound_reward(config.reward, credit),
        named_format=task_plan.named_format,
        make_sampler=make_sampler,
        make_credit=type(credit),
        engine=engine,
    )
    return plan.sampled_by(engine, why) if why else plan


def _check_prefixes(config: Config, credit: Credit, task: Task, *, samples_lines: bool) -> None:
    """ConfigError where no group could begin behind lines that solved its problem."""
    given = f"grpo.prefix_share = {config.grpo.prefix_share:g}"
    (why,) = volatile_lines(["pass"], setup=setup_sources(task.prompt))
    for requirement, is_fit in (
        ("sampling.sampler = 'lines'", samples_lines),
        ("sampling.max_think_tokens = 0", not config.sampling.max_think_tokens),
        (
            f"another grpo.credit than {config.grpo.credit!r}, whose trajectories begin apart",
            not credit.grows,
        ),
        (f"another setup in the prompt of {task.name!r}: here each line {why}", why is None),
    ):
        if not is_fit:
            raise ConfigError(f"{given} needs {requirement}")


def _check_workers(config: Config, engine: EngineKind, credit: Credit) -> None:
    """ConfigError where workers cannot do what a run asks for, or cannot be started."""
    engine.check_workers()
    if credit.grows:
        raise ConfigError(
            f"workers.count = {config.workers.count} does not go with grpo.credit = "
            f"{config.grpo.credit!r}, whose groups grow while they are sampled; set it to 0"
        )
    for command in filter(str.strip, config.workers.launch):
        if shutil.which(command.split()[0]) is None:
            raise ConfigError(
                f"workers.launch has {command!r}, but there is no such command here; expected one "
                f"that runs the words after it, such as 'ssh HOST'"
            )


def _check_starter(plan: TaskPlan, config: Config, scripts: type[ScriptSampler]) -> None:
    if config.transcript != PYTHON.name:
        raise ConfigError(
            f"the starter writes transcript 'python', not {config.transcript!r}; give --model PATH"
        )
    if scripts is not ScriptSampler:
        raise ConfigError(
            f"the starter writes a line at a time, but {config.sampling.sampler!r} needs another "
            f"form; give --model PATH"
        )
    demonstrable(plan.task)


def sampler_class(name: str) -> Callable[..., TrajectorySampler]:
    """The class that makes trajectories; ConfigError unless it has a method `sample`."""
    named = load_named(name, group="repl_rl.samplers")
    if not callable(named) or not callable(getattr(named, "sample", None)):
        raise ConfigError(
            f"sampling.sampler = {name!r} is no sampler; expected a class with the arguments of "
            f"repl_rl.LineSampler and its method `sample`"
        )
    made: Callable[..., TrajectorySampler] = named
    return made


def script_sampler(make_sampler: Callable[..., TrajectorySampler]) -> type[ScriptSampler]:
    """The class that shows a task's scripts in the form of such trajectories: its `scripts`.

    Lines, one at a time, where it has none. A class in its place has the arguments of
    `ScriptSampler` and its method `sample`.
    """
    named: type[ScriptSampler] = getattr(make_sampler, "scripts", ScriptSampler)
    return named


def plan_of_model(name: str, given: Mapping[str, Any]) -> Plan:
    """The plan of a model, under settings by their full names; of a run its newest checkpoint.

    Raises ConfigError for a model or a setting that is not there, and as `make_plan`.

        >>> plan_of_model("MODEL", {"sampling.max_lines": 12}).config.sampling.max_lines
        12
    """
    path = Path(name).expanduser()
    run = run_of(path)
    saved = "" if run is None else read_config(run / "config.toml")
    overrides = [f"{key}={toml_value(value)}" for key, value in given.items()]
    model = name if run is None else str(model_of(path))
    config = resolve(saved=saved, flags={"model": model}, overrides=overrides)
    if run is not None:
        refuse_foreign_run(run, saved, config, user_settings(overrides=overrides))
    assert config.model is not None
    resolve_model(config.model)
    return make_plan(config)
