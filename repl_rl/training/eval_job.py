"""Measure models on held-out problems, once or several times each, and keep what they wrote.

    plan -> policy -> attempts -> Evaluation;  Evaluation, others on the same problems -> Comparison

Knows the order of things. Does not know flags or terminals.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repl_rl.errors import ConfigError, StorageError
from repl_rl.progress import Progress
from repl_rl.records import Scored
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import MEASURED, RunFolder, check_output
from repl_rl.runs.summary import Rate, RateDifference, difference
from repl_rl.tasks.base import baselines_of
from repl_rl.training.evaluate import Report, held_out_attempts, report, run_shown, warn_of_lost
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.train import policy_folder, say_runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The results of one model."""

    plan: Plan
    policy: str
    samples: int
    """Attempts at each problem."""
    scored: Sequence[Scored]  # [problems * samples]
    report: Report
    output: Path | None

    def facts(self) -> dict[str, Any]:
        """The results for programs, as JSON takes it: rates between 0 and 1."""
        report = self.report
        return {
            "task": self.plan.task_name,
            "model": self.policy,
            "seed": self.plan.seed,
            "temperature": self.plan.sampling.temperature,
            "problems": len(self.scored) // self.samples,
            "samples": self.samples,
            **_facts(report.all),
            "by_family": {name: _facts(rate) for name, rate in report.by_family.items()},
            "by_tier": {name: _facts(rate) for name, rate in report.by_tier.items()},
            "output": None if self.output is None else str(self.output),
        }


def _facts(rate: Rate) -> dict[str, Any]:
    return {
        "solved": rate.solved,
        "total": rate.total,
        "ungraded": rate.ungraded,
        "solve_rate": rate.rate,
        "interval": list(rate.interval),
        **{f"pass@{k}": share for k, share in rate.passes.items()},
        **({"baselines": dict(rate.baselines)} if rate.baselines else {}),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One model beside others, on the same problems and with the same seeds."""

    found: Evaluation
    against: Mapping[str, Evaluation]
    """Others, by the name that a person gave them."""

    def differences(self) -> dict[str, RateDifference]:
        """Return how much more the model solves than each of the others."""
        return {
            name: difference(self.found.scored, other.scored)
            for name, other in self.against.items()
        }

    def facts(self) -> dict[str, Any]:
        """`Evaluation.facts`, and those of the others under `against`."""
        gaps = self.differences()
        others = {
            name: {
                **other.facts(),
                "difference": gaps[name].mean,
                "difference_interval": list(gaps[name].interval),
            }
            for name, other in self.against.items()
        }
        return self.found.facts() | ({"against": others} if others else {})


def evaluate(
    plan: Plan, progress: Progress, *, samples: int = 1, output: Path | None = None
) -> Evaluation:
    """Make `samples` attempts at each of `eval.problems`, one at least.

    `output` keeps them, those before an interrupt as well. Raises ConfigError before anything is
    started if the plan cannot work, and StorageError with the results where the disk refuses.
    """
    if output is not None:
        check_output(output)
    attempts = held_out_attempts(
        plan.task, count=plan.eval.problems, seed=plan.seed, samples=samples
    )
    policy = policy_folder(plan, progress)
    gc.collect()  # a model that was measured before lies in a cycle, and takes memory till then
    loaded = load_policy(plan, policy, say=progress.say)
    with open_runtime(plan, loaded, say=progress.say) as runtime:
        say_runtime(runtime, progress)
        made: list[Scored] = []
        try:
            scored = run_shown(
                runtime, attempts, "held-out problems", progress, on_scored=made.append
            )
        except BaseException:  # an interrupt, too, which is raised again below
            if output is not None and made:
                said = f"kept {len(made)} trajectories of {len(attempts)} in {output}"
                try:
                    _kept(output, made, runtime, policy=policy)
                except (ConfigError, StorageError) as error:  # what ended it matters more
                    said = str(error)
                progress.warn(said)
            raise
        warn_of_lost(scored, progress)
    evaluation = Evaluation(
        plan=plan,
        policy=policy,
        samples=samples,
        scored=scored,
        report=report(scored, baselines_of(plan.task)),
        output=output,
    )
    if output is not None:
        try:
            _add_rates(_kept(output, scored, runtime, policy=policy), evaluation)
        except (ConfigError, StorageError) as error:
            raise StorageError(f"{error}; solved {evaluation.report}") from None
    return evaluation


def _kept(path: Path, scored: Sequence[Scored], runtime: Runtime, *, policy: str) -> RunFolder:
    """A folder like that of a run, which `show`, `replay` and `reward explain` take."""
    folder = RunFolder(path)
    runtime.begin_folder(folder, policy=policy)
    folder.append_trajectories(MEASURED, scored)
    return folder


def _add_rates(folder: RunFolder, evaluation: Evaluation) -> None:
    rate = evaluation.report.all
    row = {"solve_rate": rate.rate, "total": rate.total, "ungraded": rate.ungraded}
    row |= {f"pass@{k}": value for k, value in rate.passes.items()}
    folder.append_metrics(0, {f"eval_{name}": value for name, value in row.items()})
