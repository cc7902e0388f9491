"""Groups that begin behind lines of a script that solved their problem: which and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from repl_rl.config.resolve import resolve
from repl_rl.config.sections import SamplingConfig
from repl_rl.errors import ConfigError
from repl_rl.records import (
    Attempt,
    Branch,
    Origin,
    Problem,
    Reward,
    Scored,
    Split,
    Stem,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.rollout.sampler import ScriptSampler, fixed_script
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.resume import Begun
from repl_rl.tasks.base import Script
from repl_rl.training.evaluate import held_out_attempts
from repl_rl.training.solved_prefixes import (
    SolvedPrefixes,
    check_rows,
    check_solvable,
    open_prefixes,
    run_as_one,
)
from repl_rl.training.steps import ProblemSequence
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update.grpo import rollout_rows
from repl_rl.update.ranks import Ranks
from repl_sandbox.types import ExecStatus, Execution
from script_runtime import ScriptRuntime

pytestmark = pytest.mark.slow

ANSWERS = {
    "2": Execution(status=ExecStatus.OK, output="", value="2"),
    "3": Execution(status=ExecStatus.OK, output="", value="3"),
}
RIGHT = ("a = 1", "b = 1", "a + b", "submit_final_answer(2)")
WRONG = ("a = 1", "submit_final_answer(3)")


class Sums:
    """Problems that are all solved by 2, and the scripts that a test gives."""

    name = "sums"
    prompt = "{{problem}}"

    def __init__(self, *scripts: Sequence[str]) -> None:
        self.scripts = iter(scripts)

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        yield from map(problem, range(9))

    def demonstrate(self, problem: Problem, rng: object) -> Script:
        return fixed_script(next(self.scripts))

    def grade(self, problem: Problem, submission: str) -> Verdict:
        return Verdict(kind=VerdictKind.PROVED if submission == "2" else VerdictKind.WRONG)


class Judge:
    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        return Sums().grade(problem, submission)


def problem(number: int) -> Problem:
    return Problem(id=str(number), statement=f"Problem {number}")


def reward(trajectory: Trajectory, verdict: Verdict | None) -> Reward:
    is_right = verdict is not None and verdict.is_solved
    return Reward(
        line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=1.0 if is_right else 0.0
    )


def scripts_on(plan: Plan) -> Any:
    """Return a runtime whose kernels know `ANSWERS`."""
    return ScriptRuntime(plan, ANSWERS, judge=Judge(), reward=reward)


def prefixes(*scripts: Sequence[str], share: float = 1.0) -> SolvedPrefixes:
    plan = make_plan(resolve(flags={"model": "m"}, overrides=[f"grpo.prefix_share={share}"]))
    runtime = scripts_on(replace(plan, task=Sums(*scripts)))
    return SolvedPrefixes(runtime)


def written(number: int, lines: Sequence[str], *, group: int | None = None) -> Scored:
    """The trajectory of these lines on a problem."""
    attempt = Attempt(
        problem=problem(number),
        group_index=number if group is None else group,
        sibling_index=0,
        seed=5,
    )
    sampler = ScriptSampler(
        lambda _: fixed_script(lines),
        Encoding(PYTHON, ByteCodec()),
        SamplingConfig(),
        context_tokens=4096,
    )
    plan = make_plan(resolve(flags={"model": "m"}))
    runtime = scripts_on(replace(plan, task=Sums()))
    (scored,) = runtime.sampling_by(sampler).run([attempt])
    made: Scored = scored
    return made


def sources(stem: Stem) -> list[str]:
    return [line.source for line in stem.trajectory.lines[: stem.num_lines]]


PLAIN = (None, None)
"""The kind of a problem without a family and a tier."""
BEHIND_ONE = Branch(sibling_index=None, num_lines=1, seed=3)


def group(number: int, *is_right: bool, branch: Branch | None = BEHIND_ONE) -> list[Scored]:
    """Siblings that are right or wrong, and begin behind a line."""
    made = [written(number, RIGHT if one else WRONG) for one in is_right]
    return [
        replace(one, trajectory=replace(one.trajectory, sibling_index=at, branch=branch))
        for at, one in enumerate(made)
    ]


def test_a_quarter_of_a_script_is_left_at_first_and_at_least_its_last_line() -> None:
    assert sources(prefixes(RIGHT).stems({0: problem(0)})[0]) == [
        " a = 1\n",
        " b = 1\n",
        " a + b\n",
    ]
    found = prefixes(RIGHT)
    found.left[PLAIN] = 0.5
    assert sources(found.stems({0: problem(0)})[0]) == [" a = 1\n", " b = 1\n"]
    found = prefixes(RIGHT)
    found.left[PLAIN] = 0.0
    assert found.stems({0: problem(0)})[0].num_lines == 3


def test_a_fraction_of_a_line_is_rounded_by_a_draw() -> None:
    """2.4 lines of 4 are left: 2 lines in 60 % of groups, and else 3."""
    found = prefixes(*[RIGHT] * 200)
    found.left[PLAIN] = 0.6
    stems = found.stems({number: problem(number) for number in range(200)})
    given = [stem.num_lines for stem in stems.values()]
    assert set(given) == {1, 2}
    assert 100 < given.count(2) < 140


def test_a_script_of_two_lines_gives_its_first_until_all_is_left_to_write() -> None:
    """Rounded by a draw alone, 1.8 lines would leave both in 80 % of groups."""
    found = prefixes(*[("a = 2", "submit_final_answer(2)")] * 50)
    found.left[PLAIN] = 0.9
    stems = found.stems({number: problem(number) for number in range(50)})
    assert [stem.num_lines for stem in stems.values()] == [1] * 50


def test_a_problem_without_a_script_begins_at_its_prompt() -> None:
    assert prefixes((), (), (), ()).stems({0: problem(0)}) == {}
    assert prefixes((), RIGHT).stems({0: problem(0)})[0].num_lines == 3


def test_a_script_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = prefixes(RIGHT)

    def demonstrate(problem: Problem, rng: object) -> Script:
        raise KeyError(problem.id)
        yield ""

    monkeypatch.setattr(found._plan.task, "demonstrate", demonstrate)
    with pytest.raises(ConfigError, match=r"KeyError: '0'"):
        found.stems({0: problem(0)})


def test_nothing_is_given_where_all_lines_are_left_to_write() -> None:
    found = prefixes(RIGHT)
    found.left[PLAIN] = 1.0
    assert found.stems({0: problem(0)}) == {}


def test_scripts_that_fail_are_tried_four_times_and_then_the_group_begins_at_its_prompt() -> None:
    assert prefixes(WRONG, WRONG, WRONG, RIGHT).stems({0: problem(0)})[0].num_lines == 3
    assert prefixes(WRONG, WRONG, WRONG, WRONG, RIGHT).stems({0: problem(0)}) == {}


def test_the_latest_success_of_the_run_comes_before_the_scripts_of_the_task() -> None:
    longer = ("a = 0", *RIGHT)
    found = prefixes(RIGHT)
    found.learn([written(0, RIGHT, group=7)])
    found.learn([written(0, longer, group=8), written(0, WRONG, group=8)])
    found.left[PLAIN] = 0.4
    found.agree({0: problem(0)})
    stem = found.stems({0: problem(0)})[0]
    assert sources(stem) == [" a = 0\n", " a = 1\n", " b = 1\n"]
    assert not stem.is_sibling


def test_all_ranks_begin_groups_by_what_the_first_one_has_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second rank has seen no row: it gets the first one's share and the success on its own."""
    parts: list[Sequence[Any]] = [(), ()]
    barrier = Barrier(2, timeout=30)

    class Two(Ranks):
        def gather(self, rows: Sequence[Any]) -> list[Any]:
            parts[self.rank] = rows
            barrier.wait()
            found = [*parts[0], *parts[1]]
            barrier.wait()  # before the next rows
            return found

    ranks = [prefixes(), prefixes()]
    for number, found in enumerate(ranks):
        monkeypatch.setattr(found._runtime, "ranks", Two(rank=number, world=2))
    ranks[0].learn([*group(0, True, True), *group(1, True, True)])
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: one[1].agree({one[0]: problem(one[0])}), enumerate(ranks)))
    stems = [found.stems({number: problem(number)}) for number, found in enumerate(ranks)]
    assert [found.left_of(problem(5)) for found in ranks] == [0.30, 0.30]
    assert [stem[number].trajectory.problem_id for number, stem in enumerate(stems)] == ["0", "1"]


