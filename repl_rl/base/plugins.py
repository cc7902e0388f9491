"""Find what a user named: an entry point, `module:attribute` on the import path, or a model.

Knows names and modules; does not know what the thing is.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import repl_sandbox
from repl_rl.errors import ConfigError, ReplRLError

_SPEC = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_REPOSITORY = re.compile(r"(?!.*(--|\.\.))\w([\w.-]*\w)?/\w([\w.-]{0,94}\w)?(?<!\.git)", re.ASCII)
"""A name that the hub takes for something to be made."""
_GGUF_SUFFIX, _GGUF_MAGIC = ".gguf", b"GGUF"
_RUNS = "runs"


def nearest(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return `did you mean ...?` for the known name that is most like this one, if one is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def resolve_spec(name: str, *, group: str, besides: Iterable[str] = ()) -> str:
    """`module:attribute` for a name: itself, or what the entry point of that name says.

    Raises ConfigError, with the nearest known name, where there is no such entry point. `besides`
    are further words that the setting takes.
    """
    if ":" in name:
        return name
    known = {point.name: point for point in entry_points(group=group)}
    if name in known:
        return known[name].value
    noun = group.rpartition(".")[2].removesuffix("s")
    words = sorted({*known, *besides})
    hint = nearest(name, words, otherwise=f"known: {', '.join(words)}")
    raise ConfigError(f"unknown {noun} {name!r}; {hint} (or give module:attribute)")


def load_named(name: str, *, group: str, besides: Iterable[str] = ()) -> object:
    """Load the object behind an entry point of `group` or a `module:attribute`; see `load_spec`."""
    return load_spec(resolve_spec(name, group=group, besides=besides))


_BESIDE: list[Path] = []
"""Folders that `search_too` has named in this process, in its order."""


def search_too(folder: Path) -> None:
    """Let this process, and the graders that it starts, find the modules of a folder.

    They come after all that is installed: a user's `random.py` must not hide the library's. The
    caller must know that code of that folder may be run.
    """
    if (path := str(folder.absolute())) not in sys.path:
        sys.path.append(path)
    if folder.absolute() not in _BESIDE:
        _BESIDE.append(folder.absolute())


def searched() -> tuple[str, ...]:
    """Return the folders in which modules and rows are found, besides what is installed."""
    return str(Path.cwd()), *map(str, _BESIDE)


def find_beside(path: Path) -> Path | None:
    """The file or folder: in the current folder or, as modules are, beside a config file."""
    candidates = (Path(folder, path) for folder in searched())
    # `os.path`: a name may be no path of any system, such as one of thousands of characters.
    return next((candidate for candidate in candidates if os.path.exists(candidate)), None)


def load_spec(spec: str) -> object:
    """Import what `module:attribute` names; ConfigError where it is not there.

    Modules of the current folder are found too, last of all: a task under development need not be
    installed.
    """
    if not _SPEC.fullmatch(spec):
        raise ConfigError(f"{spec!r} names nothing; expected module:attribute")
    search_too(Path.cwd())
    module, _, attribute = spec.partition(":")
    try:
        with users_code():
            return EntryPoint(name="", value=spec, group="").load()
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        file = error.name.replace(".", "/") + ".py"
        raise ConfigError(
            f"no module named {error.name!r} (wanted {spec!r}): not installed and not in the "
            f"current folder; go to the folder of {file}, or add --config with a file of that "
            f"folder (a run's folder brings no code)"
        ) from None
    except AttributeError:
        names = [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
        hint = nearest(attribute, names)
        raise ConfigError(f"module {module!r} has no {attribute!r}{hint and '; '}{hint}") from None


@contextlib.contextmanager
def users_code(called: str | None = None) -> Iterator[None]:
    """Name what fails in a user's module by its last line there: `mult.py:5: NameError: ...`.

    Raises ConfigError for it. What fails in no file of a user's is named by what was `called`, as
    where that takes other arguments; without that name, or where it says itself what is wrong, it
    goes through as it is.
    """
    try:
        yield
    except ReplRLError:
        raise
    except Exception as error:  # a user's module may raise anything
        if (location := _last_location(error) or called) is None:
            raise
        raise ConfigError(f"{location}: {type(error).__name__}: {_message(error)}") from error


def misfit(function: Callable[..., object], *places: object, **names: object) -> str | None:
    """Return why a function cannot be called so; None if it can, or is in C and does not say."""
    try:
        inspect.signature(function).bind(*places, **names)
    except TypeError as error:
        return str(error)
    except ValueError:
        return None
    return None


def _last_location(error: Exception) -> str | None:
    """`file:line` of the last frame that lies in no library; None where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    locations = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError) and error.filename is not None:
        locations.append((error.filename, error.lineno))
    own = [(Path(file), line) for file, line in locations if _is_users(file)]
    if not own:
        return None
    path, line = own[-1]
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


