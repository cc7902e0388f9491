"""A file from elsewhere brings a setup of its own: it runs behind all walls, or not at all."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from fixture_types import MakeScene, MakeScored, MakeTrajectory
from repl_rl.errors import ConfigError
from repl_rl.records import Scored
from repl_rl.viewer.replay.live import Live
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Isolation, Limits

pytestmark = pytest.mark.kernel

REACHES_OUT = "import socket; s = socket.socket()"

Foreign = Callable[[str], tuple[Scored, Scene]]


def first_output(scored: Scored, scene: Scene, isolation: Isolation) -> str:
    """Output of the first line in a kernel that has run the scene's setup."""

    async def run() -> str:
        limits = Limits(line_cpu_s=1.0, line_wall_s=20.0)
        async with (
            KernelPool(limits, preload=(), setup=scene.born_with, isolation=isolation) as pool,
            Live(scored, scene, pool) as live,
        ):
            line = await live.next()
            assert line is not None
            return line.outcome.observation

    return asyncio.run(run())


@pytest.fixture
def foreign(
    a_scene: MakeScene, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> Foreign:
    """`foreign(source)`: a trajectory of the line `y` after this setup, and its scene."""

    def make(source: str) -> tuple[Scored, Scene]:
        trajectory = make_trajectory([(" y\n", "ok_output", "42\n>>>")])
        scene = replace(a_scene(setup=(source,)), is_known=False)
        return make_scored(trajectory, 1.0), scene

    return make


def test_a_foreign_setup_is_there_before_the_first_line(foreign: Foreign) -> None:
    assert first_output(*foreign("y = 42"), Isolation.AUTO) == "42\n"


def test_a_foreign_setup_reaches_nothing(foreign: Foreign) -> None:
    with pytest.raises(ConfigError, match=r"setup of these trajectories fails here \(error\)"):
        first_output(*foreign(REACHES_OUT), Isolation.AUTO)
