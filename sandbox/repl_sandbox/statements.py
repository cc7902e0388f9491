r"""Typed lines -> statements, which end or fail where they do in CPython's own REPL.

"if x:\n    f()" -> None, it may go on;  "if x:\n    f()\n" -> code;  "x = = 2" -> its SyntaxError

A terminal's tokenizer stops at the first error, and sees a line only once it is typed. It cannot be
called. `compile` takes its place, and is corrected where it has seen more or less than a terminal.
Knows Python's grammar. Does not know what a statement does, nor who typed it.
"""

from __future__ import annotations
import __future__

import ast
import codeop
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import IntEnum
from io import StringIO
from tokenize import TokenError, generate_tokens

FILENAME = "<stdin>"
MAX_PENDING_LINES = 64
MAX_PENDING_CHARS = 4000
MAX_LINES = 2 * MAX_PENDING_LINES
"""Physical lines that `syntax` reads: each is parsed with all that stand before it."""
MAX_COMPILED = 20_000
"""Nodes that `syntax` compiles. CPython compiles a `finally` once for each way out of its `try`, so
those within one another multiply."""
# ValueError: NUL bytes, lone surrogates. The last three: a source that is nested too deeply.
UNCOMPILABLE = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)
TENTATIVE = codeop.Compile().flags | ast.PyCF_ONLY_AST
"""Parse, and report "incomplete input" where only the end of the text is wrong."""
FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
"""The bits of a code object's flags that stand for imports from `__future__`."""
# The second is the message of 3.12 within a field of an f-string.
INCOMPLETE = re.compile("incomplete input|unterminated triple-quoted")
UNTERMINATED = "unterminated triple-quoted"
LIMITED = "Exceeds the limit"
"""Part of the message about an integer literal with too many digits."""
CONTINUED = "after line continuation character"
PART_OF_NUMBER = re.compile(r"\b\d[\w.]*$")
NEVER_CLOSED = re.compile(r"'([(\[{])' was never closed")
CLOSING = {"(": ")", "[": "]", "{": "}"}

Statement = types.CodeType | BaseException
"""Code to run, or the error to show in its place."""


class Syntax(IntEnum):
    """Syntax of a source, as far as it can be known without running it."""

    WHOLE = 0
    """It compiles."""
    UNKNOWN = 1
    """It is too long to find out, or it depends on limits of the process that compiles."""
    OPEN = 2
    """Its last statement may go on: nothing would run."""
    BROKEN = 3
    """A statement in it does not compile."""


class Compiler:
    """Remembers what statements import from `__future__`, for all later ones."""

    def __init__(self) -> None:
        self._futures = 0
        self._open = ""

    def statements(self, source: str) -> list[Statement] | None:
        """The statements in physical lines. None while the last one may continue."""
        futures = self._futures
        statements: list[Statement] = []
        for text, has_ended in self._cut(source, _silence):
            if not has_ended and _may_go_on(source):
                self._futures = futures
                return None
            compiled = self._compile(text, has_ended=has_ended)
            if has_ended and isinstance(compiled, SyntaxError):
                with _silence():
                    compiled = _as_typed(compiled, text)
            statements.append(compiled)
        return statements

    def syntax(self, source: str) -> Syntax:
        """Return what `statements` would make of `source`, without the text of its errors.

        Warnings are dropped. Call it for the sources of a session in their order.
        """
        if len(source) > MAX_PENDING_CHARS or _num_lines(source) > MAX_LINES:
            return Syntax.UNKNOWN
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._syntax(source)

    def _syntax(self, source: str) -> Syntax:
        futures, worst = self._futures, Syntax.WHOLE
        for text, has_ended in self._cut(source, nullcontext):
            if not has_ended and _may_go_on(source):
                self._futures = futures
                return Syntax.OPEN
            if "finally" in text and self._num_compiled(text) > MAX_COMPILED:
                worst = max(worst, Syntax.UNKNOWN)
                continue
            worst = max(worst, _kind_of(self._compile(text, has_ended=has_ended)))
        return worst

    def is_complete(self, source: str) -> bool:
        """Return whether `statements` finds any in `source`. Their imports are not remembered."""
        futures = self._futures
        try:
            return self.statements(source) is not None
        finally:
            self._futures = futures

    def _cut(
        self, source: str, silence: Callable[[], AbstractContextManager[None]]
    ) -> Iterator[tuple[str, bool]]:
        """(the lines of a statement, whether it has ended). Only the last may not have."""
        source = source.replace("\r\n", "\n").replace("\r", "\n")
        # A statement is sent again with each further line. The lines before did not end it.
        is_known = self._open and source.startswith(f"{self._open}\n")
        pending = self._open if is_known else ""
        self._open = ""
        for line in source[len(pending) + bool(pending) :].split("\n"):
            if not pending and (not line.strip() or line.lstrip().startswith("#")):
                continue
            pending = f"{pending}\n{line}" if pending else line
            with silence():
                has_ended = self._has_ended(pending)
            if has_ended:
                yield pending, True
                pending = ""
        if pending:
            self._open = pending if pending == source else ""
            yield pending, False

    def _has_ended(self, text: str) -> bool:
        """False if a terminal would ask for another line, even if only for a blank one."""
        if self._refusal(text) is None:
            return True
        refusal = self._refusal(text + "\n")
        if isinstance(refusal, SyntaxError) and UNTERMINATED in refusal.msg:
            # A terminal may have stopped before the quotes.
            refusal = _met_first(refusal, text)
        if refusal is not None and not INCOMPLETE.match(str(refusal)):
            return True
        return text.endswith("\n") and not _is_open(text)

    def _refusal(self, text: str) -> BaseException | None:
        """The parser's error for the lines so far. The compiler sees them once they have ended."""
        parsed = _compiled(text, TENTATIVE | self._futures)
        return parsed if isinstance(parsed, BaseException) else None

    def _compile(self, text: str, *, has_ended: bool) -> Statement:
        # Without a newline, an error at the end of the last line would have no caret.
        compiled = _compiled(text + "\n" if has_ended else text, self._futures)
        if isinstance(compiled, types.CodeType):
            self._futures |= compiled.co_flags & FUTURES
        return compiled

    def _num_compiled(self, text: str) -> int:
        """About how many nodes the compiler writes out for a text; 0 where it does not parse."""
        tree: object = _compiled(f"{text}\n", ast.PyCF_ONLY_AST | self._futures)
        return _written(tree.body)[0] if isinstance(tree, ast.Interactive) else 0


