"""Laws of pictures of runs: what is drawn where, in which style, and in what file."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from curve_kit import a_step, curve, of, rows
from repl_rl.records import OutcomeKind
from repl_rl.runs.plot import (
    MAX_CURVES,
    PENS,
    axes_of,
    figure,
    outcomes,
    saved_bytes,
    seconds,
    style,
    thinned,
    training_rates,
    window_of,
)

pytestmark = pytest.mark.slow


def panel(drawn: Figure, label: str) -> Axes:
    """The first panel with this label below or beside it."""
    return next(one for one in drawn.axes if label in (one.get_xlabel(), one.get_ylabel()))


def drawn_line(of: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = (one for one in of.lines if one.get_label() == label)
    xs, ys = (np.asarray(values, dtype=float).tolist() for values in found.get_data())
    return xs, ys


# What is drawn


def test_one_run_is_drawn_against_steps_tokens_and_time() -> None:
    with style():
        drawn = figure({"mine": curve(3)})
    rates = [0.01, 0.02, 0.03]
    assert drawn_line(panel(drawn, "step"), "training") == ([1, 2, 3], rates)
    assert drawn_line(panel(drawn, "tokens"), "training") == ([1000, 2000, 3000], rates)
    in_time = drawn_line(panel(drawn, "seconds since the start"), "training")
    assert in_time == ([18, 26, 34], rates)


def test_an_evaluation_has_its_interval_as_an_error_bar() -> None:
    """Wilson's for 5 and 8 of 10."""
    with style():
        drawn = figure({"mine": curve(3)})
    (bar,) = (one for one in panel(drawn, "step").containers if isinstance(one, ErrorbarContainer))
    (bars,) = bar.lines[2]
    first, last = [(x, low, high) for (x, low), (_, high) in bars.get_segments()]
    assert first == pytest.approx((0, 0.237, 0.763), abs=5e-4)
    assert last == pytest.approx((3, 0.490, 0.943), abs=5e-4)


def test_a_run_with_one_evaluation_is_drawn() -> None:
    """A warm start that measures the model only afterwards: 8 of 10."""
    with style():
        drawn = figure({"mine": of(rows(3)[1:])})
    (bar,) = (one for one in panel(drawn, "step").containers if isinstance(one, ErrorbarContainer))
    (bars,) = bar.lines[2]
    (((x, low), (_, high)),) = bars.get_segments()
    assert (x, low, high) == pytest.approx((3, 0.490, 0.943), abs=5e-4)


def test_a_mean_is_named_and_stands_over_the_points_it_is_the_mean_of() -> None:
    """The window of 20 steps is 2: the mean of steps 19 and 20 is 0.195."""
    with style():
        drawn = figure({"mine": curve(20)})
    xs, ys = drawn_line(drawn.axes[0], "training, mean of the last 2 steps")
    assert xs[-1] == 20
    assert ys[-1] == pytest.approx(0.195)
    assert drawn_line(drawn.axes[0], "training, one step")[1][-1] == 0.2
    assert panel(drawn, "share, mean of the last 2 steps").get_title(loc="left") == (
        "Outcomes of lines"
    )


@pytest.mark.parametrize(("num_steps", "window"), [(1, 1), (19, 1), (100, 10), (10_000, 50)])
def test_a_mean_is_of_a_tenth_of_the_steps(num_steps: int, window: int) -> None:
    longest = of([a_step(step + 1) for step in range(num_steps)])
    assert window_of([curve(2), longest]) == window


def test_what_a_run_has_not_measured_is_no_panel() -> None:
    with style():
        drawn = figure({"old": of([{"step": 1, "solve_rate": 0.5}, {"step": 2}])})
    assert [one.get_xlabel() for one in drawn.axes] == ["step"]


def test_time_is_an_axis_where_all_have_measured_it() -> None:
    old = of([{"step": 1, "solve_rate": 0.5}])
    assert [axis.label for axis in axes_of([curve(3)])] == [
        "step",
        "tokens",
        "seconds since the start",
    ]
    assert [axis.label for axis in axes_of([curve(3), old])] == ["step", "tokens"]


def test_large_numbers_have_a_larger_unit() -> None:
    """12,000,000 tokens are 12 millions, and 5 hours of a run 5 hours."""
    far = of([{"step": 1, "solve_rate": 0.5, "num_tokens": 12e6, "wall_s": 18_000}])
    _, tokens, time = axes_of([far])
    assert [tokens.label, time.label] == ["tokens, millions", "hours since the start"]
    assert [axis.at(far.steps[0]) for axis in (tokens, time)] == [12, 5]


def test_what_has_not_moved_has_an_axis_nevertheless() -> None:
    still = {"step": 1, "solve_rate": 0.5, "num_tokens": 0.0, "wall_s": 0.0}
    assert [axis.end for axis in axes_of([of([still])])] == [1, 1, 1]


