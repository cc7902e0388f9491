"""Records, and rows of the file of trajectories that hold them: what tests of that file share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from repl_rl.records import (
    Line,
    LineOutcome,
    Origin,
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.runs.trajectory_file import Selection, select

FULL = Scored(
    trajectory=Trajectory(
        problem_id="p-1",
        group_index=2,
        sibling_index=3,
        policy_version=4,
        seed=2**62 + 1,
        prompt_text=">>> # Solve \u4e2d\n>>>",
        prompt_ids=(1, 2),
        completion_ids=(5, 6, 7),
        loss_mask=(True, True, False),
        logprobs=(-0.1234567890123, -1e-9, 0.0),
        lines=(
            Line(
                index=0,
                source=" x\u0000\n",
                start=0,
                stop=2,
                outcome=LineOutcome(
                    kind=OutcomeKind.OK_OUTPUT,
                    observation="\u001b[31m[red]\n",
                    wall_ms=1.5,
                    cpu_ms=0.25,
                    is_truncated=True,
                ),
            ),
        ),
        stop_reason=StopReason.TIME_LIMIT,
        submission="[2, 3]",
    ),
    problem=Problem(id="p-1", statement="Solve \u4e2d", meta={"family": "f", "origin": "2"}),
    verdict=Verdict(
        kind=VerdictKind.REFUTED, method="witness", evidence="x = 1", ms=2.5, grader_error="E"
    ),
    reward=Reward(line_rewards=(-0.3,), outcome_reward=None, terms={"line/timeout": -0.3}),
)
HERE = Origin(
    config='task = "t"\n',
    setup=("x = 1", "def f():\n    pass\n"),
    tokenizer="owner/name",
    isolation="strict",
    versions={"python": "3.11.7", "sympy": "1.13"},
)
THERE = replace(HERE, isolation="basic")
ROW = {"format": 1, "scored": msgspec.to_builtins(FULL)}


def full_with(**changes: Any) -> Scored:
    """FULL, with fields of its trajectory changed. Any: whatever these hold."""
    return replace(FULL, trajectory=replace(FULL.trajectory, **changes))


def row(record: object) -> bytes:
    """Row as Python's own writer has it, which escapes more."""
    return json.dumps(record).encode() + b"\n"


def titles(*paths: Path, **wanted: Any) -> list[str]:
    """Ids of the places that a `Selection` leaves. Any: whatever its fields hold."""
    return [place.id for place in select(paths, Selection(**wanted))]
