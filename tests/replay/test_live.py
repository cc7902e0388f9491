"""Laws of a stored trajectory beside a live kernel: what runs, what comes back, what is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from fixture_types import MakeScene, MakeScored, MakeTrajectory, Record
from repl_rl.records import OutcomeKind
from repl_rl.rollout.prefixes import kernel_sources
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import TranscriptFormat
from repl_rl.viewer.replay.live import Live, Variable
from repl_sandbox.fake import FakeKernel, FakeKernels, Script
from repl_sandbox.types import ExecStatus, Execution, SandboxError

CUT, DIED, KILLED, INCOMPLETE = (
    OutcomeKind.CUT,
    OutcomeKind.DIED,
    OutcomeKind.KILLED,
    OutcomeKind.INCOMPLETE,
)
TWO = Execution(status=ExecStatus.OK, output="2\n")
OPEN = Execution(status=ExecStatus.INCOMPLETE)
ANSWERS = {
    "1+1": TWO,
    "for i in [1]:": OPEN,
    "for i in [1]:\n    i": OPEN,
    "3": Execution(status=ExecStatus.OK, value="3"),
    "kill": Execution(status=ExecStatus.KILLED),
}
FOUR = (" # think\n", " 1+1\n", " x = 3\n", " submit_final_answer(3)\n")

Beside = Callable[..., Any]
"""What it returns is what the function that it calls does."""


@pytest.fixture
def beside(record: Record, a_scene: MakeScene) -> Beside:
    """`beside(use, *lines)`: what `use(live, kernels)` returns; lines ran in fakes before."""

    def run(
        use: Callable[[Live, FakeKernels], Awaitable[object]],
        *lines: str,
        answers: Script = ANSWERS,
        dies_at: Collection[str] = (),
        fmt: TranscriptFormat | None = None,
        **options: Any,
    ) -> Any:
        async def inside() -> object:
            scene = a_scene(setup=("y = 5",), **({} if fmt is None else {"fmt": fmt}))
            made_in = FakeKernels(answers, dies_at=dies_at)
            scored = await record(lines, made_in, fmt=scene.fmt, **options)
            kernels = FakeKernels(answers, dies_at=dies_at)
            async with Live(scored, scene, kernels) as live:
                return await use(live, kernels)

        return asyncio.run(inside())

    return run


def kinds(live: Live) -> list[str]:
    return [str(line.outcome.kind) for line in live.lines]


def test_every_recorded_line_runs_once_and_in_order(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        while await live.next() is not None:
            pass
        return kinds(live), kernels.kernels[0].sources, live.is_over, live.session.submission

    found = beside(use, *FOUR)
    assert found[0] == ["comment", "ok_output", "ok_silent", "submitted"]
    assert found[1:] == (["1+1", "x = 3", "3"], True, "3")


def test_what_follows_a_line_is_its_output_and_the_next_prompt(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        return [line.text_after for line in live.lines]

    assert beside(use, *FOUR) == [">>>", "2\n>>>", ">>>", ""]


def test_a_run_stops_at_the_first_line_that_is_wanted(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        found = await live.run_to(lambda line: line.outcome.kind is OutcomeKind.OK_OUTPUT)
        nothing = await live.run_to(lambda line: line.outcome.kind is OutcomeKind.OK_OUTPUT)
        assert found is not None
        return found.source, nothing, live.at

    assert beside(use, *FOUR) == (" 1+1\n", None, 4)


def test_going_back_is_a_fresh_kernel_of_the_same_seed_with_the_same_lines(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        for _ in range(3):
            await live.next()
        await live.back(2)
        first, second = kernels.kernels
        return live.at, first.is_closed, (first.seed, second.seed), second.sources

    assert beside(use, *FOUR, seed=11) == (2, True, (11, 11), ["1+1"])


def test_lines_by_hand_are_run_again_where_one_goes_back(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.next()
        await live.edit("z = 1")
        await live.edit("1+1")
        await live.back(2)
        return kernels.kernels[-1].sources, live.is_branch, live.upcoming

    assert beside(use, *FOUR) == (["z = 1"], True, None)


def test_a_line_by_hand_makes_a_branch_until_one_goes_back_before_it(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.edit("1+1")
        seen = [live.is_branch, await live.next()]
        await live.back(0)
        assert live.upcoming is not None
        return *seen, live.is_branch, live.upcoming.source

    assert beside(use, *FOUR) == (True, None, False, " # think\n")


def test_who_goes_all_the_way_back_has_run_nothing(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        await live.back(0)
        return live.at, live.is_over, live.session.submission, kernels.kernels[-1].sources

    assert beside(use, *FOUR) == (0, False, None, [])


def test_a_statement_of_several_lines_reaches_the_kernel_whole(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        shown = [line.text_after for line in live.lines]
        return kinds(live), shown, kernels.kernels[0].sources[-1]

    lines = (" for i in [1]:\n", "     i\n", "\n")
    found = beside(use, *lines)
    assert found[0] == ["incomplete", "incomplete", "ok_silent"]
    assert found[1] == ["...", "...", ">>>"]
    assert found[2] == "for i in [1]:\n    i\n"


def test_going_back_into_a_statement_leaves_it_open(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        await live.back(1)
        return live.session.pending

    assert beside(use, " for i in [1]:\n", "     i\n", "\n") == "for i in [1]:\n"


@pytest.mark.parametrize(("line", "kind"), [("kill", KILLED), ("die", DIED)])
def test_nothing_follows_the_end_of_a_kernel(beside: Beside, line: str, kind: OutcomeKind) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.next()
        ended = live.is_over, live.kernel_is_gone, live.lines[0].outcome.kind
        follows = [await live.next(), await live.edit("1+1"), await live.variables()]
        return *ended, follows, live.lines[0].text_after

    assert beside(use, f" {line}\n", dies_at={"die"}) == (True, True, kind, [None, None, []], "")


def test_a_kernel_that_was_killed_is_replaced_where_one_goes_back(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.edit("kill")
        await live.back(0)
        line = await live.edit("1+1")
        assert line is not None
        return live.is_over, line.outcome.observation

    assert beside(use, *FOUR) == (False, "2\n")


def test_a_line_that_was_cut_is_never_run(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        return live.at, live.upcoming, live.is_over, kernels.kernels[0].sources

    lines = (" 1+1\n", " os.remove('a")
    assert beside(use, *lines) == (1, None, False, ["1+1"])


def test_lines_after_no_kernel_was_to_be_had_are_kept_and_can_be_asked_for_again(
    beside: Beside,
) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        acquire = kernels.acquire
        kernels.acquire = no_kernel  # type: ignore[method-assign]  # a double
        with pytest.raises(SandboxError):
            await live.back(2)
        kernels.acquire = acquire  # type: ignore[method-assign]  # as it was
        await live.back(live.at)
        return live.at

    async def no_kernel(*, seed: int) -> FakeKernel:
        raise SandboxError("the fork server is gone")

    assert beside(use, *FOUR) == 4


def test_statements_are_numbered_on_from_the_prompt(beside: Beside) -> None:
    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        shown = [line.text_after for line in live.lines]
        await live.back(1)
        line = await live.edit("1+1")
        assert line is not None
        return shown, line.text_after

    answers = {"1+1": Execution(status=ExecStatus.OK, output="Out[{n}]: 2\n")}
    found = beside(
        use, " x\n", " 1+1\n", answers=answers, fmt=IPYTHON, prompt="In [41]:", number=41
    )
    assert found == (["In [42]:", "Out[42]: 2\nIn [43]:"], "Out[42]: 2\nIn [43]:")


def test_the_reward_of_a_line_is_that_of_the_one_it_repeats(
    make_trajectory: MakeTrajectory, make_scored: MakeScored, a_scene: MakeScene
) -> None:
    parts = [(" 1+1\n", OutcomeKind.OK_OUTPUT, "2\n>>>"), (" y\n", OutcomeKind.NAME_ERROR, None)]

    async def use() -> list[float]:
        scored = make_scored(make_trajectory(parts), 1.0, (0.0, -0.1))
        async with Live(scored, a_scene(), FakeKernels(ANSWERS)) as live:
            ran = [await live.next(), await live.next(), await live.edit("y")]
            return [live.predicted(line) for line in ran if line is not None]

    assert asyncio.run(use()) == [0.0, -0.1, 0.0]


# Variables


def asked(beside: Beside, said: Execution | list[Execution], *lines: str) -> Any:
    """The variables that a kernel tells which says `said` to the question, or to each in turn."""
    answers = iter(said if isinstance(said, list) else [said])

    def answer(source: str) -> Execution:
        if source.startswith("(lambda"):
            return next(answers)
        return Execution(status=ExecStatus.OK)

    async def use(live: Live, kernels: FakeKernels) -> object:
        await live.run_to(lambda line: False)
        return await live.variables(), live.at, len(kernels.kernels)

    return beside(use, *lines, answers=answer)


def saying(value: str | None) -> Execution:
    return Execution(status=ExecStatus.OK, value=value)


def test_what_a_kernel_says_of_a_name_is_cleaned_and_cut(beside: Beside) -> None:
    told = '[["x", "\x1b[31mint", "' + "a" * 90 + '"]]'
    found, _, _ = asked(beside, saying(repr(told.replace("\x1b", "\\u001b"))), " x = 1\n")
    assert found == [Variable(name="x", type="int", value="a" * 64)]


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        "",
        "1/0",
        "'[['",
        "'{}'",
        '\'[1, [2], [3, 4, 5], ["x", "int"]]\'',
        '\'[["not_asked_for", "int", "1"]]\'',
        "b'[]'",
        "5",
        "(" * 5000,
    ],
)
def test_a_kernel_that_says_nonsense_tells_no_variables(
    beside: Beside, nonsense: str | None
) -> None:
    assert asked(beside, saying(nonsense), " x = 1\n")[0] == []


def test_a_kernel_that_does_not_survive_the_question_is_replaced_and_asked_for_types(
    beside: Beside,
) -> None:
    said = [Execution(status=ExecStatus.KILLED), saying(repr('[["x", "Trap", "-"]]'))]
    found = asked(beside, said, " x = 1\n", " z = 2\n")
    assert found == ([Variable(name="x", type="Trap", value="-")], 2, 2)


def test_thousands_of_lines_that_stand_open_fit_into_memory(
    make_trajectory: MakeTrajectory,
) -> None:
    """Each has its own 20,001 characters and the last 32,768 of what stands open."""
    parts = [(f" {'(' * 20_001}\n", INCOMPLETE, "...")] * 4
    lines = make_trajectory(parts).lines
    assert [len(source) for source in kernel_sources(lines)] == [20_001, 40_003, 52_769, 52_769]
