"""A file from elsewhere brings problems of its own: those that make no sense are refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fixture_types import MakeScene, MakeScored, MakeTrajectory, Store
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Scored
from repl_rl.viewer.replay.live import Live
from repl_sandbox.fake import FakeKernels


@pytest.fixture
def scored(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Scored:
    return make_scored(make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)]), 1.0)


@pytest.mark.parametrize("chance", ["1e9", "-1"])
def test_a_problem_that_makes_no_sense_is_a_short_error_of_its_file(
    chance: str, scored: Scored, stored: Store
) -> None:
    (place,) = stored(scored)
    text = place.path.read_text()
    at = text.index('"problem":{')
    assert '"chance":0.0' in text[at:]
    place.path.write_text(text[:at] + text[at:].replace('"chance":0.0', f'"chance":{chance}', 1))
    with pytest.raises(ConfigError) as refused:
        place.read()
    assert f"has the chance {float(chance)}; expected 0 to 0.9" in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "setup", [tuple(f"x = {i}" for i in range(5000)), ("x = '" + "a" * 10**6 + "'",)]
)
def test_bindings_without_end_are_refused_before_a_kernel_runs_them(
    setup: tuple[str, ...], scored: Scored, a_scene: MakeScene
) -> None:
    async def run() -> None:
        kernels = FakeKernels({})
        hostile = replace(scored, problem=replace(scored.problem, setup=setup))
        with pytest.raises(ConfigError, match="the problem of this trajectory has kernels run"):
            await Live(hostile, a_scene(), kernels).start()
        assert kernels.kernels[0].sources == []

    asyncio.run(run())
