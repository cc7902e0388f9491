"""Installed packages: which distribution a module belongs to, what it requires, its files.

module -> distributions -> what they require -> packages, modules and libraries in their folders

A distribution is what `importlib.metadata` calls one. Where several folders have one of the same
name, the first folder counts. Finds modules, imports none. Does not know kernels nor walls.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN_DISTRIBUTION = "repl-rl"
OWN_MODULES = frozenset({"repl_rl", "repl_sandbox"})
OWN_FOLDER = Path(__file__).resolve().parents[1]


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
    return _select(search, lambda found: _is_editable(found, sources)), sources


def closure(wanted: Iterable[Distribution], search: Sequence[Path]) -> Iterable[Distribution]:
    """`wanted` and all that they require on this machine, as far as it is installed."""
    owners = {canonicalize_name(_name(distribution)): distribution for distribution in wanted}
    todo, done = [(name, "") for name in owners], set()
    found: dict[str, Distribution] = {}
    while todo:
        name, extra = step = todo.pop()
        if step in done or name == OWN_DISTRIBUTION:
            continue
        done.add(step)
        distribution = owners.get(name) or find(name, search)
        if distribution is None:
            continue
        found[name] = distribution
        for text in distribution.requires or ():
            required = Requirement(text)
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                extras = ("", *required.extras)
                todo += [(canonicalize_name(required.name), each) for each in extras]
    return found.values()


def entries(distribution: Distribution) -> list[Path]:
    """What a distribution has in its folder: packages, modules, libraries, its metadata.

    A folder that others may share, such as a namespace package, is named by its entries.
    """
    files = [file for file in _recorded(distribution) if not file.startswith(("../", "/"))]
    packages = {file.rpartition("/__init__.")[0] for file in files}
    folder = _folder(distribution)
    return [folder / own for own in {_outermost(file, packages) for file in files}]


def _select(
    search: Sequence[Path], is_wanted: Callable[[Distribution], bool]
) -> list[Distribution]:
    """The distributions for which `is_wanted` holds."""
    # Names are parsed out of metadata, half a millisecond each: only those of wanted ones are.
    wanted = filter(is_wanted, installed(search))
    return list(filter(is_wanted, (find(_name(each), search) or each for each in wanted)))


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
    """The same of a distribution without a record: operating systems remove it from packages."""
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
    return _locations(outermost)


def _locations(spec: ModuleSpec) -> list[Path]:
    if spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _is_editable(distribution: Distribution, sources: Sequence[Path]) -> bool:
    """Whether it is installed in place (PEP 610) out of a folder with one of `sources`."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return False
    project = url2pathname(urlsplit(origin["url"]).path)
    return any(source.is_relative_to(project) for source in sources)
