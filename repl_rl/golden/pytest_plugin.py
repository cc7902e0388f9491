"""pytest runs golden transcripts: `*.repl` files are collected, an item for each transcript.

Every pytest of an environment with repl-rl loads it. So it does nothing in a project whose ini does
not say `repl_rl_golden = true`, and imports what it needs only when a file is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repl_rl.errors import ConfigError

if TYPE_CHECKING:  # not for a ring: to stay light
    from repl_rl.golden.suites import Suite


_INI = "repl_rl_golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, type="bool", default=False, help="Collect golden transcripts, *.repl.")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> GoldenModule | None:
    if file_path.suffix != ".repl" or not parent.config.getini(_INI):
        return None
    return GoldenModule.from_parent(parent, path=file_path)


class GoldenModule(pytest.File):
    """One file."""

    def collect(self) -> Iterator[GoldenItem]:
        from repl_rl.base.terminal import one_row
        from repl_rl.golden.suites import Suite

        try:
            suite = Suite.open(self.path, loads_code=True)
        except ConfigError as error:
            raise self.CollectError(one_row(str(error))) from None
        for index, golden in enumerate(suite.file.goldens):
            yield GoldenItem.from_parent(self, name=golden.title, suite=suite, index=index)


class GoldenItem(pytest.Item):
    """One transcript."""

    def __init__(self, *, suite: Suite, index: int, **given: Any) -> None:  # Any: pytest's own
        super().__init__(**given)
        self._suite = suite
        self._index = index

    def runtest(self) -> None:
        misses = self._suite.misses_of(self._index)
        if misses:
            raise GoldenMiss("\n\n".join(map(str, misses)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, GoldenMiss | ConfigError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        golden = self._suite.file.goldens[self._index]
        return self.path, golden.number - 1, golden.title


class GoldenMiss(Exception):
    """A transcript and the code differ."""
