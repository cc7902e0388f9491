"""Many stored trajectories at once, behind a bar: run again, or scored again, and summed up.

    [StoredTrajectory] -> [Rerun] | [Change] -> rows of text: what differs, then the sum

Knows pools and graders, which it closes again. Does not know flags or exit codes.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from repl_rl.base.concurrency import run_all
from repl_rl.base.terminal import one_row, signed
from repl_rl.progress import Update
from repl_rl.rollout.plan import make_task_plan
from repl_rl.rollout.scoring import Scorer, open_scorer
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.viewer.replay.annotated import read
from repl_rl.viewer.replay.compare import Cause, Change, Judgement, unified
from repl_rl.viewer.replay.execute import Mismatch, Rerun, rerun
from repl_rl.viewer.replay.live import pool_of
from repl_rl.viewer.replay.scene import Scene, other_walls
from repl_rl.viewer.show.display import Screen
from repl_sandbox.render import clean

Result = TypeVar("Result")


_KERNELS_A_CPU = 4
"""A kernel waits for its trainer half of the time."""
_SCORED_AT_ONCE = 64
"""Trajectories that wait for a grader with its own number of workers."""


MakeScene = Callable[[StoredTrajectory], Scene]


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


async def _rescore(stored: StoredTrajectory, *, scorer: Scorer) -> Change:
    scored = read(stored)
    before, after = map(Judgement.of, (scored, await scorer.rescore(scored)))
    return Change(id=stored.id, before=before, after=after)


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


_MAX_NAMED = 20
"""Trajectories of one kind that are named; the others are counted."""
_MAX_SOURCE = 60
_MAX_LISTED = 6
"""Differences that are listed of one trajectory."""


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


def _cause_rows(cause: Cause, pairs: Sequence[tuple[Rerun, Mismatch]]) -> Iterator[str]:
    for one, mismatch in pairs[:_MAX_NAMED]:
        yield f"{cause}: {clean(one.id)}, {_line(mismatch)}: {mismatch.difference.why}"
    if len(pairs) > _MAX_NAMED:
        yield f"{cause}: and {len(pairs) - _MAX_NAMED:,} more"


def _line(mismatch: Mismatch) -> str:
    # A source that runs on over several lines must not end this row.
    source = one_row(mismatch.line.source.strip())
    excerpt = source if len(source) <= _MAX_SOURCE else f"{source[: _MAX_SOURCE - 3]}..."
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
