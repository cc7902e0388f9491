r"""CPython's REPL as an object: one source goes in, what a terminal would have shown comes out.

source -> statements -> exec, one by one -> captured text or plain traceback

Runs inside a kernel, beside the code that it runs. After every source it restores what that code
may have changed (builtins, streams, hooks, signal handlers). It is no wall: code in a kernel owns
the kernel. Knows Python. Does not know sockets, messages, limits of the process or who asks.

`Capture` keeps the head and the tail of stdout and stderr, in one place, so their order is kept;
`Spill` takes what is written past them.
"""

from __future__ import annotations

# Not `signal`: it makes enums of all results, which takes longer than the calls.
import _signal  # type: ignore[import-not-found]  # typeshed leaves it out
import builtins
import gc
import os
import random
import re
import sys
import types
from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import BuiltinImporter
from io import RawIOBase, StringIO, TextIOWrapper
from typing import Any, NamedTuple

from repl_sandbox.statements import FILENAME, Compiler, Statement

MAX_WRITTEN_CHARS = 1 << 20
"""Even the shortest `print` reaches this within the CPU time of a line."""

SPILL_BYTES = 1 << 16
"""Bytes that a pipe holds."""
READ = os.read

OWN_FILES = frozenset({__file__})
FRAME = re.compile(r'^([ |+]*)  File "(.*)", line \d+, in .*\n(?:\1    .*\n)*', re.MULTILINE)
"""A frame of a traceback, with the source lines and carets below it."""
LIBRARIES = re.compile(r'(?<=  File ")[^"]*/(?:site-packages|dist-packages|python3\.\d+)/')
"""Folders that packages and the standard library are installed in."""
DUMMY_BASE = 10**7
"""Above every index that sympy draws at import, so that no Dummy of a warm-up comes again."""

# Called by these names, because user code may change the contents of modules.
SET_TRACE, SET_PROFILE, GET_FRAME = sys.settrace, sys.setprofile, sys._getframe
GET_LIMIT, SET_LIMIT = sys.getrecursionlimit, sys.setrecursionlimit
SHOW_TRACEBACK = sys.__excepthook__
CLASS_NAME = type.__dict__["__name__"].__get__
SET_SIGNAL, SET_MASK, SET_TIMER = _signal.signal, _signal.pthread_sigmask, _signal.setitimer
TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)
ORIGINAL_DISPLAYHOOK = sys.displayhook
OWN_LIMIT = GET_LIMIT()
MAX_LIMIT = 2**31 - 1
BUILTINS = vars(builtins)
ORIGINAL_BUILTINS = dict(BUILTINS)
OWN_BUILTINS = {"__builtins__": builtins}
CLEAR_CALLBACKS = gc.callbacks.clear
MAX_NAME_CHARS = 100
MONITORING_TOOLS: Sequence[int] = ()
MONITORED_EVENTS: Sequence[int] = ()
SET_MONITOR: Callable[[int, int, None], object] = print
if sys.version_info >= (3, 12):
    MONITORING_TOOLS = range(6)
    _events = vars(sys.monitoring.events).values()
    MONITORED_EVENTS = tuple(event for event in _events if event.bit_count() == 1)
    SET_MONITOR = sys.monitoring.register_callback


class OutputLimit(RuntimeError):
    """A line printed more than any transcript could hold."""


# The traceback names it the way it names the interpreter's own errors.
OutputLimit.__module__ = "builtins"


class Answer(NamedTuple):
    """Effects of one source, as the kernel reports them."""

    status: str = "ok"
    """`ok`, `incomplete` or `error`."""
    head: str = ""
    tail: str = ""
    num_omitted: int = 0
    """Characters dropped between head and tail."""
    error_type: str | None = None
    value: str | None = None


