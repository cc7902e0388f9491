r"""Typed lines -> statements, ended and refused where CPython's own REPL does it.

"if x:\n    f()" -> None, it may go on;  "if x:\n    f()\n" -> code;  "x = = 2" -> its SyntaxError

A terminal's tokenizer stops at the first error and knows a line only once it is typed; it cannot be
called, so `compile` is asked in its place, and where it has seen more or less than a terminal, that
is made up for. Knows Python's grammar. Does not know what a statement does, nor who typed it.
"""

from __future__ import annotations
import __future__

import ast
import codeop
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from tokenize import TokenError, generate_tokens

FILENAME = "<stdin>"
MAX_PENDING_LINES = 64
MAX_PENDING_CHARS = 4000
# ValueError: NUL bytes, lone surrogates. The last three: a source nested too deep.
UNCOMPILABLE = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)
TENTATIVE = codeop.Compile().flags | ast.PyCF_ONLY_AST
"""Parse, and say "incomplete input" where the end of the text is what is wrong with it."""
FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
"""The bits of a code object's flags that say what it imported from `__future__`."""
# The second is how 3.12 says it within a field of an f-string.
INCOMPLETE = re.compile("incomplete input|unterminated triple-quoted")
NEVER_CLOSED = re.compile(r"'([(\[{])' was never closed")
CLOSING = {"(": ")", "[": "]", "{": "}"}

Statement = types.CodeType | BaseException
"""What to run, or the error to show in its place."""


class Compiler:
    """Remembers what statements import from `__future__`, for all that follow."""

    def __init__(self) -> None:
        self._futures = 0

    def statements(self, source: str) -> list[Statement] | None:
        """What physical lines make; None while the last statement may go on."""
        futures = self._futures
        statements: list[Statement] = []
        pending = ""
        for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            if not pending and (not line.strip() or line.lstrip().startswith("#")):
                continue
            pending = f"{pending}\n{line}" if pending else line
            if self._has_ended(pending):
                statements.append(self._compile(pending))
                pending = ""
        if pending and _may_go_on(source):
            self._futures = futures
            return None
        if pending:
            statements.append(_compiled(pending, self._futures))
        return statements

    def is_complete(self, source: str) -> bool:
        """Whether `statements` has any for `source`; what these import is not remembered."""
        futures = self._futures
        try:
            return self.statements(source) is not None
        finally:
            self._futures = futures

    def _has_ended(self, text: str) -> bool:
        """False if a terminal would ask for another line, be it only the blank one."""
        with _silence():
            if self._refusal(text) is None:
                return True
            refusal = self._refusal(text + "\n")
        if refusal is not None and not INCOMPLETE.match(str(refusal)):
            return True
        return text.endswith("\n") and not _is_open(text)

    def _refusal(self, text: str) -> BaseException | None:
        """What the parser has against the lines so far; the compiler is asked at their end."""
        parsed = _compiled(text, TENTATIVE | self._futures)
        return parsed if isinstance(parsed, BaseException) else None

    def _compile(self, text: str) -> Statement:
        # Without a newline the last line would lose the caret of an error at its end.
        compiled = _compiled(text + "\n", self._futures)
        if isinstance(compiled, SyntaxError):
            return _as_typed(compiled, text)
        if isinstance(compiled, types.CodeType):
            self._futures |= compiled.co_flags & FUTURES
        return compiled


def _compiled(text: str, flags: int) -> Statement:
    try:
        code: types.CodeType = compile(text, FILENAME, "single", flags, dont_inherit=True)
        return code
    except UNCOMPILABLE as error:
        return error.with_traceback(None)


def _as_typed(error: SyntaxError, text: str) -> SyntaxError:
    """The error as a terminal would find it at the end of `text`."""
    closing = ""
    while match := NEVER_CLOSED.match(error.msg):
        # It hides the error at which a terminal stopped: what is not closed is waited for there.
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


def _is_open(text: str) -> bool:
    """Whether `text` ends within brackets or a string, where a blank line ends nothing."""
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
    """Drop the warnings about a text that is compiled again. Their filters stay untouched: a
    change of them would make every warning new."""
    stderr, sys.stderr = sys.stderr, StringIO()
    try:
        yield
    finally:
        sys.stderr = stderr


def _may_go_on(source: str) -> bool:
    return len(source) <= MAX_PENDING_CHARS and source.count("\n") < MAX_PENDING_LINES
