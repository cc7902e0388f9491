"""Trajectories that were really sampled, by a script, in kernels of any kind."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attempt_kit import an_attempt
from fixture_types import MakeScene, MakeScored, MakeTrajectory, Record, Store, WithLine
from page_browser import open_viewer
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import Origin, Scored
from repl_rl.rollout.sampler import LineSampler
from repl_rl.runs.trajectory_file import StoredTrajectory, append, places
from repl_rl.transcript.format import PYTHON, SUBMIT_STUB, Part, Prompt, TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import KernelSource, Limits

# Short in CPU time, which a loaded machine does not stretch; long on the wall clock, which it does.
LIMITS = Limits(line_cpu_s=0.4, line_wall_s=20.0, grace_s=0.4)
SETUP = ("from sympy import *", "x = symbols('x')", SUBMIT_STUB)


@pytest.fixture(scope="session")
def replay_loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def real_kernels(replay_loop: asyncio.Runner) -> Iterator[KernelPool]:
    """A pool of kernels that have run SETUP, in the loop of `replay_loop`."""
    pool = KernelPool(LIMITS, setup=SETUP, standby=1)
    replay_loop.run(pool.__aenter__())
    try:
        yield pool
    finally:
        replay_loop.run(pool.aclose())


@pytest.fixture(scope="session")
def a_scene() -> MakeScene:
    """`a_scene(fmt=..., setup=..., ...)`: one that needs no file."""

    def build(
        *,
        fmt: TranscriptFormat = PYTHON,
        setup: tuple[str, ...] = SETUP,
        origin: Origin | None = None,
        **config: Any,
    ) -> Scene:
        return Scene(config=Config(**config), setup=setup, fmt=fmt, origin=origin, notes=())

    return build


@pytest.fixture(scope="session")
def record(make_scored: MakeScored) -> Record:
    """`await record(lines, kernels)`: what a script of these lines did, as it is stored."""

    async def play(
        lines: Sequence[str],
        kernels: KernelSource,
        *,
        fmt: TranscriptFormat = PYTHON,
        prompt: str = ">>>",
        number: int = 1,
        seed: int = 7,
        **limits: Any,
    ) -> Scored:
        kernel = await kernels.acquire(seed=seed)
        made = Prompt((Part(prompt),), next_number=number)
        attempt = an_attempt(seed=seed)
        codec = ByteCodec()
        engine = ScriptedEngine(codec, script(*lines))
        config = SamplingConfig(**limits)
        sampler = LineSampler(engine, codec, fmt, config, context_tokens=1 << 16)
        try:
            return make_scored(await sampler.sample(attempt, made, kernel), 1.0)
        finally:
            await kernel.aclose()

    return play


@pytest.fixture
def quiet_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the user's Jupyter is read or written."""
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


@pytest.fixture
def stored(tmp_path: Path) -> Store:
    """`stored(scored, ...)`: where these stand in a file."""

    def write(
        *all_scored: Scored, origin: Origin | None = None, name: str = "step-000000"
    ) -> list[StoredTrajectory]:
        path = tmp_path / f"{name}.jsonl"
        append(path, all_scored, origin=origin)
        return list(places(path))

    return write


# Of a module: the driver keeps an event loop running in this thread, and others need their own.
@pytest.fixture(scope="module")
def browser(
    make_trajectory: MakeTrajectory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A browser with the page of `open_viewer`; skipped where there is none."""
    with open_viewer(make_trajectory, tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture
def viewer(browser: Any) -> Iterator[Any]:
    """The browser, without a page."""
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def with_line() -> WithLine:
    """`with_line(scored, index, kind=..., observation=...)`: another outcome at a line."""

    def change(scored: Scored, index: int, **outcome: Any) -> Scored:
        lines = list(scored.trajectory.lines)
        lines[index] = replace(lines[index], outcome=replace(lines[index].outcome, **outcome))
        return replace(scored, trajectory=replace(scored.trajectory, lines=tuple(lines)))

    return change
