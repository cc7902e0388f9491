"""Laws of the main job that need no model: what is refused, and what ends a run."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from repl_rl.config import Config
from repl_rl.errors import ConfigError, DivergedError
from repl_rl.interrupts import Interrupts
from repl_rl.rollout.waits import Waits
from repl_rl.show.display import Screen
from repl_rl.training.evaluate import held_out_attempts
from repl_rl.training.steps import ProblemSequence, StepCallback, Training
from repl_rl.types import (
    OutcomeKind,
    Problem,
    Scored,
    Split,
    Trajectory,
    Verdict,
    VerdictKind,
)


class Few:
    """A task with fixed problems on each side."""

    name = "few"

    def __init__(self, **ids: str) -> None:
        self._ids = ids

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        for id_ in self._ids.get(split, ""):
            yield Problem(id=id_, statement="")


def few(**ids: str) -> Any:
    return Few(**ids)


def test_a_finite_task_starts_over() -> None:
    problems = ProblemSequence(few(train="abc"), seed=0)
    assert "".join(problems[number].id for number in (0, 1, 2, 3, 7, 2)) == "abcabc"


def test_a_task_without_training_problems_is_refused() -> None:
    with pytest.raises(ConfigError, match="task 'few' has no problems in its split train"):
        ProblemSequence(few(held_out="abc"), seed=0)


def test_a_task_without_held_out_problems_is_refused() -> None:
    with pytest.raises(ConfigError, match="task 'few' has no problems in its split held_out"):
        held_out_attempts(few(train="abc"), count=3, seed=0)


def test_no_held_out_problem_is_needed_where_none_is_asked_for() -> None:
    assert held_out_attempts(few(train="abc"), count=0, seed=0) == []


def test_what_could_not_be_graded_is_warned_of_once_in_each_phase(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> None:
    trajectory = make_trajectory([("b\n", OutcomeKind.SUBMITTED, None)])
    scored = [make_scored(trajectory, None, verdict=Verdict(kind=VerdictKind.UNDECIDED))]
    runtime: Any = SimpleNamespace(
        engine=SimpleNamespace(num_sampled=0, busy_s=0.0, prefix_tokens=(0, 0)),
        waits=Waits(), num_retries=0, decode=None,
        run=lambda *_, **__: scored, sync=lambda _: 0.0, sleep=lambda: None,
        guesses=lambda: (0, 0),
    )  # fmt: skip
    rows: list[dict[str, float]] = []
    folder: Any = SimpleNamespace(append_trajectories=lambda *_: None)
    sink: Any = SimpleNamespace(write=lambda _, row: rows.append(row))
    out = io.StringIO()
    problems = ProblemSequence(few(train="abc"), seed=0)
    screen, interrupts = Screen(Console(file=out)), Interrupts()
    training = Training(
        Config(), problems, [], runtime, folder, screen, sink=sink, interrupts=interrupts
    )
    for name, warnings in (("before", 1), ("training", 2), ("after", 3)):
        if name == "training":
            for step in (1, 2):
                training.collect([0], step)
                training.log(step, 2, {"loss": 0.0})
        else:
            training.measure(0)
        assert out.getvalue().count("warning: 1 of 1 trajectories could not be graded") == warnings
    assert rows[0].pop("eval_runtime") >= 0
    assert rows[0] == {"eval_solve_rate": 0.0, "eval_total": 1, "eval_ungraded": 1}


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_run_that_diverged_ends_and_says_where(name: str, value: float | None) -> None:
    logged: list[int] = []
    training: Any = SimpleNamespace(log=lambda step, *_: logged.append(step))
    update: Any = None  # nothing is shown
    callback: Any = StepCallback(training, update, Interrupts())
    state = SimpleNamespace(global_step=3, max_steps=9)
    callback.on_log(None, state, None, logs={"loss": 0.1, "grad_norm": 1.0})
    message = rf"diverged at step 3: the {name} is not finite; lower grpo\.learning_rate"
    with pytest.raises(DivergedError, match=message):
        callback.on_log(None, state, None, logs={"loss": 0.1, "grad_norm": 1.0, name: value})
    assert logged == [3]
