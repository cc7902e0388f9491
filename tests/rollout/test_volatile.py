"""Laws of the words behind which nothing begins: clocks, draws, and what else varies."""

from __future__ import annotations

import ast
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repl_rl.records import LineOutcome, OutcomeKind
from repl_rl.rollout.prefixes import (
    kernel_sources,
    naming_lines,
    nodes_of,
    volatile_lines,
)
from repl_rl.tasks.base import load_task, make_setup
from repl_rl.transcript.format import PYTHON


def named(source: str) -> str | None:
    (found,) = naming_lines([source])
    return found


@pytest.mark.parametrize(
    ("source", "why"),
    [
        # As a module, under any name that it is given.
        ("import time", "a clock: time"),
        ("import time as t", "a clock: time"),
        ("from time import perf_counter as now", "a clock: time"),
        ("from time import *", "a clock: time"),
        ("import os.path as p", "the system: os"),
        ("import x, datetime as d", "a clock: datetime"),
        ("from concurrent.futures import ThreadPoolExecutor", "threads: concurrent"),
        # As a name of something else, which nobody follows.
        ("time = Symbol('t')", "a clock: time"),
        ("x.time()", "a clock: time"),
        ("f(seed=3)", "a draw without a seed: seed"),
        ("lambda id: 1", "a place in memory: id"),
        ("def hash():\n    pass\n", "a place in memory: hash"),
        ("match x:\n    case A() as time:\n        pass\n", "a clock: time"),
        # As a name that begins with an underscore, or is spelled otherwise.
        ("random._urandom(4)", "a draw without a seed: _urandom"),
        ("import _datetime", "a clock: _datetime"),
        ("\uff54ime.ns()", "a clock: time"),
        ("exec('\uff54ime.ns()')", "a clock: time"),
        ("exec('\\x74ime.ns()')", "a clock: time"),
        # In a text.
        ("eval('time.time()')", "a clock: time"),
        ("getattr(m, 'time')", "a clock: time"),
        ("f'{x:time}'", "a clock: time"),
        ("open('/proc/self/status').read()", "the system: /proc"),
        ("open('/dev/urandom', 'rb')", "a draw without a seed: urandom"),
        # Draws that the kernel's seed does not govern.
        ("random.seed()", "a draw without a seed: seed"),
        ("random.Random()", "a draw without a seed: Random"),
        ("numpy.random.default_rng()", "a draw without a seed: default_rng"),
        ("randMatrix(3)", "a draw without a seed: randMatrix"),
        # What no name in the source shows.
        ("__import__('ti' + 'me').ns()", "a module by its text: __import__"),
    ],
)
def test_the_first_listed_word_of_a_line_is_named(source: str, why: str) -> None:
    assert named(source) == f"names {why}"


@pytest.mark.parametrize(
    "source",
    [
        "1 + 1",
        "import random",
        "random.random()",
        "from sympy import *",
        "times = 3",
        "runtime = ident(timer)",
        "# the first time",
        "x = 1  # the first time",
        # What does not run.
        "The time is up.",
        "time.time(",
        "x = \0time.time()",
        "",
    ],
)
def test_other_words_comments_and_what_does_not_parse_name_nothing(source: str) -> None:
    assert named(source) is None


def test_everything_behind_a_line_that_names_one_may_differ() -> None:
    """`t = time()` prints nothing, and the lines behind it have another state."""
    assert volatile_lines(["x = 1", "from time import time as t", "y = t()", "id(y)", "x"]) == [
        None,
        "names a clock: time",
        "runs after line 2, which names a clock: time",
        "names a place in memory: id",
        "runs after line 2, which names a clock: time",
    ]


def test_what_the_setup_names_stands_before_all_lines() -> None:
    assert volatile_lines(["t()", "seed()"], setup=["x = 1", "from time import time as t"]) == [
        "runs after a setup that names a clock: time",
        "names a draw without a seed: seed",
    ]


def test_what_kernels_of_the_own_tasks_begin_with_names_nothing() -> None:
    """Else nobody could ever begin behind a line."""
    setup = make_setup(load_task("sympy-proofs")[0], PYTHON)
    assert (len(setup), set(naming_lines(setup))) == (3, {None})


# Sources


def test_an_open_statement_is_judged_at_its_last_line() -> None:
    sources = ["for i in [1]:", "for i in [1]:\n    id(i)", "for i in [1]:\n    id(i)\n"]
    assert naming_lines(sources) == [None, None, "names a place in memory: id"]


def test_an_open_statement_comes_with_the_lines_before_it() -> None:
    """The third line would be a comment by itself."""
    lines = [
        SimpleNamespace(source=f"{line}\n", outcome=LineOutcome(kind=kind))
        for line, kind in (
            (' s = """', OutcomeKind.INCOMPLETE),
            ('#""" + time()', OutcomeKind.OK_SILENT),
            (" # time", OutcomeKind.COMMENT),
        )
    ]
    sources = kernel_sources(lines)
    assert sources == ['s = """', 's = """\n#""" + time()', "# time"]
    assert naming_lines(sources) == [None, "names a clock: time", None]


def test_several_statements_in_one_source_run_though_one_is_wrong() -> None:
    assert named("a = id(0)\nb = = 1") == "names a place in memory: id"


def test_an_open_statement_that_never_ran_names_nothing() -> None:
    assert named("if 1: a = id(0)\nb = = 1") is None


def test_statements_of_a_source_that_does_not_parse_are_those_of_its_lines() -> None:
    found = nodes_of("a = 1\nb = = 1\nif c: d = 1\ne") or []
    assert [ast.unparse(one) for one in found if isinstance(one, ast.stmt)] == ["a = 1", "e"]


@pytest.mark.parametrize("source", ["x" * 16385, "#" * 16385])
def test_a_source_too_long_to_be_parsed_is_said_to_be(source: str) -> None:
    assert nodes_of(source) is None


@pytest.mark.parametrize("tail", ["+ 1" * 10_000, "# " + "a" * 20_000])
def test_a_source_too_long_to_be_parsed_is_searched_for_words(tail: str) -> None:
    assert named(f"x = time() {tail}") == "names a clock: time"
    assert named(f"\uff54ime() {tail}") == "names a clock: time"
    assert named(f"x = timer() {tail}") is None


@pytest.mark.parametrize(
    "source",
    [
        "(" * 5000,
        "[" * 150 + "1",
        "-" * 16000 + "1",
        "not " * 4000 + "1",
        "f" * 100_000,
        "x = '" + "a" * 100_000 + "'",
        "lambda:" * 2000 + "1",
        "x" + "()" * 8000,
        "x" + ".a" * 8000,
        "1" + "+1" * 8000,
        "\ud800",
        "\0",
        "9" * 5000,
        "'\\d' is 1",
        "\n".join("\t" * n + "while 1:" for n in range(90)) + " x",
    ],
)
def test_a_hostile_source_is_neither_run_nor_slow(source: str) -> None:
    started = time.monotonic()
    assert named(source) is None
    assert time.monotonic() - started < 5


@given(st.lists(st.text(alphabet="ab_=:.()[] \n\tidfor", max_size=40), max_size=8))
def test_every_line_gets_an_answer(sources: list[str]) -> None:
    assert len(volatile_lines(sources)) == len(sources)


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(source: str) -> None:
    assert len(volatile_lines([source])) == 1
