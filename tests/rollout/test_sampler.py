"""Laws of the loop: one trajectory token by token, budgets, submissions, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from attempt_kit import an_attempt
from repl_rl.base.concurrency import derive_seed
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import LineEnd, SampledLine, Weights, line_end
from repl_rl.records import Line, LineOutcome, OutcomeKind, StopReason, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

CODEC = ByteCodec()
Play = Callable[..., Trajectory]
RollOut = Callable[..., Trajectory]
INCOMPLETE = Execution(status=ExecStatus.INCOMPLETE)


def printed(output: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=output)


def failed(error_type: str) -> Execution:
    return Execution(status=ExecStatus.ERROR, output=f"{error_type}\n", error_type=error_type)


def valued(value: str) -> Execution:
    return Execution(status=ExecStatus.OK, value=value)


def kinds(trajectory: Trajectory) -> list[OutcomeKind]:
    return [line.outcome.kind for line in trajectory.lines]


@dataclass
class Recorder:
    """Writes fixed lines of bytes and keeps what it was asked."""

    lines: Sequence[str]
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    """(text of all ids, max_tokens, seed) of every request."""

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        kept = self.lines[len(self.asked)].encode()[:max_tokens]
        self.asked.append((CODEC.decode(ids), max_tokens, seed))
        end = line_end(kept[-1], newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids)
        logprobs = tuple(-0.5 * (i + 1) for i in range(len(kept)))
        return SampledLine(ids=tuple(kept), logprobs=logprobs, end=end, policy_version=7)

    @property
    def num_sampled(self) -> int:
        raise AssertionError("a rollout does not ask for this")

    async def sync(self, weights: Weights, *, version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


# The whole record


def test_every_token_of_a_trajectory_is_where_it_belongs(roll_out: RollOut) -> None:
    kernel = FakeKernel({"1+1": printed("2\n"), "2": valued("2")})
    trajectory = roll_out(
        Recorder([" 1+1\n", " submit_final_answer(2)\n"]), kernel, SamplingConfig(), seed=5
    )
    assert trajectory == Trajectory(
        problem_id="p",
        group_index=3,
        sibling_index=1,
        policy_version=7,
        seed=5,
        prompt_text=">>>",
        prompt_ids=(62, 62, 62),
        completion_ids=(
            *(32, 49, 43, 49, 10),
            *(50, 10, 62, 62, 62),
            *b" submit_final_answer(2)\n",
        ),
        loss_mask=(True,) * 5 + (False,) * 5 + (True,) * 24,
        logprobs=(
            *(-0.5, -1.0, -1.5, -2.0, -2.5),
            *(0.0, 0.0, 0.0, 0.0, 0.0),
            *(-0.5 * (i + 1) for i in range(24)),
        ),
        lines=(
            Line(
                index=0,
                source=" 1+1\n",
                start=0,
                stop=5,
                outcome=LineOutcome(kind=OutcomeKind.OK_OUTPUT, observation="2\n"),
            ),
            Line(
                index=1,
                source=" submit_final_answer(2)\n",
                start=10,
                stop=34,
                outcome=LineOutcome(kind=OutcomeKind.SUBMITTED),
            ),
        ),
        stop_reason=StopReason.SUBMITTED,
        submission="2",
    )


def test_the_engine_sees_prompt_lines_and_observations_in_order(roll_out: RollOut) -> None:
    engine = Recorder([" x = 1\n", " x\n", "\n"])
    roll_out(engine, FakeKernel({"x": printed("1\n")}), SamplingConfig(max_lines=3))
    assert [text for text, _, _ in engine.asked] == [
        ">>>",
        ">>> x = 1\n>>>",
        ">>> x = 1\n>>> x\n1\n>>>",
    ]


def test_the_clocks_of_an_execution_are_kept(play: Play) -> None:
    slow = Execution(status=ExecStatus.OK, wall_ms=12.5, cpu_ms=3.25)
    trajectory = play(" x\n", answers={"x": slow}, max_lines=1)
    outcome = trajectory.lines[0].outcome
    assert (outcome.wall_ms, outcome.cpu_ms) == (12.5, 3.25)


# What reaches the kernel


@pytest.mark.parametrize(
    ("line", "source"),
    [(" x\n", "x"), ("x\n", "x"), ("  x\n", " x"), ("\tx\n", "\tx"), (" x \n", "x ")],
)
def test_one_leading_space_is_stripped_and_no_more(play: Play, line: str, source: str) -> None:
    kernel = FakeKernel()
    play(line, kernel=kernel, max_lines=1)
    assert kernel.sources == [source]


@pytest.mark.parametrize("line", ["\n", " \n", " # a thought\n", "    # deep\n", " # a\n # b\n"])
def test_comments_and_blank_lines_never_reach_the_kernel(play: Play, line: str) -> None:
    kernel = FakeKernel()
    trajectory = play(line, kernel=kernel, max_lines=1)
    assert (kernel.sources, trajectory.lines[0].outcome.observation) == ([], "")


def test_a_thought_is_answered_by_a_bare_prompt(play: Play) -> None:
    trajectory = play(" # think\n", "\n", max_lines=2)
    assert CODEC.decode(trajectory.completion_ids) == " # think\n>>>\n"
    assert kinds(trajectory) == [OutcomeKind.COMMENT, OutcomeKind.BLANK]


def test_comments_and_blank_lines_inside_an_open_statement_reach_the_kernel(play: Play) -> None:
    kernel = FakeKernel(
        {
            "if x:": INCOMPLETE,
            "if x:\n    # why": INCOMPLETE,
            "if x:\n    # why\n    y": INCOMPLETE,
            "if x:\n    # why\n    y\n": printed("3\n"),
        }
    )
    trajectory = play(" if x:\n", "     # why\n", "     y\n", "\n", kernel=kernel, max_lines=4)
    assert kernel.sources == [
        "if x:",
        "if x:\n    # why",
        "if x:\n    # why\n    y",
        "if x:\n    # why\n    y\n",
    ]
    assert kinds(trajectory) == [OutcomeKind.INCOMPLETE] * 3 + [OutcomeKind.OK_OUTPUT]


def test_an_open_statement_gets_the_secondary_prompt_and_a_closed_one_the_primary(
    play: Play,
) -> None:
    answers = {"f(": INCOMPLETE, "f(\n)": printed("0\n")}
    trajectory = play(" f(\n", " )\n", "\n", answers=answers, max_lines=3)
    assert CODEC.decode(trajectory.completion_ids) == " f(\n... )\n0\n>>>\n"


def test_the_statement_after_a_closed_one_starts_anew(play: Play) -> None:
    kernel = FakeKernel({"f(": INCOMPLETE, "f(\n)": failed("TypeError")})
    play(" f(\n", " )\n", " y\n", kernel=kernel, max_lines=3)
    assert kernel.sources[-1] == "y"


class MergedNewlines(ByteCodec):
    """Id 300 is `)` and two newlines, as byte-pair vocabularies have it."""

    newline_ids = frozenset({10, 300})

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return "".join(")\n\n" if i == 300 else chr(i) for i in ids if i != 256)


def test_a_token_with_a_blank_line_in_it_closes_a_block() -> None:
    closed = "for i in a:\n    f(i)\n"
    kernel = FakeKernel({"for i in a:": INCOMPLETE, closed: printed("1\n")})

    class Merged(Recorder):
        async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
            self.asked.append(("", max_tokens, seed))
            written = (b" for i in a:\n", (*b"     f(i", 300))[len(self.asked) - 1]
            return SampledLine(
                ids=tuple(written),
                logprobs=(-1.0,) * len(written),
                end=LineEnd.NEWLINE,
                policy_version=0,
            )

    attempt = an_attempt()
    sampler = LineSampler(
        Merged([]), MergedNewlines(), PYTHON, SamplingConfig(max_lines=2), context_tokens=1024
    )
    trajectory = asyncio.run(sampler.sample(attempt, Prompt.plain(">>>"), kernel))
    assert kernel.sources == ["for i in a:", closed]
    assert trajectory.lines[1].source == "     f(i)\n\n"


def test_the_same_line_with_the_same_output_is_a_duplicate(play: Play) -> None:
    trajectory = play(" x\n", " x\n", answers={"x": printed("1\n")}, max_lines=2)
    assert kinds(trajectory) == [OutcomeKind.OK_OUTPUT, OutcomeKind.DUPLICATE]


# Submission


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        (" submit_final_answer(x + 1)\n", "x + 1"),
        ("submit_final_answer( [2, 3] )\n", "[2, 3]"),
        (" submit_final_answer((1, 2))\n", "(1, 2)"),
        (" submit_final_answer(3)  # done\n", "3"),
        (" submit_final_answer(3);\n", "3"),
        (" submit_final_answer(\n 3)\n", "3"),
        (" submit_final_answer(3)\n\n", "3"),
    ],
)
def test_a_lone_top_level_call_submits(play: Play, line: str, expression: str) -> None:
    trajectory = play(line, answers={expression: valued("'v'")})
    assert (trajectory.submission, trajectory.stop_reason) == ("'v'", StopReason.SUBMITTED)


@pytest.mark.parametrize(
    "line",
    [
        " submit_final_answer()\n",
        " submit_final_answer(1, *a)\n",
        " submit_final_answer(value=1)\n",
        " submit_final_answer(1, k=2)\n",
        " submit_final_answer(*[1])\n",
        " submit_final_answer(**a)\n",
        " a = submit_final_answer(1)\n",
        " a; submit_final_answer(1)\n",
        " submit_final_answer(1); a\n",
        " if 1: submit_final_answer(1)\n",
        " (submit_final_answer)(1)(2)\n",
        " print(submit_final_answer(1))\n",
        " submit_final_answer(1).real\n",
        " m.submit_final_answer(1)\n",
        " submit_final_answer (1\n",
        " submit_final_answer(1))\n",
        " # submit_final_answer(1)\n",
        " 'submit_final_answer(1)'\n",
        "  submit_final_answer(1)\n",
        " submit_final_answer(i for i in)\n",
        f" submit_final_answer({'1' * 2000})\n",
        f" submit_final_answer({'(' * 900}1{')' * 900})\n",
    ],
)
def test_any_other_mention_submits_nothing(play: Play, line: str) -> None:
    kernel = FakeKernel(lambda _: valued("'v'"))
    trajectory = play(line, kernel=kernel, max_lines=1, max_line_tokens=4096, max_tokens=8192)
    assert (trajectory.submission, trajectory.stop_reason) == (None, StopReason.MAX_LINES)


def test_a_submission_inside_an_open_statement_is_part_of_it(play: Play) -> None:
    kernel = FakeKernel({"if 1:": INCOMPLETE})
    trajectory = play(" if 1:\n", " submit_final_answer(1)\n", kernel=kernel, max_lines=2)
    assert trajectory.submission is None
    assert kernel.sources == ["if 1:", "if 1:\nsubmit_final_answer(1)"]


def test_the_first_submission_wins(play: Play) -> None:
    kernel = FakeKernel({"1": valued("1"), "2": valued("2")})
    trajectory = play(" submit_final_answer(1)\n", " submit_final_answer(2)\n", kernel=kernel)
    assert (trajectory.submission, kernel.sources) == ("1", ["1"])


def test_a_submission_whose_expression_fails_goes_on(play: Play) -> None:
    answers = {"q": failed("NameError"), "2": valued("2")}
    trajectory = play(" submit_final_answer(q)\n", " submit_final_answer(2)\n", answers=answers)
    assert kinds(trajectory) == [OutcomeKind.NAME_ERROR, OutcomeKind.SUBMITTED]
    assert trajectory.submission == "2"


def test_none_is_a_value_like_any_other(play: Play) -> None:
    trajectory = play(" submit_final_answer(None)\n", answers={"None": valued("None")})
    assert trajectory.submission == "None"


def test_a_call_that_submits_nothing_is_a_bad_submit(play: Play) -> None:
    source = "submit_final_answer(1, 2)"
    answers = {source: failed("RuntimeError")}
    assert kinds(play(f" {source}\n", answers=answers, max_lines=1)) == [OutcomeKind.BAD_SUBMIT]


def test_a_submission_without_a_value_is_a_bad_submit(play: Play) -> None:
    trajectory = play(" submit_final_answer(1)\n", answers={"1": printed("")}, max_lines=1)
    assert kinds(trajectory) == [OutcomeKind.BAD_SUBMIT]


def test_a_submission_is_text_that_can_be_written_to_a_file(play: Play) -> None:
    """A kernel may say any JSON string, lone surrogates included."""
    trajectory = play(" submit_final_answer(a)\n", answers={"a": valued("\ud800")})
    assert (trajectory.submission or "").encode() == "\ufffd".encode()


# Budgets and seeds


def test_the_engine_is_asked_for_no_more_than_a_line_may_hold(roll_out: RollOut) -> None:
    engine = Recorder([" x\n", "\n"])
    roll_out(engine, FakeKernel(), SamplingConfig(max_lines=2, max_line_tokens=9, max_tokens=14))
    assert [max_tokens for _, max_tokens, _ in engine.asked] == [9, 8]


def test_every_line_has_a_seed_of_its_own(roll_out: RollOut) -> None:
    engine = Recorder([" x\n", " x\n"])
    roll_out(engine, FakeKernel(), SamplingConfig(max_lines=2), seed=11)
    assert [seed for _, _, seed in engine.asked] == [derive_seed(11, 0), derive_seed(11, 1)]


def test_seeds_differ_between_lines_and_trajectories() -> None:
    seeds = {derive_seed(trajectory, line) for trajectory in range(50) for line in range(50)}
    assert len(seeds) == 2500


class Dice:
    """A policy of eight bytes a line, drawn from the seed it is given."""

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        written = (*(97 + (seed >> 5 * i) % 26 for i in range(7)), 10)
        return SampledLine(
            ids=written, logprobs=(-3.25,) * 8, end=LineEnd.NEWLINE, policy_version=0
        )

    async def aclose(self) -> None:
        pass


def test_the_same_seed_gives_the_same_trajectory(roll_out: RollOut) -> None:
    first, second, other = (
        roll_out(Dice(), FakeKernel(), SamplingConfig(max_lines=3), seed=seed) for seed in (1, 1, 2)
    )
    assert first == second
    assert first.completion_ids != other.completion_ids
