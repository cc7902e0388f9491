"""Laws of a run's numbers as they are read back; the expected ones are worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.runs.metrics import (
    EvaluationPoint,
    MetricsRow,
    curve_of,
    read_curve,
    read_rows,
    running_mean,
)


def write(run: Path, *rows: object, end: str = "") -> Path:
    run.mkdir(exist_ok=True)
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    (run / "metrics.jsonl").write_text(text + end)
    return run


def row(step: int, **numbers: float) -> MetricsRow:
    return MetricsRow(step=step, numbers=numbers)


# Rows


def test_a_row_is_a_step_and_its_numbers(tmp_path: Path) -> None:
    run = write(tmp_path, {"step": 0, "a": 1}, {"step": 7, "a": 0.5, "b/c": -2})
    assert list(read_rows(run)) == [
        MetricsRow(step=0, numbers={"a": 1.0}),
        MetricsRow(step=7, numbers={"a": 0.5, "b/c": -2.0}),
    ]


def test_what_is_no_finite_number_is_left_out_of_its_row(tmp_path: Path) -> None:
    text = f'{{"step": 1, "a": NaN, "b": -Infinity, "c": null, "d": "x", "e": {10**400}, "f": 3}}'
    (found,) = read_rows(write(tmp_path, text, '{"step": true, "f": 1}'))
    assert found == row(1, f=3.0)


BROKEN = {
    "half a row": '{"step": 2, "a"',
    "empty": "",
    "a list": "[1, 2]",
    "a number": "3",
    "no step": '{"a": 1}',
    "null": '{"step": null}',
    "zeros": "\x00\x00",
    "deep": "[" * 9999,
    "beyond a float": f'{{"step": {10**400}}}',
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_row_that_is_none_is_passed_over_wherever_it_stands(tmp_path: Path, broken: str) -> None:
    run = write(tmp_path, {"step": 1}, broken, {"step": 3}, end=broken)
    assert [found.step for found in read_rows(run)] == [1, 3]


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    run = write(tmp_path, {"step": 1})
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe{"step": 2}\n{"step": 3}\n')
    assert [found.step for found in read_rows(run)] == [1, 3]


# Steps and evaluations


def test_a_step_stands_at_its_tokens_and_the_clock_of_the_run() -> None:
    curve = curve_of(
        [
            row(1, solve_rate=0.25, num_tokens=100, step_time=2, wall_s=9),
            row(2, solve_rate=0.5, num_tokens=250, step_time=3, wall_s=14),
        ]
    )
    found = [(one.step, one.tokens, one.wall_s) for one in curve.steps]
    assert found == [(1, 100, 9), (2, 250, 14)]
    assert [one.numbers["solve_rate"] for one in curve.steps] == [0.25, 0.5]


def test_an_evaluation_stands_at_the_step_before_it() -> None:
    """The clock of the run goes on meanwhile."""
    curve = curve_of(
        [
            row(0, eval_solve_rate=0.5, eval_total=200, eval_ungraded=0, wall_s=4),
            row(1, solve_rate=0.25, num_tokens=100, step_time=2, wall_s=6),
            row(1, eval_solve_rate=0.75, eval_total=200, eval_ungraded=3, wall_s=10),
        ]
    )
    assert len(curve.steps) == 1
    assert curve.evaluations == (
        EvaluationPoint(
            step=0,
            tokens=0,
            wall_s=4,
            rate=0.5,
            total=200,
            ungraded=0,
        ),
        EvaluationPoint(
            step=1,
            tokens=100,
            wall_s=10,
            rate=0.75,
            total=200,
            ungraded=3,
        ),
    )


def test_an_evaluation_that_was_written_before_its_step_stands_after_it() -> None:
    before, after = row(2, eval_solve_rate=0.5), row(2, solve_rate=0.25, num_tokens=100)
    for rows in ([before, after], [after, before]):
        (found,) = curve_of(rows).evaluations
        assert (found.step, found.tokens) == (2, 100)


def test_one_row_may_hold_a_step_and_its_evaluation() -> None:
    curve = curve_of([row(1, solve_rate=0.25, eval_solve_rate=0.5)])
    assert (len(curve.steps), len(curve.evaluations)) == (1, 1)


def test_an_evaluation_has_the_interval_of_its_problems() -> None:
    """Wilson's for 8 of 10, as its formula gives it; unknown where the problems are not counted."""
    counted, uncounted = curve_of(
        [row(1, eval_solve_rate=0.8, eval_total=10), row(2, eval_solve_rate=0.8)]
    ).evaluations
    assert counted.interval == pytest.approx((0.490, 0.943), abs=5e-4)
    assert uncounted.interval is None


def test_an_evaluation_with_numbers_that_cannot_be_is_none() -> None:
    assert curve_of([row(1, eval_solve_rate=1.5, eval_total=10)]).evaluations == ()


def test_a_measurement_of_no_problem_is_none_and_no_step_either() -> None:
    """Earlier versions wrote such a row, beside that of the step."""
    taken, empty = row(1, solve_rate=0.25), row(1, eval_solve_rate=0.0, eval_total=0)
    curve = curve_of([row(0, eval_solve_rate=0.0, eval_total=0), taken, empty])
    assert curve.evaluations == ()
    assert [step.numbers for step in curve.steps] == [taken.numbers]


def test_a_step_that_was_taken_twice_counts_as_it_was_last() -> None:
    """A run may go on from a checkpoint, and take the steps behind it again."""
    curve = curve_of(
        [
            row(1, solve_rate=0.1),
            row(2, solve_rate=0.2),
            row(3, solve_rate=0.3),
            row(2, solve_rate=0.4),
        ]
    )
    assert [(one.step, one.numbers["solve_rate"]) for one in curve.steps] == [
        (1, 0.1),
        (2, 0.4),
        (3, 0.3),
    ]


def test_what_a_run_has_not_measured_is_not_zero() -> None:
    (step,) = curve_of([row(1, solve_rate=0.1)]).steps
    assert (step.step, step.tokens, step.wall_s) == (1, None, None)


def test_a_folder_of_one_evaluation_has_no_step(tmp_path: Path) -> None:
    run = write(tmp_path, {"step": 0, "eval/solve_rate": 0.5, "eval/total": 20, "eval/pass@1": 0.5})
    curve = read_curve(run)
    assert (curve.steps, curve.evaluations) == ((), ())


def test_no_run_is_named_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine-1").mkdir(parents=True)
    with pytest.raises(ConfigError, match="'runs/mime-1'; did you mean 'runs/mine-1'"):
        read_curve(Path("runs/mime-1"))
    with pytest.raises(ConfigError, match=r"'runs/mine-1' holds no metrics\.jsonl; expected"):
        read_curve(Path("runs/mine-1"))


# Arithmetic


def test_a_running_mean_is_that_of_the_last_steps() -> None:
    """(3), (3 + 5) / 2, (3 + 5 + 10) / 3, (5 + 10 + 0) / 3."""
    assert running_mean([3, 5, 10, 0], 3) == [3, 4, 6, 5]
    assert running_mean([3, 5], 1) == [3, 5]


def test_a_running_mean_leaves_out_what_was_not_measured() -> None:
    assert running_mean([None, 4, None, None, 8], 2) == [None, 4, 4, None, 8]
