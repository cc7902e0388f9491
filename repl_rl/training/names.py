"""What a config names, found before anything heavy is loaded.

    Config -> ConfigError for a task, sampler, reward, format, engine or module that is not there

Knows what each name must stand for. Loads no torch: a wrong name is known within a second,
not once gigabytes of weights are read or minutes are spent on a starter.
"""

from __future__ import annotations

from collections.abc import Callable

from repl_rl.config import Config
from repl_rl.credit.rewards import load_reward
from repl_rl.engines.vllm import prepare
from repl_rl.engines.vllm_replica import check_settings
from repl_rl.errors import ConfigError
from repl_rl.plugins import load_named
from repl_rl.rollout.runner import TrajectorySampler
from repl_rl.tasks.base import Task, demonstrable, load_task, make_prompt
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.format import PYTHON
from repl_rl.types import Problem
from sandbox.zygote_link import choices


def check_names(config: Config) -> None:
    """ConfigError or SettingError for what a run of this config would refuse by its name alone."""
    if config.transcript != "chat":
        load_format(config.transcript)
    load_reward(config.reward, config.grpo)
    sampler_class(config.sampling.sampler)
    check_engine(config)
    choices(config.sandbox.isolation, config.sandbox.preload)
    _check_task(load_task(config.task)[0], config)


def check_trainable(config: Config) -> None:
    """As `check_names`; ConfigError as well for what can be sampled with and not trained."""
    if config.sampling.temperature == 0:
        raise ConfigError(
            "sampling.temperature = 0 always takes the likeliest token, so siblings would be the "
            "same; expected more than 0"
        )
    check_names(config)


def _check_task(task: Task, config: Config) -> None:
    if config.transcript != "chat":  # its template is in a model's folder
        make_prompt(task, Problem(id="", statement="?"), load_format(config.transcript))
    if config.model is not None:
        return
    if config.transcript != PYTHON.name:
        raise ConfigError(
            f"the starter writes transcripts of the kind 'python', not {config.transcript!r}; give "
            f"--model PATH"
        )
    demonstrable(task)


def sampler_class(spec: str) -> Callable[..., TrajectorySampler]:
    """The class that makes trajectories; ConfigError unless it has a method `sample`."""
    found = load_named(spec, group="repl_rl.samplers")
    if not callable(found) or not callable(getattr(found, "sample", None)):
        raise ConfigError(
            f"sampling.sampler = {spec!r} is no sampler; expected a class with the arguments of "
            f"repl_rl.rollout.sampler.LineSampler and its method `sample`"
        )
    made: Callable[..., TrajectorySampler] = found
    return made


def check_engine(config: Config) -> None:
    """ConfigError for an engine that cannot be had, as far as that is known without a model."""
    sampling = config.sampling
    if sampling.engine == "hf":
        return
    if config.model is None:
        raise ConfigError(
            f"the starter's heads are too small for vLLM; give --model PATH, or use the engine "
            f"'hf' in place of {sampling.engine!r}"
        )
    if sampling.engine == "vllm":
        if sampling.temperature == 0:
            raise ConfigError("sampling.temperature = 0 takes the engine 'hf', not 'vllm'")
        prepare()
    else:
        check_settings(sampling.servers, temperature=sampling.temperature)
