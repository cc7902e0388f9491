"""Starts of groups behind lines of a script that solved their problem: `grpo.prefix_share`.

    rows of earlier steps, the task's scripts -> a Stem for each group that is chosen
    rows of a step -> share of a script's lines that the next groups of a kind write themselves

As in AdaBack (arXiv:2506.18110) and PrefixRL (arXiv:2601.18795), but a kernel runs the lines, so a
group begins in the very state of the interpreter. Everything here follows from the config and from
rows on disk: a run that goes on begins its groups where it would have. Knows runtimes and rows.
Does not know the update, nor measurements, which begin at their prompts.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from repl_rl.base.concurrency import derive_seed
from repl_rl.credit.base import More, Run
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Problem, Scored, Stem
from repl_rl.rollout.plan import Plan, script_sampler
from repl_rl.rollout.prefixes import can_be_had_again
from repl_rl.rollout.sampler import answered
from repl_rl.runs.folder import RunFolder, rollouts_name
from repl_rl.runs.resume import Begun
from repl_rl.runs.summary import is_solved, is_ungraded
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.tasks.base import DemonstrableTask, Script
from repl_rl.training.runtime import Runtime
from repl_rl.transcript.encoding import Encoding

FIRST_LEFT = 0.25
"""Share of a script's lines that is left to write at first."""
MOVE = 0.05
"""The most that a step changes this share by, for problems of one kind."""
TOO_HARD, TOO_EASY = 0.25, 0.75
"""Solve rates of a group below which the next ones begin further on, and above which further back.
"""
Kind = tuple[str | None, str | None]
"""Family and tier of a problem. With one share for all it stands still where some always fail and
others always succeed, and SmolLM2-135M then lost what it could do (docs/lab-notes.md)."""
_MOST_TRIES = 4
"""Scripts of a problem that are run before its group begins at the prompt."""
_MOST_KEPT = 4096
"""Problems whose latest success is kept."""


