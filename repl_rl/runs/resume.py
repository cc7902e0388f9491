"""How far a run came, and what of its folder stays when it goes on from there.

    run folder -> Begun -> the same folder as it was at its newest whole checkpoint

Knows names of files and rows of metrics. Does not know what is in a checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repl_rl.disk import remove, replace_file
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import (
    CHECKPOINTS,
    COMPLETE,
    FINAL,
    METRICS,
    evaluation_name,
    numbered_checkpoints,
    read_versions,
)

EVALUATED = "eval_solve_rate"
"""The column of metrics.jsonl that a row of an evaluation has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that can go on."""

    run: Path
    checkpoint: Path | None
    """Its newest whole checkpoint; None where it goes on from its first weights."""
    policy: str
    """The weights that the run started from."""

    @property
    def step(self) -> int:
        """Updates that `checkpoint` has seen."""
        return 0 if self.checkpoint is None else _number(self.checkpoint)


def begun(run: Path) -> Begun:
    """The run in a folder; ConfigError where there is none that can go on."""
    policy = read_versions(run).get("policy")
    if not (run / METRICS).is_file() or not (run / "config.toml").is_file() or policy is None:
        raise ConfigError(f"{str(run)!r} holds no run; expected a folder that `train` has made")
    numbered = numbered_checkpoints(run / CHECKPOINTS)
    whole = [path for path in numbered if (path / COMPLETE).is_file()]
    if numbered and not whole:
        raise ConfigError(
            f"{str(numbered[-1])!r} holds weights alone, without the optimiser's state; begin a "
            f"new run with --config {run / 'config.toml'} --model {numbered[-1]}"
        )
    return Begun(run=run, checkpoint=whole[-1] if whole else None, policy=policy)


def newest_run(root: Path) -> Path:
    """The run under `root` that was written to last; ConfigError where there is none."""
    found = {path.parent: path.stat().st_mtime for path in root.glob(f"*/{METRICS}")}
    if not found:
        raise ConfigError(f"no run in {str(root)!r} to resume; name its folder")
    return max(found, key=lambda run: (found[run], run.name))


def has_ended(run: Begun, *, steps: int) -> bool:
    """Whether a run of so many steps has nothing left to do."""
    is_measured = (steps in evaluated_steps(run.run)) and (run.run / CHECKPOINTS / FINAL).is_dir()
    return run.step >= steps and is_measured


def evaluated_steps(run: Path) -> set[int]:
    """The steps after which an evaluation is on record."""
    return {row["step"] for row in _rows(run / METRICS) if row is not None and EVALUATED in row}


def cut(run: Begun) -> list[str]:
    """Take out what lies beyond the checkpoint, so that it is written anew. Says what was cut.

    Rows and files of an evaluation at the checkpoint's own step stay if it ended.
    """
    said, step, path = [], run.step, run.run / METRICS
    found = list(_rows(path))
    kept = [row for row in found if row is not None and row["step"] <= step]
    if None in found:
        said.append(f"{METRICS}: a row that was cut off is taken out")
    if num_beyond := len(found) - len(kept) - found.count(None):
        said.append(f"{METRICS}: {num_beyond} rows beyond step {step} are taken out")
    replace_file(path, b"".join(json.dumps(row).encode() + b"\n" for row in kept))
    measured = {row["step"] for row in kept if EVALUATED in row}
    stale = list(_stale_files(run.run / "trajectories", step, measured))
    for file in stale:
        file.unlink()
    if stale:
        names = stale[0].name if len(stale) == 1 else f"{stale[0].name} ... {stale[-1].name}"
        said.append(f"trajectories: {len(stale)} files beyond step {step} are taken out ({names})")
    for checkpoint in numbered_checkpoints(run.run / CHECKPOINTS):
        if _number(checkpoint) > step:
            remove(checkpoint)
    remove(run.run / CHECKPOINTS / FINAL)
    return said


def _stale_files(folder: Path, step: int, measured: set[int]) -> Iterator[Path]:
    """Files of rollouts that no kept update has read, and of evaluations that did not end."""
    for path in sorted(folder.glob("*.jsonl")):
        if named := re.fullmatch(r"step-(\d+)", path.stem):
            if int(named[1]) >= step:
                yield path
        elif path.stem not in map(evaluation_name, measured):
            yield path


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _rows(path: Path) -> Iterator[dict[str, Any] | None]:
    """The rows of metrics.jsonl; None for one that was cut off."""
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
            int(row["step"])
        except (ValueError, TypeError, KeyError):
            yield None
        else:
            yield row
