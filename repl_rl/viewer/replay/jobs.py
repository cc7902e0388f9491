"""Jobs of `repl-rl replay` on the trajectories that it was asked for.

    ReplayRequest -> [StoredTrajectory] -> rows of text | a file | a person at a terminal

Many at once run behind a bar, in pools and graders that are closed again.

Knows the order of things. Does not know flags or exit codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from repl_rl.base.concurrency import run_all
from repl_rl.base.terminal import one_row, shorten, signed
from repl_rl.errors import ConfigError
from repl_rl.progress import Update
from repl_rl.rollout.env import Env
from repl_rl.rollout.plan import make_task_plan
from repl_rl.rollout.scoring import Scorer, open_scorer
from repl_rl.runs.folder import RunPart, files, last_checkpoint, part_of, run_around
from repl_rl.runs.trajectory_file import (
    Selection,
    StoredTrajectory,
    is_cut_off,
    select,
)
from repl_rl.viewer.page import SUFFIXES as PAGES
from repl_rl.viewer.page import write_page
from repl_rl.viewer.replay.annotated import Annotated, annotate, read
from repl_rl.viewer.replay.branch import Referee, ScoringPolicy
from repl_rl.viewer.replay.compare import Cause, Change, Judgement, unified
from repl_rl.viewer.replay.execute import Mismatch, Rerun, rerun
from repl_rl.viewer.replay.live import pool_of
from repl_rl.viewer.replay.scene import (
    Scene,
    check_apart,
    check_replaceable,
    make_scene,
    other_walls,
)
from repl_rl.viewer.show.display import Screen
from repl_sandbox.render import clean

Result = TypeVar("Result")

_KERNELS_A_CPU = 4
"""A kernel waits for its trainer half of the time."""
_SCORED_AT_ONCE = 64
"""Trajectories that wait for a grader with its own number of workers."""

MakeScene = Callable[[StoredTrajectory], Scene]

_MAX_NAMED = 20
"""Trajectories of one kind that are named; the others are counted."""
_MAX_SOURCE = 60
_MAX_LISTED = 6
"""Differences that are listed of one trajectory."""

_PAGE_HOLDS = 500


def scenes(
    trajectories: Iterable[StoredTrajectory], make: MakeScene
) -> Iterator[tuple[Scene, list[StoredTrajectory]]]:
    """(scene, trajectories) for each series of neighbours that have one origin."""
    for _, same in itertools.groupby(
        trajectories, key=lambda stored: (stored.path.parent, stored.origin)
    ):
        alike = list(same)
        yield make(alike[0]), alike


async def execute(
    trajectories: Sequence[StoredTrajectory],
    make: MakeScene,
    screen: Screen,
    *,
    say: Callable[[str], None],
) -> list[Rerun]:
    """Run all of them, in order. `say` gets how walls here differ from the recorded ones.

    Raises SandboxError if our own side fails, ConfigError for what cannot be read or run again.
    """
    at_once = _KERNELS_A_CPU * (os.cpu_count() or 1)
    reruns: list[Rerun] = []
    with screen.bar("running lines again", len(trajectories)) as update:
        for scene, alike in scenes(trajectories, make):
            async with pool_of(scene, standby=at_once) as pool:
                for note in other_walls(scene.origin, str(pool.walls)):
                    say(note)
                reruns += await run_all(
                    counted(partial(rerun, scene=scene, kernels=pool), update, len(reruns)),
                    alike,
                    at_once=at_once,
                )
    return reruns


async def rescore(
    trajectories: Sequence[StoredTrajectory],
    make: MakeScene,
    screen: Screen,
) -> list[Change]:
    """Score all again and return their changes, in order. No kernel runs, and no model.

    Raises GraderError where nothing can be graded, and what the reward function raises.
    """
    changes: list[Change] = []
    with screen.bar("scoring again", len(trajectories)) as update:
        for scene, alike in scenes(trajectories, make):
            async with open_scorer(make_task_plan(scene.config)) as scorer:
                changes += await run_all(
                    counted(partial(_rescore, scorer=scorer), update, len(changes)),
                    alike,
                    at_once=_SCORED_AT_ONCE,
                )
    return changes


def counted(
    function: Callable[[StoredTrajectory], Awaitable[Result]], update: Update, num_before: int
) -> Callable[[StoredTrajectory], Awaitable[Result]]:
    """`function`, which then also moves the bar by one after each call."""
    counter = itertools.count(num_before + 1)

    async def one(stored: StoredTrajectory) -> Result:
        result = await function(stored)
        update(next(counter))
        return result

    return one


def rerun_rows(reruns: Sequence[Rerun]) -> Iterator[str]:
    """Differences that are allowed, by cause; then the first real divergence; then the sum."""
    for cause in (Cause.VOLATILE, Cause.LIMITS):
        pairs = [(one, mismatch) for one in reruns for mismatch in one.mismatches]
        yield from _cause_rows(cause, [pair for pair in pairs if pair[1].difference.cause is cause])
    diverged = [one for one in reruns if one.divergence is not None]
    if diverged:
        first = diverged[0]
        assert first.divergence is not None, "it was chosen by it"
        yield f"first divergence: {clean(first.id)}, {_line(first.divergence)}"
        yield f"  {first.divergence.difference.headline}"
        difference = first.divergence.difference
        rows = unified(difference.recorded, difference.live)
        if rows:
            yield "  (- recorded, + run again)"
        yield from (f"    {row}" for row in rows)
        yield from _rest([one.id for one in diverged[1:]], "diverged, too")
    yield _sum(reruns, num_diverged=len(diverged))


def change_rows(changes: Sequence[Change]) -> Iterator[str]:
    """A line for each trajectory that is worth something else now, the first 20; then the sum."""
    real = [change for change in changes if change.is_real]
    ids = [clean(change.id) for change in real[:_MAX_NAMED]]
    width = max(map(len, ids), default=0)
    for name, change in zip(ids, real, strict=False):
        gain = "none" if change.gain is None else signed(change.gain)
        yield f"{name:{width}}  {gain:>6}  {_joined(list(change.differences()))}"
    if len(real) > _MAX_NAMED:
        yield f"and {len(real) - _MAX_NAMED:,} more"
    yield _sum_of_changes(changes, num_real=len(real))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Request that a command line makes."""

    path: Path
    """A run's folder, that of the trajectories in it, or a file of them."""
    part: RunPart
    selection: Selection
    say: Callable[[str], None]
    """Gets what a person should know beside the result."""
    count: int | None = None
    files: Sequence[Path] = ()
    """Changes that a user makes to the config, like `overrides`."""
    overrides: Sequence[str] = ()
    model: str | None = None
    """Model of the policy that goes on or scores tokens. A stepper without one takes the last
    weights of the run once it is asked to go on."""
    load: Callable[[str], None] = lambda model: None
    """Called before such a model is read, in a thread: it loads libraries."""

    def scene(self, stored: StoredTrajectory) -> Scene:
        """Make the scene of a trajectory, and say how this machine differs from its own."""
        scene = make_scene(stored, files=self.files, overrides=self.overrides)
        for note in scene.notes:
            self.say(note)
        return scene

    def find(self, *, in_all: bool = False) -> list[StoredTrajectory]:
        """The trajectories, of one part of a run; of all its files with a filter, or `in_all`.

        A part that is chosen holds in any case. Raises ConfigError where there is none.
        """
        is_filtered = self.selection != Selection(which=self.selection.which)
        takes_all = (is_filtered or in_all) and not self.part.is_chosen
        sources = files(self.path) if takes_all else [part_of(self.path, self.part, say=self.say)]
        matches = list(itertools.islice(select(sources, self.selection), self.count))
        if not matches:
            raise ConfigError(self._nothing(sources))
        for file in filter(is_cut_off, sources):
            self.say(f"{file.name} ends in the middle of a row, which is left out")
        return matches

    def find_alike(self) -> list[StoredTrajectory]:
        """Find trajectories, but only those of the first one's origin: one scene fits them all."""
        matches = self.find()
        alike = [stored for stored in matches if stored.origin == matches[0].origin]
        if (num_others := len(matches) - len(alike)) > 0:
            self.say(
                f"left out: {num_others:,} that were made otherwise than {matches[0].id!r}; --id "
                f"names one of them"
            )
        return alike

    def _nothing(self, sources: Sequence[Path]) -> str:
        """Explain why nothing was found, and what there is."""
        there = next(select(sources, Selection()), None)
        if there is None:
            return f"{str(self.path)!r} holds no whole trajectory"
        conditions = " and ".join(
            f"--{name} {value}"
            for name in ("id", "outcome", "grep")
            if (value := getattr(self.selection, name)) is not None
        )
        problem = there.glance.trajectory.problem_id
        return (
            f"no trajectory in {str(self.path)!r} has {conditions}; there is {there.id!r}, of the "
            f"problem {problem!r}"
        )


