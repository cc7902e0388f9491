"""Names that programs import from `repl_rl`, and what importing it costs."""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import repl_rl
import repl_rl as rr
import repl_sandbox
from attempt_kit import an_attempt
from repl_rl.commands.cli import _EXTRA_OF
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.runs.folder import RunFolder
from repl_rl.transcript.format import PYTHON
from repl_rl.viewer.show.display import Screen
from repl_sandbox.fake import FakeKernel

ROOT = Path(__file__).parents[1]

PUBLIC = [
    *("Attempt", "ByteCodec", "Codec", "Config", "ConfigError", "Credit", "DemonstrableTask"),
    *("Encoding", "Engine", "EngineError", "EngineKind", "Env", "Episode", "Line"),
    *("LineEnd", "LineOutcome", "LineSampler", "Malformed", "OutcomeKind", "Part", "Plan"),
    *("Problem", "Progress", "Prompt", "ReplRLError", "Reward", "RewardConfig"),
    *("RunningReward", "SampledLine", "SamplingConfig", "Scored", "Split", "Step"),
    *("StopReason", "Task", "TokenizerCodec", "Trajectory", "TrajectoryBuilder"),
    *("TranscriptFormat", "Verdict", "VerdictKind", "__version__", "advantages"),
    *("check_request", "compare", "derive_seed", "executed_kind", "line_end", "load_run"),
    *("load_task", "make_plan", "open_env", "parse", "resolve", "shaped"),
    *("submitted_expression", "train"),
]


def test_this_is_what_programs_import() -> None:
    assert repl_rl.__all__ == PUBLIC
    assert dir(repl_rl) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(repl_rl, name)
    assert found.__name__ == name
    assert inspect.getdoc(found)


def test_any_other_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'repl_rl' has no attribute 'trian'"):
        repl_rl.trian  # noqa: B018


@pytest.mark.parametrize(
    ("code", "error"), [("rr.Lemma", AttributeError), ("from repl_rl import Lemma", ImportError)]
)
def test_a_name_that_is_gone_says_what_took_its_place(code: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"repl_rl\.Lemma is gone.*see docs/rewards\.md"):
        exec(code)
    assert not hasattr(rr, "Lemma")


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


@pytest.mark.slow
def test_importing_it_loads_nothing_of_its_own() -> None:
    loaded = loaded_by("import repl_rl")
    assert {name for name in loaded if name.startswith("repl_rl.")} == set()


@pytest.mark.slow
def test_all_but_the_trainer_comes_with_a_base_installation() -> None:
    names = [name for name in PUBLIC if name != "train"]
    loaded = loaded_by(f"import repl_rl\nfor name in {names}: getattr(repl_rl, name)")
    assert loaded & set(_EXTRA_OF) == set()


# Examples


NAMES = [name for name in PUBLIC if name != "__version__"]
IN_KERNELS = ["Env", "Episode", "Step", "open_env"]


def doctests(name: str, space: dict[str, object]) -> doctest.DocTest:
    text = inspect.getdoc(getattr(repl_rl, name)) or ""
    return doctest.DocTestParser().get_doctest(text, space, name, None, None)


def program(name: str) -> str:
    """The indented lines of a docstring without doctests."""
    text = inspect.getdoc(getattr(repl_rl, name)) or ""
    rows = [] if doctests(name, {}).examples else re.findall(r"^ {4}.*", text, re.MULTILINE)
    return textwrap.dedent("\n".join(rows))


