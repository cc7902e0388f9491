"""The parts of the screen: head, transcript, both outputs, a row of status or question, keys.

    Walk -> Face

Knows widgets. Does not know keys, nor where a walk comes from.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Input, Static

from repl_rl.viewer.stepper.keys import footer
from repl_rl.viewer.stepper.panes import difference_row, live_pane, recorded_pane
from repl_rl.viewer.stepper.texts import DIM, KEY
from repl_rl.viewer.stepper.views import NARROW, head, transcript
from repl_rl.viewer.stepper.walk import Walk


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

    def show(self, walk: Walk, *, place: str) -> None:
        """`place` is the trajectory's among those that were found."""
        self.query_one("#head", Drawn).draw(lambda size: head(walk, place=place, width=size.width))
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
