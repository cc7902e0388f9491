"""What a sealed kernel may read: its interpreter, and the packages that it may import.

preload -> distributions, and what they require -> their files, Python's and the system's

The same paths become rules of Landlock, which allow whatever lies below, and mounts around the
fork server. So a folder is named only if nothing below it is anyone else's; of any other, the
entries are. Finds modules, imports none. Knows where Python and Linux keep their files. Does not
know walls, nor what runs behind them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repl_sandbox.types import SandboxError

SERVER_NEEDS = ("ipykernel", "jupyter-client", "pyzmq", "tornado", "traitlets")
"""Distributions that the fork server imports whatever is preloaded."""
OWN_DISTRIBUTION = "repl-rl"
OWN_MODULES = frozenset({"repl_rl", "repl_sandbox"})
OWN_FOLDER = Path(__file__).resolve().parent
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
# Where two are one by a link, the first is how the loader's cache spells it.
LIBRARY_FOLDERS = ("/lib64", "/lib", "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib")
SYSTEM_FILES = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/lib/locale/C.UTF-8",
    "/usr/lib/locale/C.utf8",
    "/usr/share/zoneinfo",
)
MANY = 32
"""Entries of one folder: the time that mounts take grows with the square of their number."""
LIBRARY_NAME = re.compile(rb"\0((?:lib|ld-)[\w.+-]*\.so[.\d]*)(?=\0)")
METADATA_NAME = re.compile(r"(?P<name>.+?)(-\d.*)?\.(dist|egg)-info")


def readable_paths(preload: Sequence[str]) -> tuple[Path, ...]:
    """Files and folders, sorted, none below another, that a kernel with `preload` may read.

    The fork server can be started and can import all it needs where nothing else exists.
    Raises ValueError for a module that cannot be found, and for one of this project; SandboxError
    where what the fork server imports is not installed.
    """
    search = package_folders()
    missing = [name for name in SERVER_NEEDS if name not in _installed(search)]
    if missing:
        raise SandboxError(
            f"kernels need {', '.join(missing)}, and no folder of sys.path says that it has it; "
            f"install it for {sys.executable}"
        )
    ours = _interpreter()
    for scheme in ("stdlib", "platstdlib"):
        ours += standard_library(_python_folder(scheme))
    ours += package_paths(preload, search)
    systems = libraries(_library_folders(), users=ours)
    return prune([*ours, *systems, *map(Path, SYSTEM_FILES)])


def package_folders() -> list[Path]:
    """The folders of `sys.path` in which distributions are installed: `.pth` files may add some."""
    folders = dict.fromkeys(Path(entry).absolute() for entry in sys.path if entry)
    return [folder for folder in folders if os.access(folder, os.R_OK) and _installed([folder])]


def prune(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Those that exist, sorted, with the targets of links, without what lies below another."""
    there = {path for path in paths if os.path.exists(path)}
    there |= {path.resolve() for path in there if path.is_symlink()}
    return tuple(sorted(path for path in there if there.isdisjoint(path.parents)))


