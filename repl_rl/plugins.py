"""Find what a user named: an entry point, `module:attribute` on the import path, or a model.

Floor 1. Knows names and modules; does not know what the thing is.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from repl_rl.errors import ConfigError

_SPEC = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def resolve_spec(name: str, *, group: str) -> str:
    """`module:attribute` for a name: itself, or what the entry point of that name says.

    Raises ConfigError, with the nearest known name, where there is no such entry point.
    """
    if ":" in name:
        return name
    known = {point.name: point for point in entry_points(group=group)}
    if name in known:
        return known[name].value
    noun = group.rpartition(".")[2].removesuffix("s")
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    raise ConfigError(f"unknown {noun} {name!r}; {hint} (or give module:Class)")


def load_spec(spec: str) -> object:
    """Import what `module:attribute` names; ConfigError where it is not there.

    Modules of the current folder are found too: a task under development need not be installed.
    """
    if not _SPEC.fullmatch(spec):
        raise ConfigError(f"{spec!r} names nothing; expected module:attribute")
    # Last: a `random.py` of the user's must not stand before the library's.
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    module, _, attribute = spec.partition(":")
    try:
        return EntryPoint(name="", value=spec, group="").load()
    except ModuleNotFoundError as error:
        # A module that is there but lacks one of its own imports is the user's bug: show it whole.
        if error.name is None or not module.startswith(error.name):
            raise
        raise ConfigError(f"no module named {error.name!r} (wanted {spec!r})") from None
    except AttributeError:
        names = [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
        near = difflib.get_close_matches(attribute, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"module {module!r} has no {attribute!r}{hint}") from None


def resolve_model(name: str) -> str:
    """The folder that `name` is, or `name` as it may be on the hub; ConfigError if neither."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return str(folder.resolve())  # files name it, and are read from other folders, too
    if _HUB_NAME.fullmatch(name):
        return name
    raise ConfigError(f"no model at {name!r}: expected a folder with config.json, or owner/name")
