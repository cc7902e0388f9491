"""Every row of the attack table, at both levels, as root and as nobody: no effect outside.

A kernel may harm itself; what it must not do is read, change, signal or start anything else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attacks import ATTACKS, Attack
from shared_work import once, shared_folder

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "tests" / "support" / "attack_lab.py"
NOBODY = 65534
USERS = [0, NOBODY] if os.geteuid() == 0 else [os.geteuid()]


Outcomes = Callable[[str, int], dict[str, dict[str, object]]]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What came of each attack; the table runs once for each level and user."""
    folder = shared_folder(tmp_path_factory)

    @cache
    def found(level: str, uid: int) -> dict[str, dict[str, object]]:
        path = folder / f"attacks-{level}-{uid}.json"
        made: dict[str, Any] = json.loads(  # Any: JSON
            once(path, lambda aside: aside.write_text(run_table(level, uid))).read_text()
        )
        assert (made["level"], made["uid"]) == (level, uid)
        return dict(made["outcomes"])

    return found


def run_table(level: str, uid: int) -> str:
    done = subprocess.run(
        [sys.executable, str(LAB), level, str(uid)],
        capture_output=True,
        text=True,
        timeout=180,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def uid(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("level", ["strict", "basic"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "_"))
def test_an_attack_stays_inside(attack: Attack, level: str, uid: int, outcomes: Outcomes) -> None:
    outcome = outcomes(level, uid)[attack.name]
    assert outcome["stumbled"] is None
    assert outcome["end"] in attack.ends
    assert not outcome["has_harmed"]
    if attack.says is not None:
        assert outcome["says"] == attack.says
