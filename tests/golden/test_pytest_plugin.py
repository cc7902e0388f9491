"""pytest, with the plugin alone, on golden transcripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RunPytest = Callable[..., tuple[int, str]]
ONE = "=== {}\n>>> y\n<- name_error {}\nNameError: name 'y' is not defined\n"


@pytest.fixture
def run_pytest(tmp_path: Path) -> RunPytest:
    """`run_pytest(*arguments)` in a folder of its own: (exit code, all that it printed)."""

    def run(*arguments: str, collects: bool = True) -> tuple[int, str]:
        called = ["-m", "pytest", "-p", "repl_rl.golden.pytest_plugin", "-p", "no:cacheprovider"]
        called += ["-o", "repl_rl_golden=true"] if collects else []
        done = subprocess.run(
            [sys.executable, *called, "-W", "error", *arguments],
            cwd=tmp_path,
            # Alone: an environment may have it installed too.
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "80"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_transcript_is_an_item(run_pytest: RunPytest, tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text(ONE.format("one", -0.1) + ONE.format("two", -0.1))
    code, out = run_pytest("-v")
    assert code == 0, out
    assert "a.repl::one PASSED" in out
    assert "a.repl::two PASSED" in out


def test_a_failure_reads_as_that_of_the_command(run_pytest: RunPytest, tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text(ONE.format("one", -0.1) + ONE.format("two", -0.2))
    code, out = run_pytest()
    assert (code, "1 failed, 1 passed" in out) == (1, True)
    assert (
        f"{tmp_path}/a.repl:7: two\n    >>> y\n"
        "    expected  <- name_error -0.2\n    got       <- name_error -0.1\n"
    ) in out
    assert "Traceback" not in out
    assert "pytest_plugin.py" not in out


def test_a_file_that_cannot_be_read_is_an_error_of_one_line(
    run_pytest: RunPytest, tmp_path: Path
) -> None:
    (tmp_path / "a.repl").write_text("=== t\nx\n")
    code, out = run_pytest()
    assert code == 2
    assert f"{tmp_path}/a.repl:2: 'x'; expected `verdict: ...`" in out
    assert "Traceback" not in out


def test_a_bug_in_a_reward_is_shown_whole(run_pytest: RunPytest, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(*_):\n    raise KeyError('a bug')\n")
    (tmp_path / "a.repl").write_text("set: reward.function=mine:f\n" + ONE.format("one", 0))
    code, out = run_pytest()
    assert code == 1
    assert "raise KeyError('a bug')" in out


def test_other_files_are_left_to_others(run_pytest: RunPytest, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("=== t\nx\n")
    (tmp_path / "test_a.py").write_text("def test_a():\n    pass\n")
    code, out = run_pytest()
    assert (code, "1 passed" in out) == (0, True)


def test_a_project_that_does_not_ask_for_it_has_no_file_collected(
    run_pytest: RunPytest, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('was loaded')\n")
    (tmp_path / "a.repl").write_text("set: reward.function=mine:f\n" + ONE.format("one", -0.1))
    (tmp_path / "b.repl").write_text("another program's\n")
    (tmp_path / "test_a.py").write_text("def test_a():\n    pass\n")
    code, out = run_pytest(collects=False)
    assert (code, "1 passed" in out) == (0, True), out


def test_a_project_asks_for_it_in_its_ini(run_pytest: RunPytest, tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text(ONE.format("one", -0.1))
    (tmp_path / "pytest.ini").write_text("[pytest]\nrepl_rl_golden = true\n")
    code, out = run_pytest("--strict-config", collects=False)
    assert (code, "1 passed" in out) == (0, True), out


def test_code_that_does_not_lie_beside_a_file_is_not_collected(
    run_pytest: RunPytest, tmp_path: Path
) -> None:
    (tmp_path / "a.repl").write_text("set: reward.function=this:s\n" + ONE.format("one", -0.1))
    code, out = run_pytest()
    assert (code, "The Zen of Python" in out) == (2, False)
    assert "--set reward.function=this:s" in out
