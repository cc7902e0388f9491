"""Many stored trajectories at once, behind a bar: run again, or scored again.

    [Place] -> [Rerun] | [Change]

Knows pools and graders, which it closes again. Does not know flags or exit codes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from repl_rl.concurrency import run_all
from repl_rl.config.resolve import to_toml
from repl_rl.progress import Update
from repl_rl.replay.annotated import read
from repl_rl.replay.change import Change, Judgement
from repl_rl.replay.execute import Rerun, rerun
from repl_rl.replay.scene import Scene, make_scene, other_walls
from repl_rl.rollout.kernels import kernel_pool
from repl_rl.rollout.plan import make_task_plan
from repl_rl.rollout.scoring import Scorer, open_scorer
from repl_rl.runs.trajectory_file import Place
from repl_rl.show.display import Screen
from repl_rl.types import Origin, Scored
from repl_sandbox.host.pool import KernelPool

Result = TypeVar("Result")


class Write(Protocol):
    """Takes trajectories that have been scored."""

    def __call__(self, scored: list[Scored], origin: Origin | None) -> None: ...


_KERNELS_A_CPU = 4
"""A kernel waits for its trainer half of the time."""
_SCORED_AT_ONCE = 64
"""Trajectories that are held in memory and wait for a grader with its own number of workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user changes in the config."""

    files: Sequence[Path] = ()
    overrides: Sequence[str] = ()

    def scene(self, place: Place) -> Scene:
        """See `make_scene`."""
        return make_scene(place, files=self.files, overrides=self.overrides)


def pool_of(scene: Scene, *, standby: int = 1) -> KernelPool:
    """Kernels that start as the recorded ones did."""
    return kernel_pool(replace(scene.config.sandbox, standby=standby), setup=scene.born_with)


def scenes(found: Iterable[Place], options: Options) -> Iterator[tuple[Scene, list[Place]]]:
    """(scene, trajectories) for each series of neighbours that have one origin."""
    for _, same in itertools.groupby(found, key=lambda place: (place.path.parent, place.origin)):
        places = list(same)
        yield options.scene(places[0]), places


async def execute(
    found: Sequence[Place], options: Options, screen: Screen, *, say: Callable[[str], None]
) -> list[Rerun]:
    """Run all of them, in order. `say` gets how kernels here differ from the recorded ones.

    Raises SandboxError if our own side fails, ConfigError for what cannot be read or run again.
    """
    at_once = _KERNELS_A_CPU * (os.cpu_count() or 1)
    reruns: list[Rerun] = []
    with screen.bar("running lines again", len(found)) as update:
        for scene, places in scenes(found, options):
            async with pool_of(scene, standby=at_once) as pool:
                for note in (*scene.notes, *other_walls(scene.origin, str(pool.walls))):
                    say(note)
                reruns += await run_all(
                    counted(partial(rerun, scene=scene, kernels=pool), update, len(reruns)),
                    places,
                    at_once=at_once,
                )
    return reruns


async def rescore(
    found: Sequence[Place],
    options: Options,
    screen: Screen,
    *,
    say: Callable[[str], None],
    write: Write = lambda scored, origin: None,
) -> list[Change]:
    """What each was and is worth, in order. No kernel runs, and no model.

    `write` gets the trajectories as they are scored now, some at a time, in order, and their origin
    with the config that scored them. `say` gets how this machine differs from the one that made
    them. Raises GraderError where nothing can be graded, and what the reward function raises.
    """
    changes: list[Change] = []
    with screen.bar("scoring again", len(found)) as update:
        for scene, places in scenes(found, options):
            for note in scene.notes:
                say(note)
            origin = scene.origin and replace(scene.origin, config=to_toml(scene.config))
            async with open_scorer(make_task_plan(scene.config)) as scorer:
                for start in range(0, len(places), _SCORED_AT_ONCE):
                    some = places[start : start + _SCORED_AT_ONCE]
                    one = counted(partial(_rescore, scorer=scorer), update, len(changes))
                    changes += await _rescore_some(some, one, partial(write, origin=origin))
    return changes


async def _rescore_some(
    places: Sequence[Place],
    one: Callable[[Place], Awaitable[tuple[Scored, Scored]]],
    write: Callable[[list[Scored]], None],
) -> list[Change]:
    """Score as many again as memory may hold, and keep nothing of them but the changes."""
    pairs = await run_all(one, places, at_once=_SCORED_AT_ONCE)
    write([now for _, now in pairs])
    return list(map(_change, places, pairs))


async def _rescore(place: Place, *, scorer: Scorer) -> tuple[Scored, Scored]:
    stored = read(place)
    return stored, await scorer.rescore(stored)


def _change(place: Place, pair: tuple[Scored, Scored]) -> Change:
    before, after = map(Judgement.of, pair)
    return Change(id=place.id, before=before, after=after)


def counted(
    function: Callable[[Place], Awaitable[Result]], update: Update, num_before: int
) -> Callable[[Place], Awaitable[Result]]:
    """`function`, which then also moves the bar by one after each call."""
    counter = itertools.count(num_before + 1)

    async def one(place: Place) -> Result:
        result = await function(place)
        update(next(counter))
        return result

    return one
