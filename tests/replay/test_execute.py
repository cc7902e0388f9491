"""Lines that are run again do what they did, and what does not is found, with its reason."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from fixture_types import MakeScene, Record, Store, WithLine
from repl_rl.records import OutcomeKind, Scored
from repl_rl.viewer.replay.compare import Cause
from repl_rl.viewer.replay.execute import Mismatch, Rerun, rerun
from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Execution, Kernel, KernelSource, SandboxError

EXACT = {
    "random": (" import random\n", " random.random(), random.randint(1, 10**9)\n"),
    "another generator": (" from sympy.core.random import rng\n", " rng.random()\n"),
    "sympy's Dummy": (" Dummy('d').dummy_index\n", " Dummy(), srepr(Dummy('k'))\n"),
    "order of a set": (" {'a', 'b', 'c', 'delta', 'e'}\n", " hash('a'), list({'q', 'r', 's'})\n"),
    "addresses": (" object()\n", " a = object()\n", " a\n", " a, object(), lambda: 0\n"),
    "several lines": (" for i in range(3):\n", "     i, i**2\n", "\n", " i\n"),
    "a text of several lines": (" t = '''a\n", " # still the text\n", " b'''\n", " t\n"),
    "errors": (" 1/0\n", " solve(x))\n", " y\n", " raise ValueError('\u221a')\n", " int('a')\n"),
    "sympy": (" solve(x**2 - 4, x)\n", " integrate(sin(x), x)\n", " _ + 1\n"),
    "comments": (" # a thought\n", "\n", " # => 4\n", " 2 + 2\n", " 2 + 2\n"),
    "long outputs": (" print('ab\\n' * 5000)\n", " 'q' * 7000\n"),
    "a submission": (" r = solve(x**2 - 4, x)\n", " submit_final_answer(r)\n"),
    "a submission that is none": (" submit_final_answer(1/0)\n", " submit_final_answer(1, 2)\n"),
    "an address that is submitted": (" submit_final_answer(object())\n",),
    "a timeout": (" for _ in iter(int, 1): pass\n", "\n", " 1 + 1\n"),
    "the end of a kernel": (" 1 + 1\n", " import os; os._exit(3)\n"),
}


@pytest.mark.kernel
@pytest.mark.parametrize("name", EXACT)
def test_what_was_sampled_in_a_kernel_is_what_runs_again(
    name: str,
    replay_loop: asyncio.Runner,
    real_kernels: KernelPool,
    record: Record,
    stored: Store,
    a_scene: MakeScene,
) -> None:
    async def run() -> Rerun:
        scored = await record(EXACT[name], real_kernels, max_observation_tokens=80)
        (place,) = stored(scored)
        return await rerun(place, a_scene(), real_kernels)

    found = replay_loop.run(run())
    assert found.mismatches == ()
    assert found.num_lines == len(EXACT[name])


@pytest.mark.kernel
def test_what_shows_a_time_differs_in_two_runs_here_and_so_is_volatile(
    replay_loop: asyncio.Runner,
    real_kernels: KernelPool,
    record: Record,
    stored: Store,
    a_scene: MakeScene,
) -> None:
    lines = (" import time\n", " t = time.time_ns()\n", " t\n", " t + 1\n", " 1 + 1\n")

    async def run() -> Rerun:
        (place,) = stored(await record(lines, real_kernels))
        return await rerun(place, a_scene(), real_kernels)

    found = replay_loop.run(run())
    assert [one.line.index for one in found.mismatches] == [2, 3]
    assert {one.difference.cause for one in found.mismatches} == {Cause.VOLATILE}
    assert found.mismatches[1].difference.why == "two runs here differ from each other"
    assert (found.num_lines, found.divergence) == (5, None)


# What follows plants differences in records that fakes have made.

ONE, TWO = (Execution(status=ExecStatus.OK, output=f"{n}\n") for n in (1, 2))
LINES = (" a\n", " b\n", " c\n", " d\n")
SUBMITS = (" a\n", " submit_final_answer(r)\n")


def saying(value: str) -> Execution:
    return Execution(status=ExecStatus.OK, value=value)


ANSWERS = {"a": ONE, "b": TWO, "c": ONE, "r": saying("1")}


class Each(FakeKernels):
    """Kernels of which each has answers of its own."""

    def __init__(self, *answers: Mapping[str, Execution]) -> None:
        super().__init__()
        self._answers = iter(answers)

    async def acquire(self, *, seed: int) -> FakeKernel:
        self._script = next(self._answers)
        return await super().acquire(seed=seed)


RunAgain = Callable[..., Rerun]


def divergence_of(found: Rerun) -> Mismatch:
    assert found.divergence is not None
    return found.divergence


@pytest.fixture
def run_again(record: Record, stored: Store, a_scene: MakeScene) -> RunAgain:
    """`run_again(lines, *answers)`: recorded with ANSWERS, run in kernels of these, in turn."""

    def run(
        lines: Sequence[str],
        *answers: Mapping[str, Execution],
        spoil: Callable[[Scored], Scored] = lambda scored: scored,
        kernels: KernelSource | None = None,
    ) -> Rerun:
        async def inside() -> Rerun:
            scored = spoil(await record(lines, FakeKernels(ANSWERS)))
            (place,) = stored(scored)
            given = kernels or (Each(*answers) if len(answers) > 1 else FakeKernels(answers[0]))
            return await rerun(place, a_scene(setup=()), given)

        return asyncio.run(inside())

    return run


def test_a_planted_output_is_found_with_what_was_recorded_and_what_is_said(
    run_again: RunAgain, with_line: WithLine
) -> None:
    found = run_again(
        LINES, ANSWERS, spoil=lambda scored: with_line(scored, 1, observation="planted\n")
    )
    assert (found.id, found.num_lines) == ("step-000000:1", 2)
    assert divergence_of(found).line.index == 1
    difference = divergence_of(found).difference
    assert (difference.recorded, difference.live) == ("planted\n", "2\n")


def test_a_planted_outcome_is_found(run_again: RunAgain, with_line: WithLine) -> None:
    found = run_again(
        LINES, ANSWERS, spoil=lambda scored: with_line(scored, 3, kind=OutcomeKind.NAME_ERROR)
    )
    assert divergence_of(found).difference.headline == "name_error -> ok_silent"


def test_the_first_divergence_ends_a_trajectory(run_again: RunAgain) -> None:
    found = run_again(LINES, {"a": TWO, "b": ONE, "c": TWO})
    assert (found.num_lines, len(found.mismatches)) == (1, 1)


def test_what_is_kept_of_a_run_in_another_file_order_has_its_own_number(
    record: Record, stored: Store, a_scene: MakeScene
) -> None:
    async def inside() -> list[str]:
        scored = await record(LINES, FakeKernels(ANSWERS))
        found = stored(scored, scored)
        return [(await rerun(place, a_scene(), FakeKernels(ANSWERS))).id for place in found]

    assert asyncio.run(inside()) == ["step-000000:1", "step-000000:2"]


@pytest.mark.parametrize("status", [ExecStatus.TIMEOUT, ExecStatus.KILLED, ExecStatus.DIED])
def test_a_limit_on_one_side_ends_the_comparison_and_is_no_divergence(
    run_again: RunAgain, status: ExecStatus
) -> None:
    found = run_again(LINES, {**ANSWERS, "b": Execution(status=status), "c": TWO})
    assert (found.num_lines, found.divergence, found.count(Cause.LIMITS)) == (2, None, 1)


def test_a_limit_that_was_recorded_and_does_not_strike_here_ends_the_comparison(
    run_again: RunAgain, with_line: WithLine
) -> None:
    found = run_again(
        LINES,
        {**ANSWERS, "c": TWO},
        spoil=lambda scored: with_line(scored, 1, kind=OutcomeKind.TIMEOUT),
    )
    assert (found.num_lines, found.divergence, found.count(Cause.LIMITS)) == (2, None, 1)


def test_a_submission_of_another_value_diverges(run_again: RunAgain) -> None:
    found = run_again(SUBMITS, {**ANSWERS, "r": saying("2")})
    difference = divergence_of(found).difference
    assert (difference.recorded, difference.live) == ("1\n", "2\n")


def test_a_submission_that_is_stored_otherwise_diverges(run_again: RunAgain) -> None:
    def spoil(scored: Scored) -> Scored:
        return replace(scored, trajectory=replace(scored.trajectory, submission="[1]"))

    assert divergence_of(run_again(SUBMITS, ANSWERS, spoil=spoil)).line.index == 1


def test_a_line_that_says_a_third_thing_to_a_second_kernel_is_unsteady(run_again: RunAgain) -> None:
    answers = ({**ANSWERS, "b": saying_line("x")}, {**ANSWERS, "b": saying_line("y")})
    found = run_again(LINES, *answers)
    assert (found.divergence, found.num_lines) == (None, 4)
    assert found.mismatches[0].difference.why == "two runs here differ from each other"


def saying_line(text: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=f"{text}\n")


def test_a_submission_that_varies_is_unsteady(run_again: RunAgain) -> None:
    answers = ({**ANSWERS, "r": saying("7")}, {**ANSWERS, "r": saying("8")})
    found = run_again(SUBMITS, *answers)
    assert (found.divergence, found.count(Cause.VOLATILE)) == (None, 1)


def test_a_line_that_says_the_same_to_a_second_kernel_has_diverged(run_again: RunAgain) -> None:
    other = {**ANSWERS, "b": saying_line("x")}
    assert divergence_of(run_again(LINES, other, other)).line.index == 1


def test_a_volatile_line_before_it_hides_no_divergence(run_again: RunAgain) -> None:
    """Two kernels tell two times, and both the same wrong value two lines later."""
    lines = (" import time\n", " time.time()\n", " b\n")
    first, second = (
        {"time.time()": saying_line(text), "b": saying_line("wrong")} for text in ("5", "6")
    )
    found = run_again(lines, first, second)
    assert [one.difference.cause for one in found.mismatches] == [Cause.VOLATILE, Cause.DIVERGED]
    assert divergence_of(found).line.index == 2


def test_all_kernels_are_closed_again(run_again: RunAgain) -> None:
    kernels = Each({**ANSWERS, "b": ONE}, {**ANSWERS, "b": ONE})
    run_again(LINES, kernels=kernels)
    assert [kernel.is_closed for kernel in kernels.kernels] == [True, True]


def test_a_line_that_was_cut_is_neither_run_nor_compared(run_again: RunAgain) -> None:
    kernels = FakeKernels(ANSWERS)
    found = run_again((" a\n", " os.remove('a"), kernels=kernels)
    assert (found.num_lines, found.mismatches) == (1, ())
    assert kernels.kernels[0].sources == ["a"]


def test_our_own_failure_is_raised(run_again: RunAgain) -> None:
    class Broken:
        async def acquire(self, *, seed: int) -> Kernel:
            raise SandboxError("the fork server is gone")

    with pytest.raises(SandboxError):
        run_again(LINES, kernels=Broken())
