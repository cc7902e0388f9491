"""What the kernel's own Python was before any line ran, and must still be at each answer.

own modules, own objects -> checks -> [direct.answers]

A line can reach whatever its interpreter holds. What own code shares with a line is made not to
matter: it calls C, and has the builtins among its own names. What is left to bend is ours alone,
and nobody has a reason to. Knows Python's objects. Does not know what they do.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import getitem, length_hint
from types import CodeType, FunctionType, ModuleType
from typing import Any

# What a function does, whoever calls it by whatever name.
FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
OBJECT_PARTS = ("__class__", "__dict__")

Row = tuple[Any, Any, object]  # Any: modules' and classes' names, functions, objects
Check = tuple[Callable[[Any, Any], object], tuple[Any, ...], tuple[Any, ...], tuple[object, ...]]
"""(fetch, holders, names, values): `fetch(holders[i], names[i])` is to be `values[i]` itself.

As columns, and not as rows, functions in C can go through them.
"""


@dataclass(frozen=True, slots=True)
class Pristine:
    checks: tuple[Check, ...]

    @staticmethod
    def of(modules: Sequence[ModuleType]) -> Pristine:
        """What stands in these modules, each of which gets the builtins as its own names."""
        for module in modules:
            for name, value in vars(builtins).items():
                vars(module).setdefault(name, value)
            # A warning that is put down to one of our frames would make it.
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
        return Pristine(
            (
                _check(getitem, entries),
                _check(getattr, _parts(functions, FUNCTION_PARTS)),
                _check(length_hint, _lengths(classes)),
            )
        )

    def with_objects(self, root: object) -> Pristine:
        """The same, and an object of one of the modules' classes with those of ours it holds."""
        links = [(root, name, held) for name, held in vars(root).items() if _is_own(type(held))]
        objects = [root, *(held for _root, _name, held in links)]
        # An entry more in one of them would stand before a method of the same name.
        more = (
            _check(getattr, [*_parts(objects, OBJECT_PARTS), *links]),
            _check(length_hint, _lengths(objects)),
        )
        return Pristine(self.checks + more)


def _check(fetch: Callable[[Any, Any], object], rows: Iterable[Row]) -> Check:
    holders, names, values = zip(*rows, strict=True)
    return fetch, holders, names, values


def _parts(holders: Iterable[object], names: Sequence[str]) -> list[Row]:
    rows = [(holder, name, getattr(holder, name)) for holder in holders for name in names]
    return [row for row in rows if row[2] is not None]


def _lengths(holders: Iterable[object]) -> list[Row]:
    # Small integers: of each there is one.
    return [(vars(holder), 0, len(vars(holder))) for holder in holders]


def _own(owner: ModuleType | type) -> list[object]:
    """What stands in a class, and in a module what was not imported."""
    name = owner.__name__ if isinstance(owner, ModuleType) else None
    return [v for v in vars(owner).values() if name in (None, getattr(v, "__module__", None))]


def _names(code: CodeType) -> set[str]:
    """Every name that it looks up outside of itself."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_own(owned: type) -> bool:
    return owned.__module__.partition(".")[0] == __name__.partition(".")[0]


def _plain(value: object) -> object:
    """The function in a static method, a class method or a wrapper."""
    value = getattr(value, "__func__", value)
    return getattr(value, "__wrapped__", value)
