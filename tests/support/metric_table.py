"""The tables of metrics in docs/files.md, by which tests know the numbers of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from documents import ROOT
from repl_rl.records import OutcomeKind, StopReason

_STANDS_FOR = {"<outcome>": OutcomeKind, "<reason>": StopReason}


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of a table."""

    name: str
    unit: str
    text: str
    when: str
    """When it is there; empty: in each row of its kind."""

    @property
    def names(self) -> list[str]:
        """Names of all columns that it stands for."""
        for mark, kinds in _STANDS_FOR.items():
            if mark in self.name:
                return [self.name.replace(mark, str(kind)) for kind in kinds]
        return [self.name]


def _sections() -> dict[str, list[Metric]]:
    """Rows by the heading above their table."""
    _, _, chapter = (ROOT / "docs" / "files.md").read_text().partition("\n## Metrics\n")
    _, *sections = chapter.split("\n### ")
    found = {}
    for section in sections:
        title, _, body = section.partition("\n")
        rows = re.findall(r"^\| `(.*)` \| (.*?) ?\| (.*) \| (.*?) ?\|$", body, re.MULTILINE)
        found[title] = [Metric(*row) for row in rows]
    return found


SECTIONS = _sections()
METRICS = {name: one for rows in SECTIONS.values() for one in rows for name in one.names}
"""By the name of the column."""
