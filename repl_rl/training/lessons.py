"""Lessons of a warm start: executed transcripts in the model's own tokens, each shown once.

    the task's scripts | lines by hand | stored trajectories -> kernels -> Scored ... -> Lessons

Checks the sources before a model is loaded, runs and reads them, and leaves out held-out problems.
Knows trajectories and where they come from. Does not know the update.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repl_rl.base.concurrency import derive_seed
from repl_rl.errors import ConfigError
from repl_rl.progress import Progress
from repl_rl.records import Attempt, Problem, Scored, Split, StopReason, Trajectory
from repl_rl.rollout.plan import Plan, script_sampler
from repl_rl.rollout.sampler import ScriptSampler, Written, fixed_script
from repl_rl.runs import summary, trajectory_file
from repl_rl.runs.folder import files
from repl_rl.tasks.base import DemonstrableTask, Script, Task, make_prompt
from repl_rl.tasks.data.task import DataTask
from repl_rl.training.runtime import Runtime
from repl_rl.training.sources import Sources
from repl_rl.transcript.encoding import Encoding, prompt_ids
from repl_rl.transcript.format import strip_line

_MEASURED = ("eval", "before", "after")
"""Beginnings of the names of files that hold attempts at held-out problems."""
_MOST_TRIES = 4
"""Attempts for each demonstration that is wanted: a task's scripts may fail, some by intention."""
_NUM_NAMED = 10
"""Transcripts that are named."""
_WHOLE = (StopReason.SUBMITTED, StopReason.EOS)


@dataclass(slots=True)
class Lessons:
    """Transcripts that are shown, and how many of each kind are not."""

    scored: list[Scored] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    """Number of transcripts by source."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of transcripts by reason."""
    _seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=set)

    def add(self, source: str, transcripts: Iterable[Scored]) -> None:
        """Take those that are not there yet."""
        for scored in transcripts:
            trajectory = scored.trajectory
            key = trajectory.prompt_ids, trajectory.completion_ids
            if key in self._seen:
                self.left_out["duplicate"] += 1
                continue
            self._seen.add(key)
            self.scored.append(scored)
            self.taken[source] += 1

    def __str__(self) -> str:
        """`586 transcripts (demonstrations 586); left out: unsolved 398, cut off 16`."""
        text = f"{len(self.scored)} transcripts ({_listed(self.taken)})"
        return f"{text}; left out: {_listed(self.left_out)}" if self.left_out.total() else text


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none"


