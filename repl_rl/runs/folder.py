"""A run's folder: write it, read it back.

    config.toml  versions.json  metrics.jsonl  trajectories/*.jsonl  tokenizer/  checkpoints/
    RUN | RUN/checkpoints/NAME -> RUN;  RUN -> its newest weights;  Origin -> was it run here?

`files` lists the files of trajectories in order, `part_of` finds the one that a person
means, and `load_run` reads them.

Knows files and records. Does not know how they are made, nor what is in a checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
import re
import secrets
import shlex
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from repl_rl import __version__
from repl_rl.base.disk import append_whole, explained, replace_file
from repl_rl.config import Config
from repl_rl.config.resolve import refuse_foreign_code, to_toml
from repl_rl.errors import ConfigError
from repl_rl.records import GRADING, Origin, Scored
from repl_rl.runs.trajectory_file import EXPECTED, FOLDER, append, read_trajectories, size

CONFIG, METRICS = "config.toml", "metrics.jsonl"
CURVES = "curve.png", "curve.svg"
CHECKPOINTS, FINAL, BEST = "checkpoints", "final", "best"
COMPLETE = "COMPLETE"
"""In a checkpoint, the file that was written last: with it a run can go on from there."""
UPDATES = "UPDATES"
"""Beside weights whose name has no number, the file that holds how many updates they have seen."""
WORKERS = "workers"
"""Name of the folder, in a run, of what its workers have said on stderr."""
TOKENIZER = "tokenizer"
"""Name of the folder, in a run, of its policy's tokenizer."""
PLAYED, MEASURED = "play", "eval"
"""Names of the trajectories in a folder in which nothing was trained."""

LESSONS = "lessons"
"""Name of the file of a warm start with the transcripts that the model was shown."""
_WARM = "warmstart.json"
"""The mark of the folder of a warm start."""

GRADER = "grading"
"""Among versions, that of the grader. A run of version 1 does not name it."""

_PACKAGES = (
    *("torch", "transformers", "trl", "accelerate", "peft", "tokenizers", "numpy"),
    *("jupyter_client", "ipykernel", "sympy"),
)

_WRITTEN = CONFIG, "versions.json", "trajectories", TOKENIZER
_STEP, _EVALUATION = "step", "eval"
_MAX_NAMED = 8
"""Steps that a message names."""


def check_output(path: Path) -> None:
    """ConfigError unless a run can be written to `path`. Leaves nothing there."""
    try:
        if (path / METRICS).exists():
            raise ConfigError(f"{str(path)!r} already holds a run; give another --output")
        if taken := list(_taken(path)):
            raise ConfigError(
                f"{str(path)!r} holds {', '.join(taken)}, which a run has files of its own for; "
                f"give another --output"
            )
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise ConfigError(f"cannot write to {str(path)!r}: {error.strerror}") from None


def _taken(path: Path) -> Iterator[str]:
    """Names of what a run would write over. A trainer may keep its logs beside the checkpoints."""
    for name in _WRITTEN:
        if any((path / name).iterdir()) if (path / name).is_dir() else (path / name).exists():
            yield name
    for one in sorted((path / CHECKPOINTS).glob("*")):
        if one.name in (FINAL, BEST) or re.fullmatch(r"checkpoint-\d+", one.name):
            yield f"{CHECKPOINTS}/{one.name}"


