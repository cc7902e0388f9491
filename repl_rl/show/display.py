"""What a person sees of a run: a bar with time left, a live table, now and then a trajectory.

Knows records and metrics. Does not know how they came about. Where the output is not a
terminal it prints plain lines.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repl_rl.credit.ledger import Ledger
from repl_rl.credit.worth import Value, Worth
from repl_rl.show.bars import Clock, Note, Phase, Tenths, Update, bars
from repl_rl.show.transcript_rows import By, Decode, Row, transcript_rows
from repl_rl.show.tree_table import tree_table
from repl_rl.terminal import one_row, shorten, signed
from repl_rl.types import JudgedLemma, Line, OutcomeKind, Scored, StopReason, Trajectory
from repl_sandbox.render import clean

PROMPT, SAMPLED, INJECTED, ERROR, COPIED = "dim", "bold green", "cyan", "bold red", "dim green"
_STYLES = {
    By.PROMPT: PROMPT,
    By.SAMPLED: SAMPLED,
    By.COPIED: COPIED,
    By.INJECTED: INJECTED,
    By.ERROR: ERROR,
}
_BARS = " .:-=+*#"
_TREND = 16
_SOURCE = 28
"""Characters of a line in a ledger."""
_LOG_WIDTH, _BESIDE = 92, 26
"""Columns of a trajectory in a log, and how many of them its marks take."""
_QUIET_S, _QUIET_INSIDE_S = 5.0, 60.0
"""In a log: the time in which a phase, or one of the many parts of phases, reports at most once."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the live table."""

    label: str
    keys: tuple[str, ...]
    """Metrics that the row adds up."""
    form: str


_LOGGED = (
    ("solve_rate", "solved {:.1%}"),
    ("outcome_mean", "outcome {:+.3f}"),
    ("line/error_share", "errors {:.0%}"),
    ("rollout/tokens_per_s", "{:,.0f} tok/s"),
    ("kl", "KL {:.3f}"),
)
"""Metrics of a step in a log, and their forms. Together they take less than 100 columns."""


def _shares(*kinds: str) -> tuple[str, ...]:
    """Names of the shares of lines with these outcomes."""
    return tuple(f"line/{kind}/share" for kind in kinds)


_WITHOUT_SUBMISSION = tuple(
    f"stop/{reason}" for reason in StopReason if reason is not StopReason.SUBMITTED
)
ROWS = (
    _Row("solve rate", ("solve_rate",), "{:.1%}"),
    _Row("mean outcome", ("outcome_mean",), "{:+.3f}"),
    _Row("lines a trajectory", ("line/per_trajectory",), "{:.2f}"),
    _Row("  ran", _shares("ok_output", "ok_silent", "incomplete"), "{:.1%}"),
    _Row("  thought", _shares("comment", "blank"), "{:.1%}"),
    _Row("  repeated", _shares("duplicate"), "{:.1%}"),
    _Row("  error", ("line/error_share",), "{:.1%}"),
    _Row("no submission", _WITHOUT_SUBMISSION, "{:.1%}"),
    _Row("tokens/s", ("rollout/tokens_per_s",), "{:,.0f}"),
    _Row("lines/s", ("rollout/lines_per_s",), "{:,.0f}"),
    _Row("KL to the start", ("kl",), "{:.4f}"),
    _Row("entropy", ("entropy",), "{:.3f}"),
)


