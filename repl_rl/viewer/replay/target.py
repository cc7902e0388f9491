"""A file that is made for a person: it appears whole, and takes the place of nothing else.

    path -> a file to write to -> path

Knows files. Does not know what is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

from repl_rl.errors import ConfigError

File = TypeVar("File", TextIO, BinaryIO)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Yield a file beside `path`, which takes the place of `path` at the end or never.

    ASCII: any other character becomes an XML reference. Raises ConfigError where `path` cannot be
    written, or is not a file.
    """
    with _as_config_error(path):
        place = path.resolve()
        if place.is_symlink():  # Python 3.13 does not report a ring of links
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if place.exists() and not place.is_file():
            raise ConfigError(f"cannot write to {str(path)!r}: it is a folder or device")
    with _beside_target(path, place, _ascii) as file:
        yield file


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file like `whole_file`, in bytes, but never in place of an existing file or link."""
    with _beside_target(path, path, lambda part: part.open("xb")) as file:
        yield file
        if os.path.lexists(path):
            raise ConfigError(f"{str(path)!r} was made meanwhile; name another file")


def _ascii(part: Path) -> TextIO:
    return part.open("x", encoding="ascii", errors="xmlcharrefreplace", newline="\n")


@contextlib.contextmanager
def _beside_target(path: Path, place: Path, make: Callable[[Path], File]) -> Iterator[File]:
    """A file that `make` opens beside `place`, and that moves to `place` at the end or never.

    `make` must open it with `x`: an existing file of its name may be a link to anything.
    """
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    with _as_config_error(path):
        file = make(part)
    try:
        yield file
        with _as_config_error(path):
            file.close()
            part.replace(place)
    finally:
        with contextlib.suppress(OSError):  # the file is thrown away
            file.close()
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _as_config_error(path: Path) -> Iterator[None]:
    """ConfigError where the system refuses."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: a ring of links
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot write to {str(path)!r}: {reason}; name a file in a folder that exists and "
            f"that you may write to"
        ) from None


def check_replaceable(path: Path, suffixes: Sequence[str]) -> None:
    """ConfigError where `path` is an existing file without one of these suffixes."""
    place = Path(os.path.realpath(path))
    if os.path.isfile(place) and place.suffix.lower() not in suffixes:
        raise ConfigError(f"{str(path)!r} is there and is no {suffixes[0]} file; name another file")


def check_apart(path: Path, sources: Iterable[Path]) -> None:
    """ConfigError where a file that is read would be written over."""
    for source in sources:
        try:
            is_same = path.samefile(source)
        except OSError:  # it is not there yet, or its name is too long
            continue
        if is_same:
            raise ConfigError(f"{str(path)!r} holds the trajectories themselves; name another file")
