"""Reruns and changed rewards in words, for a terminal.

    [Rerun] -> rows of text;  [Change] -> rows of text

Pure. What a policy or a kernel wrote is cleaned before it stands here. Does not know terminals.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from repl_rl.replay.change import Change
from repl_rl.replay.compare import Cause, unified
from repl_rl.replay.execute import Mismatch, Rerun
from repl_rl.terminal import one_row, signed
from repl_sandbox.render import clean

_MAX_NAMED = 20
"""Trajectories of one kind that are named; the others are counted."""
_MAX_SOURCE = 60
_MAX_LISTED = 6
"""Differences that are listed of one trajectory."""


def rerun_rows(reruns: Sequence[Rerun]) -> Iterator[str]:
    """Differences that are allowed, by cause; then the first real divergence; then the sum."""
    for cause in (Cause.VOLATILE, Cause.LIMITS):
        found = [(one, mismatch) for one in reruns for mismatch in one.mismatches]
        yield from _cause_rows(cause, [pair for pair in found if pair[1].difference.cause is cause])
    diverged = [one for one in reruns if one.divergence is not None]
    if diverged:
        first = diverged[0]
        assert first.divergence is not None, "it was chosen by it"
        yield f"first divergence: {clean(first.id)}, {_line(first.divergence)}"
        yield f"  {first.divergence.difference.headline}"
        difference = first.divergence.difference
        rows = unified(difference.recorded, difference.live)
        if rows:
            yield "  (- recorded, + run again)"
        yield from (f"    {row}" for row in rows)
        yield from _rest([one.id for one in diverged[1:]], "diverged, too")
    yield _sum(reruns, num_diverged=len(diverged))


def _cause_rows(cause: Cause, found: Sequence[tuple[Rerun, Mismatch]]) -> Iterator[str]:
    for rerun, mismatch in found[:_MAX_NAMED]:
        yield f"{cause}: {clean(rerun.id)}, {_line(mismatch)}: {mismatch.difference.why}"
    if len(found) > _MAX_NAMED:
        yield f"{cause}: and {len(found) - _MAX_NAMED:,} more"


def _line(mismatch: Mismatch) -> str:
    # A source that runs on over several lines must not end this row.
    source = one_row(mismatch.line.source.strip())
    shown = source if len(source) <= _MAX_SOURCE else f"{source[: _MAX_SOURCE - 3]}..."
    return f"line {mismatch.line.index + 1} `{shown}`"


def _rest(ids: Sequence[str], word: str) -> Iterator[str]:
    if ids:
        more = f" and {len(ids) - _MAX_NAMED:,} more" if len(ids) > _MAX_NAMED else ""
        yield f"{word}: {', '.join(map(clean, ids[:_MAX_NAMED]))}{more}"


def _sum(reruns: Sequence[Rerun], *, num_diverged: int) -> str:
    num_lines = sum(one.num_lines for one in reruns)
    counts = {cause: sum(one.count(cause) > 0 for one in reruns) for cause in Cause}
    counted = [f"{num_diverged:,} diverged" if num_diverged else "none diverged"]
    counted += [f"{counts[c]:,} {c}" for c in (Cause.VOLATILE, Cause.LIMITS) if counts[c]]
    what = f"{_count(len(reruns), 'trajectory', 'trajectories')}, " + _count(
        num_lines, "line", "lines"
    )
    return f"{what} run again: {', '.join(counted)}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def change_rows(changes: Sequence[Change]) -> Iterator[str]:
    """A line for each trajectory that is worth something else now, the first 20; then the sum."""
    real = [change for change in changes if change.is_real]
    ids = [clean(change.id) for change in real[:_MAX_NAMED]]
    width = max(map(len, ids), default=0)
    for name, change in zip(ids, real, strict=False):
        gain = "none" if change.gain is None else signed(change.gain)
        yield f"{name:{width}}  {gain:>6}  {_joined(list(change.differences()))}"
    if len(real) > _MAX_NAMED:
        yield f"and {len(real) - _MAX_NAMED:,} more"
    yield _sum_of_changes(changes, num_real=len(real))


def _joined(differences: Sequence[str]) -> str:
    num_more = len(differences) - _MAX_LISTED
    rest = [f"and {num_more:,} more"] if num_more > 0 else []
    return "; ".join([*differences[:_MAX_LISTED], *rest])


def _sum_of_changes(changes: Sequence[Change], *, num_real: int) -> str:
    counted = f"{num_real:,} of {len(changes):,} trajectories changed"
    num_ungraded = sum(change.after.is_ungraded for change in changes)
    left_out = f"; {num_ungraded:,} could not be graded" if num_ungraded else ""
    return f"{counted}{_means(changes)}{left_out}"


def _means(changes: Sequence[Change]) -> str:
    """Mean rewards of those scored both times: one that is not scored is not worth zero."""
    scored = [change for change in changes if change.is_scored]
    if not scored:
        return ""
    was = statistics.fmean(change.before.reward.total for change in scored)
    now = statistics.fmean(change.after.reward.total for change in scored)
    some = f" of the {len(scored):,} scored both times" if len(scored) < len(changes) else ""
    return f", mean reward{some} {signed(was)} -> {signed(now)}"
