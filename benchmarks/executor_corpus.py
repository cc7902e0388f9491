"""The lines that `executors.py` asks of every executor: scripts of sympy-proofs, and faults.

Played by the interpreter itself, so each line has what CPython shows of it. Knows the task and the
interpreter. Does not know other executors, nor what is measured.
"""

import codeop
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from executor_kinds import DEADLINE_S, Run, interpreter

SHARES = {"loop": 0.005, "slow": 0.01, "error": 0.05}
FAULTS = {
    "loop": ("while True: pass\n",),
    "slow": ("for end in [process_time() + 0.2]:\n    while process_time() < end: pass\n",),
    "error": (
        "undefined + 1",
        "1/0",
        "solve(x**2 - 4, x))",
        "sympify('2 +')",
        "Matrix([[1, 2], [3, 4]]).inverse()",
        "integrate(x**2, 'x', 0, 1, 2)",
        "[3, 4, 5][7]",
        "int('x')",
    ),
}
KEEP = "base = dict(globals())"
RESET = (
    "gone = [globals().pop(name) for name in {*globals()} - {*base, 'base'}], "
    "globals().update(base), vars(__import__('builtins')).pop('_', None)"
)
"""Gives a process that has run KEEP the names of a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    source: str
    kind: str = "plain"
    """Or a key of FAULTS."""
    shown: str = ""
    """By the interpreter itself."""


LOOP = Line(source=FAULTS["loop"][0], kind="loop")


async def make_corpus(num_trajectories: int, limit_s: float) -> list[list[Line]]:
    """Played by the interpreter itself, before and after the faults are put in."""
    rng = random.Random(0)
    async with interpreter(DEADLINE_S) as run:
        await run(KEEP)
        plain = await demonstrations(run, num_trajectories, rng)
    async with interpreter(limit_s) as run:
        await run(KEEP)
        whole = []
        for lines in with_faults(plain, rng):
            await run(RESET)
            whole.append([replace(line, shown=await run(line.source)) for line in lines])
        return whole


async def demonstrations(run: Run, count: int, rng: random.Random) -> list[list[Line]]:
    from repl_rl.records import Problem, Split
    from repl_rl.tasks.base import Choice
    from repl_rl.tasks.sympy_proofs import SHORT, SympyProofs

    task = SympyProofs(Choice(families=SHORT.families, tiers=(1, 2)))

    async def play(problem: Problem) -> list[Line]:
        await run(RESET)
        lines = [Line(source=source, shown=await run(source)) for source in problem.setup]
        script, source, shown = task.demonstrate(problem, rng), "", None
        with suppress(StopIteration):
            while True:
                line = next(script) if shown is None else script.send(shown)
                source, shown = f"{source}\n{line}" if source else line, ""
                if source.startswith(("#", "submit_final_answer")):
                    source = ""
                elif not is_open(source):
                    shown = await run(source)
                    lines.append(Line(source=source, shown=shown))
                    source = ""
        return lines

    played: list[list[Line]] = []
    problems = task.problems(Split.TRAIN, seed=0)
    while len(played) < count:
        lines = await play(next(problems))
        if lines and not any("Error" in line.shown for line in lines):
            played.append(lines)
    return played


def is_open(source: str) -> bool:
    """Whether the interpreter would wait for more."""
    try:
        return codeop.compile_command(source) is None
    except (SyntaxError, ValueError, OverflowError):
        return False


def with_faults(plain: Sequence[list[Line]], rng: random.Random) -> list[list[Line]]:
    """The same with lines of FAULTS before others, as many as SHARES says of the whole."""
    whole = [list(lines) for lines in plain]
    total = sum(map(len, whole)) / (1 - sum(SHARES.values()))
    for kind, share in SHARES.items():
        count = max(1, round(share * total))
        for turn in range(count):
            part = whole[len(whole) * turn // count : len(whole) * (turn + 1) // count]
            lines = rng.choice(part)
            at = rng.randrange(len(lines))
            lines.insert(at, Line(source=rng.choice(FAULTS[kind]), kind=kind))
    return whole
