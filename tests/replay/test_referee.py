"""A referee's rollouts: by a real model, and in kernels as a scene has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixture_types import MakeScene, MakeScored, MakeTrajectory
from referee_kit import CODEC, PROMPT, TASK, referee_of
from repl_rl.config.sections import SamplingConfig
from repl_rl.credit.ledger import Value, Worth
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Problem, Reward, Scored, Trajectory
from repl_rl.transcript.format import PYTHON
from repl_rl.viewer.replay.model_policy import open_policy
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution
from tiny_model import save_tiny_model

OUTPUT = OutcomeKind.OK_OUTPUT
LINES = [(" 1\n", OUTPUT, "1\n>>>"), (" 2\n", OUTPUT, "1\n>>>"), (" 3\n", OUTPUT, None)]
PLAN: Any = SimpleNamespace(task=TASK, format=lambda template: PYTHON)
ANSWERS = {
    "1": Execution(status=ExecStatus.OK, output="1\n"),
    "2": Execution(status=ExecStatus.OK, value="2"),
    "3": Execution(status=ExecStatus.OK, value="3"),
}
SAMPLING = SamplingConfig(max_lines=5, max_line_tokens=12, max_tokens=160, device="cpu")


def says_length(source: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=f"{len(source)}\n")


class Length:
    """Scorer by which a trajectory earns its length."""

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored:
        reward = Reward(
            line_rewards=(0.0,) * len(trajectory.lines),
            outcome_reward=float(len(trajectory.completion_ids)),
        )
        return Scored(trajectory=trajectory, problem=problem, verdict=None, reward=reward)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def scored(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Scored:
    """Each line prints how long it is."""
    return make_scored(make_trajectory(LINES, prompt=PROMPT), 1.0)


def in_its_tokens(scored: Scored, encode: Callable[[str], list[int]]) -> Scored:
    """The trajectory in the tokens of another vocabulary."""
    one, lines = scored.trajectory, []
    ids: list[int] = []
    starts = [line.start for line in one.lines] + [len(one.completion_ids)]
    mask: list[bool] = []
    for line, end in zip(one.lines, starts[1:], strict=True):
        sampled = encode(CODEC.decode(one.completion_ids[line.start : line.stop]))
        shown = encode(CODEC.decode(one.completion_ids[line.stop : end]))
        lines.append(replace(line, start=len(ids), stop=len(ids) + len(sampled)))
        ids += [*sampled, *shown]
        mask += [True] * len(sampled) + [False] * len(shown)
    bent = replace(
        one,
        prompt_ids=tuple(encode(one.prompt_text)),
        completion_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=(0.0,) * len(ids),
        lines=tuple(lines),
    )
    return replace(scored, trajectory=bent)


def judge(model: Path, scored: Scored, scene: Any, *, at_once: int, index: int) -> Worth:
    config = replace(scene.config, sampling=replace(SAMPLING, max_in_flight=at_once))
    told: list[tuple[int, int]] = []

    async def inside() -> Worth:
        async with open_policy(replace(scene, config=config), str(model)) as policy:
            kernels = FakeKernels(says_length)
            referee = policy.referee(PLAN, scene, kernels=kernels, scorer=Length())
            assert referee._runner.max_in_flight == at_once
            mine = in_its_tokens(scored, policy._loaded.codec.encode)
            return await referee.worth(
                mine, index, num_branches=6, on_progress=lambda *made: told.append(made)
            )

    found = asyncio.run(inside())
    assert told == [(done, told[0][1]) for done in range(told[0][1] + 1)]
    return found


@pytest.mark.slow
def test_a_worth_does_not_depend_on_how_many_go_on_at_once(
    model: Path, scored: Scored, a_scene: MakeScene
) -> None:
    scene = a_scene(setup=())
    alone = judge(model, scored, scene, at_once=1, index=1)
    assert judge(model, scored, scene, at_once=5, index=1) == alone
    assert alone.gain is not None
    assert alone.gain.count == 6
    assert alone.gain.error


def test_the_last_line_is_followed_by_what_was_earned(
    model: Path, scored: Scored, a_scene: MakeScene
) -> None:
    found = judge(model, scored, a_scene(setup=()), at_once=3, index=2)
    assert found.after == Value(mean=1.0, error=0.0, count=1)


def worth(scene: Any, scored: Scored, kernels: FakeKernels) -> Worth:
    referee = referee_of(scene, kernels, {0: "2", 1: "3"})
    return asyncio.run(referee.worth(scored, 0, num_branches=1))


def test_kernels_run_the_setup_that_a_file_from_elsewhere_brings(
    scored: Scored, a_scene: MakeScene
) -> None:
    kernels = FakeKernels(ANSWERS)
    scene = replace(a_scene(setup=(*PYTHON.setup, "y = 1")), is_known=False)
    worth(scene, scored, kernels)
    assert [kernel.sources[0] for kernel in kernels.kernels] == ["y = 1\n"] * 2
    assert all(kernel.is_closed for kernel in kernels.kernels)


def test_a_setup_that_fails_is_named(scored: Scored, a_scene: MakeScene) -> None:
    failed = Execution(status=ExecStatus.ERROR, output="NameError\n")
    kernels = FakeKernels({"y = z\n": failed})
    scene = replace(a_scene(setup=(*PYTHON.setup, "y = z")), is_known=False)
    with pytest.raises(ConfigError, match="setup of these trajectories fails here"):
        worth(scene, scored, kernels)
    assert all(kernel.is_closed for kernel in kernels.kernels)
