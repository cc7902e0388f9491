"""Laws of the main job that need no model: what is refused, and what ends a run."""

from __future__ import annotations

import dataclasses
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from repl_rl.base.concurrency import Interrupts
from repl_rl.config import Config
from repl_rl.config.sections import EvalConfig, GRPOConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.errors import ConfigError, DivergedError
from repl_rl.progress import SILENT
from repl_rl.records import (
    Attempt,
    OutcomeKind,
    Problem,
    Scored,
    Split,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.rollout.plan import make_plan
from repl_rl.rollout.runner import Waits
from repl_rl.training.eval_job import Evaluation
from repl_rl.training.evaluate import HeldOut, held_out_attempts, report
from repl_rl.training.steps import ProblemSequence, StepCallback, Training
from repl_rl.training.train import train as train_plan
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update.ranks import ALONE
from repl_rl.viewer.show.display import Screen

pytestmark = pytest.mark.slow


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


def test_few_problems_are_held_and_those_before_them_are_drawn_anew() -> None:
    problems = ProblemSequence(few(train="abcde"), seed=0, num_held=2)
    assert "".join(problems[number].id for number in (6, 5, 0, 1, 4, 2, 9)) == "baabece"
    assert len(problems._held) == 2


def test_a_task_without_training_problems_is_refused() -> None:
    with pytest.raises(ConfigError, match="task 'few' has no problems in its split train"):
        ProblemSequence(few(held_out="abc"), seed=0)


def test_a_task_without_held_out_problems_is_refused() -> None:
    with pytest.raises(ConfigError, match="task 'few' has no problems in its split held_out"):
        held_out_attempts(few(train="abc"), count=3, seed=0)


def test_no_held_out_problem_is_needed_where_none_is_asked_for() -> None:
    assert held_out_attempts(few(train="abc"), count=0, seed=0) == []


def test_a_merge_without_an_adapter_is_refused_before_anything_begins(tmp_path: Path) -> None:
    plan = make_plan(Config(model="none"), to_train=True)
    with pytest.raises(ConfigError, match="needs an adapter"):
        train_plan(plan, tmp_path / "run", SILENT, merge=True)
    assert not (tmp_path / "run").exists()


Rows = list[Mapping[str, float]]
Train = Callable[[Config], tuple[Training, HeldOut, Rows, io.StringIO]]


@pytest.fixture
def train(make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]) -> Train:
    """`train(config)`: steps and measurements without an engine, their rows, and the screen."""
    trajectory = make_trajectory([("b\n", OutcomeKind.SUBMITTED, None)])
    scored = [make_scored(trajectory, None, verdict=Verdict(kind=VerdictKind.UNDECIDED))]

    def make(config: Config) -> tuple[Training, HeldOut, Rows, io.StringIO]:
        return trained(config, lambda _: scored)

    return make


ATTEMPT = Attempt(problem=Problem(id="a", statement="?"), group_index=0, sibling_index=0, seed=0)


def trained(
    config: Config,
    run: Callable[[Sequence[Attempt]], list[Scored]],
    *,
    keep_best: Callable[[int], None] | None = None,
    rates: dict[int, float] | None = None,
    best_rate: float = -1.0,
    attempts: Sequence[Attempt] = (ATTEMPT,),
) -> tuple[Training, HeldOut, Rows, io.StringIO]:
    runtime: Any = SimpleNamespace(
        engine=SimpleNamespace(num_sampled=0, busy_s=0.0, prefix_tokens=(0, 0)),
        runner=SimpleNamespace(waits=Waits(), num_retries=0), ranks=ALONE, interrupts=Interrupts(),
        loaded=SimpleNamespace(codec=ByteCodec()), plan=SimpleNamespace(task=few(train="abc")),
        run=lambda attempts, **_: run(attempts), sync=lambda _: 0.0, sleep=lambda: None,
    )  # fmt: skip
    rows: Rows = []
    folder: Any = SimpleNamespace(append_trajectories=lambda *_: None)
    sink: Any = SimpleNamespace(
        folder=folder, write=lambda step, row: rows.append({"step": step, **row})
    )
    out = io.StringIO()
    problems = ProblemSequence(few(train="abc"), seed=0)
    screen = Screen(Console(file=out))
    held_out = HeldOut(
        attempts=attempts, runtime=runtime, progress=screen, sink=sink,
        rates=rates or {}, keep_best=keep_best, best_rate=best_rate,
    )  # fmt: skip
    training = Training(
        settings=config, problems=problems, held_out=held_out, runtime=runtime, progress=screen,
        credit=load_credit(config.grpo), sink=sink,
    )  # fmt: skip
    return training, held_out, rows, out


