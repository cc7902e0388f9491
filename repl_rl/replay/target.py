"""A file that is made for a person: it appears whole, and takes the place of nothing else.

    path -> a file to write to -> path

Knows files. Does not know what is written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from repl_rl.errors import ConfigError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """What is written goes to a file beside `path`, which takes its place at the end or never.

    ASCII: a character beyond it becomes a reference of XML. Raises ConfigError where `path` cannot
    be written, or is no file.
    """
    try:
        place = path.resolve()
        if place.exists() and not place.is_file():
            raise ConfigError(f"cannot write to {str(path)!r}: it is a folder or device")
        part = place.with_name(f"{place.name}.{os.getpid()}.part")
        file = part.open("w", encoding="ascii", errors="xmlcharrefreplace", newline="\n")
    except (OSError, RuntimeError) as error:  # of a ring of links
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot write to {str(path)!r}: {reason}; name a file in a folder that exists and "
            f"that you may write to"
        ) from None
    try:
        with file:
            yield file
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def check_apart(path: Path, sources: Iterable[Path]) -> None:
    """ConfigError where a file that is read would be written over."""
    for source in sources:
        try:
            is_same = path.samefile(source)
        except OSError:  # it is not there yet, or its name is too long
            continue
        if is_same:
            raise ConfigError(f"{str(path)!r} holds the trajectories themselves; name another file")
