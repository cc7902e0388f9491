"""Comparisons of a record with what came of it again: a line that ran, a trajectory's reward.

    recorded LineOutcome, live LineOutcome -> None | Difference, with its Cause
    recorded Judgement, Judgement made again -> Change

Pure. Knows outcomes, rewards and how outputs are cut. Does not know kernels, nor which lines may
differ by themselves: `rollout.prefixes` knows that.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from repl_rl.base.terminal import signed
from repl_rl.records import LineOutcome, OutcomeKind, Reward, Scored, VerdictKind
from repl_rl.viewer.show.marked import kind_words
from repl_sandbox.render import OMISSION, clean, truncate

MAX_SHOWN_CHARS = 8192
"""Most characters of one side of a difference; a longer one loses its middle, and a difference in
there is not seen. A kernel's output has fewer characters by default."""
_ONE_LINE = 48
"""Characters of one side in a headline."""
_LEAD = 12
"""Characters that a headline shows before the first that differs."""
_CONTEXT = 2
_COMPARED = 200
"""Lines behind the first difference that a diff looks at: its time grows with their square."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

PLACES = "shows where packages are installed"
_FRAME = re.compile('  File "[^<]')
"""Beginning of a frame of a library, whose path has the folder of packages where another version
recorded it; frames of a policy's own lines have none."""


class Cause(StrEnum):
    """Cause of a difference."""

    DIVERGED = "diverged"
    """A line of both sides did something else."""
    VOLATILE = "volatile"
    """The line may do something else each time, or did so in two runs here."""
    LIMITS = "limits"
    """A limit of time or memory, or a kernel's end, on one side alone or at another place. It shows
    the speed of the machine, not the code. The kernels' states differ from here on, so later lines
    show nothing. A limit of output does not count: every machine counts characters alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDifference:
    """Difference between a line that ran again and its record; every text is safe to show."""

    cause: Cause
    why: str
    """In a few words, empty where it diverged."""
    recorded: str
    """The recorded observation, to stand beside the live one."""
    live: str
    headline: str
    """Both in one line, such as `ok_output -> name_error; [2] -> NameError: name 'x' is not ...`"""


def difference(
    recorded: LineOutcome, live: LineOutcome, *, volatile: str | None = None
) -> OutcomeDifference | None:
    """None where kind and observation agree. `volatile` is the reason why they may differ, if any.

    The live observation is the kernel's, cut by the cap in characters alone; a recorded one may
    have been cut to the cap in tokens as well.
    """
    if recorded.kind is live.kind and _same_observation(recorded, live):
        return None
    volatile = volatile or _places(recorded, live)
    cause = _cause(recorded, live, volatile)
    return OutcomeDifference(
        cause=cause,
        why=_why(cause, recorded, live, volatile),
        recorded=truncate(clean(recorded.observation), MAX_SHOWN_CHARS),
        live=truncate(clean(live.observation), MAX_SHOWN_CHARS),
        headline=_headline(recorded, live),
    )


def _places(recorded: LineOutcome, live: LineOutcome) -> str | None:
    """Return why two tracebacks of one kind may differ: packages are installed in other folders.

    Such a path is longer or shorter, so a cap may cut the two at other places, too.
    """
    if recorded.kind is not live.kind or recorded.observation == live.observation:
        return None
    pair = _first_pair(recorded.observation, live.observation)
    return PLACES if all(map(_FRAME.match, pair)) else None


def _same_observation(recorded: LineOutcome, live: LineOutcome) -> bool:
    if recorded.observation == live.observation:
        return True
    return recorded.is_truncated and is_cut_of(recorded.observation, live.observation)


def is_cut_of(cut: str, whole: str) -> bool:
    """True where `cut` is what `truncate` makes of `whole` at some length.

    Example: `12345678` and a newline, cut to 6 characters, is `1234`, a line that counts 3 as
    omitted, and `8`.
    """
    return any(truncate(whole, length) == cut for length in _lengths(cut, whole))


def _lengths(cut: str, whole: str) -> set[int]:
    """Lengths at which `whole` may have been cut, from the counts of what is missing.

    There may be several: an output can hold such a line itself, as one that was cut twice does.
    """
    return {
        length
        for match in OMISSION.finditer(cut)
        if 0 <= (length := len(whole) - int(match[1])) < len(whole)
        # The head of a cut ends right before its count, perhaps with a newline of its own.
        and match.start() - (length - length // 3) in (0, 1)
    }


def _cause(recorded: LineOutcome, live: LineOutcome, volatile: str | None) -> Cause:
    # Limits first: even where a line may differ, nothing is known of the state after a limit.
    if _is_about_limits(recorded.kind, live.kind):
        return Cause.LIMITS
    return Cause.DIVERGED if volatile is None else Cause.VOLATILE


def _is_about_limits(recorded: OutcomeKind, live: OutcomeKind) -> bool:
    if recorded is live:
        return recorded.traits.strikes_anywhere
    return recorded.traits.is_limit or live.traits.is_limit


def _why(cause: Cause, recorded: LineOutcome, live: LineOutcome, volatile: str | None) -> str:
    match cause:
        case Cause.LIMITS if recorded.kind is live.kind:
            return f"{live.kind} at another place"
        case Cause.LIMITS:
            return f"{recorded.kind} when recorded, {live.kind} when run again"
        case _:
            return volatile or ""


def _headline(recorded: LineOutcome, live: LineOutcome) -> str:
    parts = []
    if recorded.kind is not live.kind:
        parts.append(f"{recorded.kind} -> {live.kind}")
    if not _same_observation(recorded, live):
        parts.append(" -> ".join(_first_difference(recorded.observation, live.observation)))
    return "; ".join(parts)


def _first_difference(recorded: str, live: str) -> tuple[str, str]:
    """The first lines that differ, each as one short line."""
    before, after = _first_pair(recorded, live)
    texts = _one_line(before), _one_line(after)
    if texts[0] == texts[1]:  # the difference is invisible, such as a newline at the end
        texts = ascii(before), ascii(after)
    start = max(0, _num_same(*texts) - _LEAD)
    return _window(texts[0], start), _window(texts[1], start)


def _first_pair(recorded: str, live: str) -> tuple[str, str]:
    """The first lines that differ."""
    pairs = itertools.zip_longest(_LINE.findall(recorded), _LINE.findall(live), fillvalue="")
    return next(pair for pair in pairs if pair[0] != pair[1])


def _one_line(text: str) -> str:
    return clean(text).removesuffix("\n").expandtabs(1)


def _window(text: str, start: int) -> str:
    if not text:
        return "(nothing)"
    head = "..." if start else ""
    tail = "..." if len(text) > start + _ONE_LINE else ""
    return f"{head}{text[start : start + _ONE_LINE]}{tail}"


def _num_same(before: Sequence[str], after: Sequence[str]) -> int:
    """Count the leading items that agree."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def unified(recorded: str, live: str, *, max_lines: int = 20) -> list[str]:
    """List the differences of two observations, in lines that begin with ' ', '-' or '+'.

    Empty where they agree. Lines beyond `max_lines` are counted in one that takes their place.
    """
    before, after = _shown_lines(recorded), _shown_lines(live)
    if before == after and recorded != live:  # as in a headline: the difference is invisible
        before, after = [ascii(recorded)], [ascii(live)]
    rows = list(_rows(before, after))
    if len(rows) <= max_lines:
        return rows
    return [*rows[: max_lines - 1], f" ... {len(rows) - max_lines + 1} more lines"]


