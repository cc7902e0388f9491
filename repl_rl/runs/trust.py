"""Configs that were run here: only for these is code loaded that a trajectory file names.

    Origin -> a mark in the user's own folder -> True | False

Whoever packs a run's folder writes every file in it, so the mark is kept elsewhere, as
Jupyter keeps its trust in notebooks. Knows digests. Does not know what a config means.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

import platformdirs

from repl_rl.types import Origin


def trust(origin: Origin) -> None:
    """Note that this config was run here, with this setup."""
    # With a read-only home a replay asks for `--set`, as for a file from elsewhere.
    with contextlib.suppress(OSError):
        mark = _mark(origin)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def is_trusted(origin: Origin) -> bool:
    """True where a run of this very config and setup was made by this user on this machine."""
    try:
        return _mark(origin).exists()
    except OSError:
        return False


def _mark(origin: Origin) -> Path:
    content = json.dumps([origin.config, origin.setup]).encode()
    folder = Path(platformdirs.user_state_dir("repl-rl"))
    return folder / "trusted" / hashlib.sha256(content).hexdigest()
