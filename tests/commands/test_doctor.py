"""`repl-rl doctor` tells what is, also where it is not good."""

import pytest
from click.testing import CliRunner, Result

from repl_rl.commands.cli import cli
from repl_sandbox.walls import bubblewrap, confine, landlock

pytestmark = pytest.mark.kernel
PLAIN = ["--set", "sandbox.preload=[]"]


def doctor(*options: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *PLAIN, *options])


@pytest.fixture(autouse=True)
def sealable() -> None:
    if (lacking := confine.missing()) is not None:
        pytest.skip(f"this machine lacks {lacking}")


def test_it_names_the_walls_and_what_the_canary_tried() -> None:
    done = doctor()
    assert done.exit_code == 0
    assert f"{'strict' if bubblewrap.find() else 'basic'}: " in done.output
    assert "14 ways out tried, none open" in done.output
    assert "grader      Landlock, seccomp" in done.output


def test_without_bubblewrap_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find", lambda: None)
    done = doctor()
    assert done.exit_code == 0
    assert "basic: Landlock, seccomp, no namespaces" in done.output
    assert "bubblewrap is not installed (`apt install bubblewrap`)" in done.output


def test_without_landlock_it_fails_and_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    done = doctor()
    assert done.exit_code == 1
    assert "!!  kernels" in done.output
    assert "Landlock" in done.output
    assert 'isolation = "none"' in done.output
    assert "grader      no walls: this machine lacks Landlock" in done.output


def test_unsealed_kernels_are_marked() -> None:
    done = doctor("--set", "sandbox.isolation=none")
    assert done.exit_code == 1
    assert "!!  kernels     none: kernels run unsealed" in done.output
