"""Paths that a sealed kernel may read: its interpreter, and the packages that it may import.

preload -> distributions, and what they require -> their files, Python's and the system's

The same paths become rules of Landlock, which allow whatever lies below, and mounts around the
fork server. A folder is therefore named only if everything below it may be read. Of any other
folder, entries are named. A distribution is what `importlib.metadata` calls one. Where several
folders have one of the same name, the first folder counts. Finds modules, imports none. Knows where
Python and Linux keep their files. Does not know walls, nor what runs behind them.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import PathFinder, all_suffixes
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repl_sandbox.types import SandboxError

OWN_DISTRIBUTION = "repl-rl"
OWN_MODULES = frozenset({"repl_rl", "repl_sandbox"})
OWN_FOLDER = Path(__file__).resolve().parents[1]
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
            f"kernels need {', '.join(missing)}, which no folder of sys.path holds; install it for "
            f"{sys.executable}"
        )
    ours = _interpreter()
    # In a virtual environment `platstdlib` has a path in the environment, which does not exist.
    base = {"platbase": sys.base_exec_prefix}
    for scheme in ("stdlib", "platstdlib"):
        ours += standard_library(Path(sysconfig.get_path(scheme, vars=base)))
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
        are_folders = all(each.is_dir() and not each.is_symlink() for each in others)
        if are_folders and len(others) < len(named):
            shown = shown - named | {folder}
            covered |= others
    return tuple(sorted(shown)), tuple(sorted(covered - shown))


def holds_packages(folder: Path) -> bool:
    """Return whether a folder of installed packages lies below, or this project."""
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
    files = [library for folder in distinct.values() for library in folder.glob("*.so*")]
    if len(files) > MANY:
        files = _needed(files, users)
    return [*(folder for folder in folders if folder not in mixed), *files]


def package_paths(
    preload: Sequence[str], search: Sequence[Path], needs: Sequence[str] = ()
) -> list[Path]:
    """List the paths in `search` of `preload`, of the distributions in `needs`, and of their needs.

    A module that can be found, but is not installed there, is represented by its source.
    """
    roots = [owner for name in needs if (owner := find(name, search))]
    paths: list[Path] = []
    for module in preload:
        owners, sources = origins(module, search)
        roots += owners
        paths += sources
    return paths + [path for each in closure(roots, search) for path in entries(each)]


def _interpreter() -> list[Path]:
    executable = Path(sys.executable)
    settings = [folder / "pyvenv.cfg" for folder in list(executable.parents)[:2]]
    return [executable, executable.resolve(), *settings]


def _library_folders() -> list[Path]:
    triplet = sysconfig.get_config_var("MULTIARCH") or "none"
    folders = [f"{folder}/{triplet}" for folder in LIBRARY_FOLDERS]
    folders += [*LIBRARY_FOLDERS, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}"]
    return [Path(folder) for folder in dict.fromkeys(folders)]


def _needed(files: Sequence[Path], users: Sequence[Path]) -> list[Path]:
    """The libraries of `files` whose names stand in a program among `users`, or in one of these.

    A program holds the names of libraries that it is linked to, and of those it may open later.
    """
    unmet: dict[str, list[Path]] = defaultdict(list)
    for library in files:
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


def installed(search: Sequence[Path], name: str | None = None) -> Iterable[Distribution]:
    """The distributions in the folders of `search`, or those called `name`, folder by folder."""
    return distributions(name=name, path=[str(folder) for folder in search])


def find(name: str, search: Sequence[Path]) -> Distribution | None:
    """The distribution called `name`, if there is one."""
    return next(iter(installed(search, name)), None) if name else None


def origins(module: str, search: Sequence[Path]) -> tuple[list[Distribution], list[Path]]:
    """(the distributions that a module comes from, its source if they did not record it).

    Raises ValueError for a module that cannot be found, and for one of this project.
    """
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names:
        return [], []
    owners = [] if root in OWN_MODULES else _owners(module, search)
    if owners:
        return owners, []
    sources = _sources(module)
    if root in OWN_MODULES or any(OWN_FOLDER.is_relative_to(path.resolve()) for path in sources):
        raise ValueError(
            f"preload {module!r}: kernels may not read the project that runs them; "
            "expected a package for the lines that run in kernels, so leave this one out"
        )
    return _select(search, lambda each: _is_editable(each, sources)), sources


def closure(roots: Iterable[Distribution], search: Sequence[Path]) -> Iterable[Distribution]:
    """`roots` and all that they require on this machine, as far as it is installed."""
    owners = {canonicalize_name(_name(distribution)): distribution for distribution in roots}
    todo, done = [(name, "") for name in owners], set()
    owned: dict[str, Distribution] = {}
    while todo:
        name, extra = step = todo.pop()
        if step in done or name == OWN_DISTRIBUTION:
            continue
        done.add(step)
        distribution = owners.get(name) or find(name, search)
        if distribution is None:
            continue
        owned[name] = distribution
        for text in distribution.requires or ():
            required = Requirement(text)
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                extras = ("", *required.extras)
                todo += [(canonicalize_name(required.name), each) for each in extras]
    return owned.values()


def entries(distribution: Distribution) -> list[Path]:
    """List a distribution's entries in its folder: packages, modules, libraries, its metadata.

    A folder that others may share, such as a namespace package, is named by its entries.
    """
    files = [file for file in _recorded(distribution) if not file.startswith(("../", "/"))]
    packages = {file.rpartition("/__init__.")[0] for file in files}
    folder = _folder(distribution)
    return [folder / own for own in {_outermost(file, packages) for file in files}]


def _select(search: Sequence[Path], matches: Callable[[Distribution], bool]) -> list[Distribution]:
    """The distributions for which `matches` holds."""
    # Names are parsed out of metadata, half a millisecond each: only those of wanted ones are.
    matching = filter(matches, installed(search))
    return list(filter(matches, (find(_name(each), search) or each for each in matching)))


def _owners(module: str, search: Sequence[Path]) -> list[Distribution]:
    """The distributions with files of a module: its namesake alone, if that has any."""
    stem = module.replace(".", "/")
    files = {stem + suffix for suffix in all_suffixes()}

    def owns(distribution: Distribution) -> bool:
        recorded = _recorded(distribution)
        return any(file.startswith(f"{stem}/") or file in files for file in recorded)

    namesake = find(module.partition(".")[0], search)
    return [namesake] if namesake and owns(namesake) else _select(search, owns)


def _recorded(distribution: Distribution) -> list[str]:
    """The files of a distribution, relative to the folder in which it is installed."""
    record = distribution.read_text("RECORD")
    if record is None:
        return list(_unrecorded(distribution))
    # Not `Distribution.files`: of an egg it lists the sources, and it takes seven times as long.
    return [row[0] for row in csv.reader(record.splitlines()) if row and row[0]]


def _unrecorded(distribution: Distribution) -> Iterator[str]:
    """Yield the files of a distribution whose record an operating system has removed."""
    own_name = canonicalize_name(_name(distribution))
    if not own_name:
        return
    declared = distribution.read_text("top_level.txt")
    modules = {own_name} if declared is None else set(map(canonicalize_name, declared.split()))
    for entry in _folder(distribution).iterdir():
        stem = canonicalize_name(re.split("[.-]", entry.name)[0])
        if stem in ({own_name} if entry.name.endswith("-info") else modules):
            yield f"{entry.name}/__init__.py" if entry.is_dir() else entry.name


def _name(distribution: Distribution) -> str:
    """Empty where its metadata has none."""
    try:
        metadata = distribution.metadata
    except UnicodeDecodeError:
        # Old metadata may be in another encoding.
        return ""
    # There is none in an empty folder that an uninstall has left.
    return metadata["Name"] if "Name" in metadata else ""  # noqa: SIM401  # `get` is of 3.12


def _folder(distribution: Distribution) -> Path:
    return Path(str(distribution.locate_file("")))


def _outermost(file: str, packages: set[str]) -> str:
    """The file, or the first folder above it that is a package or that cannot be one by its name.

    Folders of the second kind hold libraries or metadata: `pyzmq.libs`, `a-1.0.dist-info`.
    """
    end = file.find("/")
    while end > 0 and file[:end] not in packages and file[:end].rpartition("/")[2].isidentifier():
        end = file.find("/", end + 1)
    return file[:end] if end > 0 else file


def _sources(module: str) -> list[Path]:
    """The place of a module that no distribution recorded: a file, or the folders of a package."""
    root, *rest = module.split(".")
    spec = importlib.util.find_spec(root) if root else None
    outermost = spec
    for part in rest:
        if spec is None:
            break
        # Not by the whole name: for a namespace package that would use the imported parent.
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or ()))
        # A namespace package holds more than the module that is wanted.
        outermost = spec if outermost is None or outermost.origin is None else outermost
    if spec is None or outermost is None:
        raise ValueError(
            f"preload {module!r}: no such module; expected one that {sys.executable} can import, "
            "such as 'sympy', so correct the name or install it there"
        )
    folders: Sequence[str | None] = outermost.submodule_search_locations or [outermost.origin]
    return [Path(folder) for folder in folders if folder]


def _is_editable(distribution: Distribution, sources: Sequence[Path]) -> bool:
    """Return whether it is installed in place (PEP 610) out of a folder with one of `sources`."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return False
    project = url2pathname(urlsplit(origin["url"]).path)
    return any(source.is_relative_to(project) for source in sources)
