"""Reinforcement learning for models that think in a Python REPL, one line at a time.

Programs import what `__all__` lists; everything else may change. Names are loaded when they are
first used, and none of them loads torch but `train`.

    import repl_rl as rr

    async with rr.open_env("sympy-proofs") as env:
        problem = next(env.plan.task.problems(rr.Split.HELD_OUT, seed=0))
        episode = await env.episode(problem)
        while episode.stop is None:
            step = await episode.line(my_policy(episode.prompt))
        scored = await episode.score()
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from repl_sandbox import __version__ as __version__

if TYPE_CHECKING:
    from repl_rl.base.concurrency import derive_seed as derive_seed
    from repl_rl.config import Config as Config
    from repl_rl.config.resolve import resolve as resolve
    from repl_rl.config.sections import RewardConfig as RewardConfig
    from repl_rl.config.sections import SamplingConfig as SamplingConfig
    from repl_rl.credit.advantages import advantages as advantages
    from repl_rl.credit.base import Credit as Credit
    from repl_rl.credit.rewards import RunningReward as RunningReward
    from repl_rl.credit.rewards import shaped as shaped
    from repl_rl.engines.base import Engine as Engine
    from repl_rl.engines.base import EngineKind as EngineKind
    from repl_rl.engines.base import LineEnd as LineEnd
    from repl_rl.engines.base import SampledLine as SampledLine
    from repl_rl.engines.base import check_request as check_request
    from repl_rl.engines.base import line_end as line_end
    from repl_rl.errors import ConfigError as ConfigError
    from repl_rl.errors import EngineError as EngineError
    from repl_rl.errors import ReplRLError as ReplRLError
    from repl_rl.grading.bounded import Malformed as Malformed
    from repl_rl.grading.equality import compare as compare
    from repl_rl.grading.parse import parse as parse
    from repl_rl.progress import Progress as Progress
    from repl_rl.records import Attempt as Attempt
    from repl_rl.records import Line as Line
    from repl_rl.records import LineOutcome as LineOutcome
    from repl_rl.records import OutcomeKind as OutcomeKind
    from repl_rl.records import Problem as Problem
    from repl_rl.records import Reward as Reward
    from repl_rl.records import Scored as Scored
    from repl_rl.records import Split as Split
    from repl_rl.records import StopReason as StopReason
    from repl_rl.records import Trajectory as Trajectory
    from repl_rl.records import Verdict as Verdict
    from repl_rl.records import VerdictKind as VerdictKind
    from repl_rl.rollout.builder import TrajectoryBuilder as TrajectoryBuilder
    from repl_rl.rollout.env import Env as Env
    from repl_rl.rollout.env import open_env as open_env
    from repl_rl.rollout.episode import Episode as Episode
    from repl_rl.rollout.episode import Step as Step
    from repl_rl.rollout.plan import Plan as Plan
    from repl_rl.rollout.plan import make_plan as make_plan
    from repl_rl.rollout.sampler import LineSampler as LineSampler
    from repl_rl.runs.folder import load_run as load_run
    from repl_rl.tasks.base import DemonstrableTask as DemonstrableTask
    from repl_rl.tasks.base import Task as Task
    from repl_rl.tasks.base import load_task as load_task
    from repl_rl.training.train import train as train
    from repl_rl.transcript.encoding import Encoding as Encoding
    from repl_rl.transcript.format import Part as Part
    from repl_rl.transcript.format import Prompt as Prompt
    from repl_rl.transcript.format import TranscriptFormat as TranscriptFormat
    from repl_rl.transcript.outcomes import executed_kind as executed_kind
    from repl_rl.transcript.outcomes import submitted_expression as submitted_expression
    from repl_rl.transcript.tokens import ByteCodec as ByteCodec
    from repl_rl.transcript.tokens import Codec as Codec
    from repl_rl.transcript.tokens import TokenizerCodec as TokenizerCodec

_HOMES = {
    "config": ("Config",),
    "config.resolve": ("resolve",),
    "config.sections": ("RewardConfig", "SamplingConfig"),
    "credit.advantages": ("advantages",),
    "credit.base": ("Credit",),
    "credit.rewards": ("RunningReward", "shaped"),
    "engines.base": ("Engine", "EngineKind", "LineEnd", "SampledLine", "check_request", "line_end"),
    "errors": ("ConfigError", "EngineError", "ReplRLError"),
    "grading.bounded": ("Malformed",),
    "grading.equality": ("compare",),
    "grading.parse": ("parse",),
    "progress": ("Progress",),
    "rollout.builder": ("TrajectoryBuilder",),
    "rollout.env": ("Env", "open_env"),
    "rollout.episode": ("Episode", "Step"),
    "rollout.plan": ("Plan", "make_plan"),
    "rollout.sampler": ("LineSampler",),
    "runs.folder": ("load_run",),
    "base.concurrency": ("derive_seed",),
    "tasks.base": ("DemonstrableTask", "Task", "load_task"),
    "training.train": ("train",),
    "transcript.encoding": ("Encoding",),
    "transcript.format": ("Part", "Prompt", "TranscriptFormat"),
    "transcript.outcomes": ("executed_kind", "submitted_expression"),
    "transcript.tokens": ("ByteCodec", "Codec", "TokenizerCodec"),
    "records": (
        *("Attempt", "Line", "LineOutcome", "OutcomeKind", "Problem", "Reward", "Scored"),
        *("Split", "StopReason", "Trajectory", "Verdict", "VerdictKind"),
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(["__version__", *_HOME])  # `dir()` returns the same list


def _former() -> Any:  # a module
    return importlib.import_module(f"{__name__}.former")


class _Finder:
    """Finder of names that have moved, which Python asks where no file has the name."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return _former().spec_of(fullname) if fullname.startswith(f"{__name__}.") else None


sys.meta_path.append(_Finder())


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        unknown = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(_former().NAMES.get(name, unknown))
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
