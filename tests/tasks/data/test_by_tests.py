"""The grader `tests`: what a function returns counts, and nothing that its code can pretend."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from repl_rl.config.sections import DataConfig
from repl_rl.grading.grader import Grader
from repl_rl.records import Split, Verdict, VerdictKind
from repl_rl.tasks.base import load_task
from repl_rl.tasks.data.graders import LIMITS, judged, read_tests
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Isolation

pytestmark = pytest.mark.slow

TESTS = ["assert double(2) == 4", "assert double('ab') == 'abab'", "assert double([]) == []"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("assert f(2) == 4", [["f(2)", "4"]]),
        ("assert f(g=[1]) == (1, 'a')\nassert h()", [["f(g=[1])", "(1, 'a')"], ["h()", "True"]]),
        ("assert not f(-1)", [["f(-1)", "False"]]),
    ],
)
def test_a_test_is_a_call_and_a_literal(source: str, found: list[list[str]]) -> None:
    assert json.loads(read_tests(source)) == found


@pytest.mark.parametrize(
    "source",
    [
        *("", "f(2)", "assert f(2) == g(3)", "assert f(2) < 3", "import os", "assert ("),
        # Whose comparison, and known value, would lie within the reach of what is submitted.
        *(
            "assert math.isclose(f(2), 4)",
            "assert all([f(2) == 4])",
            "assert isinstance(f(2), int)",
        ),
        *("assert is_same(f(2), [4]) == True", "assert not g(f(2))"),
    ],
)
def test_any_other_test_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_tests(source)


@pytest.mark.kernel
def test_the_function_is_called_in_a_kernel_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "code.jsonl"
    row = {"prompt": "Write double(x), twice x.", "test_list": TESTS}
    path.write_text(json.dumps(row))
    task, spec = load_task(str(path), DataConfig(grader="tests", held_out=0.0))
    (problem,) = task.problems(Split.TRAIN, seed=0)
    assert problem.statement.endswith("\nSubmit the source of the function, as a string.")
    sources = {
        "right": "def double(x):\n    return 2 * x",
        "wrong": "def double(x):\n    return x + x if x else 0",
        "equal to all": "class A:\n    __eq__ = lambda *_: True\ndef double(x):\n    return A()",
        "empty": "",
        "broken": "def double(x:",
        "hanging": "def double(x):\n    while True: pass",
        "reading": "def double(x):\n    return open('/etc/passwd').read()",
        "leaving": "import os\ndef double(x):\n    os._exit(0)",
        "left": "double = lambda x: left",
    }

    async def verdicts() -> dict[str, str]:
        async with Grader(deadline_s=20.0) as grader:
            found = {
                name: str((await grader.grade(spec, problem, repr(source))).kind)
                for name, source in sources.items()
            }
            name = await grader.grade(spec, problem, "<function double at 0x7f00>")
            return found | {"a name": str(name.kind)}

    assert asyncio.run(verdicts()) == {
        **dict.fromkeys(sources, "wrong"),
        "right": "proved",
        "a name": "malformed",
    }


CONTAINERS = """
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import make_dataclass
Pair, Record = namedtuple("Pair", "x y"), make_dataclass("Record", ["x", "y"])
class Equal(dict):
    __eq__ = lambda *_: True
list = 7
"""


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("value", "known", "is_right"),
    [
        ("Counter('aab')", "{'a': 2, 'b': 1}", True),
        ("OrderedDict(b=1, a=2)", "{'a': 2, 'b': 1}", True),
        ("[defaultdict(int, a=2)]", "[{'a': 2}]", True),
        ("{'p': Pair(1, 2)}", "{'p': (1, 2)}", True),
        ("frozenset('a')", "{'a'}", True),
        ("Counter('aab')", "{'a': 2}", False),
        ("Counter(a=0)", "{}", False),
        ("Equal(a=1)", "{'a': 2}", False),
        ("Pair(1, 2)", "[1, 2]", False),
        ("Record(1, 2)", "(1, 2)", False),
        ("deque([1, 2])", "[1, 2]", False),
    ],
)
def test_what_python_calls_equal_to_a_literal_is_right(
    value: str, known: str, is_right: bool
) -> None:
    async def verdict() -> Verdict:
        async with KernelPool(LIMITS, preload=(), standby=0, isolation=Isolation.AUTO) as pool:
            kernel = await pool.acquire(seed=0)
            source = f"{CONTAINERS}def f():\n    return {value}"
            found = await judged(kernel, source, [("f()", known)])
            await kernel.aclose()
            return found

    assert asyncio.run(verdict()).is_solved is is_right


@pytest.mark.kernel
def test_what_lasts_longer_than_a_verdict_may_has_a_price(tmp_path: Path) -> None:
    """Nobody has written the function, so an empty text says that the grader is not to blame."""
    tests = [f"assert double({n}) == {2 * n}" for n in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "Write double(x).", "tests": tests}) + "\n")
    task, spec = load_task(str(path), DataConfig(grader="tests", held_out=0.0))
    (problem,) = task.problems(Split.TRAIN, seed=0)

    async def verdict() -> Verdict:
        async with Grader(deadline_s=4.0) as grader:
            source = "import time\ndef double(x):\n    time.sleep(1.5)\n    return 2 * x"
            return await grader.grade(spec, problem, repr(source))

    found = asyncio.run(verdict())
    assert (found.kind, found.grader_error) == (VerdictKind.MALFORMED, None)
