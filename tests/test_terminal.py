"""Laws of a row of a terminal: it stays one row, and it stays short."""

from __future__ import annotations

import pytest

from repl_rl.base.terminal import one_row, signed


def test_a_row_holds_nothing_that_a_terminal_obeys() -> None:
    assert one_row("\x1b[31ma\nb\r\x1b]0;t\x07\u202ec") == "a\\nbc"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "+0.000"), (-0.25, "-0.250"), (1e100, "+1e+100"), (-1.23456e12, "-1.235e+12")],
)
def test_a_number_is_short_whatever_its_size(value: float, shown: str) -> None:
    assert signed(value) == shown


def test_a_row_keeps_the_ends_of_what_is_long() -> None:
    shown = one_row("begin" + "\n" * 10**6 + "end")
    assert shown.startswith("begin\\n")
    assert shown.endswith("\\nend")
    assert " ... [998,008 characters] ... " in shown
    assert len(shown) < 5000
