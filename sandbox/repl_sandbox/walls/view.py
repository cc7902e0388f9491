"""What a sealed kernel may read: its interpreter, and the packages that it may import.

preload -> distributions, and what they require -> their files, Python's and the system's

The same paths become rules of Landlock, which allow whatever lies below, and mounts around the
fork server. A folder is therefore named only if everything below it may be read. Of any other
folder, entries are named. Knows where Python and Linux keep their files. Does not know walls, nor
what runs behind them.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from repl_sandbox.types import SandboxError
from repl_sandbox.walls.packages import OWN_FOLDER, closure, entries, find, installed, origins

PACKAGE_FOLDERS = ("site-packages", "dist-packages")
# If two of these are one folder by a link, the loader's cache has the name that comes first.
LIBRARY_FOLDERS = ("/lib64", "/lib", "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib")
SYSTEM_FILES = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/lib/locale/C.UTF-8",
    "/usr/lib/locale/C.utf8",
    "/usr/share/zoneinfo",
)
MANY = 32
"""Entries of one folder. The time that mounts take grows with the square of their number."""
LIBRARY_NAME = re.compile(rb"\0((?:lib|ld-)[\w.+-]*\.so[.\d]*)(?=\0)")


def readable_paths(preload: Sequence[str], needs: Sequence[str] = ()) -> tuple[Path, ...]:
    """Files and folders, sorted, none below another, that a kernel with `preload` may read.

    needs: distributions that the fork server imports, whatever is preloaded.

    With nothing else to read, the fork server starts and imports all that it needs.
    Raises ValueError for a module that cannot be found, and for one of this project; SandboxError
    where what the fork server imports is not installed.
    """
    search = package_folders()
    missing = [name for name in needs if find(name, search) is None]
    if missing:
        raise SandboxError(
            f"kernels need {', '.join(missing)}, and no folder of sys.path says that it has it; "
            f"install it for {sys.executable}"
        )
    ours = _interpreter()
    for scheme in ("stdlib", "platstdlib"):
        ours += standard_library(_python_folder(scheme))
    ours += package_paths(preload, search, needs)
    systems = libraries(_library_folders(), users=ours)
    return prune([*ours, *systems, *map(Path, SYSTEM_FILES)])


def package_folders() -> list[Path]:
    """The folders of `sys.path` in which distributions are installed: `.pth` files may add some."""
    folders = dict.fromkeys(Path(entry).absolute() for entry in sys.path if entry)
    readable = [path for path in folders if path.is_dir() and os.access(path, os.R_OK)]
    return [folder for folder in readable if any(installed([folder]))]


def prune(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths that exist, sorted, with the targets of links, without those below another."""
    there = {path for path in paths if os.path.exists(path)}
    there |= {path.resolve() for path in there if path.is_symlink()}
    return tuple(sorted(path for path in there if there.isdisjoint(path.parents)))


def as_mounts(paths: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(what to mount, folders to cover with empty ones): the view of `paths` in fewer mounts.

    Mount and cover in the order of the paths, since a mount may lie in a covered folder. Example: a
    standard library named by its entries is one mount, and the `site-packages` in it is covered.
    """
    siblings: dict[Path, set[Path]] = defaultdict(set)
    for path in paths:
        siblings[path.parent].add(path)
    shown, covered = set(paths), set()
    for folder, named in siblings.items():
        if len(named) < MANY:
            continue
        others = set(folder.iterdir()) - named
        if len(others) < len(named) and all(map(_is_folder, others)):
            shown = shown - named | {folder}
            covered |= others
    return tuple(sorted(shown)), tuple(sorted(covered - shown))


def holds_packages(folder: Path) -> bool:
    """Whether there is a folder of installed packages below, or this project."""
    if OWN_FOLDER.is_relative_to(folder.resolve()):
        return True
    patterns = [pattern for name in PACKAGE_FOLDERS for pattern in (name, f"*/{name}")]
    return any(any(folder.glob(pattern)) for pattern in patterns)


def standard_library(folder: Path) -> list[Path]:
    """The folder itself, or its entries without the packages that were installed into it."""
    if not holds_packages(folder):
        return [folder]
    return [entry for entry in folder.iterdir() if entry.name not in PACKAGE_FOLDERS]


def libraries(folders: Sequence[Path], *, users: Sequence[Path]) -> list[Path]:
    """`folders` of shared libraries. Of a folder with packages inside, the libraries alone.

    If these are too many, only those that programs and extension modules among `users` may load.
    """
    mixed = [folder for folder in folders if holds_packages(folder)]
    distinct = {folder.resolve(): folder for folder in reversed(mixed)}
    found = [library for folder in distinct.values() for library in folder.glob("*.so*")]
    if len(found) > MANY:
        found = _needed(found, users)
    return [*(folder for folder in folders if folder not in mixed), *found]


def package_paths(
    preload: Sequence[str], search: Sequence[Path], needs: Sequence[str] = ()
) -> list[Path]:
    """What `search` holds of `preload`, of the distributions in `needs`, and of all they require.

    A module that can be found, but is not installed there, is represented by its source.
    """
    wanted = [found for name in needs if (found := find(name, search))]
    paths: list[Path] = []
    for module in preload:
        owners, sources = origins(module, search)
        wanted += owners
        paths += sources
    return paths + [path for each in closure(wanted, search) for path in entries(each)]


def _interpreter() -> list[Path]:
    executable = Path(sys.executable)
    settings = [folder / "pyvenv.cfg" for folder in list(executable.parents)[:2]]
    return [executable, executable.resolve(), *settings]


def _python_folder(scheme: str) -> Path:
    # In a virtual environment `platstdlib` has a path in the environment, which does not exist.
    return Path(sysconfig.get_path(scheme, vars={"platbase": sys.base_exec_prefix}))


def _library_folders() -> list[Path]:
    triplet = sysconfig.get_config_var("MULTIARCH") or "none"
    folders = [f"{folder}/{triplet}" for folder in LIBRARY_FOLDERS]
    folders += [*LIBRARY_FOLDERS, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}"]
    return [Path(folder) for folder in dict.fromkeys(folders)]


def _needed(found: Sequence[Path], users: Sequence[Path]) -> list[Path]:
    """The libraries of `found` whose names stand in a program among `users`, or in one of these.

    A program holds the names of libraries that it is linked to, and of those it may open later.
    """
    unmet: dict[str, list[Path]] = defaultdict(list)
    for library in found:
        unmet[library.name].append(library)
    needed: list[Path] = []
    todo = [program for user in users for program in _programs(user)]
    while todo:
        for name in LIBRARY_NAME.findall(todo.pop().read_bytes()):
            named = [path for path in unmet.pop(name.decode(), ()) if path.is_file()]
            needed += named
            todo += named
    return needed


def _programs(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (library for library in path.rglob("*.so*") if library.is_file())
    elif path.suffix != ".py" and path.is_file():
        yield path


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
