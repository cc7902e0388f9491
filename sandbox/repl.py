r"""CPython's REPL as an object: one source in, what a terminal would have shown out.

source -> statements, by codeop's rules -> exec(..., "single") -> captured text or plain traceback

Runs inside a kernel, among the code it runs: after every source it puts back what that code may
have bent (builtins, streams, hooks, signal handlers). It is no wall: code in a kernel owns the
kernel. Knows Python. Does not know sockets, messages, limits of the process or who asks.
"""

from __future__ import annotations

import builtins
import codeop
import random
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import StringIO

from sandbox.capture import Capture, OutputLimit

FILENAME = "<stdin>"
OWN_FILES = frozenset({__file__, Capture.write.__code__.co_filename})
MAX_PENDING_LINES = 64
MAX_PENDING_CHARS = 4000
# ValueError: NUL bytes, lone surrogates. The last three: a source nested too deep.
UNCOMPILABLE = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)
DUMMY_BASE = 10**7
"""Above every index that sympy draws at import, so no Dummy made in a warm-up is met again."""

SET_TRACE, SET_PROFILE = sys.settrace, sys.setprofile
BUILTINS = vars(builtins)
PRISTINE_BUILTINS = dict(BUILTINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one source did, in the words of the kernel."""

    status: str = "ok"
    """`ok`, `incomplete` or `error`."""
    head: str = ""
    tail: str = ""
    num_omitted: int = 0
    """Characters dropped between head and tail."""
    error_type: str | None = None
    value: str | None = None


Statement = types.CodeType | BaseException


class Repl:
    """One `__main__` namespace and the rules by which lines run in it."""

    def __init__(self, *, max_output_chars: int, max_value_chars: int) -> None:
        self._max_value_chars = max_value_chars
        self._capture = Capture(max_chars=max_output_chars)
        self._compiler = codeop.CommandCompiler()
        self._main = _fresh_main()
        self._home = _Home()

    def run(self, source: str) -> Said:
        """Run physical lines, separated by newlines, as if typed at `>>>`.

        A source that ends in a newline ends in a blank line. `incomplete` means that nothing ran
        and nothing is kept. Every statement runs, also after one that raised, as it would when
        typed; the first error names the outcome. An interrupt and the output limit end the whole
        source.
        """
        return self._guard(lambda: self._run(source))

    def evaluate(self, expression: str) -> Said:
        """Evaluate one expression; `value` is its repr. One that is too long is an OutputLimit."""
        return self._guard(lambda: self._evaluate(expression))

    def seed(self, seed: int) -> None:
        seed_generators(seed)

    def _guard(self, step: Callable[[], Said]) -> Said:
        self._capture.clear()
        self._home.enter(self._capture)
        try:
            said = step()
        # An interrupt may fall between two statements of ours; the kernel must outlive it.
        except BaseException as error:  # noqa: BLE001
            said = self._failed(error)
        finally:
            self._home.leave()
        head, tail, num_omitted = self._capture.kept()
        return replace(said, head=head, tail=tail, num_omitted=num_omitted)

    def _run(self, source: str) -> Said:
        statements = self._statements(source)
        if statements is None:
            self._capture.clear()
            return Said(status="incomplete")
        said = Said()
        for statement in statements:
            error = self._execute(statement)
            if error is None:
                continue
            failed = self._failed(error)
            said = said if said.error_type else failed
            if isinstance(error, KeyboardInterrupt | OutputLimit):
                break
        return said

    def _statements(self, source: str) -> list[Statement] | None:
        """What there is to run, compiled; None while the last statement may go on."""
        flags = self._compiler.compiler.flags
        statements: list[Statement] = []
        pending = ""
        for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            if not pending and (not line.strip() or line.lstrip().startswith("#")):
                continue
            pending = f"{pending}\n{line}" if pending else line
            statement = self._compile(pending)
            if statement is not None:
                statements.append(statement)
                pending = ""
        if pending and _may_go_on(source):
            self._compiler.compiler.flags = flags
            return None
        if pending:
            statements.append(_compile_as_is(pending))
        return statements

    def _compile(self, text: str) -> Statement | None:
        try:
            return self._compiler(text, FILENAME, "single")
        except UNCOMPILABLE as error:
            failed = error.with_traceback(None)
        # codeop loses the caret of an error at the end of a line that has no newline.
        retried = _compile_as_is(text + "\n")
        return retried if isinstance(retried, SyntaxError) else failed

    def _execute(self, statement: Statement) -> BaseException | None:
        if isinstance(statement, BaseException):
            return statement
        try:
            exec(statement, self._main.__dict__)
        # User code may raise anything, SystemExit and GeneratorExit included, and the kernel stays.
        except BaseException as error:  # noqa: BLE001
            return error
        finally:
            # By bound names and no Python call: a trace function or a builtin may be hostile.
            SET_PROFILE(None)
            SET_TRACE(None)
            BUILTINS.update(PRISTINE_BUILTINS)
        return None

    def _evaluate(self, expression: str) -> Said:
        try:
            value = eval(compile(expression.strip(), FILENAME, "eval"), self._main.__dict__)
            text = repr(value)
        finally:
            SET_PROFILE(None)
            SET_TRACE(None)
            BUILTINS.update(PRISTINE_BUILTINS)
        if len(text) > self._max_value_chars:
            raise OutputLimit(f"the repr of the value is over {self._max_value_chars} characters")
        return Said(value=str(text))

    def _failed(self, error: BaseException) -> Said:
        try:
            self._capture.add_unlimited(format_error(error))
        # Formatting runs the `__str__` of a class that user code wrote, and memory may be out.
        except BaseException:  # noqa: BLE001
            self._capture.add_unlimited("<the traceback could not be shown>\n")
        return Said(status="error", error_type=type.__dict__["__name__"].__get__(type(error)))


class _Home:
    """What user code may bend for one source: streams, hooks, signals, the recursion limit."""

    def __init__(self) -> None:
        self._displayhook = sys.__displayhook__
        self._recursion_limit = sys.getrecursionlimit()

    def enter(self, capture: Capture) -> None:
        sys.stdout, sys.stderr, sys.stdin = capture, capture, StringIO()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def leave(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.displayhook = self._displayhook
        # A higher limit is the user's right; a lower one would fell the kernel's own loop.
        if sys.getrecursionlimit() < self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)


def seed_generators(seed: int) -> None:
    """Start `random`, and sympy's own generators where it is loaded, from `seed`."""
    random.seed(seed)
    sympy_random = sys.modules.get("sympy.core.random")
    sympy_symbol = sys.modules.get("sympy.core.symbol")
    if sympy_random is not None and sympy_symbol is not None:
        sympy_random.seed(seed)
        dummy = sympy_symbol.Dummy
        dummy._base_dummy_index = DUMMY_BASE - dummy._count


def format_error(error: BaseException) -> str:
    """The traceback that CPython's REPL prints, without our own frames and without source lines.

    No source lines, because whether a library's file is readable depends on the sandbox.
    """
    shown = traceback.TracebackException.from_exception(error, lookup_lines=False)
    for part in _chain(shown):
        part.stack = traceback.StackSummary.from_list(
            traceback.FrameSummary(frame.filename, frame.lineno, frame.name, line="")
            for frame in part.stack
            if frame.filename not in OWN_FILES
        )
    lines = shown.format() if shown.stack or shown.exc_type is None else _bare(shown)
    return "".join(lines)


def _bare(shown: traceback.TracebackException) -> Iterator[str]:
    """An error without a frame of its own: one that the compiler found has no header either."""
    if shown.__cause__ is None and (shown.__context__ is None or shown.__suppress_context__):
        return shown.format_exception_only()
    return shown.format()


def _chain(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    todo = [shown]
    while todo:
        part = todo.pop()
        yield part
        linked = (part.__cause__, part.__context__, *(part.exceptions or ()))
        todo += [link for link in linked if link is not None]


def _fresh_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _may_go_on(source: str) -> bool:
    return len(source) <= MAX_PENDING_CHARS and source.count("\n") < MAX_PENDING_LINES


def _compile_as_is(text: str) -> Statement:
    try:
        return compile(text, FILENAME, "single")
    except UNCOMPILABLE as error:
        return error.with_traceback(None)
