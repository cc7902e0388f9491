"""The files of trajectories in a run's folder, and the one of them that a person means.

    RUN -> its files in order;  RUN, Part -> its last training step, another one, an evaluation

Knows names of files. Does not know how their rows are read.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repl_rl.errors import ConfigError
from repl_rl.records import Scored
from repl_rl.runs.folder import LESSONS
from repl_rl.runs.trajectory_file import EXPECTED, FOLDER, read_trajectories, size

_STEP, _EVALUATION = "step", "eval"
_MAX_NAMED = 8
"""Steps that a message names."""


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
            raise ConfigError(f"no trajectories in {str(path)!r}; expected a run folder")
        return inside
    if not size(path):
        raise ConfigError(f"{str(path)!r} is empty; {EXPECTED}")
    return [path]


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
    of_kind = list(_of_kind(paths, held_out=part.held_out))
    chosen = [file for file in of_kind if part.step in (None, _number(file))]
    if not chosen:
        raise ConfigError(_missing(path, part, of_kind))
    return chosen[-1]


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


def load_run(
    path: Path | str, *, step: int | None = None, held_out: bool | None = None
) -> Iterator[Scored]:
    """All trajectories of a run's folder, or of one file, in the order in which they were made.

        answered = [scored for scored in load_run("runs/mine") if scored.verdict is not None]
        last = load_run("runs/mine", held_out=True)

    `held_out` takes those of evaluations alone, or of training alone; `step` those of one number.
    Raises ConfigError where there are none, and for a row that is none.
    """
    paths = files(Path(path))
    if held_out is not None or step is not None:
        of_kind = list(_of_kind(paths, held_out=bool(held_out)))
        part = RunPart(step=step, held_out=bool(held_out))
        paths = [file for file in of_kind if step in (None, _number(file))]
        if not paths:
            raise ConfigError(_missing(Path(path), part, of_kind))
    for file in paths:
        yield from read_trajectories(file)