def test_a_success_on_another_problem_of_the_same_name_is_not_used() -> None:
    found = prefixes(WRONG, WRONG, WRONG, WRONG)
    found.learn([written(0, RIGHT)])
    other = Problem(id="0", statement="Another question")
    found.agree({0: other})
    assert found.stems({0: other}) == {}


@pytest.mark.parametrize(
    ("lines", "behind"),
    [
        (("a = 1", "import time", "a + b", "submit_final_answer(2)"), 1),
        (("id(1)", "b = 1", "a + b", "submit_final_answer(2)"), None),
    ],
)
def test_nothing_begins_behind_a_clock_or_a_draw(lines: Sequence[str], behind: int | None) -> None:
    stems = prefixes(lines).stems({0: problem(0)})
    assert (stems[0].num_lines if stems else None) == behind


def test_nothing_begins_inside_an_open_statement() -> None:
    found = prefixes(("a = 1", "if a:", "    b = 1", "", "submit_final_answer(2)"))
    found.left[PLAIN] = 0.5  # of 5 lines 2 are left: 3 are given, and the third is inside the block
    assert found.stems({0: problem(0)})[0].num_lines == 1


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ([(True, True, True, True)], 0.30),
        ([(False, False, False, False)], 0.20),
        ([(True, True, True, False)], 0.25),  # 0.75 is not above it
        ([(True, False, False, False)], 0.25),
        ([(True, True), (False, False)], 0.25),
        ([(True, True), (True, False)], 0.275),
    ],
)
def test_success_of_groups_moves_their_beginnings_back(
    groups: Sequence[Sequence[bool]], left: float
) -> None:
    found = prefixes()
    found.learn([one for at, rights in enumerate(groups) for one in group(at, *rights)])
    assert found.left_of(problem(0)) == pytest.approx(left)


