"""A person's terminal, or a pipe in its place, line by line.

Knows standard input and output. Does not know what is typed, nor what becomes of it.
"""

from __future__ import annotations

import importlib
import io
import shutil
import signal
import sys

from rich.text import Text

from repl_rl.viewer.show.display import Screen
from repl_sandbox.render import clean


class StandardPlayerConsole:
    """Asks at a terminal with readline's editing and history; echoes the lines of a pipe."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        if self._is_terminal:
            # Not imported earlier: on a pipe its import writes an escape sequence to stdout.
            readline = importlib.import_module("readline")
            # Pasted lines arrive one by one, like typed ones.
            readline.parse_and_bind("set enable-bracketed-paste off")

    def ask(self, prompt: str) -> str | None:
        """Implement `play.PlayerConsole`."""
        # Inside an event loop an interrupt would otherwise wait for the end of the line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self._typed(prompt) if self._is_terminal else self._read(prompt)
        finally:
            signal.signal(signal.SIGINT, before)

    def _typed(self, prompt: str) -> str | None:
        try:
            return input(f"{prompt} ")
        except EOFError:
            sys.stdout.write("\n")
            return None

    def _read(self, prompt: str) -> str | None:
        row = sys.stdin.readline()
        shown = clean(row).removesuffix("\n")
        self.say(Text(f"{prompt} {shown}".rstrip() if row else prompt))
        return row.removesuffix("\n") if row else None

    def say(self, text: Text) -> None:
        """Implement `play.PlayerConsole`."""
        self._screen.say(text)

    def note(self, text: str) -> None:
        """Implement `play.PlayerConsole`: dim, at the right edge."""
        width = shutil.get_terminal_size().columns
        self._screen.say(Text(text.rjust(width - 1), "dim"))
