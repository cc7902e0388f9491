"""Tasks whose problems are somebody's data: a file, or a data set on the hub.

    name, DataConfig -> DataTask;  split, seed -> its problems in a seeded order

The rows are read when they are first asked for, and once. Verdicts come from `graders`, which
needs none of this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cached_property

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.tasks.data import by_tests, hub
from repl_rl.tasks.data.graders import ByName
from repl_rl.tasks.data.gym import GymTask, open_family
from repl_rl.tasks.data.names import GYM, HUB, find_file
from repl_rl.tasks.data.reading import Reading, Source, read
from repl_rl.tasks.data.rows import digest, read_rows
from repl_rl.texts import read_text
from repl_rl.types import Problem, Split

PROMPT_FILE = "data.txt"
SPEC = "repl_rl.tasks.data.graders:ByName"


class DataTask(ByName):
    """Rows as problems, each with the grader that its answer asks for."""

    def __init__(self, name: str, open_source: Callable[[], Source], data: DataConfig) -> None:
        self.name = name
        self.prompt = read_text(PROMPT_FILE)
        self._open = open_source
        self._data = data

    @cached_property
    def _reading(self) -> Reading:
        return read(self._open(), self._data)

    def read(self) -> Reading:
        """All that is read of the data. Raises ConfigError for what is wrong with it."""
        return self._reading

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Each problem of the side once, in an order that is a function of the seed."""
        found = list(self._reading.sides[split])
        random.Random(f"{seed}/{split}").shuffle(found)
        yield from found


def open_data(name: str, data: DataConfig) -> tuple[DataTask | GymTask, str]:
    """The task of a name that stands for data, and the spec of its graders.

    A wrong name is a ConfigError at once; rows are read later, and what grades needs none.
    """
    if name.startswith(GYM):
        return open_family(name, data)
    spec = by_tests.SPEC if data.grader == "tests" else SPEC
    if name.startswith(HUB):
        return DataTask(name, hub.source(name, data), data), spec
    if data.config is not None:
        raise ConfigError(
            f"data.config = {data.config!r} has no effect: {name!r} is a file; it names a "
            f"configuration of a data set on the hub"
        )

    def file_source() -> Source:
        path = find_file(name)
        rows = read_rows(path)
        return Source(name=path.name, place=str(path.resolve()), rows=rows, digest=digest(path))

    return DataTask(name, file_source, data), spec
