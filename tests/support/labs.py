"""Programs that try kernels at each level of walls, as root and as nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
USERS = [0, NOBODY] if os.geteuid() == 0 else [os.geteuid()]


def run_lab(lab: Path, *arguments: str) -> str:
    """What a program of `tests/support` prints."""
    done = subprocess.run(
        [sys.executable, str(lab), *arguments],
        capture_output=True,
        text=True,
        timeout=550,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
