"""`repl-rl audit`: is what is sampled what is trained, of a model and of a run's trajectories?

    Plan, RUN -> rollouts with a witness at the engine, stored trajectories -> [Finding]

Knows the order of things. Does not know what is counted: see `training.audit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repl_rl.commands import options as shared
from repl_rl.records import Finding, Trajectory
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import evaluation_name, read_versions
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training.audit import Counts, Witness
from repl_rl.viewer.show.display import Screen

if TYPE_CHECKING:
    from repl_rl.models.loading import LoadedModel


@click.command()
@shared.run_argument("run_or_model", metavar="[RUN_OR_MODEL]", is_trained=True)
@shared.OF_RUN
@shared.count(32, "Trajectories to sample.")
def audit(run_or_model: Path, count: int, **options: Any) -> None:
    """Check that training sees what was sampled.

    RUN_OR_MODEL is by default the newest run in runs/. The command checks tokens, mask and
    log-probabilities of new rollouts, and of a run's stored trajectories. The exit code is 1 if a
    check fails. Section Audit of docs/design/engines.md explains each line.
    """
    plan = shared.plan_of_run(run_or_model, options)
    shared.load_libraries(plan)
    is_run = (run_or_model / "config.toml").is_file()
    with Screen() as screen:
        results = _findings(plan, count=count, run=run_or_model if is_run else None, screen=screen)
    shared.report(results)


def _findings(plan: Plan, *, count: int, run: Path | None, screen: Screen) -> list[Finding]:
    """Sample on `count` held-out problems with the plan's model, and check; raises as `train`.

    A run's stored trajectories are checked as well; those that its last checkpoint sampled are
    scored, too.
    """
    from repl_rl.models import loading as models  # torch: seconds
    from repl_rl.models import precision
    from repl_rl.training import evaluate, runtime

    assert plan.model is not None
    loaded = runtime.load_policy(plan, plan.model, say=screen.say)
    counts, witness = Counts(), Witness()
    fmt = plan.format(loaded.chat_template) if plan.samples_lines else None
    attempts = evaluate.held_out_attempts(plan.task, count=count, seed=plan.seed)

    def score(one: Trajectory) -> None:
        ids, start = [*one.prompt_ids, *one.completion_ids], len(one.prompt_ids)
        temperature = plan.sampling.temperature
        counts.take_scores(one, models.logprobs(loaded, ids, start, temperature=temperature))

    with runtime.open_runtime(plan, loaded, say=screen.say, watch=witness.watch) as opened:
        gap = opened.sync(0)
        for item in evaluate.run_shown(opened, attempts, "sampling to audit", screen):
            counts.take(item.trajectory, loaded.codec, fmt)
            counts.take_witnessed(item.trajectory, witness)
            score(item.trajectory)
    for path in sorted((run / "trajectories").glob("*.jsonl")) if run else []:
        for item in read_trajectories(path):
            counts.take(item.trajectory, loaded.codec, fmt)
            if path.stem == evaluation_name(plan.grpo.steps):
                score(item.trajectory)
    # A run stored log-probabilities of the device where it ran.
    device = read_versions(run).get("device", "cpu") if run else "cpu"
    was_exact = precision.precision(plan, plan.engine, device=device).is_exact
    return [
        *_vocabulary(loaded),
        Finding(name="weights at the engine", text=f"log-probabilities differ by {gap:.1e} nats"),
        *counts.findings(is_exact=loaded.precision.is_exact and was_exact),
    ]


def _vocabulary(loaded: LoadedModel) -> Iterator[Finding]:
    codec = loaded.codec
    what = "are never sampled" if loaded.forbidden_ids else "make several lines of one"
    yield Finding(
        name="stop ids",
        text=f"{len(codec.newline_ids):,} end a line, {len(codec.eos_ids)} end the sequence",
        passed=bool(codec.newline_ids),
    )
    yield Finding(
        name="run-on ids",
        text=f"{len(codec.run_on_ids):,} have text after their first newline; these {what}",
    )
