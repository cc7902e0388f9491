"""A run's numbers by their names in `metrics.jsonl`: those of a step's rollouts, and all read back.

    Scored ... -> line/..., trajectory/..., stop/..., kernel/..., grader/...
    metrics.jsonl -> MetricsRow ... -> Curve: StepPoint ..., EvaluationPoint ...

docs/files.md says what each number is. What was not measured, as the time of verdicts where nothing
was submitted, has no number. Does not know how numbers are drawn.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repl_rl.base.plugins import no_such
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Scored, StopReason, Verdict, VerdictKind, runs_on
from repl_rl.runs.folder import METRICS
from repl_rl.runs.summary import is_solved, is_ungraded, line_shares, wilson_interval

_WENT_WELL = frozenset({OutcomeKind.OK_OUTPUT, OutcomeKind.OK_SILENT, OutcomeKind.SUBMITTED})
"""Outcomes of a line after which an error before it is mended."""


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


def running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """The mean of each value and the `window` - 1 before it, of those that were measured."""
    means = list[float | None]()
    for end in range(1, len(values) + 1):
        known = [one for one in values[max(0, end - window) : end] if one is not None]
        means.append(sum(known) / len(known) if known else None)
    return means


def rollout_metrics(
    scored: Sequence[Scored], *, seconds: float, weights: Sequence[float] | None = None
) -> dict[str, float]:
    """All numbers of these trajectories, which took so many seconds together.

    `weights` are those that each has in rates of success: see `Credit.shares`.
    """
    trajectories = [item.trajectory for item in scored]
    num_lines = sum(len(t.own_lines) for t in trajectories)
    num_tokens = sum(len(t.completion_ids) - t.num_copied for t in trajectories)
    num_sampled = sum(t.num_sampled for t in trajectories)
    weighed = list(zip(scored, weights or [1.0] * len(scored), strict=True))
    solved = [(float(is_solved(item)), weight) for item, weight in weighed]
    outcomes = [
        (item.reward.outcome_reward, weight)
        for item, weight in weighed
        if item.reward.outcome_reward is not None
    ]
    stops = Counter(t.stop_reason for t in trajectories)
    return {
        "solve_rate": _mean(solved),
        **({"outcome_mean": _mean(outcomes)} if outcomes else {}),
        "ungraded_share": sum(map(is_ungraded, scored)) / len(scored),
        "active_tokens": num_sampled,
        "mask_ratio": num_sampled / num_tokens,
        "line/per_trajectory": num_lines / len(scored),
        **line_metrics(scored),
        **farming_metrics(scored),
        **{f"stop/{reason}": stops[reason] / len(scored) for reason in StopReason},
        **kernel_metrics(scored),
        **grader_metrics([item.verdict for item in scored if item.verdict is not None]),
        "rollout/seconds": seconds,
        "rollout/tokens_per_s": num_sampled / seconds,
        "rollout/lines_per_s": num_lines / seconds,
    }


def line_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Shares and tokens of lines by outcome, how many run on, and how often an error is mended."""
    shares = line_shares(scored)
    lines = [line for item in scored for line in item.trajectory.own_lines]
    tokens = Counter[OutcomeKind]()
    for line in lines:
        tokens[line.outcome.kind] += line.stop - line.start
    return {
        "line/error_share": sum(share for kind, share in shares.items() if kind.traits.is_error),
        "line/run_on_share": sum(runs_on(line.source) for line in lines) / (len(lines) or 1),
        **_recoveries(scored),
        **{f"line/{kind}/share": shares.get(kind, 0.0) for kind in OutcomeKind},
        **{f"line/{kind}/tokens": tokens[kind] for kind in OutcomeKind},
    }


