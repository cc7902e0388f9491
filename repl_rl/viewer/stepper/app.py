"""The stepper: each key asks a walk for one thing, and the screen shows the result.

    StoredTrajectory, ... -> Stepper -> Walk -> Face

One command at a time: a key that is pressed while one runs waits for its end. Knows keys. Does not
know kernels, files or rewards.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType

from repl_rl.errors import ReplRLError
from repl_rl.rollout.scoring import Scorer
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.transcript.format import strip_line
from repl_rl.viewer.replay.annotated import Annotated
from repl_rl.viewer.replay.branch import LinePolicy, Referee
from repl_rl.viewer.replay.scene import Scene
from repl_rl.viewer.show.marked import PROMPT
from repl_rl.viewer.stepper.screen import (
    Face,
    Field,
    Overlay,
    bindings,
    details_overlay,
    difference_row,
    help_overlay,
    tokens_at_hand,
    tokens_overlay,
    variables_overlay,
)
from repl_rl.viewer.stepper.texts import DIFFERS, clipped, first_rows, styled
from repl_rl.viewer.stepper.walk import Walk
from repl_sandbox.types import KernelSource, SandboxError

Command = Coroutine[None, None, str | None]
"""Returns a message, None where there is nothing to say."""


@dataclass(slots=True, kw_only=True)
class RunningCommand:
    """Command of a walk under way."""

    doing: str
    """Words for the row of status."""
    task: asyncio.Task[str | None]
    can_stop: bool
    since: float = field(default_factory=time.monotonic)

    def stop(self) -> None:
        """End it early, if it may be called off."""
        if self.can_stop:
            self.task.cancel()
            self.can_stop = False  # its cleanup must run to the end

    def __str__(self) -> str:
        return f"{self.doing} ... {time.monotonic() - self.since:.0f} s"


Bring = Callable[[], Coroutine[None, None, tuple[LinePolicy, Referee]]]
"""Loads a policy, and what judges lines by it."""
Ask = Callable[[Walk], Command]
"""Request that a key makes of a walk."""

_TICK_S = 0.2
_MAX_AHEAD = 8
"""Keys that are kept while a line runs; of more keys, the last."""
_MAX_MESSAGE = 500
_ERROR = "red"


_MAX_PREFILLED, _MAX_DIGITS = 4000, 9
"""Characters."""
_CONTINUATIONS, _MAX_CONTINUATIONS = 16, 1000
"""Continuations of a state: unless the person says otherwise, and at most."""

RUNS: dict[str, Ask] = {
    "next": Walk.step,
    "end": Walk.run_to_end,
    "error": Walk.run_to_error,
    "reward": Walk.run_to_reward,
    "difference": Walk.run_to_difference,
}
"""Requests of the keys that run lines, by name in the key table."""


class Stepper(App[None]):
    """Run it with `run_async(mouse=False)` while kernels and judge are open.

    Its `return_code` is 1 where something of ours broke before there was anything to see.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None

    def __init__(
        self,
        trajectories: Sequence[StoredTrajectory],
        *,
        scene: Scene,
        kernels: KernelSource,
        annotate: Callable[[StoredTrajectory], Annotated],
        scorer: Scorer | None = None,
        policy: LinePolicy | None = None,
        referee: Referee | None = None,
        bring: Bring | None = None,
        notes: Sequence[str] = (),
        isolation: str = "unknown",
    ) -> None:
        """`annotate` is called in a thread; saved files record `isolation`.

        Without a policy `bring` is called once, when one is asked for.
        """
        super().__init__()
        # The colours of the person's own terminal, as everywhere else in repl-rl.
        self.theme = "ansi-dark"
        self._trajectories = trajectories
        self._scene, self._kernels, self._scorer = scene, kernels, scorer
        self._annotate, self._policy, self._referee = annotate, policy, referee
        self._bring = bring
        self._brought: asyncio.Task[tuple[LinePolicy, Referee]] | None = None
        self._notes, self._isolation = notes, isolation
        self._face = Face()
        self._walk: Walk | None = None
        self._number = 0
        self._command: RunningCommand | None = None
        self._ahead: deque[Callable[[Walk], None]] = deque(maxlen=_MAX_AHEAD)
        self._message = Text()
        self._take: Callable[[str], None] | None = None
        """Function that takes the answer to an open question."""

    def compose(self) -> ComposeResult:
        yield self._face

    def on_mount(self) -> None:
        self._start("opening", self._open(0))

    def on_ready(self) -> None:
        self.set_interval(_TICK_S, self._tick)

    async def on_unmount(self) -> None:
        if self._walk is not None:
            await self._walk.aclose()

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool:
        """While a question is open, keys are typed into its answer."""
        return self._take is None or action in ("leave", "quit")

    @property
    def is_busy(self) -> bool:
        """True while what a key asked for runs."""
        return self._command is not None

    def _soon(self, act: Callable[[Walk], None]) -> None:
        """Act at once, or after the command that runs: two lines are never interleaved."""
        if self.is_busy:
            self._ahead.append(act)
        elif self._walk is not None:
            act(self._walk)

    def _do(self, doing: str, ask: Ask, *, can_stop: bool = False) -> None:
        self._soon(lambda walk: self._start(doing, ask(walk), can_stop=can_stop))

    def _start(self, doing: str, command: Command, *, can_stop: bool = False) -> None:
        assert self._command is None, "one at a time"
        self._message = Text()
        task = asyncio.create_task(command)
        self._command = RunningCommand(doing=doing, task=task, can_stop=can_stop)
        self.run_worker(self._finish(self._command))

    async def _finish(self, command: RunningCommand) -> None:
        try:
            self._message = Text(clipped(await self._outcome(command) or "", _MAX_MESSAGE))
        except (ReplRLError, SandboxError) as error:
            self._message = styled(clipped(str(error), _MAX_MESSAGE), _ERROR)
            if self._walk is None:
                self.exit(return_code=1, message=self._message)
        finally:
            self._command = None
        self._ask_further()
        self._paint()
        while self._ahead and self._walk is not None and not self.is_busy:
            self._ahead.popleft()(self._walk)

    async def _outcome(self, command: RunningCommand) -> str | None:
        """The message of a command. Raises what the command raises."""
        try:
            await asyncio.wait([command.task])
        finally:
            command.task.cancel()  # in case this wait is cancelled itself
            command.can_stop = False
        if not command.task.cancelled():
            return command.task.result()
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
            self._face.show(self._walk, position=f"{self._number + 1} of {len(self._trajectories)}")
        can_stop = self._command is not None and self._command.can_stop
        self._face.show_status(self._status(), can_stop=can_stop)

    def _status(self) -> Text:
        if self._command is not None:
            return styled(str(self._command), DIFFERS)
        if self._message or self._walk is None:
            return self._message
        return difference_row(self._walk)

    def _show_message(self, message: str) -> None:
        self._message = Text(message)
        self._paint()

    # Keys that run lines

    def action_run(self, what: str) -> None:
        self._do("running", RUNS[what], can_stop=True)

    def action_previous_line(self) -> None:
        self._soon(lambda walk: self._go_to(walk.live.at - 1))

    def action_first_line(self) -> None:
        self._go_to(0)

    def _go_to(self, num_lines: int) -> None:
        def go(walk: Walk) -> None:
            # Going back drops lines until they have run again, so it cannot be called off.
            is_ahead = num_lines > walk.live.at
            doing = f"going to line {max(0, num_lines)}"
            self._start(doing, walk.go_to(num_lines), can_stop=is_ahead)

        self._soon(go)

    def action_let(self) -> None:
        async def let(walk: Walk) -> str | None:
            await self._have_policy()
            return await walk.let(self._policy, on_line=self._paint)

        self._do("the policy continues", let, can_stop=True)

    async def _have_policy(self) -> None:
        """Load the policy unless it is there. What loads it goes on where this is called off."""
        if self._policy is None and self._bring is not None:
            if self._brought is None or self._brought.done():
                self._brought = asyncio.create_task(self._bring())
            self._policy, self._referee = await asyncio.shield(self._brought)

    # Keys that ask

    def action_edit(self) -> None:
        self._soon(self._edit)

    def _edit(self, walk: Walk) -> None:
        if walk.live.is_over:
            self._show_message(walk.why_not())
            return
        upcoming = walk.live.upcoming
        source = "" if upcoming is None else strip_line(upcoming.source)
        # The field has one row: a line of several rows does not fit.
        first = first_rows(source, max_rows=1, max_chars=_MAX_PREFILLED)
        self._ask(self._prompt(walk), "".join(first), self._by_hand)

    def action_ask_line(self, digits: str) -> None:
        self._soon(lambda walk: self._ask(Text("go to line"), digits, self._take_number))

    def _take_number(self, text: str) -> None:
        self._close_question()
        digits = text.strip()
        if digits.isdecimal():
            self._go_to(int(digits[:_MAX_DIGITS]))

    def action_continuations(self) -> None:
        self._soon(self._ask_number)

    def _ask_number(self, walk: Walk) -> None:
        has_referee = (self._referee or self._bring) is not None
        if (why := walk.why_not_judged(has_referee=has_referee)) is not None:
            self._show_message(why)
        else:
            self._ask(Text("continuations of each state"), f"{_CONTINUATIONS}", self._judge)

    def _judge(self, text: str) -> None:
        self._close_question()
        digits = text.strip()
        number = int(digits[:_MAX_DIGITS]) if digits.isdecimal() else 0
        if not 1 <= number <= _MAX_CONTINUATIONS:
            self._show_message(f"expected 1 to {_MAX_CONTINUATIONS} continuations")
            return
        self._do("judging", lambda walk: self._judged(walk, number), can_stop=True)

    async def _judged(self, walk: Walk, number: int) -> str | None:
        def report(done: int, total: int) -> None:
            if self._command is not None:
                self._command.doing = f"{done} of {total} continuations"

        await self._have_policy()
        return await walk.judge(self._referee, num_branches=number, on_progress=report)

    def action_save(self) -> None:
        self._soon(self._ask_file)

    def _ask_file(self, walk: Walk) -> None:
        if not walk.is_changed:
            self._show_message("nothing was changed here: there is no branch to save")
            return
        name = f"{walk.item.id.replace(':', '-')}-branch.jsonl"
        self._ask(Text("save to"), clipped(name, 80), self._save)

    def _save(self, text: str) -> None:
        self._close_question()
        if path := text.strip():
            self._do("saving", lambda walk: walk.keep(Path(path), isolation=self._isolation))

    def _by_hand(self, text: str) -> None:
        def run(walk: Walk) -> None:
            # A bare Enter closes a block, and does nothing where none is open.
            if text or walk.live.session.pending:
                self._start("running your line", walk.by_hand(text), can_stop=True)

        self._soon(run)

    def _prompt(self, walk: Walk) -> Text:
        return styled(clipped(walk.prompt, 16), PROMPT)

    def _ask(self, question: Text, value: str, take: Callable[[str], None]) -> None:
        self._take, self._message = take, Text()
        self._face.ask(question, value)
        self._paint()

    def _ask_further(self) -> None:
        """Ask for further lines by hand, for as long as anything can follow."""
        if self._take == self._by_hand and self._walk is not None:
            if self._walk.live.is_over:
                self._close_question()
            else:
                self._face.ask(self._prompt(self._walk), self.query_one(Field).value)

    def on_input_submitted(self, event: Field.Submitted) -> None:
        if self._take is not None:
            self._take(event.value)

    def action_leave(self) -> None:
        if self._command is not None:
            self._ahead.clear()
            self._command.stop()
        else:
            self._close_question()

    def _close_question(self) -> None:
        self._take = None
        self._face.close_question()
        self._paint()

    # Keys that show

    def action_variables(self) -> None:
        async def look(walk: Walk) -> str | None:
            variables = await walk.live.variables()
            self._show(variables_overlay(variables))
            return None

        self._do("asking the kernel", look)

    def action_tokens(self) -> None:
        self._soon(self._tokens)

    def _tokens(self, walk: Walk) -> None:
        if (tokens := tokens_at_hand(walk)) is None:
            self._show_message("only lines that a policy sampled have tokens; n runs one")
        else:
            self._show(tokens_overlay(tokens))

    def action_details(self) -> None:
        self._soon(lambda walk: self._show(details_overlay(walk, self._notes)))

    def action_keys(self) -> None:
        self._show(help_overlay())

    def _show(self, overlay: Overlay) -> None:
        self.push_screen(overlay)

    def action_page(self, pages: int) -> None:
        self._face.scroll_outputs(pages)

    # Trajectories

    def action_turn(self, by: int) -> None:
        self._soon(lambda _: self._turn(self._number + by))

    def _turn(self, number: int) -> None:
        if 0 <= number < len(self._trajectories):
            self._start("opening", self._open(number))
        else:
            self._show_message("there is no further trajectory in this direction")

    async def _open(self, number: int) -> str | None:
        walk = await asyncio.to_thread(self._read, self._trajectories[number])
        await walk.live.start()
        before, self._walk, self._number = self._walk, walk, number
        if before is None:  # once: the key s shows them again
            return "; ".join(self._notes)
        await before.aclose()
        return None

    def _read(self, stored: StoredTrajectory) -> Walk:
        """Siblings are read and sources are parsed, and a model may be asked: it can take long."""
        return Walk(self._annotate(stored), self._scene, self._kernels, scorer=self._scorer)
