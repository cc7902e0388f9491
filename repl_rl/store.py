"""A run's folder: what is written there, and how it is read back.

    config.toml  versions.json  metrics.jsonl  trajectories/*.jsonl  checkpoints/

Floor 2. Knows files and records. Does not know how they came about.
"""

from __future__ import annotations

import heapq
import importlib.metadata
import itertools
import json
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from repl_rl import __version__
from repl_rl.errors import ConfigError
from repl_rl.types import Scored

FORMAT = 1
"""Version of the trajectory lines. A reader refuses a version it does not know."""

_PACKAGES = (
    *("torch", "transformers", "trl", "accelerate", "tokenizers", "numpy"),
    *("jupyter_client", "ipykernel", "sympy"),
)


class _Header(msgspec.Struct):
    """What a row of any version has."""

    format: int


class _Row(msgspec.Struct, kw_only=True):
    format: int
    scored: Scored


def check_output(path: Path) -> None:
    """ConfigError unless a run can be written to `path`. Leaves nothing there."""
    try:
        if (path / "metrics.jsonl").exists():
            raise ConfigError(f"{str(path)!r} already holds a run; give another --output")
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise ConfigError(f"cannot write to {str(path)!r}: {error.strerror}") from None


class RunFolder:
    """Writes one run, and takes its folder from the moment it is made.

    Rows are appended whole, and readers pass over a last one that was cut: an interrupted run
    stays readable.

    Raises ConfigError if the folder cannot be made or already holds a run.
    """

    def __init__(self, path: Path) -> None:
        check_output(path)
        self.path = path
        try:
            (path / "trajectories").mkdir(parents=True, exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
            (path / "metrics.jsonl").open("x").close()
        except OSError as error:  # another run was faster, or the disk is full
            raise ConfigError(f"cannot write to {str(path)!r}: {error.strerror}") from None

    def write_config(self, toml: str, *, policy: str, device: str, isolation: str) -> None:
        """`config.toml` and `versions.json`; `policy` names the weights the run starts from."""
        (self.path / "config.toml").write_text(toml)
        found = {
            "repl_rl": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "policy": policy,
            "device": device,
            "isolation": isolation,
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        }
        (self.path / "versions.json").write_text(json.dumps(found, indent=2) + "\n")

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")

    def append_trajectories(self, name: str, scored: Iterable[Scored]) -> None:
        """Add to `trajectories/NAME.jsonl`, one line each."""
        encode = msgspec.json.Encoder().encode
        rows = b"".join(encode(_Row(format=FORMAT, scored=item)) + b"\n" for item in scored)
        with (self.path / "trajectories" / f"{name}.jsonl").open("ab") as file:
            file.write(rows)

    @property
    def final_checkpoint(self) -> Path:
        return self.path / "checkpoints" / "final"


def read_trajectories(path: Path) -> Iterator[Scored]:
    """The records of one `trajectories/*.jsonl`, one at a time.

    Raises ConfigError, with the line's number, for a line that is no record of this format.
    """
    read_header = msgspec.json.Decoder(_Header).decode
    decode = msgspec.json.Decoder(_Row).decode
    with path.open("rb") as file:
        for number, row in enumerate(file, 1):
            if not row.endswith(b"\n"):  # cut off while it was written: the run was ended there
                return
            try:
                found = read_header(row).format
                if found != FORMAT:
                    raise ConfigError(
                        f"{path}:{number} has format {found}; this version reads {FORMAT}"
                    )
                record = decode(row)
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path}:{number} is not a trajectory: {error}") from None
            yield record.scored


def select_trajectories(
    path: Path, *, which: Literal["best", "worst"] | None, count: int
) -> list[tuple[str, Scored]]:
    """(where it stands, record) of a run's last file or of a file: the first, best or worst."""
    if path.is_dir():
        files = sorted((path / "trajectories").glob("*.jsonl"), key=lambda f: f.stat().st_mtime)
        if not files:
            raise ConfigError(f"no trajectories in {str(path)!r}; expected a run folder")
        path = files[-1]
    if not path.is_file():
        raise ConfigError(f"no such file or run folder: {str(path)!r}")
    rows = ((f"{path.name}:{n}", item) for n, item in enumerate(read_trajectories(path), 1))
    if which is None:
        return list(itertools.islice(rows, count))
    pick = heapq.nlargest if which == "best" else heapq.nsmallest
    return pick(count, rows, key=lambda row: total_reward(row[1]))


def trajectory_file(path: Path) -> Path:
    """The file itself, or that of a run's last step, for evaluations have no siblings.

    Raises ConfigError where there is none.
    """
    if path.is_dir():
        steps = sorted((path / "trajectories").glob("step-*.jsonl"))
        if not steps:
            raise ConfigError(f"no step in {str(path)!r}; expected a run folder that was trained")
        return steps[-1]
    if not path.is_file():
        raise ConfigError(f"no such file or run folder: {str(path)!r}")
    return path


def total_reward(scored: Scored) -> float:
    """Outcome and lines together; an unscorable trajectory counts with its lines alone."""
    return (scored.reward.outcome_reward or 0.0) + sum(scored.reward.line_rewards)


def new_run_path(task: str, root: Path) -> Path:
    """A folder under `root` named by task and time; made by `RunFolder`."""
    stem = re.sub(r"[^\w.-]+", "-", task)
    return root / f"{stem}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`, in order."""
    return [json.loads(row) for row in path.read_text().splitlines()]


def read_versions(run: Path) -> dict[str, str]:
    """What a run's `versions.json` says, empty where there is none."""
    try:
        found: dict[str, str] = json.loads((run / "versions.json").read_text())
    except (OSError, ValueError):
        return {}
    return found
