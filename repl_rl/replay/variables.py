"""What the names of a kernel are bound to, asked of the kernel itself.

    sources -> names;  Kernel, names -> [Variable], or None where the kernel did not survive

Reads syntax and asks. What comes back is what a policy's `__repr__` says: data, cut and cleaned.
Does not know trajectories, nor where a fresh kernel comes from.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repl_rl.rollout.volatile import TooLongError, statements
from repl_rl.transcript.format import SUBMIT
from repl_sandbox.render import clean
from repl_sandbox.types import ExecStatus, Kernel

_MAX_VARIABLES = 40
_MAX_NAME_CHARS, _MAX_TYPE_CHARS, _MAX_VALUE_CHARS = 64, 32, 64
_ASKED_AT_ONCE = 4
"""Values that fit into one answer of a kernel, even if most characters are escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What a name of the kernel is bound to. Type and value are what the kernel says."""

    name: str
    type: str
    value: str
    """`repr`, cut to 64 characters."""


def bound_names(sources: Sequence[str]) -> list[str]:
    """Names that sources bind, in order, at most 40; a source that does not parse binds none."""
    names = {name for source in sources for name in _bound(source)} - {SUBMIT}
    return sorted(name for name in names if len(name) <= _MAX_NAME_CHARS)[:_MAX_VARIABLES]


def _bound(source: str) -> Iterator[str]:
    try:
        nodes = [node for statement in statements(source) for node in ast.walk(statement)]
    except (TooLongError, RecursionError):
        return
    for node in nodes:
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
    """Those of `names` that are bound; None where the kernel did not survive the question.

    Without values no code of a policy runs, so nothing can end the kernel.
    """
    found: list[Variable] = []
    for start in range(0, len(names), _ASKED_AT_ONCE):
        some = names[start : start + _ASKED_AT_ONCE]
        execution = await kernel.evaluate(_question(some, with_values=with_values))
        if execution.status in (ExecStatus.KILLED, ExecStatus.DIED):
            return None
        found += _read(execution.value or "", some)
    return found


_LOOK = f"""
def look(names, bound, show):
    found = []
    for name in names:
        if name not in bound:
            continue
        value = bound[name]
        try:
            kind = type(value).__name__[:{_MAX_TYPE_CHARS}]
        except BaseException:
            kind = '?'
        try:
            shown = show(value)[:{_MAX_VALUE_CHARS}]
        except BaseException as error:
            shown = '(its repr raises ' + type(error).__name__[:{_MAX_TYPE_CHARS}] + ')'
        found.append([name, kind, shown])
    return found
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
            name, kind, shown = row
            if name in names:
                yield Variable(
                    name=name,
                    type=clean(kind)[:_MAX_TYPE_CHARS],
                    value=clean(shown)[:_MAX_VALUE_CHARS],
                )