class SolvedPrefixes:
    """Chooses groups of a step and says where they begin. The first rank learns for all.

    A group is chosen by its number alone. A success of the run's own on the same problem comes
    first, the latest one; else a script of the task, if it solves the problem.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._plan = runtime.plan
        self.left: dict[Kind, float] = {}
        """Share of a script's lines that a group writes itself; 1 is the whole of it. For kinds
        that have moved."""
        self._solved: dict[str, Scored] = {}
        """Successes by the ids of their problems, the latest last; on the first rank alone."""
        self._known: dict[str, Scored] = {}
        """Successes on the problems of the step under way, on every rank."""

    def learn(self, scored: Iterable[Scored]) -> None:
        """Take in the rows of a step, in their order."""
        moves: dict[Kind, list[int]] = {}
        for number, rows in groupby(scored, key=attrgetter("trajectory.group_index")):
            siblings = list(rows)
            for one in filter(is_solved, siblings):
                self._solved.pop(one.problem.id, None)
                self._solved[one.problem.id] = one
            has_stem = any(one.trajectory.branch for one in siblings)
            graded = [one for one in siblings if not is_ungraded(one)]
            problem = siblings[0].problem
            is_whole = self.left_of(problem) == 1.0
            if graded and (has_stem or (is_whole and self._is_chosen(number))):
                rate = statistics.fmean(map(is_solved, graded))
                move = (rate > TOO_EASY) - (rate < TOO_HARD)
                moves.setdefault(_kind(problem), []).append(move)
        for name in list(self._solved)[:-_MOST_KEPT]:
            del self._solved[name]
        for kind, found in moves.items():
            # Rounded, so that moves of a third of a step add up to a whole.
            moved = round(self.left.get(kind, FIRST_LEFT) + MOVE * statistics.fmean(found), 9)
            self.left[kind] = min(1.0, max(0.0, moved))

    def left_of(self, problem: Problem) -> float:
        """Return the share of a script's lines that groups of this kind of problem write."""
        return self.left.get(_kind(problem), FIRST_LEFT)

    def agree(self, problems: Mapping[int, Problem]) -> None:
        """Let each rank know what the first one has learned about its problems; all call it."""
        ranks = self._runtime.ranks
        names = ranks.gather([one.id for one in problems.values()])
        known = {name: self._solved[name] for name in names if name in self._solved}
        self.left, self._known = ranks.from_first((self.left, known))

    def stems(self, problems: Mapping[int, Problem]) -> dict[int, Stem]:
        """Return where the groups of these numbers begin that do not begin at their prompt.

        `agree` has been called for them. Scripts of the task run in kernels of their own.
        """
        chosen = {
            number: one
            for number, one in problems.items()
            if self._is_chosen(number) and self.left_of(one) < 1.0
        }
        scripts = {
            number: self._known[one.id]
            for number, one in chosen.items()
            if one.id in self._known and self._known[one.id].problem == one
        }
        others = {number: one for number, one in chosen.items() if number not in scripts}
        scripts |= self._demonstrated(others)
        stems = {number: self._stem(number, one) for number, one in sorted(scripts.items())}
        return {number: stem for number, stem in stems.items() if stem.num_lines}

    def metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Numbers of the groups of a step that began behind a line. Asked before `learn`."""
        begun = [one for one in scored if one.trajectory.branch is not None]
        row = {
            "prefix/groups": float(len({one.trajectory.group_index for one in begun})),
            "prefix/left": statistics.fmean(self.left_of(one.problem) for one in scored),
        }
        if begun:
            copied = (one.trajectory.num_copied_lines for one in begun)
            row["prefix/lines"] = statistics.fmean(copied)
            row["prefix/solve_rate"] = statistics.fmean(map(is_solved, begun))
        return row

    def _is_chosen(self, number: int) -> bool:
        # By a draw, not by counting: problems that come back may be in step with any count.
        return self._draw(number, "prefix") < self._plan.grpo.prefix_share

    def _draw(self, number: int, about: str) -> float:
        return random.Random(derive_seed(self._plan.seed, about, number)).random()

    def _stem(self, number: int, solved: Scored) -> Stem:
        """The most lines of a script that leave its share, behind which its state can be had.

        A fraction of a line is rounded by a draw: so groups begin on both sides of it. At least one
        line is given where there are two: a group from its prompt moves nothing, so the share would
        rise by easy groups alone.
        """
        lines = solved.trajectory.lines
        setup = (*self._runtime.env.setup, *solved.problem.setup)
        left = self.left_of(solved.problem)
        num_left = math.floor(left * len(lines) + self._draw(number, "prefix lines"))
        most = len(lines) - max(1, min(num_left, len(lines) - 1))
        at = next(at for at in range(most, -1, -1) if can_be_had_again(lines[:at], setup))
        return Stem(trajectory=solved.trajectory, num_lines=at, is_sibling=False)

    def _demonstrated(self, problems: Mapping[int, Problem]) -> dict[int, Scored]:
        """Scripts of the task that solve their problem, by the numbers of these."""
        task, runtime, solved = self._plan.task, self._runtime, dict[int, Scored]()
        if not isinstance(task, DemonstrableTask):
            return solved

        def write(attempt: Attempt) -> Script:
            script = task.demonstrate(attempt.problem, random.Random(attempt.seed))
            # One without lines: the task knows no solution of this problem, and "" is none.
            line: str | None = answered(script, None) or ""
            while line is not None:
                line = answered(script, (yield line))

        sampler = script_sampler(self._plan.make_sampler)(
            write,
            Encoding(runtime.env.format, runtime.loaded.codec),
            self._plan.sampling,
            context_tokens=runtime.context_tokens,
        )
        for again in range(_MOST_TRIES):
            attempts = [
                Attempt(
                    problem=one,
                    group_index=number,
                    sibling_index=0,
                    seed=derive_seed(self._plan.seed, "prefix script", number, again),
                )
                for number, one in problems.items()
                if number not in solved
            ]
            made = runtime.sampling_by(sampler).run(attempts) if attempts else []
            solved |= {one.trajectory.group_index: one for one in made if is_solved(one)}
        return solved


def check_solvable(plan: Plan, *, count: Callable[[int], int]) -> None:
    """ConfigError where a run would never know a script that solves a problem which it draws.

    `count` says how many the first problems of the task are, up to a number, each counted once.
    """
    grpo, task = plan.grpo, plan.task
    if not (grpo.prefix_share and grpo.steps) or isinstance(task, DemonstrableTask):
        return
    num_drawn = grpo.steps // grpo.passes * grpo.problems_per_step
    if count(num_drawn) == num_drawn:
        raise ConfigError(
            f"grpo.prefix_share = {grpo.prefix_share:g} needs a task with demonstrate(), which "
            f"{task.name!r} is not, or problems that come back: this run draws {num_drawn} of "
            f"them, each once; expected more grpo.steps, fewer problems or 0"
        )


def check_rows(plan: Plan, run: Begun) -> None:
    """ConfigError where a run that goes on lacks rows of its steps, which say how groups begin."""
    if not plan.grpo.prefix_share:
        return
    for version in range(0, run.step, plan.grpo.num_rollout_updates):
        file = run.run / "trajectories" / f"{rollouts_name(version)}.jsonl"
        if not file.is_file():
            raise ConfigError(
                f"no {str(file)!r}; with grpo.prefix_share groups begin by the rows of all steps "
                f"before. Put it back, or begin a new run with --config "
                f"{run.run / 'config.toml'} --model {run.checkpoint}"
            )


def open_prefixes(runtime: Runtime, folder: RunFolder | None) -> SolvedPrefixes | None:
    """Return the prefixes of a run as they are behind the rows in its folder; None for none.

    `folder` is None where the rank is not the first.
    """
    if not runtime.plan.grpo.prefix_share:
        return None
    made = SolvedPrefixes(runtime)
    for file in folder.rollouts if folder is not None else ():
        made.learn(read_trajectories(file))
    return made


def run_as_one(run: Run, attempts: Sequence[Attempt], *, more: More | None = None) -> list[Scored]:
    """Run whole groups; one of which a sibling lost its prefix begins anew, at its prompt."""
    scored = run(attempts, more=more)
    if not any(one.stem for one in attempts):  # such as groups that grow: `scored` has more of them
        return scored
    begun = list(zip(attempts, scored, strict=True))
    lost = {a.group_index for a, one in begun if a.stem and one.trajectory.branch is None}
    if not lost:
        return scored
    rows = [at for at, one in enumerate(attempts) if one.group_index in lost]
    fresh = run([replace(attempts[at], stem=None) for at in rows])
    anew = dict(zip(rows, fresh, strict=True))
    return [anew.get(at, one) for at, one in enumerate(scored)]


def _kind(problem: Problem) -> Kind:
    return problem.meta.get("family"), problem.meta.get("tier")
