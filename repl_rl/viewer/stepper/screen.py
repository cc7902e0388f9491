"""The parts of the screen, and the keys that work on it.

    Walk -> Face: head, transcript, both outputs, a row of status or question, keys

Overlays show tokens, variables, details and help until a key puts them away.

Knows widgets and names of keys. Does not know what a key does, nor where a walk comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from repl_rl.records import Line, LineOutcome
from repl_rl.transcript.format import spans, strip_line
from repl_rl.viewer.replay.live import LiveLine, Variable
from repl_rl.viewer.show.marked import INJECTED, SAMPLED
from repl_rl.viewer.stepper.texts import (
    DIFFERS,
    DIM,
    KEY,
    TITLE,
    cleaned,
    clipped,
    milliseconds,
    number,
    styled,
)
from repl_rl.viewer.stepper.views import NARROW, head, judged, transcript
from repl_rl.viewer.stepper.walk import Tokens, Walk


class KeyRow(NamedTuple):
    """One row of help; several keys where they go together."""

    actions: dict[str, str]
    """Action by key, in textual's names; keys that do the same stand together, with commas."""
    label: str
    meaning: str
    word: str = ""
    """In the last row of the screen, where there is room."""


_DIGITS = {digit: f"ask_line('{digit}')" for digit in "123456789"}

KEYS = (
    KeyRow({"n,space,down": "run('next')"}, "n  space  down", "run the next line", "next"),
    KeyRow({"b,up": "previous_line"}, "b  up", "back one line, in a fresh kernel", "back"),
    KeyRow(
        {"g": "first_line", "G": "run('end')", "colon": "ask_line('')", **_DIGITS},
        "g  G  4 Enter",
        "to the start; to the end; to line 4, or :4 Enter",
    ),
    KeyRow({"e": "run('error')"}, "e", "run to the next error", "error"),
    KeyRow(
        {"r": "run('reward')"},
        "r",
        "run to the next line with a reward of its own",
        "reward",
    ),
    KeyRow(
        {"d": "run('difference')"},
        "d",
        "run to the next line that differs from the record",
        "diff",
    ),
    KeyRow({"i": "edit"}, "i", "write the next line yourself, and continue by hand", "edit"),
    KeyRow({"m": "let"}, "m", "let the policy continue from here", "model"),
    KeyRow({"c": "continuations"}, "c", "measure what the line was worth, by continuations"),
    KeyRow({"w": "save"}, "w", "save what ran here as a new trajectory", "save"),
    KeyRow({"v": "variables"}, "v", "variables of the kernel", "vars"),
    KeyRow({"t": "tokens"}, "t", "tokens of the line at hand and of its output", "tokens"),
    KeyRow({"s": "details"}, "s", "statement, verdict, submission, reward in full", "about"),
    KeyRow({"pagedown": "page(1)", "pageup": "page(-1)"}, "page up/down", "scroll both outputs"),
    KeyRow(
        {"left_square_bracket": "turn(-1)", "right_square_bracket": "turn(1)"},
        "[  ]",
        "previous trajectory; next",
    ),
    KeyRow({"escape": "leave"}, "Esc", "cancel what runs; close a question or a sheet"),
    KeyRow({"question_mark": "keys"}, "?", "this help", "help"),
    KeyRow({"q": "quit"}, "q  Ctrl-C", "quit", "quit"),
)

MARKS = (
    ("green  cyan", "sampled or by hand, an error in red; what was answered"),
    ("!", "it did something else here than its record says"),
    ("*  (0)", "a line of a branch; the reward of the one it replaces"),
)


def bindings() -> list[Binding]:
    keys = [Binding(key, action, show=False) for row in KEYS for key, action in row.actions.items()]
    return [*keys, Binding("ctrl+c", "quit", show=False, priority=True)]


def footer(width: int) -> list[tuple[str, str]]:
    """(key, word) of as many as fit, the last two always among them."""
    known = [(row.label.split()[0], row.word) for row in KEYS if row.word]
    pairs: list[tuple[str, str]] = []
    last = known[-2:]
    for pair in known[:-2]:
        taken = [len(key) + len(word) + 3 for key, word in (*pairs, pair, *last)]
        if sum(taken) <= width + 2:
            pairs.append(pair)
    return [*pairs, *last]


def _title(name: str, outcome: LineOutcome | None) -> str:
    """The title of a pane, in our words and numbers alone."""
    if outcome is None:
        return name
    return f"{name}  {outcome.kind}  {milliseconds(outcome.wall_ms)}"