class Gathering:
    """Runs and reads the lessons of one warm start.

    `is_held_out` says of which problems no lesson may be.
    """

    def __init__(
        self, runtime: Runtime, progress: Progress, *, held_out: Sequence[Attempt]
    ) -> None:
        self._plan = runtime.plan
        self._runtime = runtime
        self._progress = progress
        self._encoding = Encoding(runtime.env.format, runtime.loaded.codec)
        self._held_out = held_out_problems(runtime.plan.task, held_out)
        self._lessons = Lessons()

    def gather(self, sources: Sources) -> Lessons:
        """All that is wanted. ConfigError where nothing is left, and as `check_written`."""
        if self._plan.warmstart.demonstrations:
            self._demonstrate(self._plan.warmstart.demonstrations)
        if sources.written:
            self._write(sources.written)
        for path in sources.runs:
            self._read(path)
        if not self._lessons.scored:
            raise ConfigError(
                f"nothing to show the model: left out {_listed(self._lessons.left_out)}; give more "
                f"with --from or --demonstrations"
            )
        return self._lessons

    def _demonstrate(self, count: int) -> None:
        task, seed = self._plan.task, self._plan.seed
        assert isinstance(task, DemonstrableTask), "checked before anything was loaded"
        drawn = iter(task.problems(Split.TRAIN, seed=derive_seed(seed, "demo")))
        taken: list[Scored] = []
        made, missing = 0, count
        while problems := list(itertools.islice(drawn, min(missing, _MOST_TRIES * count - made))):
            scored = self._run(
                "demonstrations",
                problems,
                lambda attempt: task.demonstrate(attempt.problem, random.Random(attempt.seed)),
                first=made,
                make_scripts=script_sampler(self._plan.make_sampler),
            )
            made += len(scored)
            taken += filter(self._is_kept, scored)
            # As many more as it takes, if as few are taken of them as of those before.
            missing = math.ceil(max(0, count - len(taken)) * made / max(1, len(taken)))
        self._lessons.add("demonstrations", taken[:count])

    def _is_kept(self, scored: Scored) -> bool:
        """Return whether `warmstart.keep` wants the trajectory; count it if not."""
        keep, stop = self._plan.warmstart.keep, scored.trajectory.stop_reason
        if stop not in _WHOLE:
            reason = "cut off"
        elif keep != "all" and stop is not StopReason.SUBMITTED:
            reason = "not submitted"
        elif keep == "solved" and not summary.is_solved(scored):
            reason = "unsolved"
        else:
            return True
        self._lessons.left_out[reason] += 1
        return False

    def _write(self, given: Sequence[Written]) -> None:
        written = [one for one in given if not self._is_held_out(one.problem)]
        self._lessons.left_out["held out"] += len(given) - len(written)
        rows = _rows(self._plan.task, Split.TRAIN)
        scored = self._run(
            "transcripts by hand",
            [rows.get(one.problem.statement, one.problem) for one in written],
            lambda attempt: fixed_script(
                line.source for line in written[attempt.group_index].lines
            ),
        )
        for one, made in zip(written, scored, strict=True):
            check_written(one, made.trajectory)
            if one.problem.statement in rows and self._plan.warmstart.keep == "solved":
                _check_answer(one, made)
        self._lessons.add("by hand", scored)

    def _read(self, path: Path) -> None:
        """The solved trajectories of a run: as they stand, or run again in this model's tokens."""
        others = list[Scored]()
        for scored in (one for file in files(path) for one in self._solved_in(file)):
            if self._has_same_ids(scored):
                self._lessons.add(str(path), [scored])
            else:
                others.append(scored)
        if not others:
            return
        again = self._run(
            f"{path}, run again",
            [scored.problem for scored in others],
            lambda attempt: fixed_script(
                strip_line(line.source) for line in others[attempt.group_index].trajectory.lines
            ),
        )
        is_same = [summary.is_solved(scored) for scored in again]
        self._lessons.left_out["not solved again"] += len(is_same) - sum(is_same)
        self._lessons.add(str(path), itertools.compress(again, is_same))

    def _solved_in(self, file: Path) -> Iterable[Scored]:
        is_measured = file.stem.partition("-")[0] in _MEASURED
        for scored in trajectory_file.read_trajectories(file):
            if is_measured or self._is_held_out(scored.problem):
                self._lessons.left_out["held out"] += 1
            elif summary.is_solved(scored):
                yield scored
            else:
                self._lessons.left_out["unsolved"] += 1

    def _is_held_out(self, problem: Problem) -> bool:
        families = self._plan.config.task.held_out
        return problem.statement in self._held_out or problem.meta.get("family") in families

    def _has_same_ids(self, scored: Scored) -> bool:
        """Return whether the trajectory has the tokens that this model would see and sample."""
        trajectory, encoding = scored.trajectory, self._encoding
        prompt = make_prompt(self._plan.task, scored.problem, encoding.format)
        if list(trajectory.prompt_ids) != prompt_ids(prompt, encoding.codec):
            return False
        return all(
            encoding.source_of(trajectory.completion_ids[line.start : line.stop]) == line.source
            for line in trajectory.lines
        )

    def _run(
        self,
        name: str,
        problems: Sequence[Problem],
        write: Callable[[Attempt], Script],
        *,
        first: int = 0,
        make_scripts: type[ScriptSampler] = ScriptSampler,
    ) -> list[Scored]:
        """The scripts of these problems, in kernels; `write` gets each attempt.

        `first` is the number of the first, of all attempts by this name.
        """
        sampler = make_scripts(
            write, self._encoding, self._plan.sampling, context_tokens=self._runtime.context_tokens
        )
        attempts = [
            Attempt(
                problem=problem,
                group_index=index,
                sibling_index=0,
                seed=derive_seed(self._plan.seed, name, first + index),
            )
            for index, problem in enumerate(problems)
        ]
        counts = Counter[bool]()
        with self._progress.bar(f"running {name}", len(attempts)) as update:

            def count(scored: Scored) -> None:
                counts[summary.is_solved(scored)] += 1
                update(counts.total(), f"{counts[True]} solved")

            return self._runtime.sampling_by(sampler).run(attempts, on_scored=count)