def run_again(request: ReplayRequest, screen: Screen) -> tuple[list[str], bool]:
    """(rows of the report, whether all is as recorded)."""
    reruns = asyncio.run(execute(request.find(in_all=True), request.scene, screen, say=request.say))
    return list(rerun_rows(reruns)), not any(one.divergence for one in reruns)


def score_again(request: ReplayRequest, screen: Screen) -> tuple[list[str], bool]:
    """(rows of the report, whether no reward changed)."""
    matches = request.find(in_all=True)
    changes = asyncio.run(rescore(matches, request.scene, screen))
    return list(change_rows(changes)), not any(change.is_real for change in changes)


def write_one_notebook(request: ReplayRequest, out: Path) -> list[str]:
    """Write the first trajectory as a notebook; returns rows of the report."""
    from repl_rl.viewer.replay.notebook import SUFFIXES, write_notebook  # nbformat, of an extra

    stored = request.find()[0]
    check_apart(out, [stored.path])
    check_replaceable(out, SUFFIXES)
    scene = request.scene(stored)
    (item,) = annotate([stored], scene.config.grpo)
    write_notebook(out, item, setup=scene.setup_of(item.ledger.scored.problem))
    return [f"{stored.id}: {out}"]


def write_html(request: ReplayRequest, screen: Screen, out: Path) -> list[str]:
    """Write the trajectories as a page; returns rows of the report."""
    matches = request.find_alike()
    check_apart(out, {stored.path for stored in matches})
    check_replaceable(out, PAGES)
    selected = matches if request.count is not None else matches[:_PAGE_HOLDS]
    scene = request.scene(selected[0])
    notes = [
        *_notes(request, scene, num_selected=len(selected), num_matches=len(matches)),
        *scene.notes,
    ]

    async def write() -> int:
        async with _policy(request, scene) as policy:
            score = None if policy is None else policy.score
            with screen.bar("writing the page", len(selected)) as update:
                items = _with_progress(annotate(selected, scene.config.grpo, score=score), update)
                return write_page(out, items, title=request.path.name, notes=notes)

    num_written = asyncio.run(write())
    return [f"{num_written:,} {'trajectory' if num_written == 1 else 'trajectories'}: {out}"]


