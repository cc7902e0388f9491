"""Runs to draw: rows of metrics made up by a rule, and what a picture says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from repl_rl.runs.metrics import Curve, MetricsRow, curve_of


def a_step(step: int, **numbers: float) -> dict[str, Any]:
    """Half of the lines submit, a tenth are name errors; 6 seconds and 1,000 tokens a step."""
    found = {
        "solve_rate": step / 100,
        "line/ok_output/share": 0.4,
        "line/submitted/share": 0.5,
        "line/name_error/share": 0.1,
        "num_tokens": 1000 * step,
        "step_time": 6.0,
        "wall_s": 10 + 8 * step,
        "time/rollout": 4.0,
        "time/update": 2.0,
    }
    return {"step": step, **found, **numbers}


def rows(num_steps: int) -> list[dict[str, Any]]:
    before, after = (
        {"step": step, "eval_solve_rate": rate, "eval_total": 10, "eval_ungraded": 0, "wall_s": at}
        for step, rate, at in ((0, 0.5, 10), (num_steps, 0.8, 18 + 8 * num_steps))
    )
    return [before, *(a_step(step) for step in range(1, num_steps + 1)), after]


def curve(num_steps: int) -> Curve:
    return of(rows(num_steps))


def of(found: Sequence[dict[str, Any]]) -> Curve:
    return curve_of(
        MetricsRow(step=row["step"], numbers={k: v for k, v in row.items() if k != "step"})
        for row in found
    )


def write(run: Path, found: Sequence[dict[str, Any]]) -> Path:
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in found))
    return run


def texts(svg: bytes) -> list[str]:
    """All that an SVG says."""
    return ["".join(one.itertext()) for one in ElementTree.fromstring(svg).iter() if one.text]