def test_each_family_and_tier_has_a_share_of_its_own() -> None:
    """One kind succeeds and one fails: 0.25 + 0.05 and 0.25 - 0.05, and a third stays at 0.25."""
    easy = {"family": "sums", "tier": "1"}
    kinds = easy, {**easy, "tier": "2"}, {"family": "roots", "tier": "1"}
    found = prefixes(*[RIGHT] * 2)
    rows = [
        replace(one, problem=replace(one.problem, meta=meta))
        for number, meta in enumerate(kinds[:2])
        for one in group(number, number == 0, number == 0)
    ]
    found.learn(rows)
    problems = {at: replace(problem(at), meta=meta) for at, meta in enumerate(kinds)}
    assert [found.left_of(one) for one in problems.values()] == pytest.approx([0.30, 0.20, 0.25])
    assert found.metrics(rows)["prefix/left"] == pytest.approx(0.25)
    found.left[("sums", "1")] = 1.0
    assert list(found.stems({0: problems[0], 1: problems[1]})) == [1]


def test_an_answer_without_a_verdict_moves_nothing() -> None:
    found = prefixes()
    right, wrong = group(0, True, False)
    ungraded = replace(wrong, reward=replace(wrong.reward, outcome_reward=None))
    found.learn([right, ungraded])  # one of one, and not one of two
    assert found.left_of(problem(0)) == pytest.approx(0.30)
    found.learn([ungraded, ungraded])
    assert found.left_of(problem(0)) == pytest.approx(0.30)


def test_parts_of_a_move_add_up_to_the_whole_script() -> None:
    """Three of four groups are solved, which moves by 0.0375: 20 steps lead from 0.25 to 1.

    Their sum in floats is less than that by 4e-16.
    """
    found = prefixes()
    step = [one for at in range(4) for one in group(at, at < 3, True)]
    for _ in range(20):
        found.learn(step)
    assert found.left_of(problem(0)) == 1.0


