"""An app over one walk at a time: it runs what a key asks for, and shows the result.

    Walk, Errand -> Face

One errand runs at a time, and a person may call it off; a few keys wait behind it. Knows errands
and the screen. Does not know keys.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence

from rich.text import Text
from textual.app import App, ComposeResult

from repl_rl.errors import ReplRLError
from repl_rl.viewer.stepper.panes import difference_row
from repl_rl.viewer.stepper.screen import Face
from repl_rl.viewer.stepper.texts import DIFFERS, clipped, styled
from repl_rl.viewer.stepper.walk import Walk
from repl_sandbox.types import SandboxError

Command = Coroutine[None, None, str | None]
"""Returns a message, None where there is nothing to say."""


class CalledOff(Exception):
    """The person ended the errand early."""


class Errand:
    """`begin`, `outcome`, `end`; `call_off` in between ends it early."""

    def __init__(self) -> None:
        self._task: asyncio.Task[str | None] | None = None
        self.doing, self._since = "", 0.0
        self.can_stop = False

    @property
    def is_on(self) -> bool:
        return self._task is not None

    def begin(self, doing: str, command: Command, *, can_stop: bool) -> None:
        """`doing` says in words what it is."""
        assert self._task is None, "one at a time"
        self.doing, self._since, self.can_stop = doing, time.monotonic(), can_stop
        self._task = asyncio.create_task(command)

    async def outcome(self) -> str | None:
        """The message of the command. Raises what the command raises, and CalledOff."""
        assert self._task is not None, "nothing was begun"
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()  # in case this wait is cancelled itself
            self.can_stop = False
        if self._task.cancelled():
            raise CalledOff
        return self._task.result()

    def call_off(self) -> None:
        """End the command early, if it may be called off."""
        if self._task is not None and self.can_stop:
            self._task.cancel()
            self.can_stop = False  # its cleanup must run to the end

    def end(self) -> None:
        self._task, self.can_stop = None, False

    def __str__(self) -> str:
        return f"{self.doing} ... {time.monotonic() - self._since:.0f} s"


Ask = Callable[[Walk], Command]
"""What a key asks of a walk."""

_TICK_S = 0.2
_MAX_AHEAD = 8
"""Keys that are kept while a line runs; of more keys, the last."""
_MAX_MESSAGE = 500
_ERROR = "red"


class WalkApp(App[None]):
    """The part of the stepper that is the same for all keys."""

    def __init__(self, *, num_found: int, notes: Sequence[str]) -> None:
        super().__init__()
        # The colours of the person's own terminal, as everywhere else in repl-rl.
        self.theme = "ansi-dark"
        self._face = Face()
        self._walk: Walk | None = None
        self._number, self._num_found = 0, num_found
        self._notes = notes
        self._errand = Errand()
        self._ahead: deque[Callable[[Walk], None]] = deque(maxlen=_MAX_AHEAD)
        self._message = Text()

    def compose(self) -> ComposeResult:
        yield self._face

    def on_ready(self) -> None:
        self.set_interval(_TICK_S, self._tick)

    async def on_unmount(self) -> None:
        if self._walk is not None:
            await self._walk.aclose()

    def _after(self) -> None:
        """Called once an errand has ended, for subclasses that have more to do."""

    @property
    def is_busy(self) -> bool:
        """True while what a key asked for runs."""
        return self._errand.is_on

    def _soon(self, act: Callable[[Walk], None]) -> None:
        """Act at once, or after the errand that runs: two lines are never interleaved."""
        if self.is_busy:
            self._ahead.append(act)
        elif self._walk is not None:
            act(self._walk)

    def _do(self, doing: str, ask: Ask, *, can_stop: bool = False) -> None:
        self._soon(lambda walk: self._start(doing, ask(walk), can_stop=can_stop))

    def _start(self, doing: str, command: Command, *, can_stop: bool = False) -> None:
        self._message = Text()
        self._errand.begin(doing, command, can_stop=can_stop)
        self.run_worker(self._finish())

    async def _finish(self) -> None:
        try:
            self._message = Text(clipped(await self._outcome() or "", _MAX_MESSAGE))
        except (ReplRLError, SandboxError) as error:
            self._message = styled(clipped(str(error), _MAX_MESSAGE), _ERROR)
            if self._walk is None:
                self.exit(return_code=1, message=self._message)
        finally:
            self._errand.end()
        self._after()
        self._paint()
        while self._ahead and self._walk is not None and not self.is_busy:
            self._ahead.popleft()(self._walk)

    async def _outcome(self) -> str | None:
        try:
            return await self._errand.outcome()
        except CalledOff:
            assert self._walk is not None, "what opens a walk is not called off"
            # Half a line has run in this kernel: nobody knows its state.
            await self._walk.renew()
            return "called off"

    def _tick(self) -> None:
        """A line that takes long shows that it runs."""
        if self.is_busy:
            self._paint()

    def _paint(self) -> None:
        if self._walk is not None:
            place = f"{self._number + 1} of {self._num_found}"
            self._face.show(self._walk, place=place)
        self._face.show_status(self._status(), can_stop=self._errand.can_stop)

    def _status(self) -> Text:
        if self.is_busy:
            return styled(str(self._errand), DIFFERS)
        if self._message or self._walk is None:
            return self._message
        if self._walk.at_hand is None:
            return styled("; ".join(clipped(note, _MAX_MESSAGE) for note in self._notes), DIFFERS)
        return difference_row(self._walk)

    def _show_message(self, message: str) -> None:
        self._message = Text(message)
        self._paint()