def test_a_step_without_a_rate_is_left_out_of_the_line() -> None:
    found = of([a_step(1), {"step": 2, "step_time": 6.0}, a_step(3)])
    assert training_rates(axes_of([found])[0], found) == ([1, 3], [0.01, 0.03])


def test_of_very_many_points_some_are_drawn_and_the_last() -> None:
    found = thinned(range(1, 100_001))
    assert (len(found), found[0], found[-1]) == (500, 200, 100_000)
    assert thinned(range(500)) == list(range(500))
    assert thinned([]) == []


# Areas


def test_outcomes_stand_on_each_other_with_errors_on_top() -> None:
    stack = outcomes(of([a_step(1), a_step(2)]), window=1)
    assert list(stack.areas.items()) == [
        ("submitted", [0.5, 0.5]),
        ("ok_output", [0.4, 0.4]),
        ("name_error", [0.1, 0.1]),
    ]


def test_what_is_too_rare_for_a_name_is_drawn_together() -> None:
    shares = {"blank": 0.004, "cut": 0.003, "died": 0.002, "timeout": 0.001}
    rare = {f"line/{kind}/share": share for kind, share in shares.items()}
    stack = outcomes(of([a_step(1, **rare)]), window=1)
    assert {name: values[0] for name, values in stack.areas.items()} == pytest.approx(
        {
            "submitted": 0.5,
            "ok_output": 0.4,
            "other": 0.007,
            "name_error": 0.1,
            "other errors": 0.003,
        }
    )


def test_an_outcome_that_was_frequent_once_has_a_name() -> None:
    calm = [a_step(step) for step in range(1, 100)]
    stack = outcomes(of([*calm, a_step(100, **{"line/timeout/share": 0.3})]), window=1)
    assert "timeout" in stack.areas


def test_all_parts_of_the_time_are_drawn_the_longest_below() -> None:
    stack = seconds(of([a_step(1, **{"time/anything": 3.0})]), window=1)
    assert list(stack.areas.items()) == [
        ("rollout", [4.0]),
        ("anything", [3.0]),
        ("update", [2.0]),
    ]


# Black and white


def grey(colour: str) -> float:
    """Grey as a printer has it, from 0 to 1 (Rec. 601)."""
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def dashes(svg: bytes, colour: str) -> set[str]:
    """The patterns of all that is drawn in a colour; an unbroken line has none."""
    styles = [one.get("style", "") for one in ElementTree.fromstring(svg).iter()]
    found = [dict(part.split(": ", 1) for part in one.split("; ") if part) for one in styles]
    drawn = [one for one in found if one.get("stroke") == colour.lower()]
    assert drawn
    return {one["stroke-dasharray"] for one in drawn if "stroke-dasharray" in one}


def test_lines_of_runs_differ_in_dashes_and_markers_whatever_their_colours() -> None:
    runs = {name: curve(3) for name in "abc"}
    drawn = saved_bytes(lambda: figure(runs), ".svg")
    first, second, third = (dashes(drawn, pen["color"]) for pen in PENS[:3])
    assert first == set()
    assert second
    assert third
    assert second.isdisjoint(third)
    with style():
        panels = figure(runs).axes
    for one in panels:
        markers = [line.get_marker() for line in one.lines if line.get_linestyle() != "None"]
        assert len(set(markers)) == 3


def test_no_two_of_all_runs_share_dashes_and_marker() -> None:
    assert len({(one["linestyle"], one["marker"]) for one in PENS}) == MAX_CURVES == 35


def test_no_two_areas_of_a_picture_are_alike_without_colour() -> None:
    """Ten is the most: eight with a name, what is left, and the errors that are left."""
    kinds = [f"line/{kind}/share" for kind in OutcomeKind]
    parts = [f"time/{number}" for number in range(7)]
    busy = of([a_step(step, **dict.fromkeys((*kinds, *parts), 0.05)) for step in (1, 2)])
    with style():
        panels = figure({"busy": busy}).axes
    hatches = [[area.get_hatch() for area in one.collections] for one in panels]
    found = [one for one in hatches if len(one) > 1]
    assert list(map(len, found)) == [10, 9]
    assert [len(set(one)) for one in found] == [10, 9]


def test_a_black_hatch_shows_on_every_area() -> None:
    kinds = [f"line/{kind}/share" for kind in OutcomeKind]
    colours = {
        colour
        for kind in kinds
        for colour in outcomes(of([{"step": 1, "solve_rate": 0.5, kind: 1.0}]), window=1).colours
    }
    parts = {f"time/{number}": 1.0 for number in range(9)}
    times = seconds(of([a_step(1, **parts)]), window=1)
    colours |= set(times.colours)
    assert len(colours) > 8
    assert min(map(grey, colours)) > 0.45
