"""What a policy types is parsed beside the trainer: no text may take it long."""

from __future__ import annotations

import textwrap

import pytest

from repl_sandbox.statements import MAX_LINES, MAX_PENDING_LINES, Compiler, Syntax


def within_finally(depth: int, ways_out: int) -> str:
    """A function whose innermost statement is compiled (2 + ways_out) ** depth times."""
    lines = ["def f():"]
    for indent in range(1, depth + 1):
        lines += [" " * indent + "try:" + "return;" * ways_out + "0", " " * indent + "finally:"]
    return "\n".join([*lines, " " * (depth + 1) + "0", ""])


@pytest.mark.parametrize(
    ("depth", "ways_out", "syntax"),
    [
        (1, 300, Syntax.WHOLE),
        (3, 2, Syntax.WHOLE),
        (6, 12, Syntax.UNKNOWN),  # eight seconds, gigabytes
        (20, 0, Syntax.UNKNOWN),
    ],
)
def test_what_would_be_compiled_too_often_is_not_compiled(
    depth: int, ways_out: int, syntax: Syntax
) -> None:
    assert Compiler().syntax(within_finally(depth, ways_out)) is syntax


@pytest.mark.parametrize(
    ("block", "syntax"), [("def f():", Syntax.WHOLE), ("while 1:", Syntax.UNKNOWN)]
)
def test_ways_out_of_a_function_are_none_of_the_try_around_it(block: str, syntax: Syntax) -> None:
    """Two copies of 500 numbers, or 52."""
    ways_out = textwrap.indent("\n".join([block, *["  return"] * 50]), "    ")
    source = f"def g():\n  try:\n{ways_out}\n  finally:\n    x = [{'1,' * 500}]\n"
    assert Compiler().syntax(source) is syntax


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_statement_stays_open_for_so_many_lines_however_they_end(end: str) -> None:
    assert Compiler().syntax("(" + end * (MAX_PENDING_LINES - 1)) is Syntax.OPEN
    assert Compiler().syntax("(" + end * MAX_PENDING_LINES) is Syntax.BROKEN
    assert Compiler().syntax("(" + end * MAX_LINES) is Syntax.UNKNOWN


def test_a_bracket_that_nothing_can_close_is_reported() -> None:
    found = Compiler().statements("(\rglobal \\#")
    assert found is not None
    assert isinstance(found[0], SyntaxError)
