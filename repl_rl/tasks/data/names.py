"""Which names of tasks stand for data, and of what kind. Loads nothing.

rows.jsonl, rows.json, rows.parquet -> a file;  hf:owner/name -> the hub;  reasoning-gym:family
"""

from __future__ import annotations

import re
from pathlib import Path

from repl_rl.errors import ConfigError
from repl_rl.plugins import found_beside

SUFFIXES = (".jsonl", ".json", ".parquet")
HUB, GYM = "hf:", "reasoning-gym:"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?")


def is_data(name: str) -> bool:
    """Whether a task of this name is somebody's data, and not a class."""
    return is_file(name) or name.startswith((HUB, GYM))


def is_file(name: str) -> bool:
    """Whether the name is that of a file with rows, which need not be there."""
    return name.endswith(SUFFIXES) and not name.startswith((HUB, GYM))


def find_file(name: str) -> Path:
    """The file: in the current folder or, as modules are, beside a config file.

    Raises ConfigError where there is none.
    """
    path = found_beside(Path(name).expanduser())
    if path is None:
        raise ConfigError(
            f"no such file {name!r}; expected a .jsonl, .json or .parquet file in the current "
            f"folder, or beside a file that --config names"
        )
    if not path.is_file():
        raise ConfigError(f"{name!r} is no file; expected rows in a .jsonl, .json or .parquet file")
    return path


def split_hub_name(name: str) -> tuple[str, str | None]:
    """(owner/name, revision) of `hf:owner/name[@revision]`; ConfigError for anything else."""
    if not _HUB_NAME.fullmatch(rest := name.removeprefix(HUB)):
        raise ConfigError(f"{name!r} names no data set; expected hf:owner/name[@revision]")
    repository, _, revision = rest.partition("@")
    return repository, revision or None