class Repl:
    """One `__main__` namespace and the rules by which lines run in it."""

    def __init__(
        self,
        *,
        max_output_chars: int,
        max_value_chars: int,
        spilt: Callable[[], str] = str,
    ) -> None:
        self._max_value_chars = max_value_chars
        self._capture = Capture(max_chars=max_output_chars, spilt=spilt)
        self._compiler = Compiler()
        self._main = _fresh_main()
        # Not by way of the module: a line can give that another class.
        self._names = vars(self._main)
        self._environment = _LineEnvironment()
        self._recursion_limit = OWN_LIMIT
        # Only an interactive session has them.
        sys.ps1, sys.ps2 = ">>> ", "... "

    def run(self, source: str) -> Answer:
        """Run physical lines, separated by newlines, as if typed at `>>>`.

        A source that ends in a newline ends in a blank line. `incomplete` means that nothing ran
        and nothing is kept. Every statement runs, also after one that raised, as if it were typed.
        The first error names the outcome. An interrupt or the output limit ends the whole source.
        """
        return self._guard(lambda: self._run(source))

    def set_up(self, source: str) -> Answer:
        """Run a source of ours. A `sys.displayhook` that it sets is used for every later line."""
        return self._guard(lambda: self._set_up(source))

    def is_complete(self, source: str) -> bool:
        """False where `run` would find `source` incomplete. Nothing runs."""
        return self._compiler.is_complete(source)

    def evaluate(self, expression: str) -> Answer:
        """Evaluate one expression. `value` is its repr; one that is too long is an OutputLimit."""
        return self._guard(lambda: self._evaluate(expression))

    def _guard(self, step: Callable[[], Answer]) -> Answer:
        self._capture.clear()
        self._environment.enter(self._capture)
        # Local names come last: code of a line's that still runs could change what they hold.
        try:
            done = (step(), self._environment.leave(), self._capture.captured())  # type: ignore[func-returns-value]
        # An interrupt may come between two statements of ours. The kernel must survive it.
        except BaseException as error:  # noqa: BLE001
            done = (self._failed(error), self._environment.leave(), self._capture.captured())  # type: ignore[func-returns-value]
        answer, _left, (head, tail, num_omitted) = done
        return Answer(answer.status, head, tail, num_omitted, answer.error_type, answer.value)

    def _run(self, source: str) -> Answer:
        statements = self._compiler.statements(source)
        if statements is None:
            self._capture.clear()
            return Answer(status="incomplete")
        todo = iter(statements)
        for statement in todo:
            error = self._execute(statement)
            if error is not None:
                return self._failed(error, todo)
        return Answer()

    def _set_up(self, source: str) -> Answer:
        answer = self._run(source)
        if sys.displayhook is not ORIGINAL_DISPLAYHOOK:
            self._environment.displayhook = sys.displayhook
        return answer

    def _execute(self, statement: Statement) -> BaseException | None:
        if isinstance(statement, BaseException):
            return statement
        limit = min(self._recursion_limit + _depth(), MAX_LIMIT)
        SET_LIMIT(limit)
        try:
            # With `*`: a plain call takes no share of the recursion limit once the interpreter has
            # specialised it, and `_depth` counts that share.
            exec(*(statement, self._names))
        # User code may raise anything, also SystemExit and GeneratorExit. The kernel goes on.
        except BaseException as error:  # noqa: BLE001
            # The first frame is this one. A class of the user may define a `with_traceback`.
            trace = error.__traceback__ and error.__traceback__.tb_next
            return BaseException.with_traceback(error, trace)
        finally:
            # Before anything that is Python: a trace function is called at each call.
            SET_PROFILE(None), SET_TRACE(None)
            self._restore()
            if GET_LIMIT() != limit:
                self._recursion_limit = GET_LIMIT()
            SET_LIMIT(OWN_LIMIT)
        return None

    def _restore(self) -> None:
        """Leave nothing of a statement's that runs by itself, or in which names are looked up."""
        _call_quietly(BUILTINS.update, ORIGINAL_BUILTINS)
        _call_quietly(self._names.update, OWN_BUILTINS)

    def _evaluate(self, expression: str) -> Answer:
        try:
            value = eval(compile(expression.strip(), FILENAME, "eval"), self._names)
            text = repr(value)
        finally:
            SET_PROFILE(None), SET_TRACE(None)
            self._restore()
        if len(text) > self._max_value_chars:
            raise OutputLimit(f"the repr of the value is over {self._max_value_chars} characters")
        return Answer(value=str(text))

    def _failed(self, error: BaseException, rest: Iterable[Statement] = ()) -> Answer:
        """Show an error and go on. The answer is made first, and held where no name leads."""
        return (
            Answer(status="error", error_type=_class_name(error)),
            self._continue(error, rest),  # type: ignore[func-returns-value]
        )[0]

    def _continue(self, error: BaseException, rest: Iterable[Statement]) -> None:
        """Show the error, and run what was typed behind it."""
        _remember(error)
        self._show(error)
        if isinstance(error, KeyboardInterrupt | OutputLimit):
            return
        for statement in rest:
            following = self._execute(statement)
            if following is not None:
                _remember(following)
                self._show(following)
            if isinstance(following, KeyboardInterrupt | OutputLimit):
                return

    def _show(self, error: BaseException) -> None:
        try:
            self._capture.take_unlimited(format_error(error))
        # Formatting runs a `__str__` that user code wrote, and there may be no memory left.
        except BaseException:  # noqa: BLE001
            self._capture.take_unlimited("<the traceback could not be shown>\n")