def test_a_measurement_whose_trajectories_ran_out_of_time_is_warned_of(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> None:
    """Steps are not: `stop/time_limit` is in their rows."""
    trajectory = make_trajectory([("b\n", OutcomeKind.OK_SILENT, None)])
    ended = dataclasses.replace(trajectory, stop_reason=StopReason.TIME_LIMIT)
    training, held_out, _, out = trained(Config(), lambda _: [make_scored(ended, None)])
    training.collect([0], 1)
    training.log(1, 1, {"loss": 0.0})
    assert "warning" not in out.getvalue()
    held_out.measure(0)
    said = " ".join(out.getvalue().split())
    assert "warning: 1 of 1 trajectories ended at sampling.time_limit_s" in said


def test_what_could_not_be_graded_is_warned_of_once_in_each_phase(train: Train) -> None:
    training, held_out, rows, out = train(Config())
    for name, warnings in (("before", 1), ("training", 2), ("after", 3)):
        if name == "training":
            for step in (1, 2):
                training.collect([0], step)
                training.log(step, 2, {"loss": 0.0})
        else:
            held_out.measure({"before": 0, "after": 2}[name])
        assert out.getvalue().count("warning: 1 of 1 trajectories could not be graded") == warnings
    measured = {name: value for name, value in rows[0].items() if name != "eval_runtime"}
    assert measured == {
        "step": 0,
        "eval_solve_rate": 0.0,
        "eval_total": 1,
        "eval_ungraded": 1,
        "eval_submit_share": 0.0,
        "eval_ran_share": 1.0,
    }


def test_where_no_problem_is_asked_nothing_is_measured_written_or_kept() -> None:
    def never(*_: object) -> Any:
        raise AssertionError

    _, held_out, rows, out = trained(Config(), never, keep_best=never, attempts=())
    assert held_out.measure(0) is None
    assert held_out.measure(4) is None
    assert (rows, out.getvalue()) == ([], "")


def test_a_measurement_on_record_whose_file_is_gone_stops_no_run(tmp_path: Path) -> None:
    _, held_out, rows, _ = trained(Config(), lambda _: [], rates={0: 0.5})
    folder: Any = held_out.sink.folder  # type: ignore[union-attr]
    folder.trajectories = lambda name: tmp_path / name
    assert held_out.measure(0) is None
    assert rows == []


def test_facts_count_the_problems_that_were_asked_not_those_that_were_wanted(train: Train) -> None:
    scored = train(Config())[0].runtime.run([]) * 3
    plan = make_plan(Config(eval=EvalConfig(problems=200)))
    found = Evaluation(
        plan=plan, policy="p", samples=3, scored=scored, report=report(scored), output=None
    )
    assert (found.facts()["problems"], found.facts()["total"]) == (1, 3)


def test_a_measurement_of_no_problem_is_not_spoken_of_between_steps(train: Train) -> None:
    config = Config(model="m", eval=EvalConfig(problems=0, every=1))
    scored = train(config)[0].runtime.run([])
    training, _, rows, out = trained(config, lambda _: scored, attempts=())
    training.collect([0], 1)
    training.log(1, 2, {"loss": 0.0})
    assert "held-out" not in out.getvalue()
    assert [row["step"] for row in rows] == [1]


TWICE = Config(model="m", grpo=GRPOConfig(passes=2), eval=EvalConfig(every=3))
"""Rollouts after updates 0, 2, 4, ..."""


def test_numbers_of_a_rollout_stand_with_the_first_step_that_it_feeds(train: Train) -> None:
    training, _, rows, _ = train(TWICE)
    training.collect([0], 0)
    for step in (1, 2):
        training.log(step, 200, {"loss": 0.5})
    assert rows[0]["solve_rate"] == 0.0
    assert rows[1]["loss"] == 0.5
    assert not {"solve_rate", "group/dead", "rollout/sync_gap"} & rows[1].keys()


def test_a_measurement_that_falls_into_a_rollout_waits_for_its_end(train: Train) -> None:
    training, _, rows, _ = train(TWICE)
    for version in (0, 2, 4, 6, 8, 10):
        training.collect([0], version)
    assert [row["step"] for row in rows if "eval_solve_rate" in row] == [4, 6, 10]


def test_the_weights_that_did_best_are_kept_the_first_ones_apart(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> None:
    trajectory = make_trajectory([("b\n", OutcomeKind.SUBMITTED, None)])
    ends = {
        kind: make_scored(trajectory, 0.0, verdict=Verdict(kind=kind))
        for kind in (VerdictKind.PROVED, VerdictKind.WRONG)
    }
    num_solved, kept = {0: 9, 6: 2, 9: 2, 12: 1, 15: 3}, list[int]()

    def run(_: object) -> list[Scored]:
        solved = num_solved[step]
        return [ends[VerdictKind.PROVED]] * solved + [ends[VerdictKind.WRONG]] * (10 - solved)

    # Those of update 3 are kept from before a resume.
    _, held_out, _, _ = trained(TWICE, run, keep_best=kept.append, best_rate=0.1)
    for step in num_solved:
        held_out.measure(step)
    assert kept == [6, 15]


def test_a_signal_waits_until_a_rollout_is_used_up(train: Train) -> None:
    training, *_ = train(TWICE)
    training.collect([0], 2)
    training.runtime.interrupts._is_requested = True
    callback: Any = StepCallback(training, lambda *_: None)
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_step_end(None, SimpleNamespace(global_step=3), control)
    assert not control.should_training_stop
    callback.on_step_end(None, SimpleNamespace(global_step=4), control)
    assert (control.should_save, control.should_training_stop) == (True, True)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_run_that_diverged_ends_and_says_where(name: str, value: float | None) -> None:
    logged: list[int] = []
    training: Any = SimpleNamespace(log=lambda step, *_: logged.append(step))
    update: Any = None  # nothing is shown
    callback: Any = StepCallback(training, update)
    state = SimpleNamespace(global_step=3, max_steps=9)
    callback.on_log(None, state, None, logs={"loss": 0.1, "grad_norm": 1.0})
    message = rf"diverged at step 3: the {name} is not finite; lower grpo\.learning_rate"
    with pytest.raises(DivergedError, match=message):
        callback.on_log(None, state, None, logs={"loss": 0.1, "grad_norm": 1.0, name: value})
    assert logged == [3]


class Rolled:
    """Rollouts whose groups teach nothing until they were rolled out `after` times before."""

    def __init__(self, make: Callable[[Attempt, float], Scored], after: Mapping[int, int]) -> None:
        self._make, self._after = make, after
        self.seeds: list[tuple[int, int, int]] = []

    def __call__(self, attempts: Sequence[Attempt]) -> list[Scored]:
        tries = Counter((group, sibling) for group, sibling, _ in self.seeds)
        scored = []
        for one in attempts:
            key = (one.group_index, one.sibling_index)
            teaches = tries[key] >= self._after[one.group_index]
            scored.append(self._make(one, float(teaches and one.sibling_index == 0)))
            self.seeds.append((*key, one.seed))
        return scored


@pytest.mark.parametrize(
    ("rerolls", "tries", "counted"), [(0, [1, 1, 1], (0, 2)), (2, [1, 2, 3], (3, 1))]
)
def test_a_group_that_teaches_nothing_is_rolled_out_again(
    make_trajectory: Callable[..., Trajectory],
    make_scored: Callable[..., Scored],
    rerolls: int,
    tries: list[int],
    counted: tuple[int, int],
) -> None:
    """Group 0 differs at once, 1 the second time, 2 never."""

    def make(attempt: Attempt, outcome: float) -> Scored:
        trajectory = make_trajectory([("b\n", OutcomeKind.OK_SILENT, None)])
        identity: dict[str, Any] = {
            "group_index": attempt.group_index,
            "sibling_index": attempt.sibling_index,
        }
        return make_scored(dataclasses.replace(trajectory, **identity), outcome)

    rolled = Rolled(make, {0: 0, 1: 1, 2: 99})
    config = Config(model="m", grpo=GRPOConfig(rerolls=rerolls, group_size=2))
    training, _, rows, _ = trained(config, rolled)
    scored = training.collect([0, 0, 1, 1, 2, 2], 5)
    training.log(6, 200, {})
    made = Counter(group for group, *_ in rolled.seeds)
    assert made == {group: 2 * number for group, number in enumerate(tries)}
    assert len({seed for *_, seed in rolled.seeds}) == len(rolled.seeds)
    assert (rows[0]["group/rerolled"], rows[0]["group/dead"]) == counted
    places = [(item.trajectory.group_index, item.trajectory.sibling_index) for item in scored]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
