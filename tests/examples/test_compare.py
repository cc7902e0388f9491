"""`make compare`: a page of the rows that are kept, with figures that are worse and days of old."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmark_module import benchmark_module

ROOT = Path(__file__).parents[2]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark_module("compare_page", monkeypatch)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark_module("compare", monkeypatch)


def a_row(ours: float, theirs: float, better: str) -> dict[str, Any]:
    return {
        "what": "a line", "peer": "TRL", "unit": "ms", "ours": ours, "theirs": theirs,
        "better": better,
    }  # fmt: skip


def a_case(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "date": "2026-05-01",
        "machine": "2 cores, a CPU",
        "versions": {"trl": "1.16.0"},
        "load": 0.4,
        "seconds": 70,
        "rows": list(rows),
        **more,
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "better", "cells"),
    [
        (2, 5, "less", "2 ms | 5 ms, TRL | 2.5 | ours |"),
        (2, 5, "more", "2 ms | 5 ms, TRL | 0.4 | **TRL** |"),
        (100, 98, "less", "100 ms | 98 ms, TRL | 0.98 | level |"),
        (0, 7, "less", "0 ms | 7 ms, TRL |  | ours |"),
        (7, 0, "less", "7 ms | 0 ms, TRL |  | **TRL** |"),
        (0, 0, "less", "0 ms | 0 ms, TRL |  | level |"),
        (110, 100, "near", "110 ms | 100 ms, TRL | 1.1 | off by 10 % |"),
        (1234.5, 33.33, "more", "1,234 ms | 33.3 ms, TRL | 37 | ours |"),
    ],
)
def test_a_row_says_by_how_much_and_who_is_ahead(
    page: ModuleType, ours: float, theirs: float, better: str, cells: str
) -> None:
    text = page.page({"loop": a_case(a_row(ours, theirs, better))}, [])
    assert f"| a line | {cells}\n" in text


def test_a_figure_that_is_worse_stays_and_is_named_at_the_top(page: ModuleType) -> None:
    text = page.page({"loop": a_case(a_row(5, 2, "less"), a_row(1, 2, "less"))}, [])
    assert "Of 2 figures beside a peer's 1 are better here, 0 are level within 3 %" in text
    assert "and 1 are worse:\n\n- a line: 5 ms, and 2 ms by TRL\n" in text
    assert "| a line | 5 ms | 2 ms, TRL | 0.4 | **TRL** |" in text


def test_rows_of_another_day_say_so(compare: ModuleType, page: ModuleType) -> None:
    before = a_case(a_row(1, 2, "less"))
    tried = a_case(date="2026-06-01", failed="cut after 300 s: ?")
    found = compare.kept(before, tried)
    assert found["rows"] == before["rows"]
    text = page.page({"loop": found}, [])
    assert "2026-05-01, 2 cores, a CPU, load 0.4 before it; trl 1.16.0; 70 s. Tried again" in text
    assert "Tried again on 2026-06-01: cut after 300 s" in text


@pytest.mark.parametrize("before", [None, a_case(failed="exit code 1")])
def test_a_case_that_was_never_whole_shows_what_there_is(
    compare: ModuleType, before: dict[str, Any] | None
) -> None:
    tried = a_case(a_row(1, 2, "less"), failed="cut after 300 s")
    assert compare.kept(before, tried) == tried
    assert compare.kept(tried, whole := a_case(a_row(3, 2, "less"))) == whole


@pytest.mark.slow
def test_a_case_ends_at_its_deadline_with_the_rows_that_it_has_made(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = json.dumps(a_row(1, 2, "less"))
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho 'ROW {row}'\necho ouch >&2\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    found = compare.measured("loop", 0.5)
    assert found["rows"] == [a_row(1, 2, "less")]
    assert found["failed"] == "cut after 0 s: ouch"


def test_the_page_in_the_repository_is_that_of_the_rows_beside_it(page: ModuleType) -> None:
    docs = ROOT / "docs"
    found = json.loads((docs / "compare.json").read_text())
    rows = list(map(json.loads, (docs / "breadth.jsonl").read_text().splitlines()))
    assert (docs / "compare.md").read_text() == page.page(found, rows)
    assert found.keys() == page.CASES.keys()


def a_stage(family: str, stage: str, problems: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "family": family, "stage": stage, "problems": problems, "solved": 1, "submitted": 2,
        "interval": [0.05, 0.7], "sampled_tokens": 1900, "trained_tokens": 0, "seconds": 30.0,
        "cpu_s": 9.0, "date": "2026-05-01", "machine": "a CPU", "versions": "torch 2", **more,
    }  # fmt: skip


def test_the_page_shows_the_row_of_most_problems_with_its_day(page: ModuleType) -> None:
    rows = [
        a_stage("lcm", "before", 8, solved=3),
        a_stage("lcm", "before", 4),
        a_stage("lcm", "warm", 4, date="2026-06-02"),
    ]
    text = page.page({"breadth": a_case(a_stage("lcm", "before", 8, solved=2))}, rows)
    assert (
        "| `lcm` | 3 of 8 (5 to 70 %), 9 s, 1,900 | 1 of 4 (5 to 70 %), 9 s, 1,900 | not measured |"
    ) in text
    assert (
        "- before: `lcm`. 2026-05-01, a CPU. torch 2.\n"
        "- after a warm start: `lcm`. 2026-06-02, a CPU. torch 2.\n" in text
    )
    assert "`lcm`, before, 2 of 8 (5 to 70 %), 9 s, 1,900. Kept: 3 of 8 (5 to 70 %)" in text


STATEMENTS = {
    "chain_sum": "State the final answer to the following arithmetic problem: 3781 + 1883 =",
    "count_bits": "How many 1 bits are there in the binary representation of the number 35690561?",
    "fraction_simplification": "Simplify the fraction $\\frac{8625}{17043}$ to its lowest terms.",
    "lcm": "Find the Least Common Multiple (LCM) of these numbers: 77, 91",
    "letter_counting": 'How many times does the letter "o" appear in the text: '
    '"but a few hundred"?',
    "prime_factorization": "Find the prime factorization of 448. Write the factors separated by "
    "\u00d7 (Example: for 12 the answer would be: 2 \u00d7 2 \u00d7 3)",
    "simple_equations": "Determine the value of a that satisfies: 462*a + 154 = 14014",
    "simple_geometry": "Consider a convex 4-gon whose first 3 interior angles are: 88.0\u00b0, "
    "44.0\u00b0, 53.0\u00b0. Determine the measure of the remaining angle.",
    "spell_backward": "Spell this word backward (example: sun -> nus): disperiwig",
}


@pytest.mark.parametrize("family", STATEMENTS)
def test_a_script_of_a_family_is_what_the_page_shows(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    tasks = benchmark_module("breadth_tasks", monkeypatch)
    *lines, last = tasks.SCRIPTS[family](STATEMENTS[family])
    assert ", ".join(f"`{line}`" for line in lines) == page.SCRIPTS[family]
    assert last.startswith("submit_final_answer(_")
