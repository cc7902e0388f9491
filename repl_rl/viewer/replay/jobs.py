"""Jobs of `repl-rl replay` on the trajectories that it was asked for.

    ReplayRequest -> [StoredTrajectory] -> rows of text | a file | a person at a terminal

Knows the order of things. Does not know flags or exit codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from repl_rl.errors import ConfigError
from repl_rl.progress import Update
from repl_rl.rollout.plan import make_task_plan
from repl_rl.rollout.scoring import open_scorer
from repl_rl.runs.run_files import RunPart, files, part_of
from repl_rl.runs.trajectory_file import (
    Selection,
    StoredTrajectory,
    is_cut_off,
    select,
)
from repl_rl.viewer.page.writer import SUFFIXES as PAGES
from repl_rl.viewer.page.writer import write_page
from repl_rl.viewer.replay.annotated import Annotated, annotate
from repl_rl.viewer.replay.branch import ScoringPolicy
from repl_rl.viewer.replay.live import pool_of
from repl_rl.viewer.replay.many import (
    change_rows,
    execute,
    rerun_rows,
    rescore,
)
from repl_rl.viewer.replay.scene import (
    Scene,
    check_apart,
    check_replaceable,
    make_scene,
    other_walls,
)
from repl_rl.viewer.show.display import Screen

_PAGE_HOLDS = 500


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
    """Model of the policy that goes on or scores tokens."""

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
                f"left out, as they were made in another way than {matches[0].id!r}: "
                f"{num_others:,}; --id names one of them"
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


def _with_progress(items: Iterator[Annotated], update: Update) -> Iterator[Annotated]:
    for number, item in enumerate(items, 1):
        yield item
        update(number)


def _notes(
    request: ReplayRequest, scene: Scene, *, num_selected: int, num_matches: int
) -> Iterator[str]:
    if num_selected < num_matches:
        yield f"{num_selected:,} of {num_matches:,} are here; -n takes more"
    if request.model is not None:
        yield f"the trainer's log-probabilities are those of {request.model}"
    if scene.versions:
        python, walls = scene.versions.get("python"), scene.versions.get("isolation")
        yield f"sampled with Python {python}, {walls}"


def step_through(request: ReplayRequest) -> int:
    """Let a person step through live kernels until they quit; returns the exit code."""
    notes: list[str] = []
    # A row on stderr would lie behind the stepper's screen.
    quiet = replace(request, say=notes.append)
    matches = quiet.find_alike()
    return asyncio.run(_walk(request, matches, quiet.scene(matches[0]), notes))


async def _walk(
    request: ReplayRequest, matches: Sequence[StoredTrajectory], scene: Scene, notes: Sequence[str]
) -> int:
    from repl_rl.viewer.stepper import Stepper  # textual, of an extra

    plan = make_task_plan(scene.config)
    if request.model is not None:
        request.say(f"reading the model {request.model} ...")  # the stepper's screen comes after it
    async with (
        pool_of(scene) as pool,
        open_scorer(plan) as scorer,
        _policy(request, scene) as policy,
    ):
        score = referee = None
        if policy is not None:
            score = policy.score
            referee = policy.referee(plan, scene, kernels=pool, scorer=scorer)
        stepper = Stepper(
            matches,
            scene=scene,
            kernels=pool,
            annotate=lambda stored: next(annotate([stored], scene.config.grpo, score=score)),
            scorer=scorer,
            policy=policy,
            referee=referee,
            notes=[*notes, *other_walls(scene.origin, str(pool.walls))],
            isolation=str(pool.walls),
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