def _is_users(file: str) -> bool:
    # Of an editable install, which lies elsewhere.
    own = (Path(__file__).parents[1], Path(repl_sandbox.__path__[0]))
    libraries = (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *own)
    path = Path(file)
    return path.is_file() and not any(path.is_relative_to(one) for one in libraries)


def _message(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def resolve_model(name: str) -> str:
    """The folder or GGUF file that `name` is, or `name` as it may be on the hub.

    What is here comes first, and no hub is asked for a name that looks like that. Raises
    ConfigError, with the nearest folder or file, for a name that is neither.
    """
    folder = Path(os.path.expanduser(name))
    if folder.is_dir():
        return str(folder.resolve())  # written to files that other folders' processes read
    if folder.exists():
        _check_gguf(folder, name)
        return str(folder.resolve())
    near, is_file_name = nearest_folder(name), folder.suffix == _GGUF_SUFFIX
    if not near and is_hub_name(name) and not (is_file_name or _is_below_a_folder(folder)):
        return name
    raise ConfigError(f"no such run or folder {name!r}; {near or _any_folder(folder)}")


def _check_gguf(path: Path, name: str) -> None:
    """ConfigError for a file that does not begin as those of the format GGUF do."""
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ConfigError(f"cannot read {name!r}: {error.strerror}") from None
    if beginning != _GGUF_MAGIC:
        raise ConfigError(
            f"{name!r} is no GGUF file: it begins with {beginning!r}; expected one, or a folder: a "
            f"run, or a model's"
        )


def is_hub_name(name: str) -> bool:
    """Return whether the name is `owner/name` and no folder here."""
    return _HUB_NAME.fullmatch(name) is not None and not Path(name).exists()


def check_repository(name: str, *, given: str) -> None:
    """ConfigError unless the hub would take the name; `given` says who gave it."""
    if not _REPOSITORY.fullmatch(name):
        raise ConfigError(
            f"{given} {name!r} is no name of a repository; expected owner/name, such as "
            f"'me/my-model'"
        )


def _is_below_a_folder(path: Path) -> bool:
    return path.parts[0] == _RUNS or Path(path.parts[0]).exists()


def nearest_folder(name: str) -> str:
    """`did you mean ...?` for what is beside it or for a run, of which a beginning is enough."""
    parent, slash, leaf = name.rstrip("/").rpartition("/")
    beside = {one: f"{parent}{slash}{one}" for one in _folders(Path(parent or slash or "."))}
    # A name below another folder means a run only where it is that run's exact name.
    runs = {one: f"{_RUNS}/{one}" for one in _folders(Path(_RUNS)) if not slash or one == leaf}
    paths = {**runs, **beside}
    # The latest run comes first in `paths`, and keeps a beginning that it shares.
    beginnings = {one[: len(leaf)]: path for one, path in reversed(paths.items())}
    known = {**beginnings, **paths}
    near = difflib.get_close_matches(leaf, known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else ""


def no_such(what: str, path: Path) -> ConfigError:
    """Return the error for a path where nothing is, with the nearest one."""
    hint = nearest_folder(str(path))
    return ConfigError(f"no such {what}: {str(path)!r}{hint and '; '}{hint}")


def _folders(path: Path) -> list[str]:
    """Names of folders and GGUF files in a folder, latest first; none where it cannot be read."""
    try:
        entries = [one for one in path.iterdir() if one.is_dir() or one.suffix == _GGUF_SUFFIX]
        entries.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    except (OSError, ValueError):  # a name may hold what no file's does
        return []
    return [one.name for one in entries if not one.name.startswith(".")]


def _any_folder(folder: Path) -> str:
    if latest := _folders(Path(_RUNS)) if folder.parts[:1] == (_RUNS,) else []:
        return f"the latest in {_RUNS!r} is {f'{_RUNS}/{latest[0]}'!r}"
    return "expected a run, a model's folder, a GGUF file, or owner/name on the hub"