class Capture:
    """Keeps `max_chars` from the head and `max_chars` from the tail of what is written."""

    def __init__(self, *, max_chars: int, spilt: Callable[[], str] = str) -> None:
        self._max_chars = max_chars
        self._spilt = spilt
        self.clear()

    def clear(self) -> None:
        self._head: list[str] = []
        self._num_head = 0
        self._tail: list[str] = []
        self._num_tail = 0
        self._num_written = 0

    def open(self, fd: int, name: str, *, mode: str = "w", errors: str = "strict") -> TextIOWrapper:
        """A stream like the one CPython opens on `fd`. Closing it does not close the capture."""
        end = _End(self, fd, name, mode)
        stream = TextIOWrapper(end, "utf-8", errors, write_through=True)
        vars(stream)["mode"] = mode
        return stream

    def take(self, text: str) -> None:
        """Keep `text`. Raises OutputLimit once the line has written `MAX_WRITTEN_CHARS`."""
        self.take_unlimited(text)
        if self._num_written > MAX_WRITTEN_CHARS:
            raise OutputLimit(f"more than {MAX_WRITTEN_CHARS} characters of output")

    def take_unlimited(self, text: str) -> None:
        """Keep `text` without raising: for the traceback that ends a line."""
        text = self._spilt() + text
        self._num_written += len(text)
        room = self._max_chars - self._num_head
        if room > 0:
            self._head.append(text[:room])
            self._num_head += min(room, len(text))
            text = text[room:]
        if text:
            self._tail.append(text[-self._max_chars :])
            self._num_tail += min(len(text), self._max_chars)
            # Cut rarely: cutting at every write would copy the tail for every `print`.
            if self._num_tail > 8 * self._max_chars:
                self._cut_tail()

    def captured(self) -> tuple[str, str, int]:
        """(head, tail, how many characters between them are gone)."""
        self.take_unlimited("")
        self._cut_tail()
        num_omitted = self._num_written - self._num_head - self._num_tail
        return "".join(self._head), "".join(self._tail), num_omitted

    def _cut_tail(self) -> None:
        tail = "".join(self._tail)[-self._max_chars :]
        self._tail = [tail]
        self._num_tail = len(tail)


