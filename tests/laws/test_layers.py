"""Imports go one way, from a layer to those on its left, and light modules stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from repl_sandbox.jupyter.front_ends import CELLS, LINES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = {"repl_rl": ROOT / "repl_rl", "repl_sandbox": ROOT / "sandbox" / "repl_sandbox"}

CORE = (
    *("repl_sandbox", "top", "base", "config", "runs", "transcript", "grading", "tasks", "credit"),
    *("models", "engines", "rollout", "update", "training"),
)
"""Folders that a training run executes. `top` are the files beside them."""
INTERFACES = ("golden", "viewer", "commands")
"""What a person looks at or types; `golden` are the tests of a reward."""
OUTSIDE = ("integrations", "lm_eval", "testing")
"""What other people's programs import; nothing that trains imports it."""
LAYERS = (*CORE, "golden", "viewer", "integrations", "lm_eval", "commands", "testing")
"""All folders. Each imports from those on its left alone."""
ALIASES = ("repl_rl.trl", "repl_rl.export", "repl_rl.engines.tinker")
"""Modules that hold a name of documents for what stands elsewhere."""
ONE_KIND = ("commands", "tasks/sympy_proofs/wide")
"""Folders in which each file is one of a kind, so that adding one is adding a file."""

GOLDEN = str(ROOT / "tests" / "golden")


def modules() -> Iterator[Path]:
    for package in PACKAGES.values():
        yield from sorted(package.rglob("*.py"))


@cache
def imported_names(path: Path) -> list[str]:
    """Full names of all that a file imports, deferred imports included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path}: imports are absolute"
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def full_name(path: Path) -> str:
    home = next(home for home in PACKAGES.values() if path.is_relative_to(home))
    parts = path.relative_to(home.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def known_modules() -> dict[str, Path]:
    """Full name of each of our modules, a package's among them -> its file."""
    return {full_name(path): path for path in modules()}


def layer_of(name: str) -> str:
    first, _, rest = name.partition(".")
    if first == "repl_sandbox":
        return first
    layer = rest.partition(".")[0]
    return layer if layer and (PACKAGES["repl_rl"] / layer).is_dir() else "top"