def step_through(request: ReplayRequest) -> int:
    """Let a person step through live kernels until they quit; returns the exit code."""
    notes: list[str] = []
    # A row on stderr would lie behind the stepper's screen.
    quiet = replace(request, say=notes.append)
    matches = quiet.find_alike()
    return asyncio.run(_walk(request, matches, quiet.scene(matches[0]), notes))


async def _rescore(stored: StoredTrajectory, *, scorer: Scorer) -> Change:
    scored = read(stored)
    before, after = map(Judgement.of, (scored, await scorer.rescore(scored)))
    return Change(id=stored.id, before=before, after=after)


def _cause_rows(cause: Cause, pairs: Sequence[tuple[Rerun, Mismatch]]) -> Iterator[str]:
    for one, mismatch in pairs[:_MAX_NAMED]:
        yield f"{cause}: {clean(one.id)}, {_line(mismatch)}: {mismatch.difference.why}"
    if len(pairs) > _MAX_NAMED:
        yield f"{cause}: and {len(pairs) - _MAX_NAMED:,} more"


def _line(mismatch: Mismatch) -> str:
    # A source that runs on over several lines must not end this row.
    excerpt = shorten(one_row(mismatch.line.source.strip()), _MAX_SOURCE)
    return f"line {mismatch.line.index + 1} `{excerpt}`"


def _rest(ids: Sequence[str], word: str) -> Iterator[str]:
    if ids:
        more = f" and {len(ids) - _MAX_NAMED:,} more" if len(ids) > _MAX_NAMED else ""
        yield f"{word}: {', '.join(map(clean, ids[:_MAX_NAMED]))}{more}"


