"""Checks that the kernel's own Python is still, at each answer, what it was before any line ran.

own modules, own objects -> checks -> [direct.answers]

A line can reach everything in its interpreter. Our code depends on nothing that it shares with a
line: it calls C, and has the builtins among its own names. Only our own code is left to change, and
no honest line has a reason to do that. Knows Python's objects. Does not know what they do.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import getitem, length_hint
from types import CodeType, FunctionType, ModuleType
from typing import Any

# What decides what a function does, by whatever name it is called.
FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
OBJECT_PARTS = ("__class__", "__dict__")

Row = tuple[Any, Any, object]  # Any: modules' and classes' names, functions, objects
Check = tuple[Callable[[Any, Any], object], tuple[Any, ...], tuple[Any, ...], tuple[object, ...]]
"""(fetch, holders, names, values): `fetch(holders[i], names[i])` must be `values[i]` itself.

These are columns, not rows, so that functions in C can go through them.
"""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A function to be, whose parameters and global names become constants of its code.

    A frame's local names, a closure's cells and a module's names can be changed while it runs. Its
    code cannot.
    """

    code: CodeType
    values: dict[str, object]
    """Placeholder among its constants -> what a global name stands for."""

    @staticmethod
    def of(function: Callable[..., Any]) -> Fixed:
        """Take a function of plain arguments, as its source has it."""
        assert isinstance(function, FunctionType)
        tree = ast.parse(inspect.getsource(function))
        (definition,) = tree.body
        assert isinstance(definition, ast.FunctionDef)
        names = [each.arg for each in definition.args.args]
        shared = {**vars(builtins), **function.__globals__}
        definition.args.args, definition.returns = [], None
        written = set(function.__code__.co_varnames) - set(names)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - written
        fixed = ast.fix_missing_locations(_Fixing(used).visit(tree))
        with warnings.catch_warnings():
            # A call of what looks like text.
            warnings.simplefilter("ignore", SyntaxWarning)
            module = compile(fixed, function.__code__.co_filename, "exec")
        (code,) = (const for const in module.co_consts if isinstance(const, CodeType))
        return Fixed(code, {_placeholder(name): shared[name] for name in used - set(names)})

    def function(self, **given: object) -> Callable[[], Any]:
        """The function for these arguments."""
        values = self.values | {_placeholder(name): value for name, value in given.items()}
        constants = tuple(
            values[const] if isinstance(const, str) and const in values else const
            for const in self.code.co_consts
        )
        return FunctionType(self.code.replace(co_consts=constants), {})


class _Fixing(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_placeholder(node.id)) if node.id in self._names else node


def _placeholder(name: str) -> str:
    return f"<{name}>"


@dataclass(frozen=True, slots=True)
class Integrity:
    checks: tuple[Check, ...]

    @staticmethod
    def of(modules: Sequence[ModuleType]) -> Integrity:
        """The contents of these modules, each of which gets the builtins as names of its own."""
        for module in modules:
            for name, value in vars(builtins).items():
                vars(module).setdefault(name, value)
            # A warning that is attributed to one of our frames would make this name.
            vars(module).setdefault("__warningregistry__", {})
        classes = [value for module in modules for value in _own(module) if isinstance(value, type)]
        owners: list[ModuleType | type] = [*modules, *classes]
        functions = [
            value
            for owner in owners
            for value in map(_plain, _own(owner))
            if isinstance(value, FunctionType)
        ]
        used = {name for function in functions for name in _names(function.__code__)}
        entries: list[Row] = [
            (vars(owner), name, value)
            for owner in owners
            for name, value in vars(owner).items()
            if isinstance(owner, type) or name in used
        ]
        return Integrity(
            (
                _check(getitem, entries),
                _check(getattr, _parts(functions, FUNCTION_PARTS)),
                _check(length_hint, _lengths(classes)),
            )
        )

    def with_objects(self, root: object) -> Integrity:
        """Add checks of an object of one of these classes, and of those of ours that it holds."""
        links = [
            (root, name, value)
            for name, value in vars(root).items()
            if type(value) is dict or _is_own(type(value))
        ]
        objects = [root, *(value for _root, _name, value in links if type(value) is not dict)]
        # An additional entry in one of them would hide a method of the same name.
        more = (
            _check(getattr, [*_parts(objects, OBJECT_PARTS), *links]),
            _check(length_hint, _lengths(objects)),
        )
        return Integrity(self.checks + more)


def _check(fetch: Callable[[Any, Any], object], rows: Iterable[Row]) -> Check:
    holders, names, values = zip(*rows, strict=True)
    return fetch, holders, names, values


def _parts(holders: Iterable[object], names: Sequence[str]) -> list[Row]:
    rows = [(holder, name, getattr(holder, name)) for holder in holders for name in names]
    return [row for row in rows if row[2] is not None]


def _lengths(holders: Iterable[object]) -> list[Row]:
    # These are small integers: there is one object of each.
    return [(vars(holder), 0, len(vars(holder))) for holder in holders]


def _own(owner: ModuleType | type) -> list[object]:
    """The values in a class, or those in a module that it did not import."""
    name = owner.__name__ if isinstance(owner, ModuleType) else None
    return [v for v in vars(owner).values() if name in (None, getattr(v, "__module__", None))]


def _names(code: CodeType) -> set[str]:
    """Every name that this code looks up outside of itself."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_own(owned: type) -> bool:
    return owned.__module__.partition(".")[0] == __name__.partition(".")[0]


def _plain(value: object) -> object:
    """The function in a static method, a class method or a wrapper."""
    value = getattr(value, "__func__", value)
    return getattr(value, "__wrapped__", value)
