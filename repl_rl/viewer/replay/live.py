"""A stored trajectory beside a live kernel: step, go back, look inside, edit a line and go on.

    Scored, Scene, KernelSource -> Live: next, back, edit, variables
    Kernel, names -> an expression that it evaluates -> [Variable], as far as the answer can be read

Knows one trajectory and one kernel at a time. Does not know screens, files or policies.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from repl_rl.base.terminal import one_row
from repl_rl.errors import ConfigError
from repl_rl.records import Line, LineOutcome, OutcomeKind, Scored, Trajectory
from repl_rl.rollout.episode import Session
from repl_rl.rollout.prefixes import kernel_sources, nodes_of
from repl_rl.rollout.runner import kernel_pool
from repl_rl.transcript.format import SUBMIT, strip_line
from repl_rl.viewer.replay.compare import difference
from repl_rl.viewer.replay.scene import Scene, check_setup
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.started_kernel import FrontEnd
from repl_sandbox.render import clean
from repl_sandbox.types import ExecStatus, Kernel, KernelSource, SandboxError

_MAX_VARIABLES = 40
_MAX_NAME_CHARS, _MAX_TYPE_CHARS, _MAX_VALUE_CHARS = 64, 32, 64
_ASKED_AT_ONCE = 4
"""Values that fit into one answer of a kernel, even if most characters are escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Variable of the kernel. Type and value are what the kernel says."""

    name: str
    type: str
    value: str
    """`repr`, cut to 64 characters."""


def bound_names(sources: Sequence[str]) -> list[str]:
    """Names that sources bind, in order, at most 40; a source that does not parse binds none."""
    names = {name for source in sources for name in _bound(source)} - {SUBMIT}
    return sorted(name for name in names if len(name) <= _MAX_NAME_CHARS)[:_MAX_VARIABLES]


def _bound(source: str) -> Iterator[str]:
    for node in nodes_of(source) or ():
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                yield name


async def ask(
    kernel: Kernel, names: Sequence[str], *, with_values: bool = True
) -> list[Variable] | None:
    """Return the bound ones of `names`; None where the kernel did not survive the question.

    Without values no code of a policy runs, so nothing can end the kernel.
    """
    variables: list[Variable] = []
    for start in range(0, len(names), _ASKED_AT_ONCE):
        some = names[start : start + _ASKED_AT_ONCE]
        execution = await kernel.evaluate(_question(some, with_values=with_values))
        if execution.status in (ExecStatus.KILLED, ExecStatus.DIED):
            return None
        variables += _read(execution.value or "", some)
    return variables


_LOOK = f"""
def look(names, bound, show):
    rows = []
    for name in names:
        if name not in bound:
            continue
        value = bound[name]
        try:
            kind = type(value).__name__[:{_MAX_TYPE_CHARS}]
        except BaseException:
            kind = '?'
        try:
            text = show(value)[:{_MAX_VALUE_CHARS}]
        except BaseException as error:
            text = '(its repr raises ' + type(error).__name__[:{_MAX_TYPE_CHARS}] + ')'
        rows.append([name, kind, text])
    return rows
"""
"""Runs in a namespace of its own: a line may have rebound `repr`, and no name must be added."""

_NO_VALUE = "lambda value: '(not shown: asking for all values ended the kernel)'"


def _question(names: Sequence[str], *, with_values: bool) -> str:
    """An expression whose value is JSON: [name, type, repr] of each that is bound."""
    show = "b.repr" if with_values else f"({_NO_VALUE})"
    return (
        f"(lambda b, own: (b.exec({_LOOK!r}, own), b.__import__('json').dumps("
        f"own['look']({list(names)!r}, b.globals(), {show}), ensure_ascii=False))[1])"
        f"(__import__('builtins'), {{}})"
    )


def _read(value: str, names: Sequence[str]) -> Iterator[Variable]:
    """The variables in a kernel's answer, as far as it has the form that was asked for."""
    try:
        rows = json.loads(ast.literal_eval(value))
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        return
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == 3 and all(isinstance(cell, str) for cell in row):
            name, kind, text = row
            if name in names:
                yield Variable(
                    name=name,
                    type=clean(kind)[:_MAX_TYPE_CHARS],
                    value=clean(text)[:_MAX_VALUE_CHARS],
                )


