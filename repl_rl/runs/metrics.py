"""A run's numbers, read back: its steps, and its evaluations on held-out problems.

    metrics.jsonl -> Row ... -> Curve: Step ..., Evaluation ...

Knows names of metrics. Does not know how numbers are drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repl_rl.base.plugins import no_such
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import METRICS
from repl_rl.runs.summary import wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRow:
    """One row of the file."""

    step: int
    numbers: Mapping[str, float]
    """Finite ones: what was not measured has no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Progress of a run at a row; None where the run does not say."""

    step: int
    tokens: float | None
    """Tokens of all trajectories so far, those of their prompts included."""
    wall_s: float | None
    """Seconds since the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint(Point):
    """One update, and the trajectories that it learned from."""

    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPoint(Point):
    """The solve rate on held-out problems."""

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
        if not run.exists():
            raise no_such("run folder", run) from None
        text = f"cannot read {str(run / METRICS)!r}: {error.strerror}"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            text = f"{str(run)!r} holds no {METRICS}; expected the folder of a run"
        raise ConfigError(text) from None


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
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("step"), int):
        return None
    numbers = {
        str(name): value for name, one in loaded.items() if (value := _number(one)) is not None
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


def measured_rate(row: MetricsRow) -> float | None:
    """The rate of an evaluation on record; None where no problem was asked."""
    rate = row.numbers.get("eval_solve_rate", math.nan)
    return rate if 0 <= rate <= 1 and row.numbers.get("eval_total") != 0 else None


def curve_of(rows: Iterable[MetricsRow]) -> Curve:
    """Steps and evaluations of these rows. Of two rows with one step the later counts."""
    trained, measured = dict[int, MetricsRow](), dict[int, MetricsRow]()
    for row in rows:
        if measured_rate(row) is not None:
            measured[row.step] = row
        # Row 0 of a run stands before its first step.
        if row.step > 0 and ("solve_rate" in row.numbers or "eval_solve_rate" not in row.numbers):
            trained[row.step] = row
    steps = [
        StepPoint(
            step=step,
            tokens=trained[step].numbers.get("num_tokens"),
            wall_s=trained[step].numbers.get("wall_s"),
            numbers=trained[step].numbers,
        )
        for step in sorted(trained)
    ]
    evaluations = (_evaluation(measured[step], steps) for step in sorted(measured))
    return Curve(steps=tuple(steps), evaluations=tuple(evaluations))


def _evaluation(row: MetricsRow, steps: Sequence[StepPoint]) -> EvaluationPoint:
    start = Point(step=0, tokens=0.0, wall_s=0.0)
    before = next((one for one in reversed(steps) if one.step <= row.step), start)
    total = round(row.numbers.get("eval_total", 0.0))
    return EvaluationPoint(
        step=row.step,
        tokens=before.tokens,
        wall_s=row.numbers.get("wall_s", before.wall_s),
        rate=row.numbers["eval_solve_rate"],
        total=total if total > 0 else None,
        ungraded=round(row.numbers.get("eval_ungraded", 0.0)),
    )


def running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """The mean of each value and the `window` - 1 before it, of those that were measured."""
    means = list[float | None]()
    for end in range(1, len(values) + 1):
        known = [one for one in values[max(0, end - window) : end] if one is not None]
        means.append(sum(known) / len(known) if known else None)
    return means
