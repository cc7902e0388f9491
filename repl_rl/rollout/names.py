"""What a name of a session is bound to, as far as syntax shows: `time.time`, a text, a function.

    import time as t; f = t.time  ->  path("f") == "time.time"

Pure. Knows bindings. Does not know which of them vary from run to run, nor when they are made.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from repl_rl.rollout.syntax import MAX_SOURCE_CHARS, Scope
from repl_rl.rollout.variation import imports

_BUILTINS = frozenset(vars(builtins))
_MAX_PATH_CHARS = 200
"""Longer ones are of no module."""


class Known(NamedTuple):
    """What a name is bound to."""

    path: str | None = None
    """Such as `time.time`."""
    text: str | None = None
    body: Scope | None = None
    """Of a function or class: it is read where it is used, with the names that hold there."""
    line: int = 0


NOTHING = Known()
Locals = Mapping[str, Known]
NOWHERE: Locals = {}


class Names:
    """The names of a session. Nothing is known any more about those in `rebound`.

    `local` holds the names of functions and comprehensions around an expression.
    """

    def __init__(self, rebound: Collection[str]) -> None:
        self.known: dict[str, Known] = {}
        self._rebound = rebound

    def alias(self, node: ast.expr, *, line: int) -> Known | None:
        """What an expression passes on unchanged: a function, a module, a text."""
        match node:
            case ast.Lambda():
                return Known(body=node, line=line)
            case ast.Name(id=name) if name in self.known:
                return self.known[name]
            case ast.Name() | ast.Attribute() if path := self.path(node, NOWHERE):
                return Known(path=path)
        text = self.text(node, NOWHERE)
        return None if text is None else Known(text=text)

    def path(self, node: ast.AST, local: Locals) -> str | None:
        """The dotted name of the value of `node`, None where syntax does not show it."""
        match node:
            case ast.Name(id=name) if name in local or name in self.known:
                return (local.get(name) or self.known.get(name) or NOTHING).path
            case ast.Name(id=name):
                is_plain = name in _BUILTINS and name not in self._rebound
                return f"builtins.{name}" if is_plain else None
            case ast.Attribute(value=value, attr=name):
                return _dotted(self.path(value, local), name)
            case ast.Call(func=func, args=[first, *rest]):
                return self._made(self.path(func, local), first, rest, local)
        return None

    def _made(
        self, path: str | None, first: ast.expr, rest: Sequence[ast.expr], local: Locals
    ) -> str | None:
        match path:
            case "builtins.__import__" | "importlib.import_module":
                return self.text(first, local)
            case "builtins.getattr" if rest:
                return _dotted(self.path(first, local), self.text(rest[0], local))
            case "builtins.vars":
                return _dotted(self.path(first, local), "__dict__")
        return None

    def text(self, node: ast.expr, local: Locals) -> str | None:
        """The text that is the value of `node`, None where syntax does not show it."""
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id=name) if name not in local:
                return self.known.get(name, NOTHING).text
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                parts = self.text(left, local), self.text(right, local)
                return _joined(*parts, by="", most=MAX_SOURCE_CHARS)
        return None

    def hashes_by_place(self, node: ast.expr) -> bool:
        """True for functions, classes, None and plain objects: their hash is an address."""
        match node:
            case ast.Name(id=name):
                is_builtin = (self.path(node, NOWHERE) or "").startswith("builtins.")
                return is_builtin or self.known.get(name, NOTHING).body is not None
            case ast.Call(func=ast.Name(id=name)):
                body = self.known.get(name, NOTHING).body
                return name == "object" or isinstance(body, ast.ClassDef)
            case ast.Constant(value=value):
                return value is None or value is ...
        return isinstance(node, ast.Lambda)


def _dotted(path: str | None, name: str | None) -> str | None:
    return _joined(path, name, by=".", most=_MAX_PATH_CHARS)


def _joined(first: str | None, second: str | None, *, by: str, most: int) -> str | None:
    """Both as one text; None where one is not known, or the text is longer than `most`."""
    if first is None or second is None or len(first) + len(by) + len(second) > most:
        return None
    return f"{first}{by}{second}"


def own_names(scope: ast.AST) -> dict[str, Known]:
    """The local names of a function, class or comprehension."""
    found: dict[str, Known] = {}
    shared: set[str] = set()
    for node in ast.walk(scope):
        match node:
            case ast.Import() | ast.ImportFrom():
                found.update((name, Known(path=path)) for name, path in imports(node))
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                shared.update(names)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.setdefault(name, NOTHING)
    return {name: known for name, known in found.items() if name not in shared}