def _written(body: Sequence[ast.AST]) -> tuple[int, int]:
    """(nodes, ways out) that statements have once they are compiled."""
    size, exits = 0, 0
    for node in body:
        parts = list(ast.iter_child_nodes(node))
        if not any(isinstance(part, _HOLDS_STATEMENTS) for part in parts):
            size += sum(1 for _ in ast.walk(node))
            exits += isinstance(node, ast.Return | ast.Break | ast.Continue)
            continue
        last = node.finalbody if isinstance(node, ast.Try | ast.TryStar) else []
        inner, ways = _written([part for part in parts if part not in last])
        # One copy for the end of the `try`, and one for an error.
        copies = 2 + ways
        size_last, ways_last = _written(last)
        size += 1 + inner + copies * size_last
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            exits += ways + copies * ways_last
    return size, exits


_HOLDS_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def _kind_of(statement: Statement) -> Syntax:
    if isinstance(statement, types.CodeType):
        return Syntax.WHOLE
    # A line may have changed the limit on digits, or that on recursion.
    is_sure = isinstance(statement, SyntaxError | ValueError) and LIMITED not in str(statement)
    return Syntax.BROKEN if is_sure else Syntax.UNKNOWN


def _compiled(text: str, flags: int) -> Statement:
    try:
        code: types.CodeType = compile(text, FILENAME, "single", flags, dont_inherit=True)
        return code
    except UNCOMPILABLE as error:
        return error.with_traceback(None)


def _as_typed(error: SyntaxError, text: str) -> SyntaxError:
    """The error as a terminal would find it at the end of `text`."""
    error = _met_first(error, text)
    closing = ""
    # No more often than there are brackets: one that a backslash hides is never closed.
    while len(closing) < _num_brackets(text) and (match := NEVER_CLOSED.match(error.msg)):
        # This error hides the one at which a terminal stops: a terminal waits for what is open.
        closing += CLOSING[match[1]]
        closed = _compiled(f"{text}\n{closing}\n", 0)
        if not isinstance(closed, SyntaxError):
            break
        error = closed
    if text.endswith("\n") and error.lineno == text.count("\n") + 1:
        error.offset, error.text = 1, ""
    if sys.version_info >= (3, 13) and error.text is None and error.lineno is not None:
        error.text = text.split("\n")[error.lineno - 1]
    return error


def _met_first(error: SyntaxError, text: str) -> SyntaxError:
    """`error`, or the error that a terminal's parser met before the place where no token was found.

    A terminal stops at the first error. `compile` reads on behind it, and prefers to report what is
    not a token.
    """
    # Behind the first of these lines nothing is parsed, only cut into tokens.
    tokens = _compiled(f"=\n{text}", 0)
    line, at = _position(error)
    if not isinstance(tokens, SyntaxError) or _position(tokens) != (line + 1, at):
        return error
    lines = text.split("\n")
    # The error of a number is at its wrong digit.
    before = PART_OF_NUMBER.sub("", lines[line - 1][: at - 1])
    # This is not a token either, but it is reported only where the parser asks for it.
    cut = "\n".join([*lines[: line - 1], f"{before}\\ "])
    earlier = _compiled(f"{cut}\n", 0)
    if (
        not isinstance(earlier, SyntaxError)
        or CONTINUED in earlier.msg
        or NEVER_CLOSED.match(earlier.msg)
    ):
        return error
    earlier.text = f"{lines[_position(earlier)[0] - 1]}\n"
    return earlier


def _position(error: SyntaxError) -> tuple[int, int]:
    """(line, character), both from 1, or 0 where they are not known."""
    return error.lineno or 0, error.offset or 0


def _is_open(text: str) -> bool:
    """Return whether `text` ends within brackets or a string, where a blank line ends nothing."""
    try:
        for _token in generate_tokens(StringIO(text + "\n").readline):
            pass
    except TokenError:
        return True
    except SyntaxError:
        return False
    return False


@contextmanager
def _silence() -> Iterator[None]:
    """Drop the warnings about a text that is compiled again.

    Their filters stay as they are: after a change of filters every warning is shown again.
    """
    stderr, sys.stderr = sys.stderr, StringIO()
    try:
        yield
    finally:
        sys.stderr = stderr


def _may_go_on(source: str) -> bool:
    return len(source) <= MAX_PENDING_CHARS and _num_lines(source) <= MAX_PENDING_LINES


def _num_lines(source: str) -> int:
    """Count physical lines; `\r` ends one, too."""
    return 1 + source.count("\n") + source.count("\r") - source.count("\r\n")


def _num_brackets(text: str) -> int:
    return sum(map(text.count, CLOSING))