def as_mounts(paths: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(what to mount, folders to cover with empty ones): the view of `paths` in fewer mounts.

    To be done in the order of the paths, as what is mounted may lie in what is covered. Example:
    a standard library named by its entries is one mount; the `site-packages` in it is covered.
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
    """Whether there are packages below that nobody asked for, or this project."""
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
    """`folders` of shared libraries; of one with packages inside, the libraries alone.

    If those are too many, only what programs and extension modules among `users` may load.
    """
    mixed = [folder for folder in folders if holds_packages(folder)]
    distinct = {folder.resolve(): folder for folder in reversed(mixed)}
    found = [library for folder in distinct.values() for library in folder.glob("*.so*")]
    if len(found) > MANY:
        found = _needed(found, users)
    return [*(folder for folder in folders if folder not in mixed), *found]


def package_paths(preload: Sequence[str], search: Sequence[Path]) -> list[Path]:
    """What the folders of `search` hold of `preload`, of the fork server and of all they require.

    Of a module that is not installed there, but found, its source.
    """
    installed = _installed(search)
    wanted, paths = list(SERVER_NEEDS), []
    for module in preload:
        owners, sources = _origins(module, installed)
        wanted += owners
        paths += sources
    for name in _closure(wanted, installed):
        paths += _entries(installed[name])
    return paths


def _interpreter() -> list[Path]:
    executable = Path(sys.executable)
    settings = [folder / "pyvenv.cfg" for folder in list(executable.parents)[:2]]
    return [executable, executable.resolve(), *settings]


def _python_folder(scheme: str) -> Path:
    # In a virtual environment, `platstdlib` would lie there, and does not.
    return Path(sysconfig.get_path(scheme, vars={"platbase": sys.base_exec_prefix}))


def _library_folders() -> list[Path]:
    triplet = sysconfig.get_config_var("MULTIARCH") or "none"
    folders = [f"{folder}/{triplet}" for folder in LIBRARY_FOLDERS]
    folders += [*LIBRARY_FOLDERS, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}"]
    return [Path(folder) for folder in dict.fromkeys(folders)]


def _needed(found: Sequence[Path], users: Sequence[Path]) -> list[Path]:
    """The libraries of `found` that are named in a program among `users`, or in another of them.

    A program names what it is linked to, and what it may open later.
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


def _installed(search: Sequence[Path]) -> dict[str, Path]:
    """Canonical name of each distribution -> its metadata, as the first of the folders has it."""
    found: dict[str, Path] = {}
    for folder in search:
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            match = METADATA_NAME.fullmatch(entry.name)
            if match:
                found.setdefault(canonicalize_name(match["name"]), entry)
    return found


def _origins(module: str, installed: Mapping[str, Path]) -> tuple[list[str], list[Path]]:
    """(the distributions that a module comes from, its source if they did not record it)."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names:
        return [], []
    owners = [] if root in OWN_MODULES else _owners(module, installed)
    if owners:
        return owners, []
    sources = _sources(module)
    if root in OWN_MODULES or any(OWN_FOLDER.is_relative_to(path.resolve()) for path in sources):
        raise ValueError(
            f"preload {module!r}: kernels may not read the project that runs them; "
            "expected a package for the lines that run in kernels, so leave this one out"
        )
    return _editables(sources, installed), sources


def _owners(module: str, installed: Mapping[str, Path]) -> list[str]:
    """The distributions with files of a module: its namesake alone, if that has any."""
    stem = module.replace(".", "/")
    files = {stem + suffix for suffix in all_suffixes()}

    def owns(name: str) -> bool:
        recorded = _recorded(installed[name])
        return any(file.startswith(f"{stem}/") or file in files for file in recorded)

    namesake = canonicalize_name(module.partition(".")[0])
    if namesake in installed and owns(namesake):
        return [namesake]
    return [name for name in installed if owns(name)]


def _recorded(metadata: Path) -> list[str]:
    """The files of a distribution, relative to the folder in which it is installed."""
    record = metadata / "RECORD"
    if record.exists():
        lines = record.read_text(encoding="utf-8").splitlines()
        return [line.rsplit(",", 2)[0].strip('"') for line in lines]
    # Operating systems remove the record from what they package.
    match, declared = METADATA_NAME.fullmatch(metadata.name), metadata / "top_level.txt"
    assert match is not None
    stems = declared.read_text().split() if declared.exists() else [match["name"].replace("-", "_")]
    beside = [entry for entry in metadata.parent.iterdir() if entry.name.split(".")[0] in stems]
    named = [f"{entry.name}/__init__.py" if entry.is_dir() else entry.name for entry in beside]
    return [*named, metadata.name]


def _entries(metadata: Path) -> set[Path]:
    """What a distribution has beside its metadata: packages, modules, libraries it came with.

    A folder that others may share, as a namespace package is, stands for nothing: its entries do.
    """
    files = [file for file in _recorded(metadata) if not file.startswith(("../", "/"))]
    packages = {file.rpartition("/__init__.")[0] for file in files}
    return {metadata.parent / own for own in {_outermost(file, packages) for file in files}}


def _outermost(file: str, packages: set[str]) -> str:
    """The file, or the first folder above it that is a package or has no name of a package.

    The latter are libraries that a wheel came with and metadata: `pyzmq.libs`, `a-1.0.dist-info`.
    """
    end = file.find("/")
    while end > 0 and file[:end] not in packages and file[:end].rpartition("/")[2].isidentifier():
        end = file.find("/", end + 1)
    return file[:end] if end > 0 else file


def _sources(module: str) -> list[Path]:
    """Where a module lies that no distribution recorded: a file, or the folders of a package."""
    root, *rest = module.split(".")
    spec = importlib.util.find_spec(root) if root else None
    outermost = spec
    for part in rest:
        if spec is None:
            break
        # Not by its whole name: of a namespace package that would take the imported parent.
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or ()))
        # A namespace package holds more than was asked for.
        outermost = spec if outermost is None or outermost.origin is None else outermost
    if spec is None or outermost is None:
        raise ValueError(
            f"preload {module!r}: no such module; expected one that {sys.executable} can import, "
            "such as 'sympy', so correct the name or install it there"
        )
    return _locations(outermost)


def _locations(spec: ModuleSpec) -> list[Path]:
    if spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _editables(sources: Sequence[Path], installed: Mapping[str, Path]) -> list[str]:
    """The distributions installed in place (PEP 610) out of a folder with one of `sources`."""
    owners = []
    for name, metadata in installed.items():
        told = metadata / "direct_url.json"
        origin = json.loads(told.read_text()) if told.exists() else {}
        if origin.get("dir_info", {}).get("editable"):
            project = url2pathname(urlsplit(origin["url"]).path)
            if any(source.is_relative_to(project) for source in sources):
                owners.append(name)
    return owners


def _closure(names: Iterable[str], installed: Mapping[str, Path]) -> set[str]:
    """`names` and what they require on this machine, as far as it is installed."""
    todo = [(canonicalize_name(name), "") for name in names]
    done = set()
    while todo:
        name, extra = step = todo.pop()
        if step in done or name not in installed or name == OWN_DISTRIBUTION:
            continue
        done.add(step)
        for text in Distribution.at(installed[name]).requires or ():
            required = Requirement(text)
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                extras = ("", *required.extras)
                todo += [(canonicalize_name(required.name), wanted) for wanted in extras]
    return {name for name, _extra in done}


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
