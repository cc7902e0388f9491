"""Laws of the row that names the walls, and of what `make train` does for the strongest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from documents import ROOT
from repl_rl.training.train import about_walls
from repl_sandbox.walls.isolation import Level, Walls

NO_BWRAP = "bubblewrap is not installed (`apt install bubblewrap`)"


@pytest.mark.parametrize(
    ("walls", "row"),
    [
        (Walls(level=Level.STRICT), "strict: namespaces, Landlock, seccomp"),
        (
            Walls(level=Level.BASIC, shortfall=NO_BWRAP),
            f"basic: Landlock, seccomp, no namespaces; not strict: {NO_BWRAP}",
        ),
        (
            Walls(level=Level.NONE, shortfall="nothing else was asked for"),
            "none: kernels run unsealed, as the user who started them; "
            'sandbox.isolation = "auto" seals them',
        ),
    ],
    ids=str,
)
def test_the_row_names_the_level_and_the_way_to_a_better_one(walls: Walls, row: str) -> None:
    assert about_walls(walls) == row


@pytest.mark.slow
@pytest.mark.parametrize("target", ["train", "test"])
def test_make_goes_on_where_bubblewrap_cannot_be_had(tmp_path: Path, target: str) -> None:
    """Its recipe, on a machine without bubblewrap whose apt refuses."""
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\nexit 100\n")
    apt.chmod(0o755)
    make = shutil.which("make")
    assert make
    rules = subprocess.run(
        [make, "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert "install bubblewrap" in rules
    done = subprocess.run(
        [make, "bubblewrap"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert "(apt install bubblewrap, as root): kernels get the level basic" in done.stdout