def edges() -> set[tuple[str, str]]:
    """(importer, imported), full names of our modules.

    Without the packages themselves, which name all that is public and load it when it is asked for,
    and without aliases.
    """
    known = known_modules()
    return {
        (importer, name)
        for importer, path in known.items()
        for name in imported_names(path)
        if name in known and name != importer not in (*PACKAGES, *ALIASES)
    }


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_names_what_its_home_defines(alias: str) -> None:
    known = known_modules()
    tree = ast.parse(known[alias].read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    home = ast.parse(known[str(found.module)].read_text())
    defined = {node.name for node in home.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert {name.name for name in found.names} <= defined


def test_every_folder_is_a_layer() -> None:
    assert {layer_of(name) for name in known_modules()} == set(LAYERS)


def test_the_architecture_names_the_layers_in_their_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("| layer |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == LAYERS
    assert f"    {' < '.join(LAYERS)}\n" in text


def test_a_layer_imports_from_those_on_its_left() -> None:
    order = {layer: i for i, layer in enumerate(LAYERS)}
    up = {(a, b) for a, b in edges() if order[layer_of(a)] < order[layer_of(b)]}
    assert up == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    left = {(a, b) for a, b in edges() if not b.startswith(f"{a}.") and not a.startswith(f"{b}.")}
    while left:
        leaves = {imported for _, imported in left} - {importer for importer, _ in left}
        assert leaves, f"a ring among {sorted(left)}"
        left = {edge for edge in left if edge[1] not in leaves}


def test_the_layers_are_those_of_three_bands() -> None:
    assert sorted(LAYERS) == sorted((*CORE, *INTERFACES, *OUTSIDE))


def test_what_trains_knows_neither_interfaces_nor_integrations() -> None:
    others = {*INTERFACES, *OUTSIDE}
    assert {(a, b) for a, b in edges() if layer_of(a) in CORE and layer_of(b) in others} == set()


def test_only_commands_import_the_viewer_and_golden_transcripts() -> None:
    importers = {layer_of(a) for a, b in edges() if layer_of(b) in ("viewer", "golden")}
    assert importers <= {"viewer", "golden", "integrations", "lm_eval", "commands"}


def test_nothing_imports_what_is_for_tests() -> None:
    assert {layer_of(a) for a, b in edges() if layer_of(b) == "testing"} == {"testing"}


def test_no_folder_holds_more_than_fourteen_modules() -> None:
    sizes = Counter(path.parent for path in modules() if path.name != "__init__.py")
    home = PACKAGES["repl_rl"]
    one_kind = {home / folder for folder in ONE_KIND}
    assert {
        str(folder): n for folder, n in sizes.items() if n > 14 and folder not in one_kind
    } == {}


def test_a_module_of_few_lines_has_several_users_or_is_a_way_in() -> None:
    """A module that one neighbour alone imports stands there, unless it is a screen long."""
    ways_in = {"repl_sandbox.pool", *ALIASES}
    users = Counter(imported for _, imported in edges())
    small = {
        name
        for name, path in known_modules().items()
        if path.read_text().count("\n") < 60 and path.stem not in ("__init__", "__main__")
    }
    alone = {name for name in small - ways_in if users[name] <= 1}
    assert {name for name in alone if not name.startswith("repl_rl.commands.")} == set()


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (r"lemmas?", 3),
        (r"credit\.trees|branching", 6),
        (r"thoughts?|THOUGHT", 8),
    ],
)
def test_what_few_need_is_known_to_few(words: str, most: int) -> None:
    """A feature stands in one place: so many files outside `tasks` and its own name it."""
    known = {
        str(path.relative_to(ROOT))
        for path in modules()
        if re.search(rf"\b({words})\b", path.read_text())
    }
    own = ("repl_rl/tasks/", "repl_rl/credit/trees.py")
    assert len(others := {name for name in known if not name.startswith(own)}) <= most, others


def importers_of(module: str) -> set[str]:
    """Files that import `module` or something in it."""
    return {
        str(path.relative_to(ROOT))
        for path in modules()
        for name in imported_names(path)
        if name.split(".")[0] == module
    }


def layers_that_import(module: str) -> set[str]:
    return {Path(path).relative_to("repl_rl").parts[0] for path in importers_of(module)}


@pytest.mark.parametrize(
    ("module", "packages"),
    [
        ("trl", {"update"}),
        ("tinker", {"integrations"}),
        ("openenv", {"integrations"}),
        ("lm_eval", {"lm_eval"}),
        ("torch", {"models", "engines", "update", "training", "runs", "testing"}),
    ],
)
def test_a_heavy_library_is_imported_in_few_layers(module: str, packages: set[str]) -> None:
    assert layers_that_import(module) == packages


def test_the_sandbox_never_imports_repl_rl() -> None:
    assert [path for path in importers_of("repl_rl") if path.startswith("sandbox/")] == []


SIDES = ("top", "walls", "guest", "host", "jupyter")
"""Folders of `repl_sandbox`, each of which imports from those on its left alone, and `guest` and
`host` not from each other: what runs beside foreign code, and what trusts none of it. `top` are
the files beside them."""


def side_of(name: str) -> str:
    """The folder of a module of `repl_sandbox`."""
    folder = name.partition(".")[2].partition(".")[0]
    return folder if (PACKAGES["repl_sandbox"] / folder / "__init__.py").is_file() else "top"


def sandbox_edges() -> set[tuple[str, str]]:
    return {(a, b) for a, b in edges() if layer_of(a) == layer_of(b) == "repl_sandbox" != b}


def test_every_folder_of_the_sandbox_is_a_side() -> None:
    names = {name for name in known_modules() if layer_of(name) == "repl_sandbox" != name}
    assert {side_of(name) for name in names} == set(SIDES)


def test_a_side_of_the_sandbox_imports_from_sides_on_its_left() -> None:
    order = {side: i for i, side in enumerate(SIDES)}
    up = {(a, b) for a, b in sandbox_edges() if order[side_of(a)] < order[side_of(b)]}
    across = {(a, b) for a, b in sandbox_edges() if {side_of(a), side_of(b)} == {"guest", "host"}}
    assert up | across == set()


def test_what_a_fork_server_imports_reaches_nothing_of_the_trusted_side() -> None:
    """Neither by its own modules nor by the endpoint of a front end."""
    endpoints = {front_end.endpoint.partition(":")[0] for front_end in (LINES, CELLS)}
    reached = endpoints | {name for name in known_modules() if side_of(name) == "guest"}
    while more := {b for a, b in sandbox_edges() if a in reached} - reached:
        reached |= more
    assert "jupyter" in {side_of(name) for name in reached}
    assert "host" not in {side_of(name) for name in reached}


def test_a_front_end_alone_imports_jupyter() -> None:
    names = ("IPython", "ipykernel", "jupyter_client", "tornado", "traitlets", "zmq")
    importers = {path for name in names for path in importers_of(name)}
    ours = {path for path in importers if path.startswith("sandbox/")}
    assert ours
    assert {path for path in ours if "/jupyter/" not in path} == set()


def test_only_a_task_imports_sympy_beside_grading() -> None:
    assert [
        path
        for path in importers_of("sympy")
        if not path.startswith(("repl_rl/tasks/", "repl_rl/grading/", "sandbox/"))
    ] == []


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `code`."""
    shown = f"{code}\nimport sys\nprint(*{{m.split('.')[0] for m in sys.modules}}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "module",
    [
        "rollout.sampler",
        "credit.rewards",
        "runs.folder",
        "credit.advantages",
        "export",
        "config.resolve",
        "rollout.runner",
        "viewer.show.display",
        "runs.plot",
        "tasks.base",
        "engines.scripted",
        "golden.suites",
        "credit.ledger",
        "viewer.replay.execute",
        "viewer.replay.notebook",
        "viewer.page",
        "viewer.stepper",
        "viewer.replay.jobs",
        "commands.play",
        "golden.pytest_plugin",
        "commands.cli",
    ],
)
def test_a_light_module_does_not_load_torch(module: str) -> None:
    heavy = {"torch", "transformers", "trl", "datasets"}
    assert loaded_by(f"import repl_rl.{module}") & heavy == set()


def loaded_by_command(*arguments: str) -> set[str]:
    return loaded_by(
        f"import sys; sys.argv = {['repl-rl', *arguments]!r}\n"
        "from repl_rl.commands.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("reward", "test", GOLDEN),
        ("reward", "mutate", GOLDEN),
        ("tasks",),
        ("config",),
        ("train", "--task", "no-such"),
        ("train", "--model", "/no/such"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_that_answers_at_once_loads_neither_torch_nor_sympy(
    arguments: tuple[str, ...],
) -> None:
    loaded = loaded_by_command(*arguments)
    assert loaded & {"torch", "sympy", "transformers", "trl"} == set()


def test_the_problems_of_a_task_are_shown_without_torch() -> None:
    loaded = loaded_by_command("tasks", "sympy-proofs", "-n", "1")
    assert loaded & {"torch", "transformers", "trl"} == set()