class RunFolder:
    """Writes one run, and has its folder to itself from the moment it is made until `close`.

    Rows are appended whole, and readers skip a last one that was cut: an interrupted run stays
    readable. With `is_begun` the folder holds a run that goes on.

    Raises ConfigError if the folder cannot be made, holds a run that is not to go on or one that
    another process writes, and StorageError where the disk refuses a write.
    """

    def __init__(self, path: Path, *, is_begun: bool = False) -> None:
        if not is_begun:
            check_output(path)
        self.path = path
        try:
            (path / "trajectories").mkdir(parents=True, exist_ok=True)
            (path / CHECKPOINTS).mkdir(exist_ok=True)
            if not is_begun:
                (path / METRICS).open("x").close()
        except OSError as error:  # another run was faster, or the disk is full
            raise ConfigError(f"cannot write to {str(path)!r}: {error.strerror}") from None
        self.close = weakref.finalize(self, os.close, _locked(path))
        """Leave the folder to others. The traceback of a failure may keep this object alive."""
        self._origin: Origin | None = None

    def write_config(self, origin: Origin, *, policy: str, device: str) -> None:
        """`config.toml` and `versions.json`; `policy` names the weights the run starts from.

        From here on every file of trajectories begins with `origin`. A replay on this machine
        trusts it.
        """
        self._origin = origin
        trust(origin)
        versions = {
            **origin.versions,
            "policy": policy,
            "device": device,
            "isolation": origin.isolation,
        }
        if before := read_versions(self.path):  # a run that goes on holds older verdicts, too
            versions[GRADER] = str(min(graded_by(before), graded_by(versions)))
        replace_file(self.path / "versions.json", json.dumps(versions, indent=2).encode() + b"\n")
        replace_file(self.path / CONFIG, origin.config.encode())

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        path = self.path / METRICS
        with explained(path):
            append_whole(path, json.dumps({"step": step, **metrics}).encode() + b"\n")

    def append_trajectories(self, name: str, scored: Iterable[Scored]) -> None:
        """Add to `trajectories/NAME.jsonl`, one line each."""
        path = self.trajectories(name)
        with explained(path):
            append(path, scored, origin=self._origin)

    def trajectories(self, name: str) -> Path:
        """The file of this name."""
        return self.path / "trajectories" / f"{name}.jsonl"

    @property
    def rollouts(self) -> list[Path]:
        """The files of trajectories that were trained on, in the order of their steps."""
        return sorted((self.path / "trajectories").glob(f"{_STEP}-*.jsonl"))

    @property
    def tokenizer(self) -> Path:
        """Folder of its policy's tokenizer, for those who read trajectories."""
        return self.path / TOKENIZER

    @property
    def final_checkpoint(self) -> Path:
        return self.path / CHECKPOINTS / FINAL

    @property
    def best_checkpoint(self) -> Path:
        """Folder of the weights with the highest rate of all measurements while training."""
        return self.path / CHECKPOINTS / BEST


def evaluation_name(step: int) -> str:
    """The name of the trajectories of an evaluation after so many updates."""
    return f"eval-{step:06d}"


def rollouts_name(version: int) -> str:
    """The name of the trajectories that a policy learned from after so many updates of it."""
    return f"step-{version:06d}"


def numbered_checkpoints(folder: Path) -> list[Path]:
    """The `checkpoint-N` in a folder, in the order of their steps."""
    numbered = {
        int(named[1]): path
        for path in folder.glob("checkpoint-*")
        if (named := re.fullmatch(r"checkpoint-(\d+)", path.name)) and path.is_dir()
    }
    return [numbered[step] for step in sorted(numbered)]


def last_checkpoint(run: Path) -> Path | None:
    """A run's latest weights: its final ones, or those of the last step that was written whole."""
    final = run / CHECKPOINTS / FINAL
    if final.is_dir():
        return final
    numbered = numbered_checkpoints(run / CHECKPOINTS)
    return next((path for path in reversed(numbered) if any(path.glob("*.safetensors"))), None)


def run_of(path: Path) -> Path | None:
    """The run that a folder is or is a checkpoint of; None where it belongs to none."""
    if (path / CONFIG).is_file():
        return path
    if path.resolve().parent.name != CHECKPOINTS:
        return None
    # As it was named, where that is possible: messages show it.
    run = path.parents[1] if len(path.parents) > 1 else path.resolve().parents[1]
    return run if (run / CONFIG).is_file() else None


def updates_of(checkpoint: Path) -> int | None:
    """Updates behind the weights of `best`; None where they do not say it."""
    try:
        return int((checkpoint / UPDATES).read_text())
    except (OSError, ValueError):
        return None


def run_around(path: Path) -> Path | None:
    """The run that a file or folder is or lies in; None where it lies in none."""
    return next((one for one in (path, *path.absolute().parents) if (one / CONFIG).is_file()), None)


def newest_checkpoint(run: Path) -> Path:
    """The `last_checkpoint` of a run; ConfigError where it has none."""
    checkpoint = last_checkpoint(run)
    if checkpoint is None:
        raise ConfigError(
            f"run {str(run)!r} has no checkpoint: it ended before the first one was written, see "
            f"report.checkpoint_every"
        )
    return checkpoint


def model_of(path: Path) -> Path:
    """The newest checkpoint where `path` is a run; `path` itself otherwise."""
    return newest_checkpoint(path) if (path / CONFIG).is_file() else path


def make_origin(
    config: Config,
    *,
    setup: Sequence[str],
    tokenizer: str | None,
    isolation: str,
    data: str | None = None,
) -> Origin:
    """The origin that a run of this config writes into its files, for this machine.

    `data` is what its task has read, with a digest: a run that goes on says where it differs.
    """
    versions = own_versions(config.sandbox.preload)
    return Origin(
        config=to_toml(config),
        setup=tuple(setup),
        tokenizer=tokenizer,
        isolation=isolation,
        versions=versions if data is None else {**versions, "data": data},
    )


def graded_by(versions: Mapping[str, str]) -> int:
    """The version of the grader whose verdicts these are."""
    version = versions.get(GRADER, "")
    return int(version) if re.fullmatch(r"\d{1,9}", version, re.ASCII) else 1