def recorded_pane(walk: Walk) -> tuple[str, Text]:
    """Title and text of the record at the line at hand."""
    hand, beside = walk.at_hand, walk.beside
    if hand is None:
        return "recorded", styled("Nothing has run yet; n runs line 1.", DIM)
    if beside is None:
        return "recorded", styled("No line is recorded at this place.", DIM)
    value = walk.live.trajectory.value_of(beside)
    if hand.recorded is not None:
        return _title("recorded", beside.outcome), _output(walk, beside, value)
    text = styled(cleaned(strip_line(beside.source)) + "\n", SAMPLED)
    return _title("replaced", beside.outcome), text.append_text(_output(walk, beside, value))


def live_pane(walk: Walk) -> tuple[str, Text]:
    """Title and text of what the line at hand did here."""
    hand = walk.at_hand
    if hand is None:
        return "live", Text()
    name = _title("live", hand.outcome)
    if hand.recorded is not None:
        difference = walk.difference(hand)
        name += "  same" if difference is None else f"  {difference.cause}"
    return name, _output(walk, hand, hand.value)


def _output(walk: Walk, line: Line | LiveLine, value: str | None) -> Text:
    """Return a line's output, and the value that it handed over.

    Rows that differ from the other side have a colour of their own.
    """
    hand, beside = walk.at_hand, walk.beside
    assert hand is not None, "there are no outputs before the first line"
    text = cleaned(line.outcome.observation).removesuffix("\n")
    if value is not None:
        word = f"{line.outcome.kind} "
        return Text.assemble((text, INJECTED), (word, DIM), (cleaned(value), SAMPLED))
    if not text:
        return styled("no output", DIM)
    if walk.difference(hand) is None or beside is None:
        return styled(text, INJECTED)
    other = beside if line is hand else hand
    return _marked(text.split("\n"), cleaned(other.outcome.observation).split("\n"))


def _marked(rows: list[str], others: list[str]) -> Text:
    text = Text()
    for index, row in enumerate(rows):
        is_same = index < len(others) and others[index] == row
        text.append(("\n" if index else "") + row, INJECTED if is_same else DIFFERS)
    return text


def difference_row(walk: Walk) -> Text:
    """Say how the line at hand differs from its record; empty where it does not."""
    difference = None if walk.at_hand is None else walk.difference(walk.at_hand)
    if difference is None:
        return Text()
    parts = (difference.cause, difference.why, difference.headline)
    return styled(": ".join(filter(None, parts)), DIFFERS)


class Face(Vertical):
    """The whole screen. It shows what it is given and keeps nothing."""

    DEFAULT_CSS = """
    Face #head { height: 2; }
    Face #transcript { height: 1fr; }
    Face #outputs { height: 36%; min-height: 6; }
    Face #status { height: auto; min-height: 1; max-height: 3; }
    Face #footer, Face #question { height: 1; }
    Face #question { display: none; }
    Face #question Static { width: auto; margin-right: 1; }
    Face #question Input { width: 1fr; }
    Face.asks #question { display: block; }
    Face.narrow #outputs { layout: vertical; height: 50%; }
    Face Pane#live { margin-left: 1; }
    Face.narrow Pane#live { margin-left: 0; }
    """

    def compose(self) -> ComposeResult:
        yield Drawn(id="head")
        yield Drawn(id="transcript")
        with Horizontal(id="outputs"):
            yield Pane(id="recorded")
            yield Pane(id="live")
        yield Static(id="status", markup=False)
        with Horizontal(id="question"):
            yield Static(markup=False)
            yield Field(compact=True, select_on_focus=False)
        yield Drawn(id="footer")

    def on_resize(self) -> None:
        self.set_class(self.size.width < NARROW, "narrow")

    def show(self, walk: Walk, *, position: str) -> None:
        """`position` is the trajectory's among those that were found."""
        self.query_one("#head", Drawn).draw(
            lambda size: head(walk, position=position, width=size.width)
        )
        self.query_one("#transcript", Drawn).draw(
            lambda size: transcript(walk, width=size.width, height=size.height)
        )
        self.query_one("#recorded", Pane).show(*recorded_pane(walk))
        live = self.query_one("#live", Pane)
        live.show(*live_pane(walk))
        live.set_class(bool(difference_row(walk)), "differs")

    def show_status(self, text: Text, *, can_stop: bool) -> None:
        """Show one row of status, and below it the keys that matter."""
        is_asking = self.has_class("asks")
        status = self.query_one("#status", Static)
        status.update(text)
        status.display = bool(text) or not is_asking
        self.query_one("#footer", Drawn).draw(
            lambda size: _last_row(size.width, is_asking=is_asking, can_stop=can_stop)
        )

    def ask(self, question: Text, value: str = "") -> None:
        """Put a question in place of the status, with an answer that typing replaces."""
        self.add_class("asks")
        self.query_one("#question Static", Static).update(question)
        field = self.query_one(Field)
        field.value = value
        field.focus()
        field.action_select_all()

    def close_question(self) -> None:
        self.remove_class("asks")
        self.screen.set_focus(None)

    def scroll_outputs(self, pages: int) -> None:
        for pane in self.query(Pane):
            pane.scroll_relative(y=pages * max(1, pane.size.height - 1), animate=False)


