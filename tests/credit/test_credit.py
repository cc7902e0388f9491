"""A credit of somebody's own: what it is asked, and what it may return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import repl_rl as rr
from documents import ROOT, programs
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.advantages import (
    advantage_rows,
    credit_class,
    load_credit,
    rolled_out,
    weight_rows,
)
from repl_rl.credit.base import Outcome
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, OutcomeKind, Scored, Trajectory

OK = OutcomeKind.OK_OUTPUT


@pytest.fixture
def two(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> list[Scored]:
    """Lines `a` and `b` with `1` between them: tokens 2, 4 (injected), 2; and a line of 2."""
    first = make_trajectory([("a\n", OK, "1>>>"), ("b\n", OK, None)], sibling_index=0)
    other = make_trajectory([("c\n", OK, None)], sibling_index=1)
    return [make_scored(first, 1.0), make_scored(other, 0.0)]


def returning(rows: Any) -> rr.Credit:
    class Given(rr.Credit):
        def advantages(self, siblings: Sequence[Scored], scale: float) -> Any:
            return rows

    return Given(GRPOConfig())


def test_its_tokens_are_taken_as_they_are(two: list[Scored]) -> None:
    rows = [[1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, -4.0], [0.5, 0.5]]
    assert advantage_rows(two, returning(rows)) == rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        *(
            (
                rows,
                f"Given.advantages returned {found} numbers for siblings of [8, 2] tokens; "
                f"expected a row for each, with one number a token",
            )
            for rows, found in (
                ([[0.0] * 8], "[8]"),
                ([[0.0] * 7, [0.0] * 2], "[7, 2]"),
                ([[0.0] * 8, None], "[8, None]"),
                (None, "[None]"),
            )
        ),
        (
            [[0.0] * 8, [0.0, float("nan")]],
            "Given returned the advantage nan; expected finite numbers",
        ),
        ([[0.0] * 8, [0.0, None]], "Given returned the advantage None; expected finite numbers"),
        ([[0.0] * 8, [0.0, "1"]], "Given returned the advantage '1'; expected finite numbers"),
        (
            [[0.0, 0.0, 0.1, *[0.0] * 5], [0.0] * 2],
            "Given returned an advantage at a token that was injected or copied; expected 0 where "
            "own_mask is False",
        ),
    ],
)
def test_rows_that_no_update_can_take_are_refused_by_the_name_of_the_class(
    rows: Any, message: str, two: list[Scored]
) -> None:
    with pytest.raises(ConfigError) as refused:
        advantage_rows(two, returning(rows))
    assert str(refused.value) == message


def test_lines_that_are_not_the_siblings_are_refused(two: list[Scored]) -> None:
    class Short(rr.Credit):
        def line_advantages(self, siblings: Sequence[Scored], scale: float) -> list[list[float]]:
            return [[1.0] for _ in siblings]

    with pytest.raises(
        ConfigError,
        match=r"Short.line_advantages returned \[1, 1\] numbers for siblings of \[2, 1\] lines",
    ):
        advantage_rows(two, Short(GRPOConfig()))


@pytest.mark.parametrize(
    ("method", "rows", "sizes"),
    [
        ("line_credit", [[0.0, 0.0]], "[2]"),
        ("line_credit", None, "[None]"),
        ("line_weights", [[1.0, 1.0], []], "[2, 0]"),
    ],
)
def test_credit_and_weights_of_lines_that_are_not_the_siblings_are_refused(
    method: str, rows: Any, sizes: str, two: list[Scored]
) -> None:
    odd = type("Odd", (rr.Credit,), {method: lambda credit, given: rows})(GRPOConfig())
    with pytest.raises(ConfigError) as refused:
        (advantage_rows if method == "line_credit" else weight_rows)(two, odd)
    assert str(refused.value) == (
        f"Odd.{method} returned {sizes} numbers for siblings of [2, 1] lines; expected a row for "
        f"each, with one number a line"
    )


def test_trajectories_that_are_not_the_attempts_are_refused(two: list[Scored]) -> None:
    class First(rr.Credit):
        def roll_out(self, attempts: Sequence[Attempt], run: Any) -> list[Scored]:
            scored: list[Scored] = run(attempts)
            return scored[:1]

    sums = rr.Problem(id="sum", statement="What is 1 + 1?")
    attempts = [Attempt(problem=sums, group_index=0, sibling_index=k, seed=k) for k in range(2)]
    assert rolled_out(rr.Credit(GRPOConfig()), attempts, lambda attempts, more=None: two) == two
    with pytest.raises(ConfigError) as refused:
        rolled_out(First(GRPOConfig()), attempts, lambda attempts, more=None: two)
    assert str(refused.value) == (
        "First.roll_out returned trajectories of the groups [0] for attempts of [0, 0]; expected "
        "one for each, in their order"
    )


def test_a_credit_is_found_by_its_name_or_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert credit_class("outcome") is Outcome
    assert credit_class("repl_rl.credit.base:Outcome") is Outcome
    point = EntryPoint("plain", "repl_rl.credit.base:Outcome", "repl_rl.credits")
    monkeypatch.setattr("repl_rl.base.plugins.entry_points", lambda group: [point])
    assert credit_class("plain") is Outcome
    with pytest.raises(ConfigError, match=r"unknown credit 'plian'; did you mean 'plain'\?"):
        credit_class("plian")


@pytest.mark.parametrize("thing", [len, 3, int, rr.Credit(GRPOConfig())])
def test_what_is_no_class_of_credit_is_refused(monkeypatch: pytest.MonkeyPatch, thing: Any) -> None:
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(thing=thing))
    with pytest.raises(ConfigError) as refused:
        load_credit(GRPOConfig(credit="mine:thing"))
    assert str(refused.value) == (
        "grpo.credit = 'mine:thing' is no credit; expected a class derived from repl_rl.Credit"
    )


ODD = """
import repl_rl as rr