class Screen:
    """The terminal output of one run. Use it with `with`; each call shows its result at once."""

    def __init__(self, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        self._console = console or Console()
        self._clock = clock
        self._phases: tuple[Phase, ...] = ()
        """The phases under way; each is a part of the one before."""
        self._history: list[Mapping[str, float]] = []
        self._live = Live(
            console=self._console,
            refresh_per_second=4,
            transient=True,
            get_renderable=lambda: Group(*self._shown()),
        )

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str | Text) -> None:
        """A line that stays. A string is shown as it is written, never read as markup."""
        self._console.print(Text(text) if isinstance(text, str) else text, soft_wrap=True)

    def warn(self, text: str) -> None:
        """A line that stays, in the colour of errors."""
        self.say(Text(f"warning: {text}", style=ERROR))

    @contextlib.contextmanager
    def bar(self, description: str, total: int, *, quiet_s: float = _QUIET_S) -> Iterator[Update]:
        """Show a bar with the time left. Yields the function that moves it: (done, note, total).

        In a log it is a line at each tenth, but none within `quiet_s` of the last one.
        """
        around = self._phases
        if not self._console.is_terminal:
            self.say(f"{description} ...")
        try:
            yield self._begin(around, description, total, quiet_s=quiet_s)
        finally:
            self._phases = around
            self._refresh()

    def inside(self, name: str, total: int) -> Update:
        """Show a second bar below the first, for a part of its work, until the next part begins."""
        return self._begin(self._phases[:1], name, total, quiet_s=_QUIET_INSIDE_S)

    def _begin(self, around: tuple[Phase, ...], name: str, total: int, *, quiet_s: float) -> Update:
        phase = Phase(name, total, clock=self._clock)
        tenths = Tenths(self.say, quiet_s=quiet_s, clock=self._clock)
        self._phases = (*around, phase)
        self._refresh()

        def update(done: int, note: Note = "", total: int = total) -> None:
            phase.move(done, note, total)
            if not self._console.is_terminal:
                tenths.hear(phase)

        return update

    def metrics(self, step: int, total: int, row: Mapping[str, float]) -> None:
        """One step's numbers: into the table, or one line where there is no terminal."""
        self._history.append(row)
        if self._console.is_terminal:
            self._refresh()
            return
        cells = [form.format(row[key]) for key, form in _LOGGED if key in row]
        left = [f"{phase.left} left" for phase in self._phases[:1]]
        self.say("  ".join([f"step {step}/{total}", *cells, *left]))

    def sample(self, title: str, scored: Scored, decode: Decode | None = None) -> None:
        """A trajectory in colours, which distinguish sampled, injected and erroneous lines."""
        verdict = "nothing submitted" if scored.verdict is None else str(scored.verdict.kind)
        self._console.print(_heading(title + _lineage(scored.trajectory), verdict))
        if self._has_colours:
            text = render_trajectory(scored, decode)
        else:
            room = self._console.width if self._console.is_terminal else _LOG_WIDTH
            text = marked_trajectory(scored, decode, width=room)
        text.rstrip()  # in place: the newline that ends it is the console's
        self.say(text)
        has_copies = scored.trajectory.branch is not None
        self._console.print(Rule(self._legend(has_copies), style="dim", align="left"))

    def ledger(self, title: str, ledger: Ledger) -> None:
        """What each line of a trajectory earned, and its share of its group's gradient."""
        verdict = ledger.scored.verdict
        shown = "nothing submitted" if verdict is None else str(verdict.kind)
        self._console.print(_heading(title + _lineage(ledger.scored.trajectory), shown))
        self._console.print(ledger_table(ledger))
        self._console.print(ledger_terms(ledger))

    def worths(self, rows: Sequence[Worth]) -> None:
        """What each line of a trajectory was worth."""
        self._console.print(worth_table(rows))

    def tree(self, group: Sequence[Scored], *, shown: int) -> None:
        """A group that branches, with what states and lines are worth; `shown` is a sibling."""
        self._console.print(tree_table(group, shown=shown))

    @property
    def _has_colours(self) -> bool:
        return self._console.color_system is not None and not self._console.no_color

    def _legend(self, has_copies: bool) -> Text:
        if self._has_colours:
            return legend().append("  copied" if has_copies else "", COPIED)
        copies = "   = copied" if has_copies else ""
        return Text(f"+ sampled, trained   . injected{copies}")

    def _refresh(self) -> None:
        if self._live.is_started:
            self._live.refresh()

    def _shown(self) -> Iterator[Table]:
        if self._history:
            yield self._table()
        if self._phases:
            yield bars(self._phases)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2), header_style="dim")
        table.add_column("")
        for name in ("now", "last 10", "first"):
            table.add_column(name, justify="right")
        table.add_column("trend")
        for item in ROWS:
            values = [value for row in self._history if (value := _value(item, row)) is not None]
            if values:  # the KL is not measured where it is not charged
                cells = (values[-1], sum(values[-10:]) / len(values[-10:]), values[0])
                table.add_row(item.label, *map(item.form.format, cells), trend(values))
        return table


def silent() -> Screen:
    """A screen that shows nothing, of a process that another one speaks for."""
    return Screen(Console(quiet=True, force_terminal=False))


def _heading(title: str, verdict: str) -> Rule:
    """On one row: a title may name a problem, and a file may give a problem any id."""
    return Rule(Text(one_row(f"{title}: {verdict}")), style="dim", align="left")


def _lineage(trajectory: Trajectory) -> str:
    """Whom it leaves, in words after its title; nothing where all lines are its own."""
    branch = trajectory.branch
    if branch is None:
        return ""
    return f", leaves sibling {branch.sibling_index} after line {branch.num_lines}"


def _value(item: _Row, row: Mapping[str, float]) -> float | None:
    """The row's number, None where the step has none of its metrics."""
    found = [row[key] for key in item.keys if key in row]
    return sum(found) if found else None


def trend(values: Sequence[float], width: int = _TREND) -> str:
    """The course of a number in `width` characters, each the mean of its share of the steps."""
    if len(values) < 2:
        return ""
    width = min(width, len(values))
    cuts = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(cuts)]
    low, span = min(means), max(means) - min(means)
    if span == 0:
        return _BARS[1] * width
    return "".join(_BARS[1 + round((mean - low) / span * (len(_BARS) - 2))] for mean in means)


def legend() -> Text:
    """What the colours of a trajectory mean."""
    return Text.assemble(
        ("prompt", PROMPT), "  ", ("sampled", SAMPLED), "  ", ("injected", INJECTED), "  ",
        ("sampled, error", ERROR),
    )  # fmt: skip


