"""Names of tasks that stand for data, and their kinds. Loads nothing.

rows.jsonl, .json, .parquet, .csv, .tsv -> a file;  hf:owner/name -> the hub;  reasoning-gym:family
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from importlib.metadata import entry_points
from pathlib import Path

from repl_rl.base.plugins import find_beside
from repl_rl.config.sections import GYM, HUB
from repl_rl.errors import ConfigError

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".tsv")
KINDS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?")


def is_data(name: str) -> bool:
    """Say whether a task of this name is somebody's data, and not a class."""
    return is_file(name) or name.startswith((HUB, GYM))


def is_file(name: str) -> bool:
    """Say whether the name is that of a file with rows, which need not be there."""
    return name.endswith(SUFFIXES) and not name.startswith((HUB, GYM))


def find_file(name: str) -> Path:
    """The file: in the current folder or, as modules are, beside a config file.

    Raises ConfigError where there is none.
    """
    path = find_beside(Path(name).expanduser())
    if path is None:
        meant = Path(name).expanduser()
        there = {Path(one).stem: one for one in _files_in(meant.parent)}
        near = [there[stem] for stem in difflib.get_close_matches(meant.stem, there, n=1)]
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"no such file {name!r}; {hint}expected a file of rows ({KINDS}) in the current "
            f"folder, or next to a file that --config names"
        )
    if not path.is_file():
        raise ConfigError(f"{name!r} is no file; expected a file of rows: {KINDS}")
    return path


def check_no_file(name: str) -> None:
    """ConfigError, with what is meant, for the name of a file that is none of rows."""
    if ":" in name:
        return
    path = Path(name).expanduser()
    if path.suffix == ".py":
        classes = _classes(find_beside(path) or path)
        folder = "" if path.parent == Path() else f" in the folder {str(path.parent)!r}"
        meant = f"did you mean {path.stem}:{classes[0]}{folder}?" if classes else "expected one"
        raise ConfigError(f"{name!r} names no class: a task is module:Class; {meant}")
    if os.path.isfile(path):  # a name may be longer than that of any file
        raise ConfigError(f"{name!r} is no file of rows that is read: expected {KINDS}")
    if (inside := _files_in(path)) and not entry_points(group="repl_rl.tasks", name=name):
        raise ConfigError(f"{name!r} is a folder; name a file of rows in it, as {inside[0]!r}")


def _files_in(folder: Path) -> list[str]:
    """Files that are named as rows are, in their order; none where the folder cannot be read."""
    try:
        return sorted(str(one) for one in folder.iterdir() if is_file(one.name) and one.is_file())
    except (OSError, ValueError):
        return []


def _classes(path: Path) -> list[str]:
    """Classes of a file of Python, those that have problems first; the file is not run."""
    try:
        body = ast.parse(path.read_text()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    methods = {
        one.name: [part.name for part in one.body if isinstance(part, ast.FunctionDef)]
        for one in body
        if isinstance(one, ast.ClassDef)
    }
    return sorted(methods, key=lambda name: "problems" not in methods[name])


def split_hub_name(name: str) -> tuple[str, str | None]:
    """(owner/name, revision) of `hf:owner/name[@revision]`; ConfigError for anything else."""
    if not _HUB_NAME.fullmatch(rest := name.removeprefix(HUB)):
        raise ConfigError(f"{name!r} names no data set; expected hf:owner/name[@revision]")
    repository, _, revision = rest.partition("@")
    return repository, revision or None
