"""Every row of the attack tables, at both levels, as root and as nobody: no effect outside.

A kernel may harm itself; what it must not do is read, change, signal or start anything else.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from attacks import ATTACKS, Attack
from cell_attacks import CELL_ATTACKS
from labs import ROOT, USERS, run_lab
from repl_sandbox.host.pool import PROBES
from shared_work import once, shared_folder

# The first test of a level and a user runs its table.
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]

LAB = ROOT / "tests" / "support" / "attack_lab.py"
CELL_LAB = LAB.with_name("cell_lab.py")
OF_ITS_OWN = frozenset(
    {
        # IPython ends these in another way, none of which leaves the kernel.
        *("print without end", "a huge repr", "output that swallows its limit"),
        *("a repr that is no text", "a deep repr", "deeply nested source"),
        *("builtins gone", "streams gone", "a trace function that raises"),
        *("prompts, colours, control tokens", "tell the victim from nobody by a lock"),
        *("read the environment", "input", "a shell escape", "a magic", "IPython"),
        # They forge what a kernel tells the trainer, which has no such connection to this one.
        *("a forged reply", "garbage on its socket", "a message that never ends"),
        *("a flood of empty messages", "a reply of ten megabytes"),
        "use up the signals that may wait",
    }
)
"""Attacks on a kernel itself, or on its answers."""


Outcomes = Callable[[str, int], dict[str, dict[str, object]]]
CellOutcomes = Callable[[str, int], dict[str, Any]]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Outcome of each attack; the table runs once for each level and user."""
    folder = shared_folder(tmp_path_factory)

    @cache
    def found(level: str, uid: int) -> dict[str, dict[str, object]]:
        path = folder / f"attacks-{level}-{uid}.json"
        made: dict[str, Any] = json.loads(  # Any: JSON
            once(path, lambda aside: aside.write_text(run_lab(LAB, level, str(uid)))).read_text()
        )
        assert (made["level"], made["uid"]) == (level, uid)
        return dict(made["outcomes"])

    return found


@pytest.fixture(scope="session")
def cell_outcomes(tmp_path_factory: pytest.TempPathFactory) -> CellOutcomes:
    """Outcome of each attack in cells of an IPython kernel."""
    folder = shared_folder(tmp_path_factory)

    @cache
    def found(level: str, uid: int) -> dict[str, Any]:
        path = folder / f"cells-{level}-{uid}.json"
        made: dict[str, Any] = json.loads(
            once(
                path, lambda aside: aside.write_text(run_lab(CELL_LAB, level, str(uid)))
            ).read_text()
        )
        assert (made["level"], made["uid"]) == (level, uid)
        return made

    return found


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


@pytest.mark.parametrize("level", ["strict", "basic"], indirect=True)
@pytest.mark.parametrize(
    ("attack", "uid"),
    [
        *((attack, USERS[0]) for attack in ATTACKS),
        *((attack, uid) for attack in CELL_ATTACKS for uid in USERS),
    ],
    ids=lambda of: f"uid{of}" if isinstance(of, int) else of.name.replace(" ", "_"),
)
def test_an_attack_stays_inside_a_notebooks_kernel(
    attack: Attack, level: str, uid: int, cell_outcomes: CellOutcomes
) -> None:
    outcome = cell_outcomes(level, uid)["outcomes"][attack.name]
    assert not outcome["has_harmed"]
    if attack.name not in OF_ITS_OWN:
        assert outcome["stumbled"] is None
        assert outcome["end"] in attack.ends
        assert outcome["says"] == attack.says or attack.says is None


@pytest.mark.parametrize("level", ["strict", "basic"], indirect=True)
def test_no_probe_of_the_canary_gets_through_in_a_notebooks_kernel(
    level: str, uid: int, cell_outcomes: CellOutcomes
) -> None:
    probed = cell_outcomes(level, uid)["probed"]
    assert set(probed) == set(PROBES)
    assert [name for name, end in probed.items() if not end.startswith("error:")] == []