def farming_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Shares that rise when a policy has learned that trying does not pay.

    The share of lines that are comments is `line/comment/share`.
    """
    kinds = [_kinds(item) for item in scored]
    own = [line.outcome.kind for item in scored for line in item.trajectory.own_lines]
    num_silent = sum(all(kind.traits.is_idle for kind in written) for written in kinds)
    num_code = sum(not kind.traits.is_idle for kind in own)
    num_first = sum(written[:1] == [OutcomeKind.SUBMITTED] for written in kinds)
    return {
        "line/code_share": num_code / (len(own) or 1),
        "trajectory/silent_share": num_silent / len(scored),
        "trajectory/first_line_submit_share": num_first / len(scored),
    }


def habits(scored: Sequence[Scored]) -> dict[str, float]:
    """Metrics of a policy's use of the REPL, whatever it answers.

    No `ran_share` where all lines are comments or blank.
    """
    comments = (OutcomeKind.COMMENT, OutcomeKind.BLANK)
    kinds = [kind for item in scored for kind in _kinds(item) if kind not in comments]
    ran = [not kind.traits.is_error and kind is not OutcomeKind.CUT for kind in kinds]
    submitted = [item.trajectory.stop_reason is StopReason.SUBMITTED for item in scored]
    return {
        "submit_share": statistics.fmean(submitted),
        **({"ran_share": statistics.fmean(ran)} if ran else {}),
    }


def kernel_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Metrics of kernels: time for a line, and how often they had to be stopped."""
    outcomes = [line.outcome for item in scored for line in item.trajectory.own_lines]
    ran = [outcome for outcome in outcomes if outcome.wall_ms > 0]
    counts = Counter(outcome.kind for outcome in outcomes)
    return {
        "kernel/timeouts": counts[OutcomeKind.TIMEOUT],
        "kernel/kills": counts[OutcomeKind.KILLED],
        "kernel/deaths": counts[OutcomeKind.DIED],
        **percentiles("kernel/line", [outcome.wall_ms for outcome in ran]),
        **percentiles("kernel/line_cpu", [outcome.cpu_ms for outcome in ran]),
    }


def grader_metrics(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Shares of verdicts that the grader could not give, or failed at; none without submissions."""
    if not verdicts:
        return {}
    undecided = [verdict.kind is VerdictKind.UNDECIDED for verdict in verdicts]
    failed = [verdict.grader_error is not None for verdict in verdicts]
    return {
        "grader/undecided_share": statistics.fmean(undecided),
        "grader/error_share": statistics.fmean(failed),
    }


def percentiles(name: str, times_ms: Sequence[float]) -> dict[str, float]:
    """Half, 95 % and 99 % of the times are at most these; none where there is no time.

    >>> percentiles("x", [4.0, 1.0, 2.0, 3.0])
    {'x_p50_ms': 2.0, 'x_p95_ms': 4.0, 'x_p99_ms': 4.0}
    """
    ordered = sorted(times_ms)
    return {
        f"{name}_p{share}_ms": ordered[math.ceil(share / 100 * len(ordered)) - 1]
        for share in (50, 95, 99)
        if ordered
    }


def _number(value: object) -> float | None:
    """None for anything but a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


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


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    """Mean of (value, weight)."""
    total = math.fsum(weight for _, weight in weighed)
    return math.fsum(value * weight for value, weight in weighed) / total


def _recoveries(scored: Sequence[Scored]) -> dict[str, float]:
    """Share of lines with errors that a later line of the trajectory mends; none without errors."""
    is_mended = list[bool]()
    for item in scored:
        went_well = [one.index for one in item.trajectory.lines if one.outcome.kind in _WENT_WELL]
        errors = [one for one in item.trajectory.own_lines if one.outcome.kind.traits.is_error]
        is_mended += [line.index < max(went_well, default=-1) for line in errors]
    return {"line/recovery_share": statistics.fmean(is_mended)} if is_mended else {}


def _kinds(item: Scored) -> list[OutcomeKind]:
    """Outcomes of lines, those of a sibling that it leaves included, but not those of a solution
    that it begins behind."""
    one = item.trajectory
    is_in_tree = one.branch is not None and one.branch.leaves_sibling
    return [line.outcome.kind for line in (one.lines if is_in_tree else one.own_lines)]
