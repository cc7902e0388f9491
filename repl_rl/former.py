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
from typing import Any

NAMES = {
    "Lemma": "repl_rl.Lemma is gone: steps on the way are paid by a reward function of one's own, "
    "see docs/rewards.md"
}
"""Former names of the package -> what an error says of each."""


def moved(former: str, *, to: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module whose names stand in the module `to`, which it says."""

    def find(name: str) -> Any:  # Any: whatever has moved
        value = getattr(import_module(to), name)
        text = f"{former}.{name} is {to}.{name}, and public names are imported from repl_rl"
        # Python shows no `DeprecationWarning` of a module that is imported.
        warnings.warn(text, FutureWarning, stacklevel=2)
        return value

    return find


UNPAID = "claims of lemmas are not paid any more; stored rewards are as they were"

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
