"""Measure a model on held-out problems, once or several times each, and keep what it wrote.

    config -> policy -> attempts -> Evaluation, and a folder like that of a run

Knows the order of things. Does not know flags or terminals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repl_rl.config import Config
from repl_rl.engines.models import LoadedModel
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import RunFolder, check_output
from repl_rl.runs.pass_rate import pass_rates
from repl_rl.show.display import Screen
from repl_rl.training.evaluate import Report, held_out_attempts, report, run_shown, warn_of_ungraded
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.train import policy_folder, say_runtime
from repl_rl.types import Scored

NAME = "eval"
"""Name of the file of trajectories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The results of one model."""

    config: Config
    """What it was measured with."""
    policy: str
    samples: int
    """Attempts at each problem."""
    report: Report
    """Over all attempts."""
    passes: dict[int, float]
    """pass@k by k: see `pass_rates`."""
    output: Path | None

    def table(self) -> str:
        """Rates of all attempts, then pass@k, one a line."""
        rows = [self.report.table()]
        if self.samples > 1:
            rows += [f"{f'pass@{k}':16}{100 * rate:.1f} %" for k, rate in self.passes.items()]
        return "\n".join(rows)

    def facts(self) -> dict[str, Any]:
        """The same for programs, as JSON takes it: rates between 0 and 1."""
        found = self.report
        return {
            "task": self.config.task,
            "model": self.policy,
            "seed": self.config.seed,
            "temperature": self.config.sampling.temperature,
            "problems": self.config.eval.problems,
            "samples": self.samples,
            "solved": found.solved,
            "total": found.total,
            "ungraded": found.ungraded,
            "solve_rate": found.rate,
            **{f"pass@{k}": rate for k, rate in self.passes.items()},
            "by_family": found.by_family,
            "by_tier": found.by_tier,
            "output": None if self.output is None else str(self.output),
        }


def evaluate(
    plan: Plan, screen: Screen, *, samples: int = 1, output: Path | None = None
) -> Evaluation:
    """Make `samples` attempts at each held-out problem; `output` keeps their trajectories.

    Raises ConfigError before anything is started if the plan cannot work.
    """
    config = plan.config
    if output is not None:
        check_output(output)
    attempts = held_out_attempts(
        plan.task, count=config.eval.problems, seed=config.seed, samples=samples
    )
    policy = policy_folder(plan, screen)
    loaded = load_policy(plan, policy, say=screen.say)
    with open_runtime(plan, loaded) as runtime:
        say_runtime(runtime, screen)
        scored = run_shown(runtime, attempts, "held-out problems", screen)
        warn_of_ungraded(scored, screen)
    found = Evaluation(
        config=config,
        policy=policy,
        samples=samples,
        report=report(scored),
        passes=pass_rates(scored, samples),
        output=output,
    )
    if output is not None:
        _keep(output, found, scored, runtime, loaded)
    return found


def _keep(
    path: Path, found: Evaluation, scored: Sequence[Scored], runtime: Runtime, loaded: LoadedModel
) -> None:
    """A folder like that of a run, which `show`, `replay` and `reward explain` take."""
    folder = RunFolder(path)
    folder.write_config(runtime.origin, policy=found.policy, device=loaded.model.device.type)
    loaded.tokenizer.save_pretrained(folder.tokenizer)
    folder.append_trajectories(NAME, scored)
    passes = {f"{NAME}/pass@{k}": rate for k, rate in found.passes.items()}
    total = {f"{NAME}/solve_rate": found.report.rate, f"{NAME}/total": found.report.total}
    total[f"{NAME}/ungraded"] = found.report.ungraded
    folder.append_metrics(0, total | passes)
