"""Problems in place of a task's own, to which nobody knows the answers.

    plan, problems -> the same plan for these -> rollouts, never graded -> trajectories

Knows plans. Does not know who asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from repl_rl.models.loading import LoadedModel
from repl_rl.progress import Progress
from repl_rl.records import Attempt, Problem, Split, Trajectory, Verdict
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.scoring import open_unscored
from repl_rl.training.runtime import open_runtime


@dataclass(slots=True, kw_only=True)
class Asked:
    """A task of problems that somebody put."""

    name: str
    prompt: str
    asked: Sequence[Problem]

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        yield from self.asked

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nobody knows the answer")


def asking(plan: Plan, problems: Sequence[Problem], *, prompt: str | None = None) -> Plan:
    """The plan for `problems`, in this prompt or in that of its task."""
    prompt = plan.task.prompt if prompt is None else prompt
    return replace(plan, task=Asked(name=plan.task.name, prompt=prompt, asked=problems))


def answers(
    plan: Plan, attempts: Sequence[Attempt], loaded: LoadedModel, progress: Progress
) -> list[Trajectory]:
    """What the model makes of all attempts, behind a bar. Raises as `open_runtime`."""
    sampling, done = plan.sampling, itertools.count(1)
    about = f"temperature {sampling.temperature:g}, at most {sampling.max_tokens:,} tokens each"
    with (
        open_runtime(plan, loaded, open_scorer=open_unscored) as runtime,
        progress.bar(f"problems at {about}", len(attempts)) as update,
    ):
        scored = runtime.run(attempts, on_scored=lambda _: update(next(done)))
    return [one.trajectory for one in scored]