def test_groups_from_the_prompt_move_nothing_but_where_all_is_left_to_write() -> None:
    found = prefixes()
    found.learn(group(0, False, False, branch=None))
    assert found.left_of(problem(0)) == 0.25
    found.left[PLAIN] = 1.0
    found.learn(group(1, False, False, branch=None))
    assert found.left_of(problem(0)) == pytest.approx(0.95)
    found = prefixes(share=0.0)
    found.left[PLAIN] = 1.0
    found.learn(group(2, False, False, branch=None))  # a group that is not chosen
    assert found.left_of(problem(0)) == 1.0


def test_a_share_of_the_numbers_is_chosen_whatever_stands_beside_them() -> None:
    found = prefixes(share=0.5)
    chosen = [number for number in range(1000) if found._is_chosen(number)]
    assert 450 < len(chosen) < 550
    every = prefixes(*[RIGHT] * 8, share=0.5)
    together = every.stems({number: problem(number) for number in range(8)})
    assert list(together) == [number for number in chosen if number < 8]


def test_a_run_that_goes_on_begins_groups_where_it_would_have(tmp_path: Path) -> None:
    steps = [group(at, True, at % 3 != 0) for at in range(6)]
    whole = prefixes()
    folder = RunFolder(tmp_path / "run")
    folder.write_config(
        Origin(config="", setup=(), tokenizer=None, isolation="none", versions={}),
        policy="m",
        device="cpu",
    )
    for at, rows in enumerate(steps):
        whole.learn(rows)
        folder.append_trajectories(f"step-{at:06d}", rows)
    folder.append_trajectories("eval-000000", group(8, True, True))
    again = open_prefixes(whole._runtime, folder)
    assert again is not None
    assert again.left == whole.left
    assert again._solved == whole._solved
    assert "8" not in again._solved


def test_what_is_copied_is_neither_trained_nor_counted() -> None:
    solved = written(0, RIGHT)
    cut = solved.trajectory.lines[2].start
    begun = replace(
        solved,
        trajectory=replace(solved.trajectory, branch=replace(BEHIND_ONE, num_lines=2)),
    )
    (mask,) = rollout_rows([begun])["env_mask"]
    sampled = [int(one) for one in solved.trajectory.loss_mask]
    assert sum(sampled[:cut]) == len(" a = 1\n b = 1\n")
    assert mask == [0] * cut + sampled[cut:]
    assert begun.trajectory.num_sampled == len(" a + b\n submit_final_answer(2)\n")


def test_where_one_sibling_loses_its_prefix_all_of_its_group_begin_at_the_prompt() -> None:
    stem = Stem(trajectory=written(0, RIGHT).trajectory, num_lines=2, is_sibling=False)
    attempts = [
        Attempt(problem=problem(g), group_index=g, sibling_index=i, seed=10 * g + i, stem=stem)
        for g in (0, 1)
        for i in (0, 1)
    ]
    calls: list[list[Attempt]] = []

    def run(attempts: Sequence[Attempt], *, more: object = None) -> list[Scored]:
        calls.append(list(attempts))
        return [ran(one, loses=one.seed == 1) for one in attempts]

    def ran(attempt: Attempt, *, loses: bool) -> Scored:
        branch = None if attempt.stem is None or loses else BEHIND_ONE
        (made,) = group(attempt.group_index, True, branch=branch)
        trajectory = replace(made.trajectory, sibling_index=attempt.sibling_index)
        return replace(made, trajectory=replace(trajectory, seed=attempt.seed))

    made = run_as_one(run, attempts)
    assert [(one.trajectory.seed, bool(one.trajectory.branch)) for one in made] == [
        (0, False),
        (1, False),
        (10, True),
        (11, True),
    ]
    assert [len(one) for one in calls] == [4, 2]
    assert [one.stem for one in calls[1]] == [None, None]


def test_groups_from_the_prompt_may_grow() -> None:
    attempts = [Attempt(problem=problem(0), group_index=0, sibling_index=0, seed=0)]

    def run(attempts: Sequence[Attempt], *, more: object = None) -> list[Scored]:
        return group(0, True, False)

    assert len(run_as_one(run, attempts)) == 2


