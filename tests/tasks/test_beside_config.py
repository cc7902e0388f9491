"""Modules beside a config: found from any folder, behind what is installed, and never in a run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MODULE = """
import json, random
import neighbour

from repl_rl import EngineKind, LineSampler, Problem, Reward, Verdict, VerdictKind
from repl_rl.transcript.format import PYTHON as FORMAT

assert json.loads("1") == 1 and random.Random(0)

class Task:
    name = "own"
    prompt = "{{problem}}"

    def problems(self, split, *, seed):
        yield Problem(id="one", statement=neighbour.STATEMENT, meta={"answer": "2"})

    def grade(self, problem, submission):
        is_right = submission == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)

def reward(trajectory, verdict, config):
    return Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=0.75)

class Sampler(LineSampler):
    pass

class Engine(EngineKind):
    name = "own"
"""
CONFIG = """
task = "own:Task"
transcript = "own:FORMAT"
[reward]
function = "own:reward"
"""
OWN_NAMES = (
    *("--task", "own:Task", "--set", "transcript=own:FORMAT"),
    *("--set", "reward.function=own:reward"),
)
"""The names of that config, which a person repeats."""
LOUD = "import sys; sys.exit('the wrong module was loaded')\n"
GOLDEN = """\
=== all is worth the same
outcome: 0.75

>>> 1
<- ok_output 0
1
"""
NOT_FOUND = (
    "not installed and not in the current folder; go to the folder of own.py, or add "
    "--config with a file of that folder (a run's folder brings no code)"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a config, the module that it names, and files called as the library's are."""
    folder = tmp_path / "some" / "project"
    folder.mkdir(parents=True)
    (folder / "own.py").write_text(MODULE)
    (folder / "neighbour.py").write_text("STATEMENT = 'What is 1 + 1?'\n")
    (folder / "own.toml").write_text(CONFIG)
    for name in ("json.py", "random.py", "sympy.py", "repl_rl.py"):
        (folder / name).write_text(LOUD)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def repl_rl(here: Path, *arguments: object, typed: str = "") -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the installed command, started in `here`."""
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-c", "from repl_rl.commands.cli import main; main()"),
            *map(str, arguments),
        ],
        cwd=here,
        input=typed,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_all_that_a_config_may_name_is_found_beside_it(project: Path, elsewhere: Path) -> None:
    more = "[sampling]\nsampler = 'own:Sampler'\nengine = 'own:Engine'\n"
    (project / "own.toml").write_text(CONFIG + more)
    code, out, err = repl_rl(
        elsewhere, "train", "--dry-run", "--config", "../some/project/own.toml", "--model", "."
    )
    assert code == 0, err
    assert 'engine = "own:Engine"' in out


@pytest.mark.kernel
def test_the_grader_finds_it_too(project: Path, elsewhere: Path) -> None:
    config = project / "own.toml"
    code, out, err = repl_rl(elsewhere, "tasks", "--config", config)
    assert (code, err) == (0, "")
    assert out.startswith("one  What is 1 + 1?\n")
    assert "ok  grader      0 wrong, True wrong" in out
    typed = "submit_final_answer(1 + 1)\n"
    code, out, err = repl_rl(elsewhere, "play", "--config", config, typed=typed)
    assert (code, err) == (0, "")
    assert "right (exact)" in out
    assert "0.75" in out
    # From here a replay finds it in the same way alone.
    (run,) = (elsewhere / "runs").iterdir()
    assert f"next: repl-rl replay runs/{run.name} --config {config}\n" in out
    assert repl_rl(elsewhere, "replay", run, "--rescore")[2].endswith(f"): {NOT_FOUND}\n")
    assert repl_rl(elsewhere, "replay", run, "--rescore", "--config", config)[::2] == (0, "")


def test_a_reward_is_held_to_golden_transcripts_from_elsewhere(
    project: Path, elsewhere: Path
) -> None:
    (elsewhere / "mine.repl").write_text(GOLDEN)
    (project / "reward.toml").write_text("[reward]\nfunction = 'own:reward'\n")
    assert repl_rl(elsewhere, "reward", "test", "mine.repl")[0] == 1
    held = repl_rl(elsewhere, "reward", "test", "mine.repl", "--config", project / "reward.toml")
    assert held == (0, "1 transcript in 1 file: all as written\n", "")


def test_the_folder_of_a_config_comes_before_the_current_one(
    project: Path, elsewhere: Path
) -> None:
    (elsewhere / "own.py").write_text(LOUD)
    config = project / "own.toml"
    assert repl_rl(elsewhere, "tasks", "--config", config)[0] == 0
    assert "the wrong module" in repl_rl(elsewhere, "tasks", "own:Task")[2]


def test_of_several_configs_the_last_one_comes_first(project: Path, elsewhere: Path) -> None:
    (elsewhere / "own.py").write_text(LOUD)
    (elsewhere / "first.toml").write_text("seed = 1\n")
    called = ("tasks", "--config", elsewhere / "first.toml", "--config", project / "own.toml")
    assert repl_rl(project.parent, *called)[0] == 0


# Runs, which may be a stranger's


@pytest.fixture
def run(project: Path, elsewhere: Path) -> Path:
    """A run of the project's config, into which somebody has put a module of that name."""
    folder = elsewhere / "runs" / "it"
    (folder / "checkpoints" / "final").mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "other.toml").write_text(CONFIG)
    for inside in (folder, folder / "checkpoints" / "final"):
        (inside / "own.py").write_text(LOUD)
    (folder / "checkpoints" / "final" / "other.toml").write_text(CONFIG)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "runs/it"),
        ("audit", "runs/it/checkpoints/final"),
        ("ask", "?", "--model", "runs/it"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_run_that_was_not_made_here_asks_before_it_loads_code(
    run: Path, elsewhere: Path, arguments: tuple[str, ...]
) -> None:
    (elsewhere / "own.py").write_text(LOUD)
    code, _, err = repl_rl(elsewhere, *arguments)
    assert code == 2
    said = "runs/it/config.toml names code of its own; if you trust it: "
    assert err.endswith(f"repl-rl: {said}--set task.name=own:Task {' '.join(OWN_NAMES[2:])}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "runs/it", *OWN_NAMES),
        ("audit", "runs/it/checkpoints/final", *OWN_NAMES),
        ("rollout", "--model", "runs/it", *OWN_NAMES),
        ("train", "--dry-run", "--model", ".", "--config", "runs/it/config.toml"),
        ("train", "--dry-run", "--model", ".", "--config", "runs/it/other.toml"),
        ("tasks", "--config", "runs/it/checkpoints/final/other.toml"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_run_brings_no_module_along(
    run: Path, elsewhere: Path, arguments: tuple[str, ...]
) -> None:
    code, _, err = repl_rl(elsewhere, *arguments)
    assert code == 2
    assert re.search(r"^repl-rl: no module named 'own' \(wanted 'own:(Task|FORMAT)'\): ", err, re.M)
    assert err.endswith(f"): {NOT_FOUND}\n")


def test_a_run_goes_on_from_elsewhere_with_the_config_that_its_task_lies_beside(
    run: Path, project: Path, elsewhere: Path
) -> None:
    called = ("train", "--dry-run", "--model", ".", "--config", "runs/it/config.toml")
    code, _, err = repl_rl(elsewhere, *called, "--config", project / "own.toml")
    assert code == 0, err
