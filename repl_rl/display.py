"""What a person sees of a run: a bar with time left, a live table, now and then a trajectory.

Floor 4. Knows records and metrics. Does not know how they came about. On anything that is no
terminal it prints plain lines instead.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repl_rl.ledger import Ledger
from repl_rl.summary import ERROR_KINDS
from repl_rl.terminal import one_row, signed
from repl_rl.transcript_rows import By, Decode, transcript_rows
from repl_rl.types import Scored, StopReason
from sandbox.render import clean

PROMPT, SAMPLED, INJECTED, ERROR = "dim", "bold green", "cyan", "bold red"
_STYLES = {By.PROMPT: PROMPT, By.SAMPLED: SAMPLED, By.INJECTED: INJECTED, By.ERROR: ERROR}
_BARS = " .:-=+*#"
_TREND = 16
_SOURCE = 28
"""Characters of a line in a ledger."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the live table."""

    label: str
    keys: tuple[str, ...]
    """Metrics that the row adds up."""
    form: str


_WITHOUT_SUBMISSION = tuple(
    f"stop/{reason}" for reason in StopReason if reason is not StopReason.SUBMITTED
)
_ROWS = (
    _Row("solve rate", ("solve_rate",), "{:.1%}"),
    _Row("mean outcome", ("outcome_mean",), "{:+.3f}"),
    _Row("lines a trajectory", ("lines/mean",), "{:.2f}"),
    _Row("  ran", ("lines/ok_output", "lines/ok_silent", "lines/incomplete"), "{:.1%}"),
    _Row("  thought", ("lines/comment", "lines/blank"), "{:.1%}"),
    _Row("  repeated", ("lines/duplicate",), "{:.1%}"),
    _Row("  error", ("lines/error_share",), "{:.1%}"),
    _Row("no submission", _WITHOUT_SUBMISSION, "{:.1%}"),
    _Row("tokens/s", ("rollout/tokens_per_s",), "{:,.0f}"),
    _Row("lines/s", ("rollout/lines_per_s",), "{:,.0f}"),
    _Row("KL to the start", ("kl",), "{:.4f}"),
    _Row("entropy", ("entropy",), "{:.3f}"),
)


class Update(Protocol):
    """Moves a bar."""

    def __call__(self, done: int, note: str = "", total: int = ...) -> None: ...


class Screen:
    """One run's face. Use it with `with`; everything it is told is shown at once."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            expand=True,
        )
        self._history: list[Mapping[str, float]] = []
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
            self._refresh()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str | Text) -> None:
        """A line that stays. A string is shown as it is written, never read as markup."""
        self._console.print(Text(text) if isinstance(text, str) else text, soft_wrap=True)

    @contextlib.contextmanager
    def bar(self, description: str, total: int) -> Iterator[Update]:
        """A bar with time left; call what it yields with (done, a short note, a better total)."""
        task = self._bars.add_task(description, total=total, note="")
        if not self._console.is_terminal:
            self.say(f"{description} ...")

        def update(done: int, note: str = "", total: int = total) -> None:
            self._bars.update(task, completed=done, note=note, total=total)

        self._refresh()
        try:
            yield update
        finally:
            self._bars.remove_task(task)
            self._refresh()

    def metrics(self, step: int, total: int, row: Mapping[str, float]) -> None:
        """One step's numbers: into the table, or one line where there is no terminal."""
        self._history.append(row)
        if self._console.is_terminal:
            self._refresh()
            return
        shown = ("solve rate", "mean outcome", "  error", "tokens/s", "lines/s", "KL", "entropy")
        cells = [
            f"{item.label.strip()} {item.form.format(value)}"
            for item in _ROWS
            if item.label.startswith(shown) and (value := _value(item, row)) is not None
        ]
        self.say(f"step {step}/{total}  " + "  ".join(cells))

    def sample(self, title: str, scored: Scored, decode: Decode | None = None) -> None:
        """A trajectory in colours: sampled, injected and erroneous lines told apart."""
        verdict = "nothing submitted" if scored.verdict is None else str(scored.verdict.kind)
        self._console.print(_heading(title, verdict))
        self.say(render_trajectory(scored, decode))
        self._console.print(Rule(legend(), style="dim", align="left"))

    def ledger(self, title: str, ledger: Ledger) -> None:
        """What each line of a trajectory earned, and its share of its group's gradient."""
        verdict = ledger.scored.verdict
        shown = "nothing submitted" if verdict is None else str(verdict.kind)
        self._console.print(_heading(title, shown))
        self._console.print(ledger_table(ledger))
        self._console.print(ledger_terms(ledger))

    def _refresh(self) -> None:
        if not self._console.is_terminal:
            return
        parts = [self._table()] if self._history else []
        self._live.update(Group(*parts, self._bars))

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2), header_style="dim")
        table.add_column("")
        for name in ("now", "last 10", "first"):
            table.add_column(name, justify="right")
        table.add_column("trend")
        for item in _ROWS:
            values = [value for row in self._history if (value := _value(item, row)) is not None]
            if values:  # the KL is not measured where it is not charged
                cells = (values[-1], sum(values[-10:]) / len(values[-10:]), values[0])
                table.add_row(item.label, *map(item.form.format, cells), trend(values))
        return table


def _heading(title: str, verdict: str) -> Rule:
    """A title may name a problem, whose id is whatever a file says."""
    return Rule(Text(one_row(f"{title}: {verdict}")), style="dim", align="left")


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

    `decode` is that of the vocabulary behind the ids; without it see `transcript_rows`.
    """
    text = Text()
    for row in transcript_rows(scored, decode):
        for piece, by in row.pieces:
            text.append(piece, style=_STYLES[by])
        for line, reward in row.ended:
            if reward or line.outcome.kind in ERROR_KINDS:
                text.append(f"   <- {line.outcome.kind} {signed(reward, '+.2f')}", style="dim red")
        text.append("\n")
    return text


def ledger_table(ledger: Ledger) -> Table:
    """A row for each line, narrow enough for 80 columns."""
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("line", no_wrap=True)
    table.add_column("outcome")
    for name in ("reward", "advantage", "tokens", "share"):
        table.add_column(name, justify="right")
    for entry in ledger.entries:
        kind = entry.line.outcome.kind
        source = _shorten(clean(entry.line.source).strip("\n").removeprefix(" "), _SOURCE)
        style = ERROR if kind in ERROR_KINDS else SAMPLED
        numbers = (signed(entry.reward), signed(entry.advantage), str(entry.num_tokens))
        table.add_row(Text(source, style), str(kind), *numbers, f"{entry.share:.1%}")
    return table


def ledger_terms(ledger: Ledger) -> Text:
    """Its share of the group's gradient, and its reward term by term."""
    share = f"{ledger.share:.1%} of the gradient of its group of {ledger.num_siblings}"
    terms = [
        f"{one_row(name)} {signed(value)}" for name, value in ledger.scored.reward.terms.items()
    ]
    return Text("\n".join([share, "  ".join(terms)]).rstrip(), style="dim")


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