class Field(Input):
    """One line of text, which Enter submits.

    Keys act in the order in which they come. Textual's own widget puts characters in at once and
    leaves Enter and its like to a later turn, so a burst (a paste, a slow line) loses rows.
    """

    async def on_key(self, event: Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            given, self.value = self.value, ""
            self.post_message(self.Submitted(self, given))
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)


class Drawn(Widget):
    """Text made to fit its widget, and made again whenever the size changes."""

    _make: Callable[[Size], Text] = staticmethod(lambda size: Text())

    def draw(self, make: Callable[[Size], Text]) -> None:
        self._make = make
        self.refresh()

    def render(self) -> Text:
        return self._make(self.size)


class Pane(VerticalScroll, can_focus=False):
    """One output, whole."""

    DEFAULT_CSS = """
    Pane {
        width: 1fr;
        height: 1fr;
        border-top: solid ansi_bright_black;
        border-title-color: ansi_default;
        scrollbar-size-vertical: 1;
        scrollbar-color: ansi_bright_black;
        scrollbar-background: ansi_default;
    }
    Pane.differs { border-title-color: ansi_yellow; }
    """

    _text = Text()

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def show(self, title: str, text: Text) -> None:
        """`title` is in our own words alone: it may be read as markup."""
        self.border_title = title
        if text != self._text:  # the same text stays where it was scrolled to
            self._text = text
            self.query_one(Static).update(text)
            self.scroll_home(animate=False)


def _last_row(width: int, *, is_asking: bool, can_stop: bool) -> Text:
    """The keys that matter most; `?` has the others."""
    keys = footer(width)
    if can_stop:
        keys = [("Esc", "calls it off"), ("Ctrl-C", "quits")]
    elif is_asking:
        keys = [("Enter", "takes it"), ("Esc", "leaves"), ("Ctrl-C", "quits")]
    return Text("  ").join(Text.assemble((key, KEY), (f" {word}", DIM)) for key, word in keys)


_MAX_TOKENS = 2000
"""Rows of a table of tokens."""
_TOKEN = 26
"""Columns of a token's text."""

Rows = Sequence[Sequence[Text]]


