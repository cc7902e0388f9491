"""Which run a folder is or belongs to, and that run's newest weights.

    RUN | RUN/checkpoints/NAME -> RUN;  RUN -> RUN/checkpoints/final | .../checkpoint-N

Knows names of folders. Does not know what is in a checkpoint.
"""

from __future__ import annotations

import re
from pathlib import Path

from repl_rl.errors import ConfigError

_FOLDER, _FINAL, _CONFIG = "checkpoints", "final", "config.toml"


def run_of(path: Path) -> Path | None:
    """The run that a folder is or is a checkpoint of; None where it belongs to none."""
    if (path / _CONFIG).is_file():
        return path
    if path.resolve().parent.name != _FOLDER:
        return None
    # As it was named, where that is possible: messages show it.
    run = path.parents[1] if len(path.parents) > 1 else path.resolve().parents[1]
    return run if (run / _CONFIG).is_file() else None


def newest_checkpoint(run: Path) -> Path:
    """`final` where the run ended, else the highest number that was written whole.

    Raises ConfigError where there is none.
    """
    found = {
        int(match[1]): path
        for path in (run / _FOLDER).glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and _has_weights(path)
    }
    final = run / _FOLDER / _FINAL
    if final.is_dir():
        return final
    if not found:
        raise ConfigError(
            f"run {str(run)!r} has no checkpoint: it ended before the first one was written, see "
            f"report.checkpoint_every"
        )
    return found[max(found)]


def _has_weights(path: Path) -> bool:
    return any(path.glob("*.safetensors"))


def model_of(path: Path) -> Path:
    """The newest checkpoint where `path` is a run; `path` itself otherwise."""
    return newest_checkpoint(path) if (path / _CONFIG).is_file() else path
