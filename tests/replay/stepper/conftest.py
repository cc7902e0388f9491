"""Steppers over trajectories that are written out, and what is saved from them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixture_types import MakeScored, MakeTrajectory, Part, Store
from repl_rl.config.sections import GRPOConfig, RewardConfig
from repl_rl.credit.rewards import bound_reward
from repl_rl.records import Problem
from repl_rl.rollout.observations import Answers
from repl_rl.rollout.scoring import Scorer
from repl_rl.runs.trajectory_file import StoredTrajectory, append, places
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.annotated import Score, annotate
from repl_rl.viewer.replay.branch import LinePolicy, Referee
from repl_rl.viewer.stepper import Stepper
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import KernelSource
from stepper_seat import (
    ANSWERS,
    LINE_REWARDS,
    LINES,
    ORIGIN,
    PROVED,
    SCENE,
    MakeStepper,
    SaysProved,
)


@pytest.fixture
def store(make_trajectory: MakeTrajectory, make_scored: MakeScored, tmp_path: Path) -> Store:
    """Write trajectories of these lines to a file, one after another; where they stand."""

    def write(
        *all_parts: Sequence[Part],
        rewards: Sequence[float] = LINE_REWARDS,
        problem: Problem | None = None,
        **options: Any,
    ) -> list[StoredTrajectory]:
        path = tmp_path / "step-000003.jsonl"
        for sibling, parts in enumerate(all_parts):
            trajectory = make_trajectory(parts, sibling_index=sibling, **options)
            line_rewards = (*rewards, *[0.0] * len(parts))[: len(parts)]
            scored = make_scored(trajectory, 1.0, line_rewards, PROVED)
            append(path, [replace(scored, problem=problem or scored.problem)], origin=ORIGIN)
        return list(places(path))

    return write


@pytest.fixture
def stepper(store: Store) -> MakeStepper:
    """A stepper over five lines, whose kernels do as they did when it was recorded."""

    def make(
        *all_parts: Sequence[Part],
        kernels: KernelSource | None = None,
        policy: LinePolicy | None = None,
        referee: Referee | None = None,
        bring: Any = None,
        notes: Sequence[str] = (),
        score: Score | None = None,
        **options: Any,
    ) -> Stepper:
        answers = Answers(Encoding(SCENE.fmt, ByteCodec()), setup=SCENE.setup)
        found = store(*(all_parts or (LINES,)), **options)
        scorer = Scorer(
            task_spec="t",
            judge=SaysProved(),
            reward=bound_reward(RewardConfig()),
        )
        return Stepper(
            found,
            scene=SCENE,
            kernels=kernels or FakeKernels(ANSWERS),
            annotate=lambda place: next(
                annotate([place], GRPOConfig(), score=score, answers=answers)
            ),
            scorer=scorer,
            policy=policy,
            referee=referee,
            bring=bring,
            notes=notes,
        )

    return make
