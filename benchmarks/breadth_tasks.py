"""Ten families of reasoning-gym with scripts that solve them: `breadth_tasks:families.lcm`.

    statement -> the lines that somebody would type -> a demonstration for a warm start

Problems, and the score that judges an answer, are the library's own. A script computes what is
asked for and submits the value; two families take what a person knows, legs and angles. Takes the
package `reasoning-gym`. Knows no model and no table.
"""

import random
import re
from collections.abc import Callable, Mapping
from functools import partial

from repl_rl import Problem
from repl_rl.config.sections import DataConfig
from repl_rl.rollout.sampler import fixed_script
from repl_rl.tasks.base import Script
from repl_rl.tasks.data.gym import GymTask

SUBMIT = "submit_final_answer(_)"


def chain_sum(statement: str) -> list[str]:
    return [statement.rpartition(": ")[2].rstrip(" ="), SUBMIT]


def count_bits(statement: str) -> list[str]:
    return [f"bin({_numbers(statement)[-1]}).count('1')", SUBMIT]


def fraction_simplification(statement: str) -> list[str]:
    above, below = _numbers(statement)
    return [f"Rational({above}, {below})", SUBMIT]


def lcm(statement: str) -> list[str]:
    return [f"ilcm({', '.join(_numbers(statement))})", SUBMIT]


def leg_counting(statement: str) -> list[str]:
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    found = re.findall(r"(\d+) ([a-z ]+?)s?(?=[,?])", statement)
    legs = [(count, ANIMALS.get(name, ANIMALS.get(f"{name}s"))) for count, name in found]
    return [" + ".join(f"{count}*{each}" for count, each in legs), SUBMIT]


def letter_counting(statement: str) -> list[str]:
    letter, text = re.findall(r'"(.*?)"', statement, re.DOTALL)
    return [f"{text!r}.lower().count({letter!r})", SUBMIT]


def prime_factorization(statement: str) -> list[str]:
    return [f"factorint({_numbers(statement)[0]}, multiple=True)", SUBMIT]


def simple_equations(statement: str) -> list[str]:
    left, right = statement.rpartition(": ")[2].split(" = ")
    name = re.findall(r"[a-z]", left)[0]
    return [
        f"{name} = symbols({name!r})",
        f"solve(Eq({left}, {right}), {name})",
        "submit_final_answer(_[0])",
    ]


def simple_geometry(statement: str) -> list[str]:
    sides = _numbers(statement)[0]
    angles = re.findall(r"(\d+)\.0", statement)
    return [f"180*({sides} - 2) - ({' + '.join(angles)})", SUBMIT]


def spell_backward(statement: str) -> list[str]:
    return [f"{statement.rpartition(': ')[2]!r}[::-1]", SUBMIT]


def _numbers(statement: str) -> list[str]:
    return re.findall(r"\d+", statement)


SCRIPTS: Mapping[str, Callable[[str], list[str]]] = {
    one.__name__: one
    for one in (
        *(chain_sum, count_bits, fraction_simplification, lcm, leg_counting, letter_counting),
        *(prime_factorization, simple_equations, simple_geometry, spell_backward),
    )
}
"""By family, from a statement to lines."""


class Family(GymTask):
    """A family whose problems somebody solves in a REPL."""

    def __init__(self, family: str) -> None:
        super().__init__(f"reasoning-gym:{family}", DataConfig())
        self.script = SCRIPTS[family]

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        return fixed_script(self.script(problem.statement))


class _Families:
    """`families.lcm()` is the task of that family."""

    def __getattr__(self, family: str) -> Callable[[], Family]:
        return partial(Family, family)


families = _Families()