class Bare(rr.Credit):
    def advantages(self): ...

class Stem(rr.Credit):
    def roll_out(self, attempts): ...

class Unnamed(rr.Credit):
    def check(self, config): ...

class Five(rr.Credit):
    line_credit = 5

class Unasked(rr.Credit):
    def __init__(self): ...

class Wide(rr.Credit):
    def metrics(self, *given, **named): ...

    @staticmethod
    def line_credit(lines, power=2): ...
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Bare",
            "Bare.advantages: too many positional arguments; expected a method of (siblings, "
            "scale)",
        ),
        (
            "Stem",
            "Stem.roll_out: too many positional arguments; expected a method of (attempts, run)",
        ),
        (
            "Unnamed",
            "Unnamed.check: got an unexpected keyword argument 'samples_lines'; expected a method "
            "of (config, samples_lines)",
        ),
        (
            "Five",
            "Five.line_credit: 5 is not a callable object; expected a method of (lines_GL)",
        ),
        (
            "Unasked",
            "odd_credits:Unasked(config): TypeError: Unasked.__init__() takes 1 positional "
            "argument but 2 were given",
        ),
    ],
)
def test_a_method_that_cannot_be_called_is_refused_before_a_model_is_loaded(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "odd_credits.py").write_text(ODD)
    code, _, err = call("train", "--model", ".", "--set", f"grpo.credit=odd_credits:{name}")
    assert (code, err) == (2, f"repl-rl: {message}\n")


def test_a_method_may_take_more_than_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_credits.py").write_text(ODD)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(load_credit(GRPOConfig(credit="odd_credits:Wide"))).__name__ == "Wide"


def test_one_that_rolls_out_in_its_own_way_is_known_by_it() -> None:
    class First(rr.Credit):
        def roll_out(self, attempts: Sequence[Attempt], run: Any) -> list[Scored]:
            (only,) = run(attempts[:1])
            return [only] * len(attempts)

    assert (First(GRPOConfig()).grows, load_credit(GRPOConfig()).grows) == (True, False)


GOLDEN = """\
set: grpo.credit="os:abort"

=== one
verdict: proved

>>> submit_final_answer(1)
<- submitted
"""


def test_a_golden_file_names_no_credit_of_its_own(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "a.repl").write_text(GOLDEN)
    code, _, err = call("reward", "explain", str(tmp_path / "a.repl"))
    assert (code, err) == (
        2,
        "repl-rl: a.repl names code of its own; if you trust it: --set grpo.credit=os:abort\n",
    )


def test_the_credit_of_the_page_fades_towards_the_first_line(
    two: list[Scored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes 1 and 0, each 0.5 from their mean; a line before the last has 0.9 of it."""
    (program,) = [one for one in programs(ROOT / "docs" / "rewards.md") if one.title == "fading.py"]
    (tmp_path / "fading.py").write_text(program.text)
    monkeypatch.syspath_prepend(str(tmp_path))
    credit = load_credit(GRPOConfig(credit="fading:Fading", scale="none"))
    first, other = advantage_rows(two, credit)
    assert first == pytest.approx([0.45, 0.45, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5])
    assert other == pytest.approx([-0.5, -0.5])
    assert not credit.reads_line_rewards
