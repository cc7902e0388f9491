"""Screen of a run: a bar with time left, a live table, now and then a trajectory.

    Phase, row of metrics, Scored, Ledger, [Worth] -> Screen -> rows of a terminal

Where the output is not a terminal it prints plain lines, a bar at each tenth of its work. Knows
records and metrics. Does not know how they came about.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repl_rl.base.terminal import one_row, shorten, signed
from repl_rl.credit.ledger import Ledger, Value, Worth
from repl_rl.progress import Note, Progress, Update
from repl_rl.records import Line, Scored, StopReason, Trajectory
from repl_rl.transcript.tokens import Decode
from repl_rl.viewer.show.marked import ERROR, SAMPLED, legend, marked_trajectory, verdict_words
from repl_sandbox.render import clean

Clock = Callable[[], float]
"""Seconds, as `time.monotonic`."""


class Phase:
    """One piece of work under way; `move` records its progress."""

    def __init__(self, name: str, total: int, *, clock: Clock, note: Note = "") -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._note = note
        self._clock = clock
        self._began = self._moved = self._reported = clock()
        self._first: tuple[float, int] | None = None
        """Time of the first move, and what was done by then."""
        self._tenth = 0

    def move(self, done: int, note: Note, total: int) -> None:
        self.done, self._note, self.total = done, note, total
        self._moved = self._clock()
        self._first = self._first or (self._moved, done)

    @property
    def note(self) -> str:
        return self._note() if callable(self._note) else self._note

    @property
    def count(self) -> str:
        return f"{self.done}/{self.total}"

    @property
    def left(self) -> str:
        """Time that the rest takes at the mean pace so far, as `1:02:03`; unknown: `-:--:--`.

        The pace counts from the first move: what comes before it is a start, or was done by a run
        that this one goes on with. What has passed since the last move is taken off, so it falls
        while a long step runs.
        """
        if not self.done:
            return "-:--:--"
        since, before = self._first or (self._began, 0)
        if before == self.done:
            since, before = self._began, 0
        pace = (self._moved - since) / (self.done - before)
        rest = pace * (self.total - self.done) - (self._clock() - self._moved)
        minutes, seconds = divmod(round(max(0.0, rest)), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"

    def report(self, *, quiet_s: float) -> str | None:
        """Return a row once it has passed a tenth of its work, but never twice within `quiet_s`.

        None else, and at the end: its result is reported then.
        """
        tenth = 10 * self.done // max(1, self.total)
        if not self._tenth < tenth < 10 or self._clock() - self._reported < quiet_s:
            return None
        self._tenth, self._reported = tenth, self._clock()
        cells = (self.name, self.count, self.note, f"{self.left} left")
        return "  ".join(filter(None, cells))


def bars(phases: Sequence[Phase]) -> Table:
    """A row for each phase; the parts of a phase are indented below it."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, min_width=len("  sampling"))  # so that parts do not move it
    table.add_column(ratio=1)
    for _ in ("count", "left", "note"):
        table.add_column(no_wrap=True, justify="right")
    for depth, phase in enumerate(phases):
        table.add_row(
            Text("  " * depth + phase.name),
            ProgressBar(total=max(1, phase.total), completed=phase.done, pulse=False),
            Text(phase.count, "progress.download"),
            Text(phase.left, "progress.remaining"),
            Text(phase.note),
        )
    return table


_BARS = " .:-=+*#"
_TREND = 16
_SOURCE = 28
"""Characters of a line in a ledger."""
_LOG_WIDTH = 92
"""Columns of a trajectory in a log."""
_QUIET_S, _QUIET_INSIDE_S = 5.0, 60.0
"""In a log: the time in which a phase, or one of the many parts of phases, reports at most once."""


@dataclass(frozen=True, slots=True)
class _TableRow:
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
    _TableRow("solve rate", ("solve_rate",), "{:.1%}"),
    _TableRow("mean outcome", ("outcome_mean",), "{:+.3f}"),
    _TableRow("lines a trajectory", ("line/per_trajectory",), "{:.2f}"),
    _TableRow("  ran", _shares("ok_output", "ok_silent", "incomplete"), "{:.1%}"),
    _TableRow("  comment", _shares("comment", "blank"), "{:.1%}"),
    _TableRow("  repeated", _shares("duplicate"), "{:.1%}"),
    _TableRow("  error", ("line/error_share",), "{:.1%}"),
    _TableRow("no submission", _WITHOUT_SUBMISSION, "{:.1%}"),
    _TableRow("tokens/s", ("rollout/tokens_per_s",), "{:,.0f}"),
    _TableRow("lines/s", ("rollout/lines_per_s",), "{:,.0f}"),
    _TableRow("KL to the start", ("kl",), "{:.4f}"),
    _TableRow("entropy", ("entropy",), "{:.3f}"),
)


