"""Files that a kernel may read: all that it needs, nothing that nobody asked for."""

import importlib.machinery
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from repl_sandbox.walls import view
from repl_sandbox.walls.view import (
    as_mounts,
    libraries,
    package_paths,
    prune,
    readable_paths,
    standard_library,
)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install(site: Path, name: str, *files: str, requires: Sequence[str] = (), **extra: str) -> Path:
    """A distribution as pip leaves it; `extra` are further files of its metadata."""
    metadata = site / f"{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    write(metadata / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
    for file, text in extra.items():
        write(metadata / file.replace("_json", ".json"), text)
    for file in files:
        write(site / file)
    recorded = [*files, *(f"{metadata.name}/{path.name}" for path in metadata.iterdir())]
    write(metadata / "RECORD", "".join(f"{file},sha256=x,1\n" for file in recorded))
    return metadata


def names(site: Path, *preload: str, needs: Sequence[str] = ()) -> list[str]:
    """Names in `site` that may be read, without metadata."""
    paths = package_paths(preload, [site], needs)
    return sorted(str(path.relative_to(site)) for path in paths if not path.name.endswith("-info"))


def test_a_module_brings_what_it_requires_and_nothing_else(tmp_path: Path) -> None:
    install(tmp_path, "a", "a/__init__.py", requires=["B.b>=1"])
    install(tmp_path, "b_b", "bb/__init__.py", requires=["c"])
    install(tmp_path, "c", "c.py", "__pycache__/c.cpython-311.pyc")
    install(tmp_path, "torch", "torch/__init__.py", "__pycache__/torch.cpython-311.pyc")
    assert names(tmp_path, "a") == ["__pycache__/c.cpython-311.pyc", "a", "bb", "c.py"]


def test_metadata_comes_with_its_distribution(tmp_path: Path) -> None:
    metadata = install(tmp_path, "a", "a/__init__.py")
    assert metadata in package_paths(["a"], [tmp_path])


def test_what_the_fork_server_imports_comes_unasked_and_no_other(tmp_path: Path) -> None:
    install(tmp_path, "pyzmq", "zmq/__init__.py", "pyzmq.libs/libzmq.so.5")
    assert names(tmp_path, needs=["pyzmq"]) == ["pyzmq.libs", "zmq"]
    assert names(tmp_path) == []


def test_a_module_is_found_by_its_own_name_not_its_distribution_s(tmp_path: Path) -> None:
    install(tmp_path, "pyyaml", "yaml/__init__.py", "_yaml/__init__.py")
    install(tmp_path, "other", "yaml_more/__init__.py")
    assert names(tmp_path, "yaml") == ["_yaml", "yaml"]


