"""Show a pretrained model transcripts, until it writes the REPL: supervised training before GRPO.

    plan, sources -> lessons -> measure -> AdamW on their sampled tokens -> weights -> measure

Knows the order of things. Does not know flags, terminals or files by hand.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers.trainer_utils import set_seed

from repl_rl.base.concurrency import Interrupts, derive_seed
from repl_rl.base.plugins import resolve_model
from repl_rl.engines.memory import shortage_explained
from repl_rl.models.loading import LoadedModel, pick_device
from repl_rl.models.precision import is_fast_in_bfloat16, precision
from repl_rl.models.weights import is_adapted
from repl_rl.progress import Progress
from repl_rl.records import Scored
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import LESSONS, RunFolder, WarmRecord, check_output, write_record
from repl_rl.runs.sink import Sink
from repl_rl.training.evaluate import NOT_MEASURED, HeldOut, Report, held_out_attempts
from repl_rl.training.lessons import Gathering, Lessons, name_held_out
from repl_rl.training.runtime import Runtime, estimate, open_runtime
from repl_rl.training.sources import Sources, check_sources
from repl_rl.training.train import end, say_runtime
from repl_rl.update.ranks import refuse_shards
from repl_rl.update.sft import Reported, adamw, example_of, fit
from repl_rl.update.trainer import largest_divisor

ADAPTER = "adapter"
"""Name of the checkpoint of the adapter alone; `final` holds it and the weights as one model."""
_RATE_OF_ADAPTER, _RATE_OF_ALL = 2e-3, 3e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """Result of a warm start."""

    record: WarmRecord
    before: Report | None
    """None where `warmstart.problems_before` is 0."""
    after: Report | None
    """None where `eval.problems` is 0."""

    def facts(self) -> dict[str, Any]:
        """Return the results for programs, as JSON takes them: rates between 0 and 1."""
        return {
            "transcripts": self.record.transcripts,
            "taken": dict(self.record.taken),
            "left_out": dict(self.record.left_out),
            "steps": self.record.steps,
            "learning_rate": self.record.learning_rate,
            "before": _numbers(self.before),
            "after": _numbers(self.after),
        }


def _numbers(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    rate = report.all
    return {
        "solve_rate": rate.rate,
        "interval": list(rate.interval),
        "total": rate.total,
        "ungraded": rate.ungraded,
        **report.habits,
    }


def about(report: Report | None) -> str:
    """Return a report with how far the model uses the REPL, or that there is none."""
    if report is None:
        return NOT_MEASURED
    submitted, ran = (
        "none" if (share := report.habits.get(name)) is None else f"{100 * share:.1f} %"
        for name in ("submit_share", "ran_share")
    )
    return f"{report}; submitted {submitted}, lines that run {ran}"


def estimate_warm(
    plan: Plan, policy: str, *, say: Callable[[str], None]
) -> Callable[[], LoadedModel]:
    """Report the memory that a warm start takes; see `runtime.estimate`."""
    refuse_shards()
    warm, grpo = plan.warmstart, plan.grpo
    # What an update of as many rows takes: one without a reference.
    update = replace(
        grpo,
        problems_per_step=1,
        group_size=max(2, warm.transcripts_per_step),
        gradient_checkpointing=warm.gradient_checkpointing,
        kl_beta=0.0,
    )
    return estimate(plan.changed(grpo=update), policy, say=say, is_training=True)


def warm_start(plan: Plan, path: Path, progress: Progress, sources: Sources) -> Warmed:
    """Show the model of `plan` what the task scripts and `sources` hold; a run's folder at `path`.

    `checkpoints/final` is a whole model, written once all of it is trained. Raises ConfigError
    before the folder is made if there is nothing to show, or it is not what it says.
    """
    assert plan.model is not None
    check_output(path)
    check_sources(plan, sources)
    precision(plan, plan.engine, device=pick_device(plan.sampling.device).type)  # may refuse
    held_out = held_out_attempts(plan.task, count=plan.eval.problems, seed=plan.seed)
    name_held_out(plan, sources, held_out, progress)
    set_seed(derive_seed(plan.seed, "torch") % 2**32)
    policy = resolve_model(plan.model)
    loaded = estimate_warm(plan, policy, say=progress.say)()
    with (
        Interrupts() as interrupts,
        open_runtime(plan, loaded, say=progress.say, interrupts=interrupts) as runtime,
    ):
        lessons = Gathering(runtime, progress, held_out=held_out).gather(sources)
        record = _record(plan, loaded, lessons)
        folder = RunFolder(path)
        write_record(path, record)  # first: without it the folder is a run that can go on
        runtime.begin_folder(folder, policy=policy)
        folder.append_trajectories(LESSONS, lessons.scored)
        progress.say(f"run: {path}, seed {plan.seed}")
        say_runtime(runtime, progress)
        progress.say(f"shown: {lessons}")
        with runtime.sink(folder, progress) as sink:
            measured = partial(HeldOut, runtime=runtime, progress=progress, sink=sink)
            before = measured(attempts=held_out[: plan.warmstart.problems_before]).measure(0)
            progress.say(f"held-out before: {about(before)}")
            runtime.sleep()
            with shortage_explained("the update", remedy="lower grpo.micro_batch_size"):
                _fit(plan, runtime, lessons.scored, record, progress, sink)
            _save(folder, loaded)
            runtime.sync(record.steps)
            after = measured(attempts=held_out).measure(record.steps)
            progress.say(f"held-out after:  {about(after)}")
    end(path, plan.report, progress, is_merged=False)
    return Warmed(record=record, before=before, after=after)


def _record(plan: Plan, loaded: LoadedModel, lessons: Lessons) -> WarmRecord:
    warm = plan.warmstart
    rate = _RATE_OF_ADAPTER if is_adapted(loaded.model) else _RATE_OF_ALL
    return WarmRecord(
        transcripts=len(lessons.scored),
        steps=math.ceil(len(lessons.scored) * warm.epochs / warm.transcripts_per_step),
        learning_rate=rate if warm.learning_rate is None else warm.learning_rate,
        taken=dict(lessons.taken),
        left_out={name: count for name, count in lessons.left_out.items() if count},
    )


def _fit(
    plan: Plan,
    runtime: Runtime,
    scored: Sequence[Scored],
    record: WarmRecord,
    progress: Progress,
    sink: Sink,
) -> None:
    warm, loaded, answers = plan.warmstart, runtime.loaded, runtime.answers
    model = loaded.model
    examples = [
        example_of(one.trajectory, answers.mask(one) if warm.train_observations else None)
        for one in scored
    ]
    is_mixed = loaded.precision.update is not loaded.precision.weights
    with (
        progress.bar("supervised training", record.steps) as update,
        tempfile.TemporaryDirectory(prefix="repl-rl-warmstart-") as scratch,
    ):
        fit(
            model,
            loaded.tokenizer,
            examples,
            steps=record.steps,
            batch_size=warm.transcripts_per_step,
            micro_batch_size=largest_divisor(
                warm.transcripts_per_step, at_most=loaded.micro_batch_size
            ),
            optimizer=adamw(model, learning_rate=record.learning_rate),
            is_mixed=is_mixed or (plan.grpo.dtype == "auto" and is_fast_in_bfloat16(model.device)),
            gradient_checkpointing=loaded.recomputes,
            as_trees=True,
            seed=derive_seed(plan.seed, "warmstart") % 2**32,
            scratch=Path(scratch),
            callbacks=[Reported(update, sink.write, rate="warmstart.learning_rate")],
        )


def _save(folder: RunFolder, loaded: LoadedModel) -> None:
    """`final` comes last: a folder that has it was trained to its end."""
    final, is_merged = folder.final_checkpoint, is_adapted(loaded.model)
    if is_merged:
        loaded.save(final.with_name(ADAPTER))
    loaded.save(final, is_merged=is_merged)
