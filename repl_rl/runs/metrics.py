"""A run's numbers, read back: its steps, and its evaluations on held-out problems.

    metrics.jsonl -> Row ... -> Curve: Step ..., Evaluation ...

Knows names of metrics, those of earlier versions as well. Does not know how numbers are drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from repl_rl.base.plugins import nearest_folder
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind
from repl_rl.runs.folder import METRICS
from repl_rl.runs.summary import wilson_interval

_EVALUATION = "eval_"
_EVALUATIONS = (_EVALUATION, "held_out_before/", "held_out_after/")
"""Beginnings of the names of an evaluation's numbers."""


_FORMER: Mapping[str, str] = {
    "lines/mean": "line/per_trajectory",
    "lines/error_share": "line/error_share",
    "lines/code_share": "line/code_share",
    "silent_share": "trajectory/silent_share",
    "first_line_submit_share": "trajectory/first_line_submit_share",
    "rollout/mask_ratio": "mask_ratio",
    **{f"lines/{kind}": f"line/{kind}/share" for kind in OutcomeKind},
}
"""Names of earlier versions -> those of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRow:
    """One row of the file."""

    step: int
    numbers: Mapping[str, float]
    """Finite ones: what was not measured has no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Progress of a run at a row; None where the run does not say."""

    step: int
    tokens: float | None
    """Tokens of all trajectories so far, those of their prompts included."""
    steps_s: float | None
    """Seconds that its steps took; evaluations are no part of them."""
    wall_s: float | None
    """Seconds since the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One update, and the trajectories that it learned from."""

    place: RunProgress
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPoint:
    """The solve rate on held-out problems."""

    place: RunProgress
    rate: float
    total: int | None
    ungraded: int
    """Number of problems in `total` without a verdict; the rate counts them as not solved."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate; None where the problems are not counted."""
        if self.total is None:
            return None
        return wilson_interval(round(self.rate * self.total), self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Measurements of a run, in the order of its steps."""

    steps: tuple[StepPoint, ...]
    evaluations: tuple[EvaluationPoint, ...]


def read_curve(run: Path) -> Curve:
    """The curve of the run in a folder. ConfigError where there is none."""
    try:
        return curve_of(read_rows(run))
    except OSError as error:
        raise ConfigError(_why_not(run, error)) from None


def _why_not(run: Path, error: OSError) -> str:
    if not run.exists():
        near = nearest_folder(str(run))
        return f"no such run folder: {str(run)!r}" + (f"; {near}" if near else "")
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"cannot read {str(run / METRICS)!r}: {error.strerror}"
    return f"{str(run)!r} holds no {METRICS}; expected the folder of a run"


def read_rows(run: Path) -> Iterator[MetricsRow]:
    """The rows of a run's metrics, in their order; what is no row, or half of one, is passed over.

    Raises OSError where they cannot be read.
    """
    with (run / METRICS).open("rb") as file:
        for text in file:
            if (row := row_of(text)) is not None:
                yield row


def row_of(text: bytes) -> MetricsRow | None:
    """A line of the file; None where it is no row, or half of one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("step"), int):
        return None
    numbers = {
        _FORMER.get(str(name), str(name)): value
        for name, one in found.items()
        if (value := _number(one)) is not None
    }
    step = numbers.pop("step", None)
    return None if step is None else MetricsRow(step=int(step), numbers=numbers)


def _number(value: object) -> float | None:
    """None for anything but a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def measured_rate(row: MetricsRow, begin: str = _EVALUATION) -> float | None:
    """The rate of an evaluation on record; None where no problem was asked."""
    rate = row.numbers.get(f"{begin}solve_rate", math.nan)
    return rate if 0 <= rate <= 1 and row.numbers.get(f"{begin}total") != 0 else None


def curve_of(rows: Iterable[MetricsRow]) -> Curve:
    """Steps and evaluations of these rows. Of two rows with one step the later counts."""
    trained, measured = dict[int, MetricsRow](), dict[int, tuple[str, MetricsRow]]()
    for row in rows:
        begin = _begin_of_evaluation(row)
        if begin is not None and measured_rate(row, begin) is not None:
            measured[row.step] = begin, row
        # Row 0 of a run stands before its first step.
        if row.step > 0 and ("solve_rate" in row.numbers or begin is None):
            trained[row.step] = row
    steps = _steps([trained[step] for step in sorted(trained)])
    evaluations = (_evaluation(*measured[step], steps) for step in sorted(measured))
    return Curve(steps=tuple(steps), evaluations=tuple(evaluations))


def _begin_of_evaluation(row: MetricsRow) -> str | None:
    """Prefix of the names of its numbers; None where the row has no such rate."""
    return next((begin for begin in _EVALUATIONS if f"{begin}solve_rate" in row.numbers), None)


def _steps(rows: Sequence[MetricsRow]) -> list[StepPoint]:
    is_timed = any("step_time" in row.numbers for row in rows)
    steps, seconds = list[StepPoint](), 0.0
    for row in rows:
        seconds += row.numbers.get("step_time", 0.0)
        place = RunProgress(
            step=row.step,
            tokens=row.numbers.get("num_tokens"),
            steps_s=seconds if is_timed else None,
            wall_s=row.numbers.get("wall_s"),
        )
        steps.append(StepPoint(place=place, numbers=row.numbers))
    return steps


def _evaluation(begin: str, row: MetricsRow, steps: Sequence[StepPoint]) -> EvaluationPoint:
    before = (step.place for step in reversed(steps) if step.place.step <= row.step)
    place = next(before, RunProgress(step=0, tokens=0.0, steps_s=0.0, wall_s=0.0))
    total = round(row.numbers.get(f"{begin}total", 0.0))
    return EvaluationPoint(
        place=replace(place, step=row.step, wall_s=row.numbers.get("wall_s", place.wall_s)),
        rate=row.numbers[f"{begin}solve_rate"],
        total=total if total > 0 else None,
        ungraded=round(row.numbers.get(f"{begin}ungraded", 0.0)),
    )


def running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """The mean of each value and the `window` - 1 before it, of those that were measured."""
    means = list[float | None]()
    for end in range(1, len(values) + 1):
        known = [one for one in values[max(0, end - window) : end] if one is not None]
        means.append(sum(known) / len(known) if known else None)
    return means


def columns(
    steps: Sequence[StepPoint], names: Sequence[str]
) -> tuple[list[int], dict[str, list[float]]]:
    """The steps that have any of these numbers, and each number there; 0 where one is missing."""
    found = [step for step in steps if any(name in step.numbers for name in names)]
    values = {name: [step.numbers.get(name, 0.0) for step in found] for name in names}
    return [step.place.step for step in found], values