def graded_otherwise(versions: Mapping[str, str], where: Path) -> str | None:
    """A sentence for what was judged by another version of the grader; None for this one's.

    `versions` are those of what lies in `where`.
    """
    if (was := graded_by(versions)) == GRADING:
        return None
    again = shlex.join(["repl-rl", "replay", str(where), "--rescore"])
    return (
        f"{where} was graded by version {was} of the grader, here it is {GRADING}: verdicts may "
        f"differ; to score it again: {again}"
    )


def own_versions(preload: Sequence[str]) -> dict[str, str]:
    """Versions of all that makes trajectories here, the grader's among them."""
    return {**installed_versions(preload), GRADER: str(GRADING)}


def installed_versions(preload: Sequence[str]) -> dict[str, str]:
    """Versions of this interpreter, of what trains and of what kernels have loaded."""
    packages = dict.fromkeys((*_PACKAGES, *distributions_of(preload)))
    return {
        "repl_rl": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: version for name in packages if (version := version_of(name))},
    }


def distributions_of(modules: Sequence[str]) -> Iterator[str]:
    """The packages that bring these modules; none for a module of Python's own."""
    for name in (module.partition(".")[0] for module in modules):
        if version_of(name):
            yield name
        elif name not in sys.stdlib_module_names:
            yield from _distributions().get(name, ())[:1]