def test_an_extension_module_is_a_module(tmp_path: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    install(tmp_path, "fast", f"quick{suffix}")
    assert names(tmp_path, "quick") == [f"quick{suffix}"]


def test_a_marker_that_does_not_hold_brings_nothing(tmp_path: Path) -> None:
    requires = ["b; sys_platform == 'win32'", "c; python_version > '3'"]
    install(tmp_path, "a", "a/__init__.py", requires=requires)
    install(tmp_path, "b", "b/__init__.py")
    install(tmp_path, "c", "c/__init__.py")
    assert names(tmp_path, "a") == ["a", "c"]


def test_an_extra_counts_where_it_is_asked_for(tmp_path: Path) -> None:
    install(tmp_path, "a", "a/__init__.py", requires=["b[fast]", "c; extra == 'fast'"])
    install(tmp_path, "b", "b/__init__.py", requires=["d; extra == 'fast'", "e; extra == 'slow'"])
    for name in "cde":
        install(tmp_path, name, f"{name}.py")
    assert names(tmp_path, "a") == ["a", "b", "d.py"]


def test_requirements_may_run_in_a_circle(tmp_path: Path) -> None:
    install(tmp_path, "a", "a.py", requires=["b[x]"])
    install(tmp_path, "b", "b.py", requires=["a", "b[x]; extra == 'x'"])
    assert names(tmp_path, "b") == ["a.py", "b.py"]


def test_what_is_required_and_not_installed_is_left_out(tmp_path: Path) -> None:
    install(tmp_path, "a", "a.py", requires=["missing>=2"])
    assert names(tmp_path, "a") == ["a.py"]


def test_this_project_is_left_out_where_a_package_requires_it(tmp_path: Path) -> None:
    install(tmp_path, "a", "a.py", requires=["repl-rl", "repl-sandbox"])
    install(tmp_path, "repl_rl", "repl_rl/__init__.py", requires=["repl-sandbox", "b"])
    install(tmp_path, "repl_sandbox", "repl_sandbox/__init__.py", requires=["b"])
    install(tmp_path, "b", "b.py")
    assert names(tmp_path, "a") == ["a.py"]


def test_scripts_and_shared_files_are_not_for_kernels(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "site-packages"
    install(site, "a", "a.py", "../../bin/a", "../../share/a.1")
    assert names(site, "a") == ["a.py"]


def test_a_namespace_package_is_shared_out(tmp_path: Path) -> None:
    install(tmp_path, "space_a", "space/a/__init__.py", "space/a/more.py", "space/a.txt")
    install(tmp_path, "space_b", "space/b/__init__.py")
    assert names(tmp_path, "space.a") == ["space/a", "space/a.txt"]


def test_the_first_of_two_installations_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "a", "a.py")
    install(second, "a", "a.py")
    paths = package_paths(["a"], [tmp_path / "none", first, second])
    assert first / "a.py" in paths
    assert second / "a.py" not in paths


def test_without_a_record_the_declared_names_count(tmp_path: Path) -> None:
    metadata = install(tmp_path, "my_dist", "a/b.py", "c.py", "other.py", requires=["d"])
    write(metadata / "top_level.txt", "a\nc\n")
    (metadata / "RECORD").unlink()
    install(tmp_path, "d", "d.py")
    assert names(tmp_path, "c") == ["a", "c.py", "d.py"]


def test_without_a_record_or_declared_names_the_distribution_s_counts(tmp_path: Path) -> None:
    (install(tmp_path, "a_b", "a_b/c.py", "a/c.py") / "RECORD").unlink()
    assert names(tmp_path, "a_b") == ["a_b"]


def test_a_recorded_name_may_have_a_comma_and_quotes_and_none_is_empty(tmp_path: Path) -> None:
    metadata = install(tmp_path, "a", "a.py")
    with (metadata / "RECORD").open("a") as record:
        record.write('"b, ""c"".txt",sha256=x,1\n\n,,\n')
    odd = write(tmp_path / 'b, "c".txt')
    assert names(tmp_path, "a") == ["a.py", odd.name]


def test_an_egg_s_metadata_may_be_one_file(tmp_path: Path) -> None:
    metadata = write(tmp_path / "a_b-1.0-py3.11.egg-info", "Name: a-b\nVersion: 1.0\n")
    write(tmp_path / "a_b.py")
    write(tmp_path / "a.py")
    assert set(package_paths(["a_b"], [tmp_path])) == {tmp_path / "a_b.py", metadata}


def test_an_egg_s_list_of_sources_is_no_record(tmp_path: Path) -> None:
    metadata = tmp_path / "a.egg-info"
    write(metadata / "PKG-INFO", "Name: a\nVersion: 1.0\n")
    write(metadata / "SOURCES.txt", "src/b/__init__.py\nother.py\n")
    write(metadata / "top_level.txt", "b\n")
    write(metadata / "requires.txt", "c\n")
    for file in ("b/__init__.py", "other.py"):
        write(tmp_path / file)
    install(tmp_path, "c", "c.py")
    assert names(tmp_path, "b") == ["b", "c.py"]


def test_metadata_that_cannot_be_read_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "gone-1.0.dist-info").mkdir()
    latin = write(tmp_path / "latin-1.0.egg-info")
    latin.write_bytes("Name: latin\nAuthor: J\xf6rg\n".encode("latin-1"))
    write(tmp_path / ".hidden")
    install(tmp_path, "pyyaml", "yaml/__init__.py")
    assert names(tmp_path, "yaml") == ["yaml"]


def test_a_later_installation_brings_nothing_but_the_module_that_only_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "a", "a.py")
    install(second, "a", "a.py", "more.py", requires=["b"])
    install(second, "b", "b.py")
    monkeypatch.syspath_prepend(second)
    assert package_paths(["more"], [first, second]) == [second / "more.py"]