class Overlay(ModalScreen[None]):
    """A title and what is below it, put away by Escape, q or the key that brought it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,s,t,v,question_mark,enter", "dismiss", show=False)
    ]
    CSS = """
    Overlay { align: center middle; }
    Overlay > Vertical { border: round ansi_bright_black; padding: 0 1; height: 100%; }
    Overlay Static { height: auto; }
    Overlay DataTable { height: 1fr; }
    Overlay DataTable > .datatable--header { background: ansi_default; color: ansi_default; }
    Overlay VerticalScroll, Overlay DataTable {
        scrollbar-size-vertical: 1;
        scrollbar-color: ansi_bright_black;
        scrollbar-background: ansi_default;
    }
    """

    def __init__(self, title: str, body: Text | tuple[Sequence[str], Rows]) -> None:
        super().__init__()
        self._heading = Text.assemble((title, TITLE), ("   Esc goes back", DIM))
        self._body = body

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._heading, markup=False)
            if isinstance(self._body, Text):
                with VerticalScroll():
                    yield Static(self._body, markup=False)
            else:
                yield DataTable[Text](cursor_type="none", cell_padding=1)

    def on_mount(self) -> None:
        if isinstance(self._body, Text):
            self.query_one(VerticalScroll).focus()
            return
        names, rows = self._body
        table = self.query_one(DataTable)
        table.add_columns(*(styled(name, DIM) for name in names))
        table.add_rows(rows)
        table.focus()


def variables_overlay(variables: Sequence[Variable]) -> Overlay:
    rows = [
        (
            styled(clipped(one.name, 24), SAMPLED),
            styled(clipped(one.type, 16), DIM),
            styled(clipped(one.value, 200), INJECTED),
        )
        for one in variables
    ]
    return Overlay("variables", (("name", "type", "value"), rows))


def tokens_at_hand(walk: Walk) -> Tokens | None:
    """None where nothing has run, and for a line by hand, whose tokens nobody sampled."""
    hand = walk.at_hand
    if hand is None:
        return None
    if hand.recorded is None:
        if walk.sampled is None:
            return None
        index = walk.live.at - 1
        reward = None if walk.worth is None else walk.worth.line_rewards[index]
        return walk.sampled.tokens_of(index, reward=reward)
    entry = walk.item.ledger.entries[hand.recorded.index]
    return Tokens(
        trajectory=walk.live.trajectory,
        line=entry.line,
        texts=walk.item.token_texts,
        reward=entry.reward,
        trainer_logprobs=walk.item.trainer_logprobs,
        advantage=entry.advantage,
    )


def tokens_overlay(tokens: Tokens) -> Overlay:
    """A row a token: those of a line and of what was injected after it; its reward above them."""
    names = ["at", "token", "id", "mask", "sampler"]
    names += [] if tokens.trainer_logprobs is None else ["trainer"]
    names += [] if tokens.advantage is None else ["advant."]
    rows = list(_token_rows(tokens))
    title = f"tokens of line {tokens.line.index + 1}: {len(rows)}"
    if len(rows) > _MAX_TOKENS:
        title += f", the first {_MAX_TOKENS} of them"
    title += f"   {tokens.line.outcome.kind}"
    title += "" if tokens.reward is None else f"  reward {number(tokens.reward)}"
    return Overlay(title, (names, rows[:_MAX_TOKENS]))


def _token_rows(tokens: Tokens) -> Iterator[list[Text]]:
    trajectory, advantage = tokens.trajectory, tokens.advantage
    mine = (span for span in spans(trajectory) if span.line_index == tokens.line.index)
    for span in mine:
        style = SAMPLED if span.is_sampled else INJECTED
        for at in range(span.start, span.stop):
            text = "" if tokens.texts is None else repr(tokens.texts[at])
            cells = [
                styled(str(at), DIM),
                _cut(text, style),
                Text(str(trajectory.completion_ids[at])),
                styled("1" if trajectory.loss_mask[at] else "0", style),
                _number(trajectory.logprobs[at] if span.is_sampled else None),
            ]
            if tokens.trainer_logprobs is not None:
                cells.append(_number(tokens.trainer_logprobs[at] if span.is_sampled else None))
            if advantage is not None:
                cells.append(_number(advantage if span.is_sampled else None))
            yield cells


def _cut(text: str, style: str) -> Text:
    cell = styled(clipped(text, 100), style)
    cell.truncate(_TOKEN, overflow="ellipsis")
    return cell


def _number(value: float | None) -> Text:
    return Text("" if value is None else number(value), justify="right")


def details_overlay(walk: Walk, notes: Sequence[str]) -> Overlay:
    """Statement, verdict, submission and terms in full."""
    text = Text()
    for name, value in _details(walk, notes):
        text.append(f"{name}\n", DIM)
        text.append(cleaned(value) + "\n\n")
    return Overlay(f"about {clipped(walk.item.id, 40)}", text)


def _details(walk: Walk, notes: Sequence[str]) -> Iterator[tuple[str, str]]:
    scored = walk.item.ledger.scored
    trajectory, verdict = scored.trajectory, scored.verdict
    yield "problem " + clipped(scored.problem.id, 60), scored.problem.statement
    yield "submitted", trajectory.submission or "nothing"
    if verdict is not None:
        how = f"{judged(scored)} by {verdict.method or 'no method'} {verdict.evidence}".rstrip()
        yield "verdict", f"{how}\n{verdict.grader_error or ''}".rstrip()
    else:
        yield "verdict", judged(scored)
    terms = [f"{name} {number(value)}" for name, value in scored.reward.terms.items()]
    outcome = f"outcome {number(scored.reward.outcome_reward)}"
    yield "reward", "\n".join([f"total {number(scored.reward.total)}", outcome, *terms])
    share = f"{walk.item.ledger.share:.1%} of the gradient of its group"
    yield "group", f"{share}: {', '.join(walk.item.siblings)}"
    if (left := trajectory.branch) is not None:
        whom = f"sibling {left.sibling_index} ({walk.item.left or 'not in this file'})"
        if left.sibling_index is None:
            whom = "a solution of another group"
        yield "branch", f"branches from {whom} after line {left.num_lines}"
    yield "ended", f"{trajectory.stop_reason}, policy version {trajectory.policy_version}"
    if walk.worth is not None and walk.worth.scored is not None:
        branch = walk.worth.scored
        submission = branch.trajectory.submission or "nothing"
        yield "this branch", f"{judged(branch)} {number(walk.worth.total)}: {submission}"
    if notes:
        yield "notes", "\n".join(notes)


def help_overlay() -> Overlay:
    """It fits a screen of 24 rows."""
    entries = (*((key.label, key.meaning) for key in KEYS), *MARKS)
    rows = (Text.assemble((f"{name:<20}", KEY), meaning) for name, meaning in entries)
    return Overlay("keys", Text("\n").join(rows))