def render_trajectory(scored: Scored, decode: Decode | None = None) -> Text:
    """The transcript as rich text. What a policy or a kernel wrote is never read as markup.

    `decode` turns the ids into text; `transcript_rows` says what happens without it.
    """
    text = Text()
    for row in transcript_rows(scored, decode):
        for piece, by in row.pieces:
            text.append(piece, style=_STYLES[by])
        for line, reward in row.ended:
            is_claim = judged_lemma(scored, line) is not None
            if reward or is_claim or line.outcome.kind.traits.is_error:
                worth = _worth(line, reward, scored)
                style = "dim" if is_claim and reward >= 0 else "dim red"
                text.append(f"   <- {line.outcome.kind} {worth}", style=style)
        text.append("\n")
    return text


def marked_trajectory(scored: Scored, decode: Decode | None = None, *, width: int) -> Text:
    """The transcript without colours: a mark to the right of each row says who wrote it.

    Outcomes, rewards and the verdict stand beside the marks, `width` characters in all. A row that
    is too long for that is not cut.
    """
    at = width - _BESIDE
    rows = [_marked(row, scored, at) for row in transcript_rows(scored, decode)]
    return Text("".join(f"{row}\n" for row in rows))


def _marked(row: Row, scored: Scored, at: int) -> str:
    by = {by for _, by in row.pieces}
    if by & {By.SAMPLED, By.ERROR, By.COPIED}:
        ended = (
            # A claim has two words behind its outcome: less room for that.
            f"{line.outcome.kind:{8 if judged_lemma(scored, line) else 14}}"
            f"{_worth(line, reward, scored)}"
            for line, reward in row.ended
        )
        mark = "=" if By.COPIED in by else "+"
        return _beside(row.text, at, f"{mark}   " + ", ".join(map(str.rstrip, ended)))
    return _beside(row.text, at, ".") if By.INJECTED in by else _beside(row.text, at + 8, "prompt")


def _beside(text: str, at: int, mark: str) -> str:
    return f"{text}{' ' * max(1, at - cell_len(text))}{mark}".rstrip()


def _worth(line: Line, reward: float, scored: Scored) -> str:
    """What a line earned, and what became of its lemma; of a submission without, the verdict."""
    lemma = judged_lemma(scored, line)
    if lemma is not None:
        return f"{signed(reward, '+.2f')} {lemma.word}"
    if reward or line.outcome.kind.traits.is_error:
        return signed(reward, "+.2f")
    is_submitted = line.outcome.kind is OutcomeKind.SUBMITTED
    return str(scored.verdict.kind) if is_submitted and scored.verdict is not None else ""


def judged_lemma(scored: Scored, line: Line) -> JudgedLemma | None:
    """What became of the lemma that a line claimed; None where nothing is known of one."""
    return None if scored.verdict is None else scored.verdict.lemma_of(line.index)


def ledger_table(ledger: Ledger) -> Table:
    """A row for each line, narrow enough for 80 columns."""
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("line", no_wrap=True)
    table.add_column("outcome")
    for name in ("reward", "advantage", "tokens", "share"):
        table.add_column(name, justify="right")
    for entry in ledger.entries:
        kind = entry.line.outcome.kind
        source = shorten(clean(entry.line.source).strip("\n").removeprefix(" "), _SOURCE)
        style = ERROR if kind.traits.is_error else SAMPLED
        lemma = judged_lemma(ledger.scored, entry.line)
        outcome = str(kind) if lemma is None else f"{kind} {lemma.word}"
        numbers = (signed(entry.reward), signed(entry.advantage), str(entry.num_tokens))
        table.add_row(Text(source, style), outcome, *numbers, f"{entry.share:.1%}")
    return table


def worth_table(rows: Sequence[Worth]) -> Table:
    """A row for each line: the values around it, and their difference with a 95 % interval."""
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("line", no_wrap=True)
    table.add_column("outcome")
    for name in ("before", "after", "worth", "+-"):
        table.add_column(name, justify="right")
    for row in rows:
        source = shorten(clean(row.line.source).strip("\n").removeprefix(" "), _SOURCE)
        gain = row.gain
        table.add_row(
            Text(source),
            str(row.line.outcome.kind),
            *map(_mean, (row.before, row.after, gain)),
            "-" if gain is None or gain.error is None else f"{1.96 * gain.error:.2f}",
        )
    return table


def _mean(value: Value | None) -> str:
    return "-" if value is None else signed(value.mean)


def ledger_terms(ledger: Ledger) -> Text:
    """A trajectory's share of its group's gradient, and its reward term by term."""
    share = f"{ledger.share:.1%} of the gradient of its group of {ledger.num_siblings}"
    terms = [
        f"{one_row(name)} {signed(value)}" for name, value in ledger.scored.reward.terms.items()
    ]
    return Text("\n".join([share, "  ".join(terms)]).rstrip(), style="dim")