def test_a_module_in_its_project_is_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    source = write(project / "src" / "mine" / "__init__.py").parent
    monkeypatch.syspath_prepend(source.parent)
    origin = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
    install(site, "my-dist", "__editable__.pth", requires=["a"], direct_url_json=origin)
    install(site, "a", "a.py")
    assert set(package_paths(["mine"], [site])) >= {
        source,
        site / "__editable__.pth",
        site / "a.py",
    }


def test_a_project_is_not_read_because_something_requires_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    monkeypatch.syspath_prepend(write(project / "mine.py").parent)
    origin = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
    install(site, "mine", "__editable__.pth", direct_url_json=origin)
    install(site, "a", "a.py", requires=["mine"])
    assert project / "mine.py" not in package_paths(["a"], [site])


def test_a_namespace_package_in_its_project_is_read_as_far_as_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "realm" / "a" / "b" / "c.py")
    write(tmp_path / "realm" / "a" / "b" / "__init__.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert package_paths(["realm.a.b.c"], []) == [tmp_path / "realm" / "a" / "b"]
    assert package_paths(["realm.a"], []) == [tmp_path / "realm" / "a"]


def test_the_standard_library_needs_no_distribution(tmp_path: Path) -> None:
    assert package_paths(["sys", "xml.etree", "_ctypes"], [tmp_path]) == []


@pytest.mark.parametrize("module", ["no_such_module", "sympy.no_such", "", ".a", "a b"])
def test_an_unknown_module_is_named(module: str) -> None:
    with pytest.raises(ValueError, match=rf"^preload '{module}': no such module; expected .*$"):
        readable_paths([module])


@pytest.mark.parametrize("module", ["repl_rl", "repl_sandbox.guest.repl", "repl_rl.records"])
def test_this_project_cannot_be_preloaded(module: str) -> None:
    with pytest.raises(ValueError, match=rf"^preload '{module}': kernels may not read"):
        readable_paths([module])


def test_a_folder_above_this_project_cannot_be_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.machinery.ModuleSpec("above", None, is_package=True)
    spec.submodule_search_locations = [str(Path(view.__file__).parents[2])]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    with pytest.raises(ValueError, match="kernels may not read"):
        package_paths(["above"], [])


def test_a_standard_library_of_its_own_is_one_folder(tmp_path: Path) -> None:
    write(tmp_path / "os.py")
    assert standard_library(tmp_path) == [tmp_path]


@pytest.mark.parametrize("inside", ["site-packages", "dist-packages"])
def test_a_standard_library_with_packages_inside_is_named_without_them(
    tmp_path: Path, inside: str
) -> None:
    write(tmp_path / "os.py")
    write(tmp_path / "json" / "__init__.py")
    write(tmp_path / inside / "torch" / "__init__.py")
    assert sorted(standard_library(tmp_path)) == [tmp_path / "json", tmp_path / "os.py"]


def test_a_folder_of_libraries_with_packages_inside_is_named_by_its_libraries(
    tmp_path: Path,
) -> None:
    plain, mixed = tmp_path / "plain", tmp_path / "mixed"
    write(plain / "libz.so.1")
    write(mixed / "python3.11" / "site-packages" / "torch.py")
    write(mixed / "README")
    library = write(mixed / "libpython3.11.so.1.0")
    assert libraries([plain, mixed], users=[]) == [plain, library]


def test_a_folder_with_this_project_inside_is_no_folder_of_libraries() -> None:
    project = Path(view.__file__).parents[2]
    assert project not in libraries([project], users=[])


def test_of_many_libraries_those_count_that_a_program_names(tmp_path: Path) -> None:
    (tmp_path / "lib" / "site-packages").mkdir(parents=True)
    for number in range(view.MANY):
        write(tmp_path / "lib" / f"libother{number}.so")
    found = {
        name: write(tmp_path / "lib" / name, text)
        for name, text in {"liba.so.1": "\0libb.so\0", "libb.so": "", "libc.so": ""}.items()
    }
    write(tmp_path / "package" / "fast.so", "ELF\0\0libm.so.6\0liba.so.1\0")
    write(tmp_path / "package" / "slow.py", "\0libc.so\0")
    needed = libraries([tmp_path / "lib"], users=[tmp_path / "package"])
    assert needed == [found["liba.so.1"], found["libb.so"]]


def test_one_folder_of_libraries_is_not_named_twice(tmp_path: Path) -> None:
    (tmp_path / "usr" / "site-packages").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("usr")
    write(tmp_path / "usr" / "liba.so")
    folders = [tmp_path / "alias", tmp_path / "usr"]
    assert libraries(folders, users=[]) == [tmp_path / "alias" / "liba.so"]


def test_paths_are_sorted_and_none_lies_below_another_or_is_missing(tmp_path: Path) -> None:
    inner = write(tmp_path / "b" / "c" / "d")
    outer = write(tmp_path / "a")
    paths = [inner, tmp_path / "b", outer, inner.parent, tmp_path / "none", outer]
    assert prune(paths) == (outer, tmp_path / "b")


def test_a_link_is_named_with_its_target(tmp_path: Path) -> None:
    target = write(tmp_path / "target" / "file")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "target" / "inner").symlink_to(target)
    assert prune([tmp_path / "link"]) == (tmp_path / "link", target)
    assert prune([tmp_path / "target", tmp_path / "target" / "inner"]) == (tmp_path / "target",)


