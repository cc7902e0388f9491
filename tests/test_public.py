"""What programs import from `repl_rl`, and what importing it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import repl_rl
from repl_rl.commands.cli import _EXTRA_OF

PUBLIC = [
    *("ByteCodec", "Codec", "Config", "ConfigError", "DemonstrableTask", "Engine"),
    *("EngineKind", "Env", "Episode", "Line", "LineOutcome", "LineSampler"),
    *("OutcomeKind", "Plan", "Problem", "ReplRLError", "Reward", "RunningReward"),
    *("SampledLine", "Scored", "Split", "Step", "StopReason", "Task", "Trajectory"),
    *("TranscriptFormat", "Verdict", "VerdictKind", "__version__", "advantages"),
    *("load_run", "load_task", "make_plan", "open_env", "resolve", "shaped", "train"),
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


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


def test_importing_it_loads_nothing_of_its_own() -> None:
    loaded = loaded_by("import repl_rl")
    assert {name for name in loaded if name.startswith("repl_rl.")} == set()


def test_all_but_the_trainer_comes_with_a_base_installation() -> None:
    names = [name for name in PUBLIC if name != "train"]
    loaded = loaded_by(f"import repl_rl\nfor name in {names}: getattr(repl_rl, name)")
    assert loaded & set(_EXTRA_OF) == set()
