"""The first steps of the fork server: it learns what can be imported before it imports anything.

configuration -> [visible_entries, PackageFolder, PackageMetadata] -> fork_server.main

Of a folder of packages a kernel may read some entries, and list none. Without namespaces the others
are there and cannot be opened, where all of Python expects that they cannot be found. So the
importer is told what there is: in the fork server and its kernels, and alike for all levels. Knows
Python's importer. Does not know walls, nor what is preloaded.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ModuleSpec,
)
from importlib.util import spec_from_file_location
from os.path import isdir, isfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from repl_sandbox.types import MAX_PACKET_BYTES

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
"""Suffixes of modules, in the order in which Python looks for them."""
INFO_SUFFIXES = (".dist-info", ".egg-info")

VisibleEntries = Mapping[str, frozenset[str]]
"""Folder -> its entries that a kernel may read, or that lead to one. A folder that may be read as a
whole is not named."""


def boot(control_fd: int, base_fd: int) -> None:
    """Be the fork server until its end. See `fork_server.main`."""
    control = socket.socket(fileno=control_fd)
    config = json.loads(control.recv(MAX_PACKET_BYTES))
    sys.path += [folder for folder in config["folders"] if folder not in sys.path]
    if config["confinement"] is not None:
        restrict_imports(config["confinement"]["readable"], order=config["folders"])
    from repl_sandbox.guest.fork_server import main  # what it imports depends on what there is

    main(control, base_fd, config)


def restrict_imports(readable: Sequence[str], *, order: Sequence[str]) -> None:
    """Let this process, and all that it forks, import nothing but what is `readable`.

    order: folders in the order in which they are searched. Where a `.pth` file names some of them,
           it is seen at one level and not at another.
    """
    whole = frozenset(readable)
    partial = [folder for folder in sys.path if not _is_below(folder, whole)]
    names = visible_entries(partial, readable)
    sys.path[:] = [
        folder
        for folder in sorted(sys.path, key=lambda each: order.index(each) if each in order else -1)
        if folder not in partial or folder.endswith(".zip") or _holds_modules(folder, names)
    ]
    _forget_hidden(whole)

    def hook(folder: str) -> PackageFolder:
        if folder not in names:
            raise ImportError(folder)
        return PackageFolder(folder, names)

    sys.path_hooks.insert(0, hook)
    sys.meta_path.append(PackageMetadata(names))
    for folder in [each for each in sys.path_importer_cache if not _is_below(each, whole)]:
        del sys.path_importer_cache[folder]


def visible_entries(folders: Iterable[str], readable: Iterable[str]) -> VisibleEntries:
    """The entries of `folders`, and of folders below them, on the way to each readable path."""
    roots = set(map(Path, folders))
    names: dict[str, set[str]] = {}
    for path in map(Path, readable):
        if roots.isdisjoint(path.parents):
            continue
        for child in (path, *path.parents):
            names.setdefault(str(child.parent), set()).add(child.name)
            if child.parent in roots:
                break
    return {folder: frozenset(entries) for folder, entries in names.items()}


class PackageFolder:
    """Finder of modules in one folder, by the names of its entries: it lists nothing."""

    def __init__(self, folder: str, names: VisibleEntries) -> None:
        self._folder = folder
        self._names = names

    def find_spec(self, fullname: str, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Implement `importlib.abc.PathEntryFinder`."""
        name = fullname.rpartition(".")[2]
        path = f"{self._folder}/{name}"
        entries = self._names[self._folder]
        for suffix in SUFFIXES:
            if name in entries and self._is_module(path, f"__init__{suffix}"):
                return spec_from_file_location(fullname, f"{path}/__init__{suffix}")
        for suffix in SUFFIXES:
            if name + suffix in entries:
                return spec_from_file_location(fullname, path + suffix)
        if name not in entries or not isdir(path):
            return None
        spec = ModuleSpec(fullname, None)
        spec.submodule_search_locations = [path]
        return spec

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """(name, whether it is a package) of each module, for `pkgutil`."""
        for name in sorted({entry.partition(".")[0] for entry in self._names[self._folder]}):
            spec = self.find_spec(name) if name.isidentifier() else None
            if spec is not None and spec.loader is not None:
                yield prefix + name, bool(spec.submodule_search_locations)

    def _is_module(self, folder: str, file: str) -> bool:
        return file in self._names.get(folder, (file,)) and isfile(f"{folder}/{file}")


class PackageMetadata:
    """Finder of the metadata of installed distributions: `importlib.metadata` lists folders."""

    def __init__(self, names: VisibleEntries) -> None:
        self._names = names

    def find_spec(self, *_arguments: object) -> None:
        """Find no module: that is what `PackageFolder` is for."""

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Distribution]:
        """Implement `importlib.metadata.DistributionFinder`."""
        from importlib.metadata import PathDistribution  # whoever asks has imported it

        requested = None if context.name is None else _normalized(context.name)
        for folder in context.path:
            for entry in sorted(self._names.get(str(folder), ())):
                name = _normalized(entry.rpartition(".")[0].partition("-")[0])
                if entry.endswith(INFO_SUFFIXES) and requested in (None, name):
                    yield PathDistribution(Path(folder, entry))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _forget_hidden(whole: frozenset[str]) -> None:
    """Drop what `.pth` files have imported, and the finders that they have added."""
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and not _is_below(file, whole) and name.partition(".")[0] != package:
            del sys.modules[name]
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if getattr(finder, "__module__", None) in sys.modules
    ]


def _holds_modules(folder: str, names: VisibleEntries) -> bool:
    return any(name.partition(".")[0].isidentifier() for name in names.get(folder, ()))


def _is_below(path: str, whole: frozenset[str]) -> bool:
    """Say whether it is one of these, or lies below one."""
    return path in whole or not whole.isdisjoint(map(str, Path(path).parents))
