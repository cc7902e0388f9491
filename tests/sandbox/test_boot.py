"""Modules that may be read in a folder can be imported, and the rest is not there."""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import DistributionFinder
from pathlib import Path

import pytest

from repl_sandbox.guest import boot
from repl_sandbox.guest.boot import PackageFolder, PackageMetadata, visible_entries


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with one of each kind, every second of which is hidden."""
    for name in ("open", "hidden", "space/open", "space/hidden", "lone_space/hidden"):
        touch(tmp_path / name / "__init__.py", tmp_path / name / "below.py")
    touch(tmp_path / "one.py", tmp_path / "other.py", tmp_path / "data.txt")
    for name in ("Open_It-1.0.dist-info", "hidden-1.0.dist-info"):
        touch(tmp_path / name / "METADATA")
        (tmp_path / name / "METADATA").write_text(f"Name: {name[:-14]}\nVersion: 1.0\n")
    return tmp_path


@pytest.fixture
def folder(site: Path) -> PackageFolder:
    return PackageFolder(str(site), names(site))


def names(site: Path) -> boot.VisibleEntries:
    visible = ("open", "space/open", "one.py", "data.txt", "Open_It-1.0.dist-info")
    return visible_entries([str(site)], [str(site / name) for name in visible])


def test_a_folder_shows_what_may_be_read_and_what_leads_to_it(site: Path) -> None:
    assert names(site) == {
        str(site): {"open", "space", "one.py", "data.txt", "Open_It-1.0.dist-info"},
        str(site / "space"): {"open"},
    }


def test_a_spec_is_that_of_pythons_own_finder(site: Path, folder: PackageFolder) -> None:
    ours = folder.find_spec("open")
    stock = importlib.util.spec_from_file_location("open", site / "open" / "__init__.py")
    assert ours == stock
    one = folder.find_spec("one")
    assert one is not None
    assert one.origin == str(site / "one.py")


@pytest.mark.parametrize("name", ["hidden", "other", "lone_space", "data", "nothing", ""])
def test_what_may_not_be_read_is_not_found(folder: PackageFolder, name: str) -> None:
    assert folder.find_spec(name) is None


def test_a_namespace_package_has_what_may_be_read_of_it(site: Path, folder: PackageFolder) -> None:
    spec = folder.find_spec("space")
    assert spec is not None
    assert spec.loader is None
    assert spec.submodule_search_locations == [str(site / "space")]
    inner = PackageFolder(str(site / "space"), names(site))
    assert inner.find_spec("space.open") is not None
    assert inner.find_spec("space.hidden") is None


def test_modules_are_listed_by_their_names_and_kinds(folder: PackageFolder) -> None:
    assert list(folder.iter_modules("a.")) == [("a.one", False), ("a.open", True)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, ["Open_It"]), ("open-it", ["Open_It"]), ("OPEN.IT", ["Open_It"]), ("hidden", [])],
)
def test_metadata_is_found_by_the_name_of_a_distribution(
    site: Path, asked: str | None, found: list[str]
) -> None:
    given = {} if asked is None else {"name": asked}
    context = DistributionFinder.Context(path=[str(site)], **given)
    distributions = PackageMetadata(names(site)).find_distributions(context)
    assert [each.metadata["Name"] for each in distributions] == found


HIDE = """
import json, sys
from repl_sandbox.guest.boot import restrict_imports
restrict_imports(sys.argv[1:], order=[])
import one, open, space.open
try: import hidden
except ModuleNotFoundError as error: print(error, error.name)
print("a_hook" in sys.modules, [type(each).__name__ for each in sys.meta_path][-1:])
print(any("src" in entry for entry in sys.path))
"""


def test_what_a_pth_file_has_done_where_it_could_be_seen_is_undone(site: Path) -> None:
    touch(site / "src" / "more.py")
    touch(site / "src" / "more.egg-info" / "PKG-INFO")
    (site / "a_hook.py").write_text(
        "import sys\nclass Finder:\n    def find_spec(*given): return None\n"
        "sys.meta_path.append(Finder())\n"
    )
    (site / "a.pth").write_text(f"import a_hook\n{site / 'src'}\n")
    started = f"import site, sys; sys.path.append({str(site)!r}); site.addsitedir({str(site)!r})\n"
    python = [os.path.dirname(os.__file__), os.path.dirname(boot.__file__)]
    visible = [*python, *(str(site / name) for name in ("open", "space/open", "one.py"))]
    done = subprocess.run(
        [sys.executable, "-c", started + HIDE, *visible],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.splitlines() == [
        "No module named 'hidden' hidden",
        "False ['PackageMetadata']",
        "False",
    ]
