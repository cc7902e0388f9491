"""Tasks of somebody's data: a file, a data set on the hub, or a family of reasoning-gym.

    name, DataConfig -> open_data -> DataTask | GymTask;  split, seed -> problems in a seeded order

The hub's rows are loaded here, files' by `columns`: when they are first asked for, and once.
Verdicts come from `graders`, which needs none of this. Does not know kernels or training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from repl_rl.base.disk import read_text
from repl_rl.config.sections import GYM, HUB, DataConfig
from repl_rl.errors import ConfigError, how_to_install
from repl_rl.records import Problem, Split
from repl_rl.tasks.data.columns import DataRow, digest, read_rows
from repl_rl.tasks.data.graders import ByName
from repl_rl.tasks.data.gym import GymTask, open_family
from repl_rl.tasks.data.names import find_file, split_hub_name
from repl_rl.tasks.data.reading import Reading, Source, read


def _hub_source(name: str, config: str | None) -> Source:
    """Every split of a data set on the hub."""
    repository, revision = split_hub_name(name)
    try:
        import datasets
    except ModuleNotFoundError:
        raise ConfigError(
            f"{name!r}: reading the hub needs the package datasets, which is not installed; "
            f"{how_to_install('data')}"
        ) from None
    try:
        splits = datasets.load_dataset(repository, config, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"{name!r} cannot be loaded: {_first_line(error)}; it needs the hub, or a copy that "
            f"was loaded here before (--set data.config=NAME chooses a configuration)"
        ) from None
    return Source(name=name, location=name, rows=_rows(repository, splits), has_splits=True)


def _file_source(name: str) -> Source:
    path = find_file(name)
    location = str(path.resolve())
    return Source(name=path.name, location=location, rows=read_rows(path), digest=digest(path))


def _rows(repository: str, splits: Mapping[str, Any]) -> Iterator[DataRow]:  # rows by split
    for split, table in splits.items():
        for number, values in enumerate(table, 1):
            texts = _as_text(values)
            where = f"{repository} {split}: row {number}"
            yield DataRow(where, {"split": split, **texts})


def _as_text(value: Any) -> Any:
    """Numbers as text, as they are in files."""
    if isinstance(value, Mapping):
        return {key: _as_text(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else value


def _first_line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:200].rstrip(".")


PROMPT_FILE = "data.txt"
SPEC = "repl_rl.tasks.data.graders:ByName"
TESTS_SPEC = "repl_rl.tasks.data.graders:ByTests"


class DataTask(ByName):
    """Rows as problems, each with the grader that its answer asks for."""

    def __init__(self, name: str, open_source: Callable[[], Source], data: DataConfig) -> None:
        self.name = name
        self.prompt = read_text(PROMPT_FILE)
        self._read = cache(lambda: read(open_source(), data))

    def read(self) -> Reading:
        """All that is read of the data. Raises ConfigError for what is wrong with it."""
        return self._read()

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Each problem of the side once, in an order that is a function of the seed."""
        problems = list(self.read().sides[split])
        random.Random(f"{seed}/{split}").shuffle(problems)
        yield from problems


def open_data(name: str, data: DataConfig) -> tuple[DataTask | GymTask, str]:
    """The task of a name that stands for data, and the spec of its graders.

    A wrong name is a ConfigError at once; rows are read later, and what grades needs none.
    """
    if name.startswith(GYM):
        return open_family(name, data)
    spec = TESTS_SPEC if data.grader == "tests" else SPEC
    if name.startswith(HUB):
        split_hub_name(name)
        return DataTask(name, partial(_hub_source, name, data.config), data), spec
    if data.config is not None:
        raise ConfigError(
            f"data.config = {data.config!r} has no effect: {name!r} is a file; it names a "
            f"configuration of a data set on the hub"
        )
    return DataTask(name, partial(_file_source, name), data), spec
