"""Answers under attack, in sealed kernels: nothing is paid but what was submitted and proved.

The divisors of 280 add up to 720.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

import repl_rl as rr

pytestmark = [pytest.mark.slow, pytest.mark.kernel]


def divisor_sum(number: int, answer: int) -> dict[str, str]:
    return {
        "family": "modular",
        "kind": "divisor_sum",
        "tier": "1",
        "numbers": str(number),
        "answer": str(answer),
    }


QUESTION = "Add up the divisors of n"
PROBLEM = rr.Problem(
    id="divisors", statement=QUESTION, meta=divisor_sum(280, 720), setup=("n = 280",)
)
RIGHT = "submit_final_answer(720)"


class Arena:
    """One env for all attacks; each gets a kernel of its own."""

    def __init__(self, loop: asyncio.Runner, env: rr.Env) -> None:
        self._loop, self._env = loop, env

    def play(self, *lines: str, problem: rr.Problem = PROBLEM) -> rr.Scored:
        """These lines, as far as the episode goes on, scored."""

        async def use() -> rr.Scored:
            episode = await self._env.episode(problem, seed=0)
            async with contextlib.aclosing(episode):
                for line in lines:
                    if episode.stop is None:
                        await episode.line(line)
                return await episode.score()

        return self._loop.run(use())


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with asyncio.Runner() as loop:
        settings = ["sandbox.standby=1", "sandbox.line_wall_s=20.0", "grading.deadline_s=20.0"]
        opened = rr.open_env("sympy-proofs", overrides=settings)
        env = loop.run(opened.__aenter__())
        try:
            yield Arena(loop, env)
        finally:
            loop.run(opened.__aexit__(None, None, None))


GRASP = (
    "import sys, json",
    "frame = sys._getframe()",
    "while 'asked' not in frame.f_locals: frame = frame.f_back",
    "",
    "write, number = frame.f_locals['send'], frame.f_locals['number']",
    "send = lambda body: write(len(body).to_bytes(4, 'big') + body)",
    "good = {'status': 'ok', 'head': '', 'tail': '', 'num_omitted': 0, 'error_type': None}",
    "forge = lambda value: send(json.dumps([frame.f_locals['number'], *good.values(), value])"
    ".encode())",
)
LIAR = (
    "class Liar(int):",
    "    __repr__ = __str__ = lambda self: 'True'",
    "    __eq__ = __le__ = __bool__ = lambda *_: True",
    "    __hash__ = int.__hash__",
    "",
)
PADDED: dict[str, tuple[str, ...]] = {
    "a value that lies about itself": (*LIAR, "submit_final_answer(Liar(720))"),
    "many values": ("submit_final_answer([0, 1, 720])",),
    "all small values": ("submit_final_answer(set(range(800)))",),
    "an alternative": (
        "from sympy import Eq, Or, Symbol",
        'submit_final_answer(Or(*[Eq(Symbol("a"), i) for i in range(800)]))',
    ),
    "a range": ("from sympy import Interval, oo", "submit_final_answer(Interval(-oo, oo))"),
    "a yes": ("submit_final_answer(True)",),
    "nothing": ("submit_final_answer(...)",),
    "the statement": (f'submit_final_answer("{QUESTION}")',),
    "the question as a value": (
        "from sympy import Symbol",
        'submit_final_answer(Symbol("divisor_sigma(280)"))',
    ),
    "a call as text": ('submit_final_answer("submit_final_answer(720)")',),
    "a value without end": ('submit_final_answer("720" * 10**6)',),
    "a tower": (
        "from sympy import Pow",
        "submit_final_answer(Pow(9, Pow(9, Pow(9, 9, evaluate=False), evaluate=False), "
        "evaluate=False))",
    ),
}


@pytest.mark.parametrize("attack", PADDED.values(), ids=PADDED)
def test_no_answer_is_paid_that_is_not_the_value_itself(
    arena: Arena, attack: tuple[str, ...]
) -> None:
    scored = arena.play(*attack)
    assert scored.verdict is None or not scored.verdict.is_solved
    assert (scored.reward.outcome_reward or 0.0) <= 0.0


@pytest.mark.parametrize("forged", ["720", "True", "[720]", "__import__('os').system('true')"])
def test_no_frame_lets_a_line_say_what_a_value_is(arena: Arena, forged: str) -> None:
    """No frame holds anything that would answer for the kernel: the honest answer behind it
    counts."""
    scored = arena.play(*GRASP, f"submit_final_answer(forge({forged!r}))", RIGHT)
    assert [str(line.outcome.kind) for line in scored.trajectory.lines][-2:] == [
        "name_error",
        "submitted",
    ]
    assert (scored.trajectory.submission, scored.reward.outcome_reward) == ("720", 1.0)


NOT_SUBMITTED: dict[str, tuple[str, ...]] = {
    "in exec": ("exec('submit_final_answer(720)')", "eval('submit_final_answer(720)')"),
    "in a function": ("f = lambda: submit_final_answer(720)", "f()"),
    "under another name": ("s = submit_final_answer", "s(720)"),
    "at exit": ("import atexit; atexit.register(lambda: submit_final_answer(720))", "exit()"),
    "from a thread": (
        "import threading; threading.Thread(target=lambda: submit_final_answer(720)).start()",
    ),
    "from a finaliser": (
        "class F: __del__ = lambda self: submit_final_answer(720)",
        "",
        "f = F(); del f",
    ),
    "from a hook": (
        "import sys; sys.displayhook = lambda value: submit_final_answer(720)",
        "1",
    ),
}


@pytest.mark.parametrize("attack", NOT_SUBMITTED.values(), ids=NOT_SUBMITTED)
def test_what_is_not_a_line_of_its_own_submits_nothing(
    arena: Arena, attack: tuple[str, ...]
) -> None:
    scored = arena.play(*attack)
    assert (scored.trajectory.submission, scored.verdict) == (None, None)
    assert scored.reward.outcome_reward == -0.6


@pytest.mark.parametrize(
    "bent",
    [
        ("submit_final_answer = lambda value: 720",),
        ("import builtins; builtins.submit_final_answer = lambda value: 720",),
        ("import sympy; sympy.Integer.__eq__ = sympy.Basic.__eq__ = lambda *_: True",),
        ("import sympy; sympy.simplify = lambda *_: sympy.Integer(0)",),
        ("import builtins; builtins.repr = lambda _: '720'",),
        ("import sys; sys.displayhook = lambda _: print(720)",),
    ],
)
@pytest.mark.parametrize("value", ["0", "sympify('0')", "True", "'720 or so'"])
def test_a_wrong_answer_stays_wrong_whatever_the_kernel_was_taught(
    arena: Arena, bent: tuple[str, ...], value: str
) -> None:
    scored = arena.play(*bent, f"submit_final_answer({value})")
    assert scored.trajectory.submission is not None
    assert scored.verdict is not None
    assert not scored.verdict.is_solved
    assert (scored.reward.outcome_reward or 0.0) <= 0.0


# What a kernel can find

SECRETS = tuple(int(digits * 6) for digits in ("70707070", "61616161", "53535353"))
HIDDEN = rr.Problem(
    id="hidden",
    statement="What is it?",
    meta={**divisor_sum(1, SECRETS[0]), "points": str(SECRETS[1]), "solution": str(SECRETS[2])},
)
# The digits are put together by the hunt itself, so that no source or constant of it is a find.
HUNT = (
    "import gc, sys",
    "needles = [chr(a) + chr(b) for a, b in ((55, 48), (54, 49), (53, 51))]",
    "needles = [str(needle) * 12 for needle in needles]",
    "def holds(value):",
    "    try: text = str(value) if isinstance(value, (str, bytes, int)) else ''",
    "    except ValueError: return False",
    "    return any(needle in text for needle in needles)",
    "",
    "def frames():",
    "    frame = sys._getframe()",
    "    while frame:",
    "        yield from list(frame.f_locals.values()) + list(frame.f_globals.values())",
    "        frame = frame.f_back",
    "",
    "below = [one for item in gc.get_objects() if item is not needles for one in "
    "gc.get_referents(item)]",
)


def found(scored: rr.Scored) -> str:
    return scored.trajectory.lines[-1].outcome.observation


@pytest.mark.parametrize(
    "where", ["below", "frames()", "map(repr, __import__('os').environ.items())"]
)
def test_no_search_of_the_kernel_finds_an_answer_or_what_grades_it(
    arena: Arena, where: str
) -> None:
    hunt = f"sum(holds(one) for one in {where})"
    assert found(arena.play(*HUNT, hunt, problem=HIDDEN)) == "0\n"


@pytest.mark.parametrize("where", ["below", "frames()"])
def test_the_search_would_find_what_is_there(arena: Arena, where: str) -> None:
    """The hunt again, after the policy has put one of the values into its own kernel."""
    hunt = f"sum(holds(one) for one in {where}) > 0"
    planted = "kept = [needles[1] + '.']; plain = kept[0]"
    assert found(arena.play(*HUNT[:3], planted, *HUNT[3:], hunt, problem=HIDDEN)) == "True\n"
