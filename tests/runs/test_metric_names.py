"""Laws of the table of metrics: its names are the run's."""

from __future__ import annotations

from metric_table import METRICS, SECTIONS
from repl_rl.records import OutcomeKind, StopReason


def test_no_name_stands_for_two_numbers() -> None:
    names = [name for rows in SECTIONS.values() for one in rows for name in one.names]
    assert sorted(names) == sorted(METRICS)


def test_a_pattern_stands_for_every_kind() -> None:
    assert {f"line/{kind}/adv_mass" for kind in OutcomeKind} <= METRICS.keys()
    assert {f"stop/{reason}" for reason in StopReason} <= METRICS.keys()


def test_every_number_is_said_in_a_sentence() -> None:
    assert [one.name for one in METRICS.values() if not one.text.endswith(".")] == []
