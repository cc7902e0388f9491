"""Long lines, long names and many lines take no more of the screen than there is."""

from typing import Any

import pytest

from repl_rl.records import Problem
from stepper_seat import COMMENT, OUTPUT, MakeStepper, Seat, after, sit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("keys", "num_rows"), [("", 1), ("n", 6), ("nn", 1)])
def test_a_line_of_a_million_characters_takes_one_row_and_six_at_hand(
    stepper: MakeStepper, keys: str, num_rows: int
) -> None:
    long = "x" * 1_000_000
    parts = [(f" # {long}\n", COMMENT, ">>>"), (" 1+1\n", OUTPUT, "2\n>>>")]
    rows = after(stepper(parts), *keys)
    assert len(rows) == 24
    assert sum("xxxx" in row for row in rows) == num_rows


@pytest.mark.parametrize("character", ["z", "\u4e2d"])
def test_a_long_line_at_hand_can_be_read_to_its_end(stepper: MakeStepper, character: str) -> None:
    comment = f"# {character * 120} end"
    rows = after(stepper([(f" {comment}\n", COMMENT, ">>>")]), "n")
    assert "".join(rows).count(character) == 120
    assert any(row.rstrip().endswith(f"{character} end") for row in rows)


def test_the_first_row_of_a_long_line_at_hand_is_there_on_a_small_screen(
    stepper: MakeStepper,
) -> None:
    rows = after(stepper([(f" # {'x' * 500}\n", COMMENT, ">>>")]), "n", size=(60, 14))
    assert any(row.startswith(" 1  >>> # xxxx") for row in rows)


@pytest.mark.parametrize("name", ["prompt", "problem"])
def test_a_long_name_or_prompt_breaks_no_row(stepper: MakeStepper, name: str) -> None:
    long = "y" * 500
    problem = Problem(id=long, statement=long)
    options: dict[str, Any] = (
        {"prompt": f">>> # a\n{long}"} if name == "prompt" else {"problem": problem}
    )
    rows = after(stepper([(" 1+1\n", OUTPUT, "2\n>>>")], **options), "n", "i")
    assert rows[0].startswith("step-000003:1   line 1/1")
    assert any(row.startswith(" 1 ") and "ok_output" in row for row in rows)
    assert rows[-1].startswith("Enter takes it")


def test_of_ten_thousand_lines_only_those_seen_are_made(
    stepper: MakeStepper, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    views = "repl_rl.viewer.stepper.views"

    def strip(source: str) -> str:
        made.append(source)
        return source

    monkeypatch.setattr(f"{views}.strip_line", strip)
    parts = [(" # think\n", COMMENT, ">>>")] * 10_000

    async def act(seat: Seat) -> None:
        await seat.press("colon", *"5000", "enter")
        assert "line 5000/10000" in seat.rows[0]
        made.clear()  # on the way it is painted again and again, more often where that takes long
        await seat.press("escape")
        assert 0 < len(made) < 100

    sit(stepper(parts), act)
