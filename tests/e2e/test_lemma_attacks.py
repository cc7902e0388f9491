"""Lemmas and answers under attack, in sealed kernels: nothing is paid but what was proved and used.

The divisors of 85 add up to 108, those of 108 to 280, those of 280 to 720.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

import repl_rl as rr
from repl_rl.types import Lemma

pytestmark = pytest.mark.kernel


def divisor_sum(number: int, answer: int) -> dict[str, str]:
    return {
        "family": "modular",
        "kind": "divisor_sum",
        "tier": "1",
        "numbers": str(number),
        "answer": str(answer),
    }


QUESTION = "Add up the divisors of n, three times over"
PROBLEM = rr.Problem(
    id="chain",
    statement=QUESTION,
    meta=divisor_sum(280, 720),
    setup=("n = 85",),
    lemmas=(
        Lemma(name="a", meta=divisor_sum(85, 108)),
        Lemma(name="b", uses=("a",), meta=divisor_sum(108, 280)),
    ),
)
RIGHT, WRONG = "submit_final_answer(720)", "submit_final_answer(0)"
HONEST = ('have("a", 108)', 'have("b", 280)', RIGHT)


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


def kinds(scored: rr.Scored) -> list[str]:
    return [str(line.outcome.kind) for line in scored.trajectory.lines]


def paid(scored: rr.Scored) -> dict[str, float]:
    """Sources of the lines that earned something, and what."""
    earned = zip(scored.trajectory.lines, scored.reward.line_rewards, strict=True)
    return {line.source.strip(): round(reward, 6) for line, reward in earned if reward > 0}


def test_an_honest_chain_is_paid_line_by_line(arena: Arena) -> None:
    scored = arena.play("from sympy import divisor_sigma as s", 'have("a", s(n))', *HONEST[1:])
    assert paid(scored) == {'have("a", s(n))': 0.15, 'have("b", 280)': 0.15}
    assert scored.reward.outcome_reward == 1.0


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
ATTACKS: dict[str, tuple[str, ...]] = {
    # What the name means in the kernel does not matter.
    "have is another function": ("have = lambda *_: None", 'have("a", 0)', 'have("b", 0)'),
    "have is built in": (
        "import builtins; builtins.have = print",
        'have("a", 0)',
        'have("a", 108)',
    ),
    "the stub is bent": (
        "have.__code__ = (lambda *_: 0).__code__",
        'have("a", 1)',
        'have("a", 108)',
    ),
    "sympy is patched": (
        "import sympy; sympy.simplify = sympy.Eq = lambda *_, **__: sympy.true",
        "sympy.Integer.__eq__ = lambda *_: True",
        'have("a", sympy.Integer(3))',
        'have("b", sympy.simplify(3))',
    ),
    "a value lies about itself": (*LIAR, 'have("a", Liar(1))', 'have("b", Liar(280))'),
    "the name is computed": (
        'name = "a"',
        "have(name, 108)",
        'have(f"a", 108)',
        'have("a" + "", 108)',
    ),
    # What is not a line of its own claims nothing.
    "a call in exec": ("exec('have(\"a\", 108)')", "eval('have(\"a\", 108)')"),
    "a call in a function": ('f = lambda: have("a", 108)', "f()"),
    "another name for it": ("h = have", 'h("a", 108)', 'globals()["have"]("a", 108)'),
    "a call that is assigned": ('x = have("a", 108)', 'have("a", 108), 1', 'print(have("a", 108))'),
    "two on a line": ('have("a", 108); have("b", 280)',),
    "a loop of claims": ("for i in range(300): have('a', i)", ""),
    "a call at exit": ("import atexit; atexit.register(lambda: have('a', 108))",),
    "a call from a thread": (
        "import threading; threading.Thread(target=lambda: have('a', 108)).start()",
    ),
    "a call from a finaliser": (
        "class F: __del__ = lambda self: have('a', 108)",
        "",
        "f = F(); del f",
    ),
    "a call in a comment": ('# have("a", 108)', '"""', 'have("a", 108)', '"""'),
    # A name has one claim, and that is graded as it stands.
    "spraying a name": ('have("a", 0)', 'have("a", 1)', 'have("a", 108)'),
    "spraying in one value": ('have("a", [0, 1, 108])', 'have("b", set(range(300)))'),
    "an alternative": (
        "from sympy import Eq, Or, Symbol",
        'have("a", Or(*[Eq(Symbol("a"), i) for i in range(300)]))',
    ),
    "a range": (
        "from sympy import Interval, oo",
        'have("a", Interval(-oo, oo))',
        'have("b", range(300))',
    ),
    "a yes": ('have("a", True)', 'have("b", True)'),
    "nothing": ('have("a", None)', 'have("b", ...)'),
    "the statement": (f'have("a", "{QUESTION}")', f'have("b", "{QUESTION}")'),
    "the question as a value": (
        "from sympy import Function, Symbol",
        'have("a", Symbol("divisor_sigma(85)"))',
        'have("b", Function("divisor_sigma")(108))',
    ),
    "a call as text": ('have("a", "have(\'a\', 108)")', 'have("b", "submit_final_answer(280)")'),
    "the answer under all names": ('have("a", 720)', 'have("b", 720)'),
    "the other lemma's value": ('have("a", 280)', 'have("b", 108)'),
    "a lemma nobody asked for": ('have("c", 108)', 'have("", 108)', 'have("a ", 108)'),
    "a value without end": ('have("a", "108" * 10**6)', 'have("b", [280] * 10**6)'),
    "a tower": (
        "from sympy import Pow",
        'have("a", Pow(9, Pow(9, Pow(9, 9, evaluate=False), evaluate=False), evaluate=False))',
    ),
    # What goes against the order of a proof is not used.
    "the premise after the conclusion": ('have("b", 280)', 'have("a", 108)'),
    "a premise alone": ('have("a", 108)',),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_line_is_paid_for_what_was_not_proved_and_used(
    arena: Arena, attack: tuple[str, ...]
) -> None:
    """The answer is wrong, so only a proved `b` that comes after `a` could use anything."""
    scored = arena.play(*attack, WRONG)
    assert paid(scored) == {}
    assert scored.reward.outcome_reward == 0.0


@pytest.mark.parametrize("forged", ["108", "True", "[108]", "__import__('os').system('true')"])
def test_no_frame_lets_a_line_say_what_a_value_is(arena: Arena, forged: str) -> None:
    """What would answer for the kernel is in no frame: the honest claim behind it counts."""
    scored = arena.play(*GRASP, f'have("b", forge({forged!r}))', *HONEST[1:])
    assert [claim.value for claim in scored.trajectory.claims] == ["280"]
    assert paid(scored) == {'have("b", 280)': 0.15}


@pytest.mark.parametrize(
    "first",
    ['have("a", 108)', 'have("b", 280)', 'have("a", 0)'],
)
def test_lemmas_without_an_answer_are_worth_nothing(arena: Arena, first: str) -> None:
    scored = arena.play(first, 'have("b", 280)')
    assert (scored.verdict, paid(scored)) == (None, {})
    assert scored.reward.outcome_reward == -0.6


def test_nothing_is_claimed_after_the_answer(arena: Arena) -> None:
    scored = arena.play('have("b", 280)', RIGHT, 'have("a", 108)')
    assert kinds(scored) == ["claimed", "submitted"]
    assert paid(scored) == {'have("b", 280)': 0.15}


def test_a_claim_gets_silence_whether_it_is_right_or_wrong(arena: Arena) -> None:
    """No output, no variable, no `_`: nothing in the kernel tells right from wrong."""
    seen = ("sorted(globals())", "'_' in globals()", "n")
    right, wrong = (
        [line.outcome.observation for line in arena.play(claim, *seen).trajectory.lines]
        for claim in ('have("a", 108)', 'have("a", 107)')
    )
    assert right == wrong
    assert right[0] == ""
    assert right[2] == "False\n"


# Answers

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
    "by a claim": ('have("a", submit_final_answer(720))',),
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
    meta=divisor_sum(1, SECRETS[0]),
    lemmas=(
        Lemma(name="a", meta=divisor_sum(1, SECRETS[1])),
        Lemma(name="b", uses=("a",), meta=divisor_sum(1, SECRETS[2])),
    ),
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
def test_no_search_of_the_kernel_finds_an_answer_or_the_value_of_a_lemma(
    arena: Arena, where: str
) -> None:
    hunt = f"sum(holds(one) for one in {where})"
    assert found(arena.play(*HUNT, hunt, problem=HIDDEN)) == "0\n"


@pytest.mark.parametrize("where", ["below", "frames()"])
def test_the_search_would_find_what_is_there(arena: Arena, where: str) -> None:
    """The same hunt, where the policy has put one of the values into its own kernel."""
    hunt = f"sum(holds(one) for one in {where}) > 0"
    planted = "kept = [needles[1] + '.']; plain = kept[0]"
    assert found(arena.play(*HUNT[:3], planted, *HUNT[3:], hunt, problem=HIDDEN)) == "True\n"
