r"""Transcripts of a golden file as lines that are run again, to be shown to a model.

    Golden -> Written (problem, lines, outputs with their places)

Knows the format. Does not know kernels or models. What a file says of rewards is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from repl_rl.golden.play import problem_of
from repl_rl.golden.text import GoldenFile, read_file
from repl_rl.rollout.scripts import Written, WrittenLine
from repl_rl.transcript.format import strip_line


def read_written(path: Path) -> list[Written]:
    """The transcripts of a file. ConfigError, with file and line, where it is not one."""
    return list(_written(read_file(path)))


def _written(file: GoldenFile) -> Iterator[Written]:
    for golden in file.goldens:
        lines = (
            WrittenLine(
                source=strip_line(line.source),
                output=line.output,
                place=f"{file.path}:{line.number}",
            )
            for line in golden.lines
        )
        yield Written(problem=problem_of(golden), lines=tuple(lines))