def version_of(package: str) -> str | None:
    """None for a package that is not installed: what trains need not be here."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def new_run_path(task: str, root: Path) -> Path:
    """A folder under `root` named by task and time, and by chance: a loop may start several runs
    within a second. `RunFolder` makes it.
    """
    # Of data, the last part of a path or a name on the hub says enough.
    data = re.fullmatch(r"(?:.*/)?([^/]+)\.(?:jsonl?|parquet|[ct]sv)|hf:.*/([^/]+)", task)
    stem = re.sub(r"[^\w.-]+", "-", (data[1] or data[2]) if data else task)
    time = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return root / f"{stem}-{time}-{secrets.token_hex(2)}"


def read_versions(run: Path) -> dict[str, str]:
    """Read a run's `versions.json`, empty where there is none."""
    try:
        loaded = json.loads((run / "versions.json").read_text())
    except (OSError, ValueError):
        return {}
    rows = loaded.items() if isinstance(loaded, dict) else ()
    return {name: value for name, value in rows if isinstance(value, str)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRecord:
    """Record of what a model was shown."""

    transcripts: int
    steps: int
    learning_rate: float
    taken: Mapping[str, int] = field(default_factory=dict)
    """Transcripts by where they come from."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Transcripts by why they were not shown."""


def write_record(run: Path, record: WarmRecord) -> None:
    """Mark the folder. Raises StorageError where the disk refuses."""
    replace_file(run / _WARM, msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def read_record(run: Path) -> WarmRecord | None:
    """None where the folder holds no warm start, and for a file."""
    try:
        return msgspec.json.decode((run / _WARM).read_bytes(), type=WarmRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return WarmRecord(transcripts=0, steps=0, learning_rate=0.0)


def trust(origin: Origin) -> None:
    """Note that this config was run here, with this setup.

    For such configs alone code is loaded that a trajectory file names. Whoever packs a run's folder
    writes every file in it, so the mark is kept elsewhere, as Jupyter keeps its trust in notebooks.
    """
    # With a read-only home a replay asks for `--set`, as for a file from elsewhere.
    with contextlib.suppress(OSError):
        for mark in (_mark(origin.config, origin.setup), _mark(origin.config)):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def is_trusted(origin: Origin) -> bool:
    """True where a run of this very config and setup was made by this user on this machine."""
    return _is_marked(origin.config, origin.setup)


def refuse_foreign_run(
    run: Path, saved: str, config: Config, given_here: Mapping[str, Any]
) -> None:
    """ConfigError where `config`, made of what a run has `saved`, would run a stranger's code.

    Code that a person names, in `given_here`, is theirs, and so is all of a config that was run
    here, whatever its setup.
    """
    if not _is_marked(saved):
        refuse_foreign_code(config, given_here, str(run / CONFIG), to_sample=True)


def _is_marked(*content: object) -> bool:
    try:
        return _mark(*content).exists()
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """Part of a run to look at; without any choice its last training step."""

    step: int | None = None
    """The training step of this number, as in `step-000012`."""
    held_out: bool = False
    """An evaluation: the one after `step` updates, or the last one."""

    @property
    def is_chosen(self) -> bool:
        return self.step is not None or self.held_out


def files(path: Path) -> list[Path]:
    """The file itself, or all of a run's that hold something, in the order of its steps.

    A run may be given by the folder of them in it, too.
    Raises ConfigError where there is none.
    """
    if _is_folder(path):
        inside = _in_run(path)
        if not inside:
            runs = sorted(path.glob(f"*/{METRICS}"), key=os.path.getmtime)
            hint = f"; the latest run in it is {str(runs[-1].parent)!r}" if runs else ""
            raise ConfigError(f"no trajectories in {str(path)!r}; expected a run folder{hint}")
        return inside
    if not size(path):
        raise ConfigError(f"{str(path)!r} is empty; {EXPECTED}")
    return [path]


def part_of(path: Path, part: RunPart, *, say: Callable[[str], None]) -> Path:
    """The file that `part` chooses in a run's folder; a file of trajectories is its own part.

    Where nothing is chosen and the run has no training step, it is the last file, and `say` gets
    a line about that. Raises ConfigError where there is no such part.
    """
    paths = files(path)
    if not part.is_chosen:
        steps = list(_of_kind(paths, held_out=False))
        if steps or not _is_folder(path):
            return (steps or paths)[-1]
        say(f"{str(path)!r} has no training step: {paths[-1].stem} is shown")
        return paths[-1]
    if not _is_folder(path):
        raise ConfigError(
            f"{str(path)!r} is one file; --step and --held-out choose one in a run's folder"
        )
    return _chosen(path, paths, part)[-1]


def load_run(
    path: Path | str, *, step: int | None = None, held_out: bool | None = None
) -> Iterator[Scored]:
    """All trajectories of a run's folder, or of one file, in the order in which they were made.

        answered = [scored for scored in load_run("runs/mine") if scored.verdict is not None]
        last = load_run("runs/mine", held_out=True)

    `held_out` keeps evaluations alone, or training alone; `step` keeps one step. Raises ConfigError
    if there are none, and for a row that is not a trajectory.
    """
    paths = files(Path(path))
    if held_out is not None or step is not None:
        paths = _chosen(Path(path), paths, RunPart(step=step, held_out=bool(held_out)))
    for file in paths:
        yield from read_trajectories(file)


def _locked(path: Path) -> int:
    """A descriptor that keeps the folder ours until it is closed, or this process ends."""
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigError(f"another process writes to {str(path)!r}; let it end first") from None
    return lock


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Module -> packages. Half a second: the lists of files of all that is installed are read."""
    return importlib.metadata.packages_distributions()


def _mark(*content: object) -> Path:
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return Path(platformdirs.user_state_dir("repl-rl")) / "trusted" / digest


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # unlike `Path.is_dir`, False for what it may not look at


def _in_run(folder: Path) -> list[Path]:
    inside = folder / FOLDER
    if folder.absolute().name == FOLDER and not _is_folder(inside):
        inside = folder
    return sorted(filter(size, inside.glob("*.jsonl")), key=_rank)


def _rank(path: Path) -> tuple[int, str]:
    """The order in which a run writes its files: what measures a policy, then what it is taught.

    A warm start begins with its lessons.
    """
    kind, _, number = path.stem.rpartition("-")
    if kind in (_EVALUATION, _STEP):
        return 1, f"{number} {kind}"
    return int(path.stem != LESSONS), path.stem


def _chosen(path: Path, paths: Sequence[Path], part: RunPart) -> list[Path]:
    """The files of `path` that are of this kind and number. ConfigError where there are none."""
    of_kind = list(_of_kind(paths, held_out=part.held_out))
    chosen = [file for file in of_kind if part.step in (None, _number(file))]
    if not chosen:
        raise ConfigError(_missing(path, part, of_kind))
    return chosen


def _of_kind(paths: Sequence[Path], *, held_out: bool) -> Iterator[Path]:
    for file in paths:
        is_step = file.stem.startswith(f"{_STEP}-")
        is_evaluation = file.stem == _EVALUATION or file.stem.startswith(f"{_EVALUATION}-")
        if is_evaluation if held_out else is_step:
            yield file


def _number(file: Path) -> int | None:
    number = file.stem.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else None


def _missing(path: Path, part: RunPart, of_kind: Sequence[Path]) -> str:
    """Message: what was asked for, and what there is."""
    kind = "evaluation" if part.held_out else "training step"
    if not of_kind:
        other = "; leave out --held-out" if part.held_out else "; --held-out takes an evaluation"
        return f"{str(path)!r} has no {kind}{other}"
    requested = f"after step {part.step}" if part.held_out else str(part.step)
    numbers = [number for file in of_kind if (number := _number(file)) is not None]
    there = f"there are {_series(numbers)}" if numbers else "it has one, which has no number"
    return f"{str(path)!r} has no {kind} {requested}; {there}"


def _series(numbers: Sequence[int]) -> str:
    """`0 to 99`, or `0, 50, 100`."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    first = ", ".join(map(str, itertools.islice(numbers, _MAX_NAMED)))
    return f"{first} ... {numbers[-1]}" if len(numbers) > _MAX_NAMED else first
