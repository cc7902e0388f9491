"""The house stands: each module imports from lower floors alone, and light modules stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FLOORS: dict[int, tuple[str, ...]] = {
    0: ("sandbox",),
    1: (
        "types",
        "errors",
        "config",
        "seeds",
        "plugins",
        "hub",
        "checkpoints",
        "reference",
        "foreign_words",
        "settings",
        "concurrency",
        "texts",
        "disk",
        "terminal",
    ),
    2: (
        "transcript",
        "formats",
        "builder",
        "tokens",
        "outcomes",
        "imitations",
        "engines",
        "rewards",
        "advantages",
        "importance",
        "precision",
        "moved",
        "grading",
        "trajectory_rows",
        "trajectory_file",
        "store",
        "trust",
        "ledger",
        "kernels",
        "muon",
    ),
    3: ("tasks", "scoring", "session", "sampler", "models", "summary", "leaving", "pass_rate"),
    4: (
        *("rollouts", "demonstrations", "display", "serving", "golden", "rollout_subject"),
        *("transcript_rows", "bars", "task_check", "memory"),
    ),
    5: ("names", "grpo", "sft", "workbench", "attempts", "desk", "rollout_view"),
    6: (
        *("train", "evaluate", "eval_job", "warmstart", "doctor", "audit", "explain"),
        *("play", "rollout_check", "rollout_job", "replay", "policy", "replay_jobs"),
    ),
    7: (
        "cli",
        "cli_options",
        "reward_cli",
        "replay_cli",
        "rollout_cli",
        "config_cli",
        "pytest_plugin",
    ),
}
FLOOR = {part: floor for floor, parts in FLOORS.items() for part in parts}

GOLDEN = str(ROOT / "tests" / "golden")

NEIGHBOURS = {
    ("config", "types"),
    ("grpo", "sft"),
    ("config", "errors"),
    ("plugins", "errors"),
    ("disk", "errors"),
    ("hub", "errors"),
    ("reference", "config"),
    ("checkpoints", "errors"),
    ("reference", "errors"),
    ("reference", "foreign_words"),
    ("settings", "reference"),
    ("settings", "config"),
    ("settings", "errors"),
    ("engines", "precision"),
    ("engines", "tokens"),
    ("outcomes", "transcript"),
    ("outcomes", "imitations"),
    ("advantages", "transcript"),
    ("formats", "transcript"),
    ("builder", "engines"),
    ("builder", "tokens"),
    ("builder", "transcript"),
    ("workbench", "names"),
    ("train", "evaluate"),
    ("eval_job", "evaluate"),
    ("eval_job", "train"),
    ("pass_rate", "summary"),
    ("audit", "evaluate"),
    ("train", "warmstart"),
    ("cli", "cli_options"),
    ("cli", "reward_cli"),
    ("cli", "replay_cli"),
    ("cli", "rollout_cli"),
    ("cli", "config_cli"),
    ("reward_cli", "cli_options"),
    ("rollout_cli", "cli_options"),
    ("replay_cli", "cli_options"),
    ("store", "trajectory_file"),
    ("store", "trust"),
    ("trajectory_file", "trajectory_rows"),
    ("sampler", "session"),
    ("scoring", "tasks"),
    ("display", "bars"),
    ("display", "transcript_rows"),
    ("rollout_job", "train"),
    ("rollout_job", "audit"),
    ("rollout_check", "audit"),
    ("explain", "replay"),
    ("policy", "replay"),
    ("replay_jobs", "replay"),
    ("replay_jobs", "policy"),
}
"""(importer, imported) on one floor. There is no ring among them."""


def modules() -> Iterator[Path]:
    for package in ("repl_rl", "sandbox"):
        yield from sorted((ROOT / package).rglob("*.py"))


def imported_names(path: Path) -> Iterator[str]:
    """Full names of all that a file imports, deferred imports included."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def part_of(name: str) -> str | None:
    """The part of the house that a full name lies in; None for the rest of the world."""
    first, _, rest = name.partition(".")
    if first == "sandbox":
        return "sandbox"
    part = rest.partition(".")[0]
    return part if first == "repl_rl" and part in FLOOR else None


def home_of(path: Path) -> str | None:
    return part_of(".".join(path.relative_to(ROOT).with_suffix("").parts))


def edges() -> set[tuple[str, str]]:
    """(importer, imported) between different parts."""
    return {
        (home, part)
        for path in modules()
        if (home := home_of(path)) is not None
        for name in imported_names(path)
        if (part := part_of(name)) is not None and part != home
    }


def test_every_module_has_a_floor() -> None:
    names = {p.stem for p in (ROOT / "repl_rl").iterdir() if p.suffix == ".py" or is_package(p)}
    assert names - {"__init__"} == set(FLOOR) - {"sandbox"}


def is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def test_no_module_imports_from_a_higher_floor() -> None:
    assert {edge for edge in edges() if FLOOR[edge[0]] < FLOOR[edge[1]]} == set()


def test_neighbours_import_each_other_only_where_it_is_said() -> None:
    assert {edge for edge in edges() if FLOOR[edge[0]] == FLOOR[edge[1]]} == NEIGHBOURS


def test_neighbours_form_no_ring() -> None:
    left = set(NEIGHBOURS)
    while left:
        leaves = {imported for _, imported in left} - {importer for importer, _ in left}
        assert leaves, f"a ring among {left}"
        left = {edge for edge in left if edge[1] not in leaves}


def importers_of(module: str) -> set[str]:
    """Files that import `module` or something in it."""
    return {
        str(path.relative_to(ROOT))
        for path in modules()
        for name in imported_names(path)
        if name.split(".")[0] == module
    }


def test_only_the_two_trainers_import_trl() -> None:
    assert importers_of("trl") == {"repl_rl/grpo.py", "repl_rl/sft.py"}


def test_torch_stays_with_models_and_tensors() -> None:
    assert importers_of("torch") == {
        "repl_rl/engines/hf.py",
        "repl_rl/engines/row_attention.py",
        "repl_rl/engines/row_cache.py",
        "repl_rl/engines/vllm_core.py",
        "repl_rl/grpo.py",
        "repl_rl/models.py",
        "repl_rl/muon.py",
        "repl_rl/moved.py",
        "repl_rl/precision.py",
        "repl_rl/sft.py",
        "repl_rl/train.py",
        "repl_rl/warmstart.py",
    }


def test_the_sandbox_never_imports_repl_rl() -> None:
    assert [path for path in importers_of("repl_rl") if path.startswith("sandbox")] == []


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
        "sampler",
        "rewards",
        "store",
        "advantages",
        "importance",
        "settings",
        "rollouts",
        "demonstrations",
        "display",
        "tasks.base",
        "engines.scripted",
        "golden.bench",
        "ledger",
        "replay.execute",
        "replay.notebook",
        "replay.page",
        "replay.stepper",
        "replay_jobs",
        "play",
        "pytest_plugin",
        "cli",
    ],
)
def test_a_light_module_does_not_load_torch(module: str) -> None:
    heavy = {"torch", "transformers", "trl", "datasets"}
    assert loaded_by(f"import repl_rl.{module}") & heavy == set()


def loaded_by_command(*arguments: str) -> set[str]:
    return loaded_by(
        f"import sys; sys.argv = {['repl-rl', *arguments]!r}\n"
        "from repl_rl.cli import main\n"
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