_MAX_SHOWN = 48
"""Characters of a source in an error."""
NO_KERNEL = "there is no kernel; go back, or to this line again, to get a fresh one"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLine:
    """A line that ran here."""

    source: str
    """Source, as in `Line.source`: with the space after the prompt and the newline."""
    outcome: LineOutcome
    recorded: Line | None
    """The line of the trajectory that it repeats; None for one by hand and for all after it."""
    text_after: str = ""
    """The text that follows it: what it printed and the next prompt; empty after the last line."""
    value: str | None = None
    """`repr` of what it submitted; None where it did not. Untrusted text."""
    is_taken: bool = False
    """True where a policy ran it and read `text_after` exactly as it stands here."""


class Live:
    """Use it with `async with`: the kernel is closed at the end.

    To go back, a fresh kernel with the same seed runs the lines before (under a millisecond each):
    a sealed kernel never forks itself.
    """

    def __init__(self, scored: Scored, scene: Scene, kernels: KernelSource) -> None:
        self.scored = scored
        self._scene = scene
        self._kernels = kernels
        self._kernel: Kernel | None = None
        self.lines: list[LiveLine] = []
        """The lines that the kernel has run, in order."""
        self.session: Session

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Begin again in a fresh kernel that has run no line; `async with` begins so.

        Raises SandboxError where there is no kernel, ConfigError where the setup fails in it.
        """
        await self.aclose()
        trajectory = self.trajectory
        self._kernel = await self._kernels.acquire(seed=trajectory.seed)
        async with self._at_work() as kernel:
            await self._set_up(kernel)
        fmt = self._scene.fmt
        self.session = Session(kernel, fmt, number=fmt.number_at_end(trajectory.prompt_text) or 1)
        self.lines = []  # cleared last: where no kernel starts, `back` can be called again

    async def aclose(self) -> None:
        """End the kernel. Safe to call twice."""
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.aclose()

    @property
    def has_kernel(self) -> bool:
        """False after work in it failed or was called off, until `back` gets a fresh kernel."""
        return self._kernel is not None

    @property
    def at(self) -> int:
        """Number of lines that the kernel has run: the index of the next one."""
        return len(self.lines)

    @property
    def is_branch(self) -> bool:
        """True once a line by hand stands in place of a recorded one."""
        return bool(self.lines) and self.lines[-1].recorded is None

    @property
    def is_over(self) -> bool:
        """True where nothing can follow: something was submitted, or the kernel is gone."""
        return self.session.submission is not None or self.kernel_is_gone

    @property
    def kernel_is_gone(self) -> bool:
        """True where the last line ended its kernel."""
        return bool(self.lines) and self.lines[-1].outcome.kind.traits.kernel_is_gone

    @property
    def upcoming(self) -> Line | None:
        """The recorded line that is next; None at the end and on a branch.

        A line that was cut never ran, so it does not count.
        """
        lines = self.trajectory.lines
        if self.is_branch or self.is_over or self.at >= len(lines):
            return None
        line = lines[self.at]
        return None if line.outcome.kind is OutcomeKind.CUT else line

    @property
    def trajectory(self) -> Trajectory:
        """The recorded one."""
        return self.scored.trajectory

    async def next(self) -> LiveLine | None:
        """Run the next recorded line; None where there is none. SandboxError as `Kernel.run`."""
        line = self.upcoming
        return None if line is None else await self._run(line.source, line)

    async def run_to(self, is_there: Callable[[LiveLine], bool]) -> LiveLine | None:
        """Run recorded lines up to the first that `is_there` accepts; None if there is none."""
        while (line := await self.next()) is not None:
            if is_there(line):
                return line
        return None

    async def back(self, to: int) -> None:
        """Run the first `to` lines that ran here, those by hand too, in a fresh kernel.

        A policy's line that prints the same again stays as the policy saw it. Where no kernel
        starts (SandboxError), and where it ends early, all lines are kept and there is no kernel:
        `back` may be called again.
        """
        assert 0 <= to <= self.at, "lines that have not run cannot be gone back to"
        lines, session = self.lines, self.session
        await self.start()
        try:
            for line in lines[:to]:
                await self._run_again(line)
        except BaseException:
            self.lines, self.session = lines, session
            raise

    async def edit(self, text: str) -> LiveLine | None:
        """Run a line by hand in place of the next one: from here on it is a branch.

        None where nothing can follow.
        """
        if self.is_over:
            return None
        return await self._run(f" {text}\n" if text else "\n", None)

    def take(self, line: Line, *, text_after: str) -> LiveLine:
        """Add a line that a policy, going on from here, has run in this session."""
        taken = LiveLine(
            source=line.source,
            outcome=line.outcome,
            recorded=None,
            text_after=text_after,
            value=self._value(line.outcome.kind),
            is_taken=True,
        )
        self.lines.append(taken)
        return taken

    async def variables(self) -> list[Variable]:
        """List the variables that lines and prompt have bound, in the order of names; at most 40.

        Asks the kernel, whose state only a `__repr__` can change then. A kernel that does not
        survive the question is replaced by one that has run the same lines, and the new one is
        asked for types alone. Empty where the kernel is gone.
        """
        if self.kernel_is_gone:
            return []
        names = bound_names(
            [*self._scene.setup_of(self.scored.problem), *kernel_sources(self.lines)]
        )
        variables = await self._ask(names)
        if variables is None:
            await self.back(self.at)
            variables = await self._ask(names, with_values=False)
        return variables or []

    def text_after(self, outcome: LineOutcome) -> str:
        """Return the text after the line that has just run, as `LiveLine.text_after`."""
        if self.session.submission is not None or outcome.kind.traits.kernel_is_gone:
            return ""
        return self.session.show(outcome.observation, outcome.kind)

    def predicted(self, line: LiveLine) -> float:
        """The recorded reward of the line that `line` repeats; 0 where it repeats none."""
        return (
            0.0 if line.recorded is None else self.scored.reward.line_rewards[line.recorded.index]
        )

    async def _set_up(self, kernel: Kernel) -> None:
        own = self.scored.problem.setup
        check_setup(own, "the problem of this trajectory")
        await set_up(kernel, (*self._scene.run_first, *own))

    @contextlib.asynccontextmanager
    async def _at_work(self) -> AsyncIterator[Kernel]:
        """Yield the kernel; close it where its work ends early, for its state is unknown then."""
        if self._kernel is None:
            raise SandboxError(NO_KERNEL)
        try:
            yield self._kernel
        except BaseException:
            await self.aclose()
            raise

    async def _ask(
        self, names: Sequence[str], *, with_values: bool = True
    ) -> list[Variable] | None:
        async with self._at_work() as kernel:
            return await ask(kernel, names, with_values=with_values)

    async def _run_again(self, line: LiveLine) -> None:
        again = await self._run(line.source, line.recorded)
        if line.is_taken and difference(line.outcome, again.outcome) is None:
            # It may be shorter than the output here: the policy's cap in tokens had cut it.
            self.lines[-1] = line

    async def _run(self, source: str, recorded: Line | None) -> LiveLine:
        async with self._at_work():
            outcome = await self.session.run(strip_line(source))
        text_after = self.text_after(outcome)
        self.session.advance(outcome.kind)
        line = LiveLine(
            source=source,
            outcome=outcome,
            recorded=recorded,
            text_after=text_after,
            value=self._value(outcome.kind),
        )
        self.lines.append(line)
        return line

    def _value(self, kind: OutcomeKind) -> str | None:
        """Return the value that the line just run handed over."""
        return self.session.submission if kind is OutcomeKind.SUBMITTED else None


def pool_of(scene: Scene, *, front_end: FrontEnd | None = None, **limits: Any) -> KernelPool:
    """Kernels that start as the recorded ones did; `limits` take the place of those of a run."""
    sandbox = replace(scene.config.sandbox, **{"standby": 1, **limits})
    return kernel_pool(sandbox, setup=scene.born_with, front_end=front_end)


async def set_up(kernel: Kernel, sources: Iterable[str]) -> None:
    """Run what stands before a first line. ConfigError where one of these sources fails."""
    for source in sources:
        execution = await kernel.run(f"{source}\n")
        if execution.status is not ExecStatus.OK:
            excerpt = one_row(source[:_MAX_SHOWN])
            raise ConfigError(
                f"the setup of these trajectories fails here ({execution.status}), in `{excerpt}`"
            )