class Spill:
    """Pipe for what is written past Python's streams, on this process's descriptors 1 and 2.

    A writer that fills it before anybody has read gets an error, as at a terminal that is stopped.
    """

    def __init__(self) -> None:
        self.fd, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for fd in (1, 2):
            os.dup2(writer, fd)
        os.close(writer)

    def take(self) -> str:
        """Return what has come since the last time."""
        try:
            return utf_8_decode(READ(self.fd, SPILL_BYTES), "replace", True)[0]
        # Nothing has, or a line has closed it.
        except OSError:
            return ""


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

    Source lines are left out, because the sandbox decides whether a library's file can be read;
    so are the folders of libraries, that a line prints the same wherever they are installed.
    """
    stderr, sys.stderr = sys.stderr, StringIO()
    shown = sys.stderr
    try:
        _call_quietly(SHOW_TRACEBACK, type(error), error, error.__traceback__)
    finally:
        sys.stderr = stderr
    text = FRAME.sub(_short_frame, shown.getvalue())
    return text.encode("utf-8", "backslashreplace").decode()


def refuse_hook(hook: object) -> None:
    """`sys.addaudithook` of a kernel: a hook would run beside all later lines, and nobody could
    take it away."""
    raise RuntimeError("a kernel takes no audit hooks")


class _End(RawIOBase):
    """The raw end of a stream. Reading finds the end of the file."""

    def __init__(self, capture: Capture, fd: int, name: str, mode: str) -> None:
        self._capture = capture
        self._fd = fd
        self.name = name
        self.mode = mode

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return self.mode == "r"

    def writable(self) -> bool:
        return self.mode == "w"

    def readinto(self, buffer: object) -> int:
        return 0

    def write(self, data: Any) -> int:  # Any: whatever has a buffer
        text, num_bytes = utf_8_decode(data, "replace", True)
        self._capture.take(text)
        return num_bytes


class _LineEnvironment:
    """State that user code may change for one source: streams, the displayhook, signals."""

    def __init__(self) -> None:
        self.displayhook: Callable[[object], object] | None = None
        """That of a set-up, which no line can replace. Without it a displayhook that a line sets
        stays, as at any prompt: it runs only inside lines, with their deadlines and outputs."""
        self._streams: dict[str, TextIOWrapper] = {}

    def enter(self, capture: Capture) -> None:
        if not self._streams or any(map(_is_altered, self._streams.values())):
            self._streams = {
                "stdin": capture.open(0, "<stdin>", mode="r"),
                "stdout": capture.open(1, "<stdout>"),
                "stderr": capture.open(2, "<stderr>", errors="backslashreplace"),
            }
        for name, stream in self._streams.items():
            vars(sys)[name] = vars(sys)[f"__{name}__"] = stream
        SET_MASK(_signal.SIG_SETMASK, ())
        SET_SIGNAL(_signal.SIGINT, _signal.default_int_handler)

    def leave(self) -> None:
        SET_SIGNAL(_signal.SIGINT, _signal.SIG_IGN)
        for stream in self._streams.values():
            # As CPython does at a prompt: a line may have turned buffering on.
            try:  # noqa: SIM105  # `suppress` is Python, which a line can change
                TextIOWrapper.flush(stream)
            except Exception:  # noqa: BLE001
                pass
        for timer in TIMERS:
            SET_TIMER(timer, 0)
        if self.displayhook is not None:
            sys.displayhook = self.displayhook


def _is_altered(stream: TextIOWrapper) -> bool:
    """Return whether a line closed, detached or reconfigured the stream."""
    try:
        return stream.closed or not stream.write_through or stream.encoding != "utf-8"
    except ValueError:
        return True


def _call_quietly(call: Callable[..., object], *arguments: object) -> None:
    """Call it, and end what a line has left to run at calls, lines and collections of garbage.

    C functions, by names bound beforehand. In one line: what dies in the call may set a trace
    function, which can jump over lines.
    """
    call(*arguments), CLEAR_CALLBACKS(), SET_PROFILE(None), SET_TRACE(None)
    for tool in MONITORING_TOOLS:
        for event in MONITORED_EVENTS:
            SET_MONITOR(tool, event, None)


def _class_name(error: BaseException) -> str:
    """Name of an error's class as a traceback has it, if it is one; any text may stand there."""
    name = CLASS_NAME(type(error))
    is_name = str.__len__(name) <= MAX_NAME_CHARS and str.isidentifier(name)
    return name if is_name else "Exception"


def _depth() -> int:
    """Count our own frames below those of a statement, which use up the recursion limit.

    At a prompt a statement is the first frame. Here, too, it may go as deep as the limit allows.
    """
    frame = GET_FRAME(1)
    # Before 3.12 a call of `exec` counts as well.
    depth = 1 if sys.version_info >= (3, 12) else 2
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _short_frame(match: re.Match[str]) -> str:
    if match[2] in OWN_FILES:
        return ""
    return LIBRARIES.sub("", match[0].splitlines(keepends=True)[0])


def _remember(error: BaseException) -> None:
    """Keep of the last error what a REPL keeps, for `pdb.pm()` and others."""
    last = {"last_type": type(error), "last_value": error, "last_traceback": error.__traceback__}
    if sys.version_info >= (3, 12):
        last["last_exc"] = error
    _call_quietly(vars(sys).update, last)


def _fresh_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    names = main.__dict__
    names["__loader__"] = BuiltinImporter
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    names["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main
