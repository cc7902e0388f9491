"""The worked examples of the pages of design come out as they say."""

from __future__ import annotations

import re

import pytest

from credit_kit import line_advantages
from documents import ROOT
from repl_rl.grading.equality import compare
from repl_rl.grading.parse import parse
from repl_rl.records import Reward
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update.ranks import Ranks


def page(name: str) -> str:
    return (ROOT / "docs" / "design" / f"{name}.md").read_text()


def rows(name: str, header: str) -> list[list[str]]:
    """The cells of a page's table below the row that begins with `header`."""
    table = page(name).partition(f"\n| {header} |")[2].partition("\n\n")[0]
    return [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]


def numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize(("known", "submitted", "verdict", "_why"), rows("grading", "known answer"))
def test_a_submission_is_judged_as_the_page_says(
    known: str, submitted: str, verdict: str, _why: str
) -> None:
    expected, got = (parse(text.strip("`"), symbols=["x"]) for text in (known, submitted))
    assert compare(got, expected, seed="s").kind.name == verdict


@pytest.mark.parametrize(
    ("credit", "solver", "other"), [row[:3] for row in rows("credit", "`grpo.credit`")[:4]]
)
def test_two_siblings_get_what_the_page_says(credit: str, solver: str, other: str) -> None:
    group = [
        Reward(line_rewards=(0.0, -0.3, 0.0), outcome_reward=1.0),
        Reward(line_rewards=(0.0, 0.0), outcome_reward=0.0),
    ]
    found = line_advantages(group, credit=credit.strip("`"), weight=0.5, scale_by=1 - 1e-4)
    assert found == [pytest.approx(numbers(one)) for one in (solver, other)]


def test_a_line_has_the_ids_that_the_page_says() -> None:
    encoding = Encoding(PYTHON, ByteCodec())
    line = encoding.typed_ids("1+1")
    shown = encoding.injected_ids("2\n>>>", after=line)
    written = {
        name: [int(one) for one in found.split()]
        for name, found in re.findall(r"^    ([a-z ]+?)  +(\d[\d ]+)", page("tokens"), re.MULTILINE)
    }
    assert written["sampled"] == line
    assert written["observation"] == shown
    assert written["completion"] == [*line, *shown]
    assert written["loss mask"] == [1] * len(line) + [0] * len(shown)


def test_two_ranks_have_the_rows_that_the_page_says() -> None:
    written = re.findall(r"^    row  +([\d ]+)\| ([\d ]+)$", page("processes"), re.MULTILINE)
    halves = [[int(one) for one in half.split()] for half in written[0]]
    assert halves == [Ranks(rank=rank, world=2).share(range(12)) for rank in (0, 1)]