def test_a_measurement_begins_at_its_prompts() -> None:
    attempts = held_out_attempts(Sums(), count=4, seed=0, samples=2)
    assert {one.stem for one in attempts} == {None}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["grpo.credit=tree", "grpo.branching=[2, 4]"], "another grpo.credit than 'tree'"),
        (["sampling.max_think_tokens=8", "transcript=chat"], "sampling.max_think_tokens = 0"),
    ],
)
def test_settings_under_which_no_group_could_begin_behind_a_line_are_refused(
    overrides: Sequence[str], expected: str
) -> None:
    config = resolve(flags={"model": "m"}, overrides=["grpo.prefix_share=0.5", *overrides])
    with pytest.raises(ConfigError, match=f"grpo.prefix_share = 0.5 needs {expected}"):
        make_plan(config, to_train=True)
    assert make_plan(config)


def test_a_setup_behind_which_nothing_begins_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noting.py").write_text(
        "from repl_rl.tasks.sympy_proofs import SympyProofs\n"
        "class Noting(SympyProofs):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.prompt = 'import os\\n' + self.prompt\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = resolve(
        flags={"model": "m", "task": "noting:Noting"}, overrides=["grpo.prefix_share=0.5"]
    )
    expected = "each line runs after a setup that names the system: os"
    with pytest.raises(ConfigError, match=f"needs another setup in .*: here {expected}"):
        make_plan(config, to_train=True)


@pytest.mark.parametrize(
    ("grpo", "step", "lacking"),
    [
        ([], 3, None),
        ([], 4, "step-000003"),
        (["grpo.updates_per_rollout=2"], 4, None),
        (["grpo.updates_per_rollout=2"], 6, "step-000004"),
        (["grpo.prefix_share=0"], 4, None),
    ],
)
def test_a_run_that_lacks_rows_by_which_it_would_begin_is_refused(
    grpo: list[str], step: int, lacking: str | None, tmp_path: Path
) -> None:
    rows = tmp_path / "trajectories"
    rows.mkdir()
    for kept in range(3):
        (rows / f"step-{kept:06d}.jsonl").touch()
    plan = make_plan(resolve(flags={"model": "m"}, overrides=["grpo.prefix_share=0.5", *grpo]))
    run = Begun(run=tmp_path, checkpoint=tmp_path / f"checkpoint-{step}", policy="m")
    if lacking is None:
        check_rows(plan, run)
        return
    with pytest.raises(ConfigError, match=f"no '.*{lacking}.jsonl'; .* --model .*-{step}$"):
        check_rows(plan, run)


class Bare:
    """Nine problems without scripts, some that come back for ever, or none that does."""

    name = "bare"
    prompt = "{{problem}}"

    def __init__(self, numbers: Iterable[int] = range(9)) -> None:
        self.numbers = numbers

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        yield from map(problem, self.numbers)

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError


@pytest.mark.parametrize(
    ("task", "overrides", "num_drawn"),
    [
        (Bare(), ["grpo.steps=3"], 9),
        (Bare(), ["grpo.steps=4"], None),
        (Bare(), ["grpo.steps=6", "grpo.passes=2"], 9),
        (Bare(), ["grpo.steps=8", "grpo.passes=2"], None),
        (Bare(), ["grpo.steps=2", "grpo.updates_per_rollout=2"], 6),
        (Bare(range(10**9)), ["grpo.steps=50"], 150),
        (Bare(range(10**9)), ["grpo.steps=50", "grpo.prefix_share=0"], None),
        (Bare([*range(9), *range(100)]), ["grpo.steps=3"], 9),
        (Bare([*range(9), *range(100)]), ["grpo.steps=4"], None),
        (Bare(), ["grpo.steps=0"], None),
        (Sums(), ["grpo.steps=3"], None),
    ],
)
def test_problems_without_scripts_that_do_not_come_back_are_refused(
    task: Bare | Sums, overrides: Sequence[str], num_drawn: int | None
) -> None:
    given = ["grpo.prefix_share=0.5", "grpo.problems_per_step=3", *overrides]
    plan = make_plan(resolve(flags={"model": "m"}, overrides=given), to_train=True)
    plan, count = replace(plan, task=task), ProblemSequence(task, seed=0).count
    if num_drawn is None:
        check_solvable(plan, count=count)
        return
    expected = rf"demonstrate\(\), which 'bare' is not, .* draws {num_drawn} of them, each once"
    with pytest.raises(ConfigError, match=expected):
        check_solvable(plan, count=count)
