"""Variables of a real kernel, told whatever the lines before have done to it."""

import asyncio
from collections.abc import Callable

import pytest

from fixture_types import MakeScene, Record
from repl_rl.viewer.replay.live import Live
from repl_sandbox.host.pool import KernelPool

pytestmark = pytest.mark.kernel

Variables = tuple[dict[str, tuple[str, str]], str]
"""The (type, value) of each by its name, and what was printed."""
Told = Callable[..., Variables]


@pytest.fixture
def told(
    replay_loop: asyncio.Runner, real_kernels: KernelPool, record: Record, a_scene: MakeScene
) -> Told:
    """`told(*lines)`: the variables after these lines in a real kernel, and what `after` prints."""

    def run(*lines: str, after: str = "0") -> Variables:
        async def inside() -> Variables:
            scored = await record(lines, real_kernels)
            async with Live(scored, a_scene(), real_kernels) as live:
                await live.run_to(lambda line: False)
                found = await live.variables()
                shown = await live.edit(after)
                assert shown is not None
                return {one.name: (one.type, one.value) for one in found}, shown.outcome.observation

        return replay_loop.run(inside())

    return run


def test_names_of_lines_and_of_the_prompt_are_told(told: Told) -> None:
    found, shown = told(" import math\n", " y = x + 1\n", " a, *b = 1, 2, 3\n", after="_ + 0")
    assert found == {
        "x": ("Symbol", "x"),
        "y": ("Add", "x + 1"),
        "a": ("int", "1"),
        "b": ("list", "[2, 3]"),
    }
    assert "NameError" in shown  # the question has displayed nothing


def test_functions_and_what_blocks_bind_are_told_and_what_functions_bind_is_not(told: Told) -> None:
    lines = (" def f(u):\n", "     w = u\n", "     return w\n", "\n")
    found, _ = told(*lines, " if True: k = 1\n", " del k\n", " (m := 4)\n")
    assert set(found) == {"x", "f", "m"}


def test_names_in_any_script_are_told(told: Told) -> None:
    # A ligature: Python binds the two letters that it stands for.
    found, _ = told(" \u03b1 = 1\n", " \ufb01 = 2\n")
    assert (found["\u03b1"], found["fi"]) == (("int", "1"), ("int", "2"))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("1/0", "(its repr raises ZeroDivisionError)"),
        ("exit()", "(its repr raises SystemExit)"),
        ("'b' * 1000000", "b" * 64),
        ("'\\x1b[31mred\\u202e'", "red"),
        ("print('hello') or 'h'", "h"),
        ("'\\U000e0001' * 64", "\U000e0001" * 64),
        ("5", "(its repr raises TypeError)"),
    ],
)
def test_a_hostile_repr_spoils_no_other_value(told: Told, body: str, value: str) -> None:
    trap = f" T = type('Trap', (), {{'__repr__': lambda self: {body}}})\n"
    found, shown = told(trap, " q = [T()][0]\n", " z = 26\n", after="z")
    assert (found["q"], found["z"]) == (("Trap", value), ("int", "26"))
    assert shown == "26\n"


def test_a_repr_without_end_is_interrupted_and_the_others_are_told(told: Told) -> None:
    trap = " T = type('Trap', (), {'__repr__': lambda self: [0 for _ in iter(int, 1)]})\n"
    found, shown = told(trap, " q = [T()][0]\n", " z = 26\n", after="z")
    assert found["q"] == ("Trap", "(its repr raises KeyboardInterrupt)")
    assert (found["z"], shown) == (("int", "26"), "26\n")


def test_a_repr_that_kills_the_kernel_leaves_one_that_has_run_the_same_lines(told: Told) -> None:
    trap = " T = type('Trap', (), {'__repr__': lambda self: __import__('os')._exit(0)})\n"
    found, shown = told(trap, " q = [T()][0]\n", " z = 26\n", after="z")
    assert found["q"][0] == "Trap"
    assert found["z"] == ("int", "(not shown: asking for all values ended the kernel)")
    assert shown == "26\n"


def test_lines_may_call_something_else_by_a_name_of_the_question(told: Told) -> None:
    found, _ = told(" repr, type, globals = 1, 2, 3\n", " z = 26\n")
    assert (found["repr"], found["z"]) == (("int", "1"), ("int", "26"))