def _sum(reruns: Sequence[Rerun], *, num_diverged: int) -> str:
    num_lines = sum(one.num_lines for one in reruns)
    counts = {cause: sum(one.count(cause) > 0 for one in reruns) for cause in Cause}
    counted = [f"{num_diverged:,} diverged" if num_diverged else "none diverged"]
    counted += [f"{counts[c]:,} {c}" for c in (Cause.VOLATILE, Cause.LIMITS) if counts[c]]
    what = f"{_count(len(reruns), 'trajectory', 'trajectories')}, " + _count(
        num_lines, "line", "lines"
    )
    return f"{what} run again: {', '.join(counted)}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _joined(differences: Sequence[str]) -> str:
    num_more = len(differences) - _MAX_LISTED
    rest = [f"and {num_more:,} more"] if num_more > 0 else []
    return "; ".join([*differences[:_MAX_LISTED], *rest])


def _sum_of_changes(changes: Sequence[Change], *, num_real: int) -> str:
    counted = f"{num_real:,} of {len(changes):,} trajectories changed"
    num_ungraded = sum(change.after.is_ungraded for change in changes)
    left_out = f"; {num_ungraded:,} could not be graded" if num_ungraded else ""
    return f"{counted}{_means(changes)}{left_out}"


def _means(changes: Sequence[Change]) -> str:
    """Mean rewards of those scored both times: one that is not scored is not worth zero."""
    scored = [change for change in changes if change.is_scored]
    if not scored:
        return ""
    was = statistics.fmean(change.before.reward.total for change in scored)
    now = statistics.fmean(change.after.reward.total for change in scored)
    some = f" of the {len(scored):,} scored both times" if len(scored) < len(changes) else ""
    return f", mean reward{some} {signed(was)} -> {signed(now)}"


def _with_progress(items: Iterator[Annotated], update: Update) -> Iterator[Annotated]:
    for number, item in enumerate(items, 1):
        yield item
        update(number)


def _notes(
    request: ReplayRequest, scene: Scene, *, num_selected: int, num_matches: int
) -> Iterator[str]:
    if num_selected < num_matches:
        yield f"{num_selected:,} of {num_matches:,} are here; a larger -n takes more"
    if request.model is not None:
        yield f"the trainer's log-probabilities are those of {request.model}"
    if scene.versions:
        python, walls = scene.versions.get("python"), scene.versions.get("isolation")
        yield f"sampled with Python {python}, {walls}"


async def _walk(
    request: ReplayRequest, matches: Sequence[StoredTrajectory], scene: Scene, notes: Sequence[str]
) -> int:
    from repl_rl.viewer.stepper import Stepper  # textual, of an extra

    plan = make_task_plan(scene.config)
    if request.model is not None:
        request.say(f"reading the model {request.model} ...")  # the stepper's screen comes after it
    async with (
        Env(plan, scene.fmt, kernels=pool_of(scene)) as env,
        _policy(request, scene) as policy,
        contextlib.AsyncExitStack() as stack,
    ):
        run = run_around(request.path)
        weights = None if run is None else last_checkpoint(run)

        async def bring() -> tuple[ScoringPolicy, Referee]:
            await asyncio.to_thread(request.load, str(weights))
            own = replace(request, model=str(weights), say=lambda text: None)
            late = await stack.enter_async_context(_policy(own, scene))
            assert late is not None, "its model is named"
            return late, late.referee(plan, scene, kernels=env.kernels, scorer=env.scorer)

        score = answers = referee = None
        if policy is not None:
            score, answers = policy.score, policy.answers(scene)
            referee = policy.referee(plan, scene, kernels=env.kernels, scorer=env.scorer)
        stepper = Stepper(
            matches,
            scene=scene,
            kernels=env.kernels,
            annotate=lambda stored: next(
                annotate([stored], scene.config.grpo, score=score, answers=answers)
            ),
            scorer=env.scorer,
            policy=policy,
            referee=referee,
            bring=None if weights is None else bring,
            notes=[*notes, *other_walls(scene.origin, str(env.walls))],
            isolation=str(env.walls),
        )
        await stepper.run_async(mouse=False)
        return stepper.return_code or 0


@contextlib.asynccontextmanager
async def _policy(request: ReplayRequest, scene: Scene) -> AsyncIterator[ScoringPolicy | None]:
    """The policy of `--model`, ready to go on; None without `--model`."""
    if request.model is None:
        yield None
        return
    from repl_rl.viewer.replay import model_policy  # the only part of a replay that needs torch

    async with model_policy.open_policy(scene, request.model, say=request.say) as policy:
        yield policy
