"""Laws of what may differ from run to run: by the clock, by chance, by what depends on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repl_rl.rollout.variation import (
    CHANCE,
    CLOCK,
    COMPUTED,
    PLACE,
    SYSTEM,
    THREADS,
    UNREAD,
    USAGE,
)
from repl_rl.rollout.volatile import volatile_lines


def last(text: str) -> str | None:
    """Of lines that ` | ` separates, why the last may differ; `~` stands for a newline in one."""
    return volatile_lines([line.replace("~", "\n") for line in text.split(" | ")])[-1]


def after(why: str, line: int = 1) -> str:
    return f"depends on a line that {why} (line {line})"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # The clock, by every name that it has.
        ("import time | time.time()", CLOCK),
        ("import time | time.perf_counter_ns()", CLOCK),
        ("import time as t | t.monotonic()", CLOCK),
        ("from time import time | time()", CLOCK),
        ("from time import perf_counter as now | print(now())", CLOCK),
        ("from time import * | process_time()", CLOCK),
        ("import time | time.strftime('%H')", CLOCK),
        ("import time | time.gmtime()", CLOCK),
        ("import time | time.gmtime(None)", CLOCK),
        ("import datetime | datetime.datetime.now()", CLOCK),
        ("import datetime as dt | dt.date.today().year", CLOCK),
        ("from datetime import datetime | f'{datetime.utcnow():%H}'", CLOCK),
        ("from datetime import * | date.today()", CLOCK),
        ("import timeit | timeit.timeit('1+1', number=10)", CLOCK),
        ("from timeit import default_timer | default_timer()", CLOCK),
        ("import os | os.times()", CLOCK),
        ("__import__('time').time()", CLOCK),
        ("import importlib | importlib.import_module('time').time()", CLOCK),
        ("import time | getattr(time, 'ti' + 'me')()", CLOCK),
        ("import time | clock = time.time | clock()", CLOCK),
        ("import time | list(map(lambda _: time.time(), range(2)))", CLOCK),
        ("import time | [f() for f in (time.time,)]", CLOCK),
        ("import time | x = 1; print(time.time())", CLOCK),
        ("import time | for i in range(2):~    print(time.time())~", CLOCK),
        ("import time | eval('time.time()')", CLOCK),
        ("import time | exec('t = time.time(); print(t)')", CLOCK),
        # Chance that no seed governs.
        ("import secrets | secrets.token_hex()", CHANCE),
        ("import uuid | uuid.uuid4()", CHANCE),
        ("import os | os.urandom(4)", CHANCE),
        ("from random import SystemRandom | SystemRandom().random()", CHANCE),
        ("import random | random.seed()", CHANCE),
        ("import random | random.seed(None)", CHANCE),
        ("import random | random.Random().random()", CHANCE),
        ("import random | rng = random.Random() | rng.random()", after(CHANCE, 2)),
        ("import random | random.seed() | random.random()", after(CHANCE, 2)),
        ("from random import * | seed() | x = randint(1, 6) | x", after(CHANCE, 2)),
        ("from sympy import * | randMatrix(3)", CHANCE),
        # The place of things, the process, the system.
        ("id(x)", PLACE),
        ("hex(id([]))", PLACE),
        ("hash(object())", PLACE),
        ("hash(None)", PLACE),
        ("hash(int)", PLACE),
        ("class A: pass~ | hash(A())", PLACE),
        ("import sys | sys.getrefcount(x)", USAGE),
        ("import gc | gc.collect()", USAGE),
        ("import tracemalloc | tracemalloc.get_traced_memory()", USAGE),
        ("import os | os.getpid()", SYSTEM),
        ("open('/proc/self/status').read()", SYSTEM),
        ("open('/dev/urandom', 'rb').read(2)", SYSTEM),
        ("import threading | threading.Thread(target=f).start()", THREADS),
        # Code that is not known beforehand, once a line has named what would make it vary.
        ("import time | eval(input())", COMPUTED),
        ("import time | getattr(time, name)()", COMPUTED),
        ("import time | vars(time)['time']()", COMPUTED),
        ("import time | time.__dict__['time']()", COMPUTED),
        ("names = ['time'] | __import__(names[0]).time()", COMPUTED),
    ],
)
def test_a_source_of_variation_is_named(text: str, why: str) -> None:
    assert last(text) == why


@pytest.mark.parametrize(
    "text",
    [
        # What is named, but not asked.
        "import time",
        "from time import time",
        "import time, random, secrets, uuid, os",
        "import time | time",
        "import time | time.time",
        "import time | clock = time.time",
        "import time | 1 + 1",
        "import time | time.sleep(0)",
        "import time | time.gmtime(0)",
        "import time | time.strftime('%H', time.gmtime(0))",
        "import datetime | datetime.date(2020, 1, 1).year",
        "import datetime | datetime.datetime(2020, 1, 1) - datetime.datetime(2019, 1, 1)",
        # What has the same name and is something else.
        "time = Symbol('time') | time * 2",
        "import time | time = 3 | time",
        "from time import time | time = 5*h | print(time)",
        "time()",
        "id = 7 | id",
        "for id in range(3):~    print(id)~",
        "now = 3 | now",
        "x.time()",
        "[id for id in range(3)]",
        "print('time.time()')",
        "def f(time):~    return time.time~ | f(3)",
        # What a seed governs, or what is shown as an ordinal.
        "import random | random.random()",
        "import random | random.seed(3) | random.random()",
        "import random | random.seed() | random.seed(3) | random.random()",
        "import random | random.Random(3).random()",
        "import random | random.Random(x=3).random()",
        "from random import shuffle | x = [1, 2] | shuffle(x) | x",
        "from sympy import * | randMatrix(3, seed=1)",
        "object()",
        "lambda x: x",
        "hash('abc')",
        "hash((1, 2))",
        "{'a', 'b'}",
        # Code that is known, or that nothing before it hints to vary.
        "eval('1 + 1')",
        "exec('x = 1') | x",
        "exec(f'x{i} = {i}')",
        "__import__('math').pi",
        "import time | eval('1 + 1')",
        # What does not run.
        "import time | time.time(",
        "x = \0time.time()",
        "",
    ],
)
def test_what_replays_exactly_has_no_excuse(text: str) -> None:
    assert last(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "{t} | x = a",
        "{t} | a += 1",
        "{t} | b = a + 1",
        "{t} | b = a | c = b | c",
        "{t} | [a for _ in range(2)]",
        "{t} | [a for a in a]",
        "{t} | [x for x in range(3) if x < a]",
        "{t} | f'{{a}}'",
        "{t} | submit_final_answer(a)",
        "{t} | L = [] | L.append(a) | L",
        "{t} | d = {{}} | d['k'] = a | d",
        "{t} | x.y.z = a | x",
        "{t} | L = [] | L[0].append(a) | L",
        "{t} | (b := a) | b",
        "{t} | x, y = a, 1 | y",
        "{t} | n = 0 | n += a | n",
        "{t} | a, b = b, a | a",
        "{t} | def f():~    return a~ | f()",
        "{t} | f = lambda: a | f()",
        "{t} | def f(x=a):~    return x~ | f()",
        "{t} | class A:~    x = a~ | A.x",
        "{t} | if a > 3:~    n = 1~ | n",
        "{t} | n = 0 | while n < a:~    n += 1~ | n",
        "{t} | n = 0 | for i in range(9):~    if i > a: break~    n += 1~ | n",
        "{t} | for i in range(3):~    if i: print(b)~    b = a~",
        "{t} | for x in a:~    pass~ | x",
        "{t} | with f(a) as g:~    pass~ | g",
        "{t} | try:~    g(a)~except ValueError:~    n = 1~ | n",
        "{t} | match a:~    case n:~        pass~ | n",
        "{t} | if b:~    a = 1~ | a",
        "{t} | globals()['a']",
        "{t} | exec('b = a') | b",
        "{t} | import random | random.seed(a) | random.random()",
        "{t} | L = [] | def f():~    L.append(a)~ | f() | L",
        "{t} | def f():~    global n~    n = a~ | f() | n",
        "a | a",
        "{t} | a | _",
        "{t} | a | print(1) | _ + 1",
    ],
)
def test_what_follows_from_a_volatile_value_depends_on_its_line(text: str) -> None:
    lines = text.format(t="a = id(0)") if "{t}" in text else "a = id(0) | " + text
    assert last(lines) == after(PLACE)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 | a",
        "del a | a",
        "import math as a | a.pi",
        "def a():~    return 1~ | a()",
        "for a in range(3):~    print(a)~",
        "for i in range(3):~    a = i~    print(a)~",
        "b = a | b = 2 | b",
        "a | 1 + 1 | _",
        "f = lambda a: a | f(3)",
        "def f(a):~    return a~ | f(3)",
        "[a for a in range(3)]",
        "b = 1 | print(a, b) | b",
        "def f():~    a = 3~    return a~ | f()",
        "x.a",
        "f(a=1)",
        "lambda: a",
        "with open('f') as g:~    n = 1~ | n",
    ],
)
def test_what_does_not_read_a_volatile_value_has_no_excuse(text: str) -> None:
    assert last("a = id(0) | " + text) is None


def test_each_line_has_its_own_reason() -> None:
    assert volatile_lines(
        ["import time", "start = time.time()", "x = 2", "time.time() - start", "x"]
    ) == [None, CLOCK, None, CLOCK, None]


def test_a_definition_is_no_call() -> None:
    sources = ["import time", "def f():\n    return time.time()\n", "f", "f()"]
    assert volatile_lines(sources) == [None, None, None, after(CLOCK, 2)]


def test_a_function_reads_what_a_name_means_where_it_is_called() -> None:
    sources = ["def f():\n    return a\n", "f()", "a = id(0)", "f()", "a = 1", "f()"]
    assert volatile_lines(sources) == [None, None, PLACE, after(PLACE, 3), None, None]


def test_functions_that_call_each_other_are_followed() -> None:
    sources = [
        "def f(n):\n    return g(n)\n",
        "def g(n):\n    return f(n - 1) if n else id(n)\n",
        "f(3)",
    ]
    assert volatile_lines(sources)[-1] == after(PLACE, 2)


def test_an_import_within_a_function_counts_there() -> None:
    sources = ["def f():\n    import time\n    return time.time()\n", "f()", "time.time()"]
    assert volatile_lines(sources) == [None, after(CLOCK, 1), None]


def test_an_open_statement_is_judged_at_its_last_line_alone() -> None:
    sources = [
        "for i in [1]:",
        "for i in [1]:\n    print(id(i))",
        "for i in [1]:\n    print(id(i))\n",
    ]
    assert volatile_lines(sources) == [None, None, PLACE]


def test_an_open_statement_that_never_ran_taints_nothing() -> None:
    sources = ["if 1: a = id(0)", "if 1: a = id(0)\nb = = 1", "a"]
    assert volatile_lines(sources)[-1] is None


def test_several_statements_in_one_source_run_though_one_is_wrong() -> None:
    assert volatile_lines(["a = id(0)\nb = = 1", "a"]) == [PLACE, after(PLACE)]


def test_what_the_setup_binds_is_known_to_the_lines() -> None:
    assert volatile_lines(["t()", "x"], setup=["from time import time as t", "x = t()"]) == [
        CLOCK,
        "depends on a line that reads the clock (setup)",
    ]


def test_code_that_is_put_together_taints_the_names_it_assigns() -> None:
    sources = ["import time", "exec(f'start{1} = a = ' + call)", "a", "b"]
    assert volatile_lines(sources) == [None, COMPUTED, after(COMPUTED, 2), None]


@pytest.mark.parametrize(
    "source",
    [
        "(" * 5000,
        "[" * 150 + "id(0)",
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
        "s = 'exec(s)'; exec(s)",
        "\n".join("\t" * n + "while 1:" for n in range(90)) + " x",
    ],
)
def test_a_hostile_source_is_neither_run_nor_excused(source: str) -> None:
    assert volatile_lines([source, "1 + 1"]) == [None, None]


def test_texts_that_run_texts_come_to_an_end() -> None:
    sources = ["s0 = '1'", *(f"s{n} = 'exec(s{n - 1}); exec(s{n - 1})'" for n in range(1, 40))]
    assert volatile_lines([*sources, "exec(s39)"]) == [None] * 41


def test_a_text_that_doubles_with_each_line_is_let_go() -> None:
    assert volatile_lines(["s = 'id(0) '", *["s = s + s"] * 100, "eval(s)"])[-1] is None


def test_functions_that_texts_call_again_and_again_are_let_go() -> None:
    """2,048 calls of a function of 2,048 names: such a line is searched for names."""
    sources = ["a = 'a,'", "t = 'f();'", *["a = a + a; t = t + t"] * 11]
    sources += ["exec('f = lambda: [' + a + '0]')", "exec(t)", "exec(t); time.time()"]
    assert volatile_lines(sources) == [*[None] * 15, UNREAD]


def test_what_stands_within_many_comprehensions_is_read_once() -> None:
    """To look into it twice at each depth would take 2 ** 60."""
    source = "time.time()"
    for _ in range(60):
        source = f"[x for x in {source}]"
    assert volatile_lines(["import time", source, source.replace("time.time()", "[1]")]) == [
        None,
        CLOCK,
        None,
    ]


def test_a_source_too_long_to_be_read_is_searched_for_names() -> None:
    tail = "+ 1" * 10_000
    sources = ["a = id(0)", f"b = a {tail}", "b", f"time.time() {tail}", f"x {tail}"]
    assert volatile_lines(sources) == [PLACE, after(PLACE), after(PLACE), UNREAD, None]


@given(st.lists(st.text(alphabet="ab_=:.()[] \n\tidfor", max_size=40), max_size=8))
def test_every_line_gets_an_answer(sources: list[str]) -> None:
    assert len(volatile_lines(sources)) == len(sources)


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(source: str) -> None:
    assert len(volatile_lines([source])) == 1
