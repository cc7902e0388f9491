"""Laws of solve rates side by side: columns, what is not graded, and a picture without colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repl_rl.commands.evaluate import bars, comparison, save_bars, table
from repl_rl.runs.summary import Rate, RateDifference


def rate(solved: int, total: int, *, ungraded: int = 0, **passes: float) -> Rate:
    ks = {int(name[1:]): value for name, value in passes.items()}
    return Rate(
        solved=solved, total=total, ungraded=ungraded, interval=(0.25, 0.75), passes={1: 0.5, **ks}
    )


def test_a_table_has_a_row_for_each_rate_and_a_column_for_each_k() -> None:
    rows = {"all": rate(3, 6, ungraded=1, k2=0.75), "tier 1": rate(1, 4, k2=0.5)}
    assert table(rows).splitlines() == [
        "        solved  of   95 % interval  pass@2",
        "all     50.0 %   6  25.0 to 75.0 %  75.0 %",
        "tier 1  25.0 %   4  25.0 to 75.0 %  50.0 %",
        "not graded, and so not solved: 1",
    ]


def test_one_attempt_has_no_column_of_passes() -> None:
    assert "pass@" not in table({"all": rate(1, 2)})


def test_baselines_are_named_as_what_they_are() -> None:
    one = replace(rate(1, 2), baselines={"best single call": 1.0, "guessing": 0.175})
    assert table({"all": one}).splitlines() == [
        "     solved  of   95 % interval  best single call  guessing",
        "all  50.0 %   2  25.0 to 75.0 %           100.0 %    17.5 %",
        "baselines, without any model: best single call, guessing",
    ]


def test_a_comparison_says_how_much_more_is_solved() -> None:
    gap = RateDifference(mean=0.41, interval=(0.339, 0.481))
    assert comparison("run", rate(91, 100), {"start": (rate(50, 100), gap)}).splitlines() == [
        "       solved  run ahead by, 95 % interval",
        "run    91.0 %",
        "start  50.0 %       +41.0 (+33.9 to +48.1)",
    ]


def test_models_are_told_apart_by_grey_and_hatch() -> None:
    rows = {"all": rate(1, 2), "sums": rate(1, 2)}
    (panel,) = bars({"one": rows, "other": rows}).axes
    looks = [
        {(bar.get_hatch(), bar.get_facecolor()) for bar in group.patches}
        for group in panel.containers
        if hasattr(group, "patches")
    ]
    assert [len(one) for one in looks] == [1, 1]
    assert looks[0].isdisjoint(looks[1])


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture_is_the_same_for_the_same_rates(
    suffix: str, begin: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"rates{suffix}"
    save_bars({"run": {"all": rate(1, 2)}}, path)
    drawn = path.read_bytes()
    assert drawn.startswith(begin)
    save_bars({"run": {"all": rate(1, 2)}}, path)
    assert path.read_bytes() == drawn
