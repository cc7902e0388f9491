"""Notebooks of trajectories made by hand, and the cells in them: what tests of notebooks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from repl_rl.credit.ledger import ledgers
from repl_rl.records import OutcomeKind, Problem, Reward, Scored, Trajectory, Verdict
from repl_rl.transcript.format import SUBMIT_STUB
from repl_rl.viewer.replay.annotated import Annotated
from repl_rl.viewer.replay.notebook import to_notebook

SETUP = ("from sympy import *", "x = symbols('x')", SUBMIT_STUB)
HOSTILE = (
    "\x1b[31m\u202e</script><img src=x onerror=alert(1)> `a` ~~~ $x$ {{ 7 }} [b](javascript:c)"
)
CLEAN = HOSTILE.removeprefix("\x1b[31m\u202e")


def annotated(
    trajectory: Trajectory,
    *,
    advantage: float = 0.5,
    statement: str = "What is 1 + 1?",
    verdict: Verdict | None = None,
    outcome: float = 1.0,
) -> Annotated:
    """Line k earned -k/10; every sampled token has the same advantage; no siblings."""
    rewards = tuple(-index / 10 for index in range(len(trajectory.lines)))
    scored = Scored(
        trajectory=trajectory,
        problem=Problem(id="p", statement=statement),
        verdict=verdict,
        reward=Reward(line_rewards=rewards, outcome_reward=outcome),
    )
    advantages_T = [advantage * is_sampled for is_sampled in trajectory.loss_mask]
    [ledger] = ledgers([scored], [advantages_T])
    return Annotated(id="step-000003:7", ledger=ledger, siblings=("step-000003:7",))


# Any below: a notebook and its cells are dicts that are read like objects.


def notebook_of(trajectory: Trajectory, **options: Any) -> Any:
    return to_notebook(annotated(trajectory, **options), setup=SETUP)


def line_cells(notebook: Any) -> list[Any]:
    """Cells that hold lines; the rest is ours."""
    return [cell for cell in notebook.cells if "repl_rl" in cell.metadata]


def sources(notebook: Any) -> list[str]:
    return [cell.source for cell in line_cells(notebook)]


def one_cell(
    make_trajectory: Callable[..., Trajectory],
    source: str,
    kind: OutcomeKind,
    injected: str = "",
    **options: Any,
) -> Any:
    """The cell of a trajectory of one line."""
    [cell] = line_cells(notebook_of(make_trajectory([(source, kind, injected)], **options)))
    return cell


def stream(text: str) -> dict[str, str]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def error(name: str) -> dict[str, object]:
    return {"output_type": "error", "ename": name, "evalue": "", "traceback": []}
