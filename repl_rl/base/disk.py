"""Files written whole or not at all, with one line for a write that the disk refuses.

Appends rows, replaces files and writes folders aside. Names the cache's folder for each kind, and
lets one process at a time make something there. Reads the texts of `prompts/`. Any room may use
it. Knows files. Does not know what is in them.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.resources
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from repl_rl.errors import ConfigError, StorageError

_ASIDE = ".unfinished-"
_PROBE_BYTES = 1 << 20


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the disk's refusal to write `path` into a StorageError of one line."""
    try:
        yield
    # Writers of weights raise types of their own; errors that are not the disk's pass through.
    except Exception as error:
        reason = _reason(error, path)
        if reason is None:
            raise
        raise StorageError(f"cannot write {str(path)!r}: {reason}") from error


def _reason(error: Exception, path: Path) -> str | None:
    """Return why the disk did not take the file; None for an error of another kind."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if number := re.search(r"\(os error (\d+)\)", str(error)):
        return os.strerror(int(number[1]))
    # torch's writer gives these errors neither a type nor a number.
    if "inline_container" in str(error) or "PytorchStreamWriter" in str(error):
        return _refusal(path.parent) or "not all of it arrived"
    return None


def is_there(path: Path) -> bool:
    """Unlike `Path.exists`, an OSError for a ring of links and for what lies below a file."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def check_writable(path: Path) -> None:
    """ConfigError unless a file can be written at `path`, or added to. Leaves nothing there."""
    try:
        if is_there(path):
            if not path.is_file():  # to open a pipe would wait for a reader
                raise ConfigError(f"{str(path)!r} is no regular file")
            path.open("ab").close()
        else:
            # A link to nothing yet: its target would be made.
            tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))).close()
    except OSError as error:
        raise ConfigError(f"cannot write to {str(path)!r}: {error.strerror}") from None


def _refusal(folder: Path) -> str | None:
    """Return why the disk refuses one more MiB; None where it takes it."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.strerror
    return None


def append_whole(path: Path, rows: bytes) -> None:
    """Add rows to a file: all of them, or none where the disk refuses."""
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            left = memoryview(rows)
            while left:
                left = left[file.write(left) :]
        except BaseException:
            file.truncate(size)
            raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole, in place of what is there: a reader finds the one or the other.

    Raises StorageError where the disk refuses.
    """
    aside = path.with_name(_ASIDE + path.name)
    with explained(path):
        try:
            aside.write_bytes(content)
            _flush(aside)
            aside.rename(path)
        finally:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A folder to write into; it is renamed to `path` once all of it is on the disk.

    What was at `path` is replaced. Raises StorageError where the disk refuses.
    """
    aside = path.with_name(_ASIDE + path.name)
    with explained(path):
        try:
            shutil.rmtree(aside, ignore_errors=True)  # left by a run that was killed
            aside.mkdir(parents=True)
            yield aside
            for file in filter(Path.is_file, aside.rglob("*")):
                _flush(file)
            remove(path)
            aside.rename(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a folder: its name is gone before its first file is."""
    if path.exists():
        gone = path.with_name(f"{_ASIDE}{path.name}-gone")
        shutil.rmtree(gone, ignore_errors=True)  # left by a process that was killed in it
        if gone.exists():  # somebody has a file of it open on a shared disk
            gone = gone.with_name(f"{gone.name}-{secrets.token_hex(4)}")
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _flush(file: Path) -> None:
    """Wait until the disk has it: some disks refuse only here."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


_MIB = 1 << 20


def cache_folder(kind: str) -> Path:
    """The folder of all that is kept of a kind; it need not be there."""
    return Path(os.environ.get("REPL_RL_CACHE") or platformdirs.user_cache_dir("repl-rl")) / kind


def check(path: Path, what: str, *, num_bytes: int = 0) -> None:
    """ConfigError unless `what` can be written to `path`, and the disk has room for it.

    Asked before minutes are spent.
    """
    parent = path.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=parent).close()
        free = shutil.disk_usage(parent).free
    except OSError as error:
        reason = str(error.strerror)
    else:
        if num_bytes <= free:
            return
        reason = f"{num_bytes / _MIB:,.1f} MiB are needed, {free / _MIB:,.1f} MiB are free"
    raise ConfigError(
        f"cannot write {what} to {str(parent)!r}: {reason}; set REPL_RL_CACHE to another folder"
    )


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process makes something beside `path`, and let others wait.

    Its folder must be there.
    """
    with path.with_name(".making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_text(name: str) -> str:
    """A file of `prompts/`: from the package where it is installed, else from the checkout."""
    packaged = importlib.resources.files("repl_rl") / "prompts" / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parents[2]
    return (checkout / "prompts" / name).read_text(encoding="utf-8")
