"""The best constant: the most that one answer earns which does not look at the problem.

    task, spec -> constants, and answers of other problems -> share solved, mean reward -> Finding

Knows tasks, the grader's process and the default reward. Does not know models or kernels.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import outcome_reward
from repl_rl.errors import GraderError
from repl_rl.grading.grader import Grader
from repl_rl.tasks.base import ReferencedTask, Task
from repl_rl.types import Finding, Problem, Split, Verdict

NON_VALUES = (
    "(sin(1)**2+cos(1)**2-1)/(sin(2)**2+cos(2)**2-1)**2",
    "1/(sqrt(5+2*sqrt(6))-sqrt(2)-sqrt(3))",
    "log(sin(1)**2+cos(1)**2-1)",
)
"""0/0, 1/0 and the logarithm of 0, which sympy does not see."""
CONSTANTS = (
    *("0", "1", "2", "3", "4", "5", "6", "7", "10", "12", "-1", "1/2", "pi", "x", "n", "oo", "nan"),
    *("True", "False", "'A'", "'B'", "'C'", "'D'", "'yes'", "'no'", "EmptySet", "[]"),
    *("[0]", "[1]", "[0, 1]", "[1, 2]", "(0, 0)", "(1, 1)", "[True]", "[True, False]"),
    *("[True, 3]", "[3, True]", "[True, True, 3]", "[3, 3, True]", "[False, False, False]"),
    *NON_VALUES,
    f"({NON_VALUES[0]}, {NON_VALUES[0]})",
    f"[{NON_VALUES[0]}]",
)
"""Submissions that somebody would make without a look at the problem."""
NUM_PROBLEMS = 40
FEWEST = 10
"""Problems, below which a share says nothing."""
NUM_COMMON = 5
"""Answers of the task's own that are tried: those of most of its problems."""
TIME_S = 15.0
"""For all verdicts; what is late is not looked at."""
MARGIN = 0.05
"""The share of problems by which a constant may be better than `chance`, as 2 is on word problems
with small answers."""
NUM_ERRORS = 2.0
"""Standard errors above `chance` that are no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """Verdicts on one constant."""

    answer: str
    verdicts: Sequence[Verdict]
    """For each problem, with its chance."""

    @property
    def reward(self) -> float:
        """The mean of the default reward; an undecided answer has none, which counts as 0."""
        rewards = (outcome_reward(verdict, RewardConfig()) for verdict in self.verdicts)
        return math.fsum(reward or 0.0 for reward in rewards) / len(self.verdicts)

    @property
    def solved(self) -> int:
        return sum(verdict.is_solved for verdict in self.verdicts)

    @property
    def chance(self) -> float:
        return math.fsum(verdict.chance for verdict in self.verdicts) / len(self.verdicts)

    @property
    def beats_chance(self) -> bool:
        """By more than accident and more than is worth a policy's while."""
        count, chance = len(self.verdicts), self.chance
        error = math.sqrt(max(chance, 1 / count) * (1 - chance) / count)
        return self.solved / count > chance + max(MARGIN, NUM_ERRORS * error)


async def best_constant(task: Task, spec: str, *, seed: int) -> Finding | None:
    """None where there are too few problems to tell, or no grader."""
    problems = list(itertools.islice(task.problems(Split.TRAIN, seed=seed), NUM_PROBLEMS))
    if len(problems) < FEWEST:
        return None
    try:
        best = max(await _earned(task, spec, problems), key=lambda each: each.reward)
    except GraderError:
        return None  # another finding says so
    if len(best.verdicts) < FEWEST:
        return None
    text = (
        f"{best.answer[:40]} solves {best.solved} of {len(best.verdicts)} problems and earns "
        f"{best.reward:+.2f}; `chance` says {best.chance:.0%}"
    )
    return Finding(name="constant", text=text, passed=not best.beats_chance)


async def _earned(task: Task, spec: str, problems: Sequence[Problem]) -> list[Earned]:
    """Problem by problem, until time is up."""
    verdicts: dict[str, list[Verdict]] = {answer: [] for answer in _candidates(task, problems)}
    started = time.monotonic()
    async with Grader() as grader:
        for problem in problems:
            if time.monotonic() - started > TIME_S:
                break
            for answer, found in verdicts.items():
                verdict = await grader.grade(spec, problem, answer)
                found.append(replace(verdict, chance=problem.chance))
    return [Earned(answer=answer, verdicts=found) for answer, found in verdicts.items()]


def _candidates(task: Task, problems: Iterable[Problem]) -> Mapping[str, None]:
    """Constants, and the task's own answers that are right most often, each once."""
    own: Counter[str] = Counter()
    if isinstance(task, ReferencedTask):
        own.update(filter(None, (task.reference(problem) for problem in problems)))
    common = [answer for answer, count in own.most_common(NUM_COMMON) if count > 1]
    return dict.fromkeys([*CONSTANTS, *common])