def public() -> dict[str, object]:
    return {name: getattr(repl_rl, name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_name_shows_an_example(name: str) -> None:
    assert doctests(name, {}).examples or program(name)


@pytest.mark.parametrize("name", [name for name in NAMES if doctests(name, {}).examples])
def test_what_comes_out_of_an_example_is_what_it_says(name: str) -> None:
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    failed = runner.run(doctests(name, public()), out=told.append).failed
    assert failed == 0, "".join(told)


async def run_inside(name: str, **given: object) -> None:
    """The program of a docstring, with what it names and does not make."""
    space: dict[str, Any] = {**public(), **given}
    exec(f"async def main():\n{textwrap.indent(program(name), '    ')}", space)
    await space["main"]()


def run(name: str, **given: object) -> None:
    asyncio.run(run_inside(name, **given))


def test_examples_with_trajectories_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_trajectory: Callable[..., rr.Trajectory],
    make_scored: Callable[..., rr.Scored],
) -> None:
    monkeypatch.chdir(tmp_path)
    made = make_trajectory([(" 1+1\n", rr.OutcomeKind.OK_OUTPUT, "2\n>>>")])
    scored = make_scored(made, 1.0)
    RunFolder(Path("runs/mine")).append_trajectories("step-000000", [scored])
    for name in ("Scored", "load_run", "shaped"):
        run(name)
    run("Trajectory", outcome=made.lines[0].outcome, T=True, F=False)
    run("advantages", scored=[scored])
    prompt = PYTHON.prompt("{{problem}}", "What is 1 + 1?", python_version="3.13")
    attempt = an_attempt()
    given = {"codec": rr.ByteCodec(), "fmt": PYTHON, "config": rr.Config()}
    given |= {"attempt": attempt, "prompt": prompt}
    sampled = {"ScriptedEngine": ScriptedEngine, "script": script, "kernel": FakeKernel({})}
    run("LineSampler", **given, **sampled)
    run("Encoding", **given)
    engine = ScriptedEngine(rr.ByteCodec(), script(" 1+1"))
    run("TrajectoryBuilder", **given, engine=engine)


@pytest.mark.train
def test_the_example_of_a_tokenizer_runs() -> None:
    from trainer_kit import byte_tokenizer  # imports torch

    run("TokenizerCodec", AutoTokenizer=SimpleNamespace(from_pretrained=lambda _: byte_tokenizer()))


def test_the_example_of_training_asks_for_it_as_it_is_to_be_asked() -> None:
    signature = inspect.signature(rr.train)

    def train(*given: object) -> tuple[object, object]:
        signature.bind(*given)
        return SimpleNamespace(rate=0.0), SimpleNamespace(rate=1.0)

    run("train", train=train, Path=Path, Screen=Screen)


@pytest.mark.kernel
def test_examples_with_kernels_run() -> None:
    codec = rr.ByteCodec()

    async def sample(ids: list[int], *, stop: Set[int], most: int) -> tuple[list[int], list[float]]:
        line = codec.encode(" submit_final_answer(1)\n")
        assert line[-1] in stop
        assert len(line) <= most
        return line, [0.0] * len(line)

    async def in_an_episode() -> None:
        async with rr.open_env("sympy-proofs") as env:
            problem = next(env.plan.task.problems(rr.Split.TRAIN, seed=0))
            for name in ("Step", "Episode"):
                await run_inside(name, episode=await env.episode(problem), sample=sample)

    asyncio.run(in_an_episode())
    for name in ("Env", "open_env"):
        run(name)


def test_each_program_is_run() -> None:
    here = {"Scored", "load_run", "shaped", "Trajectory", "advantages", "LineSampler", "train"}
    here |= {"Encoding", "TokenizerCodec", "TrajectoryBuilder"}
    assert {name for name in NAMES if program(name)} == here | set(IN_KERNELS)


def test_examples_import_public_names_alone() -> None:
    """`from repl_rl import NAME`, and what documents name: `export`, `trl`."""
    homes = {"repl_rl": {*PUBLIC, "export"}, "repl_sandbox": set(repl_sandbox.__all__)}
    for path in sorted((ROOT / "examples").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("repl_"):
                names = {alias.name for alias in node.names}
                assert node.module == "repl_rl.trl" or names <= homes[str(node.module)], path
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("repl_rl.") for alias in node.names), path


@pytest.mark.parametrize(
    ("former", "name", "home"),
    [
        ("repl_rl.types", "Verdict", "repl_rl"),
        ("repl_rl.types", "Stem", "repl_rl.records"),
        ("repl_rl.seeds", "derive_seed", "repl_rl"),
        ("repl_rl.show.display", "Screen", "repl_rl.viewer.show.display"),
    ],
)
def test_a_module_that_has_moved_says_where_its_names_are(
    former: str, name: str, home: str
) -> None:
    module = importlib.import_module(former)
    with pytest.warns(FutureWarning, match=rf"{former}\.{name} is repl_rl\.\S+\.{name}"):
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = module.no_such


def test_a_task_that_imports_records_by_their_former_module_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import that the page on problems showed, as Python itself runs it."""
    (tmp_path / "older.py").write_text("from repl_rl.types import Problem, Split, Verdict\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(FutureWarning, match="public names are imported from repl_rl"):
        assert importlib.import_module("older").Problem is rr.Problem
