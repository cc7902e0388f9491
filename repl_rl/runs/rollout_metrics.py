"""Numbers of one step's rollouts, by the names that they have in `metrics.jsonl`.

    Scored ... -> line/..., trajectory/..., stop/..., kernel/..., grader/...

Pure functions on records. docs/files.md says what each number is. What was not measured, as the
time of verdicts where nothing was submitted, has no number.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from repl_rl.records import OutcomeKind, Scored, StopReason, Verdict, VerdictKind, runs_on
from repl_rl.runs.summary import is_solved, is_ungraded, line_shares

_WENT_WELL = frozenset({OutcomeKind.OK_OUTPUT, OutcomeKind.OK_SILENT, OutcomeKind.SUBMITTED})
"""Outcomes of a line after which an error before it is mended."""


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


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    """Mean of (value, weight)."""
    total = math.fsum(weight for _, weight in weighed)
    return math.fsum(value * weight for value, weight in weighed) / total


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


def _recoveries(scored: Sequence[Scored]) -> dict[str, float]:
    """Share of lines with errors that a later line of the trajectory mends; none without errors."""
    is_mended = list[bool]()
    for item in scored:
        went_well = [one.index for one in item.trajectory.lines if one.outcome.kind in _WENT_WELL]
        errors = [one for one in item.trajectory.own_lines if one.outcome.kind.traits.is_error]
        is_mended += [line.index < max(went_well, default=-1) for line in errors]
    return {"line/recovery_share": statistics.fmean(is_mended)} if is_mended else {}


def _kinds(item: Scored) -> list[OutcomeKind]:
    return [line.outcome.kind for line in item.trajectory.lines]


def farming_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Shares that rise when a policy has learned that trying does not pay.

    The share of lines that are comments is `line/comment/share`.
    """
    kinds = [_kinds(item) for item in scored]
    own = [line.outcome.kind for item in scored for line in item.trajectory.own_lines]
    num_silent = sum(all(kind.traits.is_idle for kind in seen) for seen in kinds)
    num_code = sum(not kind.traits.is_idle for kind in own)
    num_first = sum(seen[:1] == [OutcomeKind.SUBMITTED] for seen in kinds)
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