class Screen(Progress):
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
            get_renderable=lambda: Group(*self._rendered()),
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
    def bar(self, description: str, total: int, *, has_metrics: bool = False) -> Iterator[Update]:
        """Show a bar; in a log, a line at each tenth, but none within 5 s of the last one.

        With `has_metrics` a log has no such line: each step has its own, with the time left.
        """
        quiet_s = math.inf if has_metrics else _QUIET_S
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
        self._phases = (*around, phase)
        self._refresh()

        def update(done: int, note: Note = "", total: int = total) -> None:
            phase.move(done, note, total)
            if not self._console.is_terminal and (row := phase.report(quiet_s=quiet_s)):
                self.say(row)

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
        """A trajectory under its reward and verdict, with outcome and reward beside its lines."""
        self._console.print(_heading(title, scored))
        self.transcript(scored, decode)
        has_copies = scored.trajectory.branch is not None
        below = legend(has_copies=has_copies)
        self._console.print(Rule(below, style="dim", align="left"))

    def transcript(self, scored: Scored, decode: Decode | None = None) -> None:
        """The lines of a trajectory alone. A terminal wraps what is too long, a log keeps it."""
        is_terminal = self._console.is_terminal
        width = self._console.width if is_terminal else _LOG_WIDTH
        text = marked_trajectory(scored, decode, width=width, wraps=is_terminal)
        text.rstrip()  # in place: the newline that ends it is the console's
        self.say(text)

    def ledger(self, title: str, ledger: Ledger) -> None:
        """Print what each line of a trajectory earned, and its share of its group's gradient."""
        self._console.print(_heading(title, ledger.scored))
        self._console.print(ledger_table(ledger))
        self._console.print(ledger_terms(ledger))

    def table(self, table: Table) -> None:
        self._console.print(table)

    def _refresh(self) -> None:
        if self._live.is_started:
            self._live.refresh()

    def _rendered(self) -> Iterator[Table]:
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


def _heading(title: str, scored: Scored) -> Rule:
    """Return a heading on one row: a title may name a problem, whose id may be any text."""
    name = one_row(title + _lineage(scored.trajectory))
    worth = f"{signed(scored.reward.total, '+.2f')}, {verdict_words(scored.verdict)}"
    return Rule(Text(f"{name}: reward {worth}"), style="dim", align="left")


def _lineage(trajectory: Trajectory) -> str:
    """Name the sibling that it leaves, after its title; nothing where all lines are its own."""
    branch = trajectory.branch
    if branch is None:
        return ""
    if branch.sibling_index is None:
        return f", begins after line {branch.num_lines} of a solution"
    return f", branches from sibling {branch.sibling_index} after line {branch.num_lines}"


def _value(item: _TableRow, row: Mapping[str, float]) -> float | None:
    """The row's number, None where the step has none of its metrics."""
    values = [row[key] for key in item.keys if key in row]
    return sum(values) if values else None


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


def _line_table(*names: str) -> Table:
    """A table with a row for each line, narrow enough for 80 columns."""
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("line", no_wrap=True)
    table.add_column("outcome")
    for name in names:
        table.add_column(name, justify="right")
    return table


def _source(line: Line) -> str:
    return shorten(clean(line.source).strip("\n").removeprefix(" "), _SOURCE)


def ledger_table(ledger: Ledger) -> Table:
    """A row for each line: its reward, and its advantage in the update."""
    table = _line_table("reward", "advantage", "tokens", "share")
    for entry in ledger.entries:
        kind = entry.line.outcome.kind
        style = ERROR if kind.traits.is_error else SAMPLED
        numbers = (signed(entry.reward), signed(entry.advantage), str(entry.num_tokens))
        table.add_row(Text(_source(entry.line), style), kind, *numbers, f"{entry.share:.1%}")
    return table


def worth_table(rows: Sequence[Worth], surprises: Mapping[int, float]) -> Table:
    """A row for each line: the values around it, their difference with a 95 % interval, and the
    surprise at its answer."""
    table = _line_table("before", "after", "worth", "+-", "surprise")
    for row in rows:
        gain = row.gain
        error = "-" if gain is None or gain.error is None else f"{1.96 * gain.error:.2f}"
        values = map(_mean, (row.before, row.after, gain))
        nats = surprises.get(row.line.index)
        cells = (*values, error, "" if nats is None else f"{nats:.2f}")
        table.add_row(Text(_source(row.line)), row.line.outcome.kind, *cells)
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
