"""Whether TensorBoard's file has what a run's own file of metrics has."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from run_metrics import read_metrics


def rows_of_file(run: Path) -> list[tuple[int, str, float]]:
    """(step, name, number) of `metrics.jsonl`, by the names that trackers give them."""
    return sorted(
        (row["step"], _shown(name), value)
        for row in read_metrics(run / "metrics.jsonl")
        for name, value in row.items()
        if name != "step"
    )


def _shown(name: str) -> str:
    return f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"


def rows_of_events(run: Path) -> list[tuple[int, str, float]]:
    """The same of the folder that TensorBoard reads."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return sorted(
        (event.step, name, event.value)
        for name in events.Tags()["scalars"]
        for event in events.Scalars(name)
    )


def same_rows(run: Path) -> bool:
    """Whether the two are one; events are in float32."""
    rows, events = rows_of_file(run), rows_of_events(run)
    return [row[:2] for row in rows] == [event[:2] for event in events] and all(
        event[2] == pytest.approx(row[2], rel=1e-6) for row, event in zip(rows, events, strict=True)
    )