def held_out_problems(task: Task, measured: Sequence[Attempt]) -> dict[str, Problem]:
    """Return the problems that no lesson may show, by their statements.

    Beside those of this measurement all held-out rows: another one may ask for more of them.
    """
    problems = {attempt.problem.statement: attempt.problem for attempt in measured}
    return problems | _rows(task, Split.HELD_OUT)


def name_held_out(
    plan: Plan, sources: Sources, measured: Sequence[Attempt], progress: Progress
) -> None:
    """Say which transcripts by hand are left out, and why, before a model is loaded.

    Raises ConfigError where there is nothing else to show.
    """
    problems = held_out_problems(plan.task, measured)
    named = [
        f"{one.lines[0].place}: {problems[one.problem.statement].label} is held out"
        for one in sources.written
        if one.problem.statement in problems
    ]
    more = [f"{len(named) - _NUM_NAMED} more"] if len(named) > _NUM_NAMED else []
    text = "; ".join(named[:_NUM_NAMED] + more)
    is_all = len(named) == len(sources.written) and not sources.runs
    if named and is_all and not plan.warmstart.demonstrations:
        raise ConfigError(
            f"nothing to show the model: {text}; expected transcripts of problems to train on, "
            f"which `repl-rl tasks` lists"
        )
    if named:
        progress.say(f"left out: {text}")


def _rows(task: Task, split: Split) -> dict[str, Problem]:
    """Return all problems of one side of a file or a data set, by their statements; else none."""
    if not isinstance(task, DataTask):
        return {}
    return {problem.statement: problem for problem in task.problems(split, seed=0)}


def _check_answer(written: Written, scored: Scored) -> None:
    """ConfigError, with file and line, where a row's known answer is not the one by hand."""
    if scored.verdict is not None and not summary.is_solved(scored):
        word, where = scored.verdict.kind.word, written.lines[-1].place
        raise ConfigError(
            f"{where}: {scored.trajectory.submission} is {word} by the answer of "
            f"{scored.problem.id}; correct it, or set warmstart.keep = 'all'"
        )


def check_written(written: Written, trajectory: Trajectory) -> None:
    """ConfigError, with file and line, where the interpreter does not answer as is written.

    A model would be shown something else than its author has seen. One without any output is run
    for what its lines print.
    """
    for index, line in enumerate(written.lines):
        if index >= len(trajectory.lines):
            raise ConfigError(
                f"{line.place}: not run, as the transcript ends above it "
                f"({trajectory.stop_reason}); take the line out"
            )
        outcome = trajectory.lines[index].outcome
        if written.has_outputs and outcome.observation != line.output:
            raise ConfigError(
                f"{line.place}: {line.source!r} answers {outcome.observation!r}, not "
                f"{line.output!r}; correct it, or write no outputs at all"
            )
    if trajectory.stop_reason not in _WHOLE:
        raise ConfigError(
            f"{written.lines[-1].place}: the transcript is cut off ({trajectory.stop_reason}); "
            f"raise that limit under [sampling]"
        )
