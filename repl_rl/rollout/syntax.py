"""The parts of a statement that say what runs, and what it binds.

    source -> statements -> heads, blocks, names that are stored

Pure. A source is hostile: it is parsed, never run. Does not know what names mean.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

MAX_SOURCE_CHARS = 1 << 14
"""A longer source is searched for names, and not parsed."""

_GROWS = (
    "add append appendleft discard extend extendleft insert pop push put remove setdefault update"
)
_CHANGES_ITSELF = frozenset(_GROWS.split())
_CHANGES_THE_FIRST = frozenset(["shuffle", "heappush", "heappushpop", "insort", "setattr"])
WITHOUT_VALUE = _CHANGES_ITSELF | _CHANGES_THE_FIRST | {"print", "sort", "reverse", "clear"}
"""Calls of these names display nothing, and leave `_` as it is."""

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Scope = _Definition | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
ASSIGNED = re.compile(r"\b([^\W\d]\w*+)\s*+=(?!=)")


class TooLongError(Exception):
    """A source that is not parsed, or not followed to its end."""


def statements(source: str) -> list[ast.stmt]:
    """The statements of a source. Where it does not parse, those of its lines, without blocks.

    Raises TooLongError, and RecursionError, for a source that cannot be read.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise TooLongError
    with warnings.catch_warnings():
        # `"\d"` or `1 is 1` in a policy's line is not worth a warning here.
        warnings.simplefilter("ignore")
        whole = _parsed(source)
        if whole is not None:
            return whole
        parts = [part for line in source.split("\n") for part in _parsed(line) or []]
        return [part for part in parts if not blocks(part)]


def _parsed(source: str) -> list[ast.stmt] | None:
    try:
        return ast.parse(source).body
    # A NUL byte is a ValueError, deep nesting a MemoryError: a kernel runs neither.
    except (SyntaxError, ValueError, MemoryError):
        return None


def blocks(node: ast.stmt) -> list[ast.stmt]:
    """The statements inside a compound one, in order."""
    found: list[ast.stmt] = []
    for part in ast.iter_child_nodes(node):
        match part:
            case ast.stmt():
                found.append(part)
            case ast.ExceptHandler(body=body) | ast.match_case(body=body):
                found.extend(body)
    return found


def heads(node: ast.stmt) -> list[ast.AST]:
    """What a compound statement evaluates and binds itself."""
    parts = list(ast.iter_child_nodes(node))
    guarded = [part for part in parts if isinstance(part, ast.match_case)]
    inner = (ast.stmt, ast.ExceptHandler, ast.match_case)
    heads = [part for part in parts if not isinstance(part, inner)]
    return [*heads, *(part for case in guarded for part in (case.pattern, case.guard) if part)]


def runs_at_once(node: _Definition) -> Iterator[ast.AST]:
    """Of a definition: decorators, defaults, bases, and what a class holds beside methods."""
    yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
        yield from (part for part in node.body if not isinstance(part, _Definition))
    else:
        yield node.args


def stored(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that are bound, or whose values are changed in place; not those inside functions."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield from _stored_by(node)
        if isinstance(node, ast.comprehension):
            waiting += [node.iter, *node.ifs]
        elif not isinstance(node, Scope):
            waiting += ast.iter_child_nodes(node)


def _stored_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            yield from _root(node)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _CHANGES_ITSELF:
            yield from _root(value)
        case ast.Call(args=[first, *_]) if called(node) in _CHANGES_THE_FIRST:
            yield from _root(first)
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name


def _root(node: ast.AST) -> Iterator[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def assigned_in_texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.Constant(value=str() as text):
                yield from ASSIGNED.findall(text)


def called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def is_jump(node: ast.AST) -> bool:
    return isinstance(node, (ast.Break, ast.Continue, ast.Raise))