def _shown_lines(text: str) -> list[str]:
    return clean(text).removesuffix("\n").split("\n") if text else []


def _rows(recorded: Sequence[str], live: Sequence[str]) -> Iterator[str]:
    same = _num_same(recorded, live)
    part = slice(max(0, same - _CONTEXT), same + _COMPARED)
    diff = difflib.unified_diff(recorded[part], live[part], n=_CONTEXT, lineterm="")
    # First come two lines of names and the place of the first hunk.
    for row in itertools.islice(diff, 3, None):
        yield " ..." if row.startswith("@@") else row


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Verdict and reward of a trajectory."""

    verdict: VerdictKind | None
    reward: Reward

    @classmethod
    def of(cls, scored: Scored) -> Judgement:
        kind = None if scored.verdict is None else scored.verdict.kind
        return cls(verdict=kind, reward=scored.reward)

    @property
    def is_ungraded(self) -> bool:
        """True where something was submitted and could not be scored."""
        return self.verdict is not None and self.reward.outcome_reward is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Judgements of one trajectory, as recorded and as made again."""

    id: str
    before: Judgement
    after: Judgement

    @property
    def is_scored(self) -> bool:
        """True where both have an outcome reward: only then their totals can be compared."""
        return None not in (self.before.reward.outcome_reward, self.after.reward.outcome_reward)

    @property
    def gain(self) -> float | None:
        """Gain in total reward; None where one of the two could not be scored."""
        if not self.is_scored:
            return None
        return self.after.reward.total - self.before.reward.total

    def differences(self) -> Iterator[str]:
        """Yield the differences in a few words each: verdict, outcome reward, lines from 1."""
        was, now = self.before, self.after
        if was.verdict is not now.verdict:
            yield f"{kind_words(was.verdict)} -> {kind_words(now.verdict)}"
        outcomes = was.reward.outcome_reward, now.reward.outcome_reward
        if not _is_same(*outcomes):
            yield f"outcome {_numbers(*outcomes)}"
        pairs = zip(was.reward.line_rewards, now.reward.line_rewards, strict=True)
        for number, (old, new) in enumerate(pairs, 1):
            if not _is_same(old, new):
                yield f"line {number} {_numbers(old, new)}"

    @property
    def is_real(self) -> bool:
        """False where verdict and rewards agree: evidence and milliseconds do not count."""
        return any(True for _ in self.differences())


def _is_same(was: float | None, now: float | None) -> bool:
    if was is None or now is None:
        return was is now
    return math.isclose(was, now, abs_tol=1e-9)


def _numbers(was: float | None, now: float | None) -> str:
    """Both, with as many digits as it takes to tell them apart."""
    texts = [_number(value, "+.3f") for value in (was, now)]
    if texts[0] == texts[1]:
        texts = [_number(value, "+.12g") for value in (was, now)]
    return " -> ".join(texts)


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else signed(value, form)
