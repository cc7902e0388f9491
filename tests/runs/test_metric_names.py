"""Laws of the table of metrics: the document is what the code says, and its names are the run's."""

from __future__ import annotations

from pathlib import Path

from repl_rl.runs.metric_names import METRICS, SECTIONS, page
from repl_rl.types import OutcomeKind, StopReason

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text() == page(), "make metrics-table writes it"


def test_no_name_stands_for_two_numbers() -> None:
    names = [name for rows in SECTIONS.values() for one in rows for name in one.names]
    assert sorted(names) == sorted(METRICS)


def test_a_pattern_stands_for_every_kind() -> None:
    assert {f"line/{kind}/adv_mass" for kind in OutcomeKind} <= METRICS.keys()
    assert {f"stop/{reason}" for reason in StopReason} <= METRICS.keys()


def test_every_number_is_said_in_a_sentence() -> None:
    assert [one.name for one in METRICS.values() if not one.text.endswith(".")] == []