def _crowd(folder: Path) -> tuple[Path, ...]:
    return tuple(write(folder / f"m{number:02}.py") for number in range(view.MANY))


def test_a_folder_named_by_its_entries_is_mounted_at_once_and_the_rest_covered(
    tmp_path: Path,
) -> None:
    library = tmp_path / "python3.11"
    wanted = write(library / "site-packages" / "sympy" / "__init__.py").parent
    write(library / "site-packages" / "torch" / "__init__.py")
    shown, covered = as_mounts((*_crowd(library), wanted))
    assert (shown, covered) == ((library, wanted), (library / "site-packages",))


@pytest.mark.parametrize("spoiler", ["a file", "a link", "a crowd of folders"])
def test_what_cannot_be_covered_is_not_mounted(tmp_path: Path, spoiler: str) -> None:
    named = _crowd(tmp_path)
    match spoiler:
        case "a file":
            write(tmp_path / "secret")
        case "a link":
            (tmp_path / "secret").symlink_to("/etc")
        case _:
            for number in range(view.MANY):
                (tmp_path / f"d{number}").mkdir()
    assert as_mounts(named) == (named, ())


def test_few_entries_are_mounted_one_by_one(tmp_path: Path) -> None:
    *named, unnamed = _crowd(tmp_path)
    unnamed.unlink()
    assert as_mounts(named) == (tuple(named), ())


def _covers(paths: Sequence[Path], target: Path) -> bool:
    ways = {target, target.resolve()}
    return any(not {way, *way.parents}.isdisjoint(paths) for way in ways)


def _module_file(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


@pytest.mark.parametrize("module", ["sympy", "mpmath", "zmq", "ipykernel", "json", "_ctypes"])
def test_a_kernel_may_read_what_it_may_import(paths: tuple[Path, ...], module: str) -> None:
    assert _covers(paths, _module_file(module))


@pytest.mark.parametrize("module", ["torch", "transformers", "trl", "repl_rl", "repl_sandbox"])
def test_a_kernel_may_not_read_what_nobody_preloaded(paths: tuple[Path, ...], module: str) -> None:
    assert not _covers(paths, _module_file(module))


@pytest.mark.parametrize("path", ["/etc/passwd", "/tmp", "/proc/self/environ", Path.home()])
def test_a_kernel_may_not_read_anything_else(paths: tuple[Path, ...], path: Path) -> None:
    assert not _covers(paths, Path(path))


def test_a_package_of_the_trainer_may_be_preloaded() -> None:
    assert _covers(readable_paths(["torch"]), _module_file("torch"))


def test_no_time_is_lost_on_mounts(paths: tuple[Path, ...]) -> None:
    shown, covered = as_mounts(paths)
    # 0.1 s; at 300 it is a quarter of a second.
    assert len(shown) + len(covered) < 200
