"""Names and fields that are gone or have moved, and what stands for them.

    a public name -> what to do;  a module's former name -> its names, and where they are
    a row with claims -> the row as it would be written without

Knows names, texts and builtins alone.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAMES = {
    "Lemma": (
        "repl_rl.Lemma is gone: pay steps on the way with your own reward function, see "
        "docs/rewards.md"
    )
}
"""Former names of the package -> what an error says of each."""
_MODULES = {
    "repl_rl.types": "repl_rl.records",
    "repl_rl.seeds": "repl_rl.base.concurrency",
    "repl_rl.show": "repl_rl.viewer.show",
    "repl_rl.show.display": "repl_rl.viewer.show.display",
}
"""Former names of modules -> the module that holds their names."""


def spec_of(module: str) -> ModuleSpec | None:
    """Return None for what never was a name here; ImportError for a name that is gone."""
    if (name := module.removeprefix("repl_rl.")) in NAMES:  # `from repl_rl import Lemma`
        raise ImportError(NAMES[name])
    if module not in _MODULES:
        return None
    is_package = any(one.startswith(f"{module}.") for one in _MODULES)
    return ModuleSpec(module, _Loader(), is_package=is_package)


class _Loader(Loader):
    """Loader of an empty module that answers for names which stand elsewhere."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        vars(module)["__getattr__"] = _moved(name, to=_MODULES[name])


def _moved(former: str, *, to: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module whose names stand in the module `to`, which it says."""

    def find(name: str) -> Any:  # Any: whatever has moved
        value = getattr(import_module(to), name)
        if not name.startswith("__"):  # Python itself asks for these
            text = f"{former}.{name} is {to}.{name}, and public names are imported from repl_rl"
            # Python shows no `DeprecationWarning` of a module that is imported.
            warnings.warn(text, FutureWarning, stacklevel=2)
        return value

    return find


UNPAID = "claims of lemmas are no longer paid; stored rewards stay as they were"

_LEMMAS = re.compile(rb'"lemmas":\s*\[\s*\{')
"""In JSON no string holds this: its quotes would have backslashes."""
_KINDS = {"claimed": "ok_silent"}
_HAVE = """\
def have(*args, left={names!r}, **kwargs):
    if kwargs or len(args) != 2 or args[0] not in left: raise RuntimeError({fault!r})
    left.remove(args[0]); repr(args[1])

"""
_FAULT = "write have('name', value) alone on a line, once for each lemma"


def has_claims(row: bytes) -> bool:
    """Return whether the problem of this row has lemmas, which its lines may claim by `have`."""
    return _LEMMAS.search(row) is not None


def without_claims(stored: Any) -> Any:  # JSON
    """The row with `have` as a function of its kernel, in which the lines do what they did.

    A first claim of a name prints nothing, any other call raises. What is no such row comes back
    as it is, or in part.
    """
    with contextlib.suppress(LookupError, TypeError):
        problem, lines = stored["scored"]["problem"], stored["scored"]["trajectory"]["lines"]
        names = [lemma["name"] for lemma in problem["lemmas"]]
        problem["setup"] = [*problem["setup"], _HAVE.format(names=names, fault=_FAULT)]
        for line in lines:
            kind = line["outcome"]["kind"]
            line["outcome"]["kind"] = _KINDS.get(kind, kind)
    return stored
