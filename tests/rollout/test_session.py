"""Laws of a REPL without a sampler: lines become what they become in a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from repl_rl.records import LineOutcome, OutcomeKind, Trajectory
from repl_rl.rollout.episode import Session
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import PYTHON, TranscriptFormat, spans, strip_line
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution, SandboxError

Play = Callable[..., Trajectory]

OPEN = Execution(status=ExecStatus.INCOMPLETE)
TWO = Execution(status=ExecStatus.OK, output="2\n", wall_ms=3.0, cpu_ms=2.0)
RAISES = Execution(status=ExecStatus.ERROR, output="NameError: y\n", error_type="NameError")
ANSWERS: Mapping[str, Execution] = {
    "1+1": TWO,
    "y": RAISES,
    "slow": Execution(status=ExecStatus.TIMEOUT, output="KeyboardInterrupt\n"),
    "def f():": OPEN,
    "def f():\n    # two": OPEN,
    "def f():\n    # two\n    return 2": OPEN,
    "'''": OPEN,
    "'''\n# '''": TWO,
    "if y:": OPEN,
    "if y:\n": RAISES,
    "loud": Execution(status=ExecStatus.OK, output="a\n", is_truncated=True),
    "[2]": Execution(status=ExecStatus.OK, value="[2]"),
    "bad": RAISES,
    "bent": Execution(status=ExecStatus.OK),
}


def run(
    *lines: str, fmt: TranscriptFormat = PYTHON, number: int = 1, kernel: FakeKernel | None = None
) -> tuple[Session, list[tuple[LineOutcome, str]]]:
    """The session, and of each line its outcome and the text that follows it."""
    session = Session(kernel or FakeKernel(ANSWERS), fmt, number=number)

    async def all_of_them() -> list[tuple[LineOutcome, str]]:
        answered = []
        for line in lines:
            outcome = await session.run(line)
            answered.append((outcome, session.show(outcome.observation, outcome.kind)))
            session.advance(outcome.kind)
        return answered

    return session, asyncio.run(all_of_them())


def kinds(*lines: str) -> list[str]:
    return [str(outcome.kind) for outcome, _ in run(*lines)[1]]


LINES = (
    (" # think", " 1+1", " 1+1", " x = 2", " y", "", " loud"),
    (" def f():", "     # two", "     return 2", "", " 1+1"),
    (" '''", "# '''", " # >>> 2", " slow"),
    (" if y:", "", " submit_final_answer(bad)", " submit_final_answer(1, a=2)"),
    (" submit_final_answer(bent)",),
    (" 1+1", " submit_final_answer([2])"),
    (" import os", " os.abort()"),
)


@pytest.mark.parametrize("lines", LINES)
def test_lines_become_what_they_become_in_a_rollout(play: Play, lines: tuple[str, ...]) -> None:
    dies_at = {"os.abort()"}
    sampled = FakeKernel(ANSWERS, dies_at=dies_at)
    trajectory = play(*(f"{line}\n" for line in lines), kernel=sampled, max_lines=len(lines))
    typed = FakeKernel(ANSWERS, dies_at=dies_at)
    session, answered = run(*(strip_line(f"{line}\n") for line in lines), kernel=typed)
    assert [outcome for outcome, _ in answered] == [line.outcome for line in trajectory.lines]
    assert typed.sources == sampled.sources
    assert session.submission == trajectory.submission


@pytest.mark.parametrize("lines", LINES)
def test_what_is_shown_is_what_a_rollout_injects(play: Play, lines: tuple[str, ...]) -> None:
    trajectory = play(*(f"{line}\n" for line in lines), answers=ANSWERS, max_lines=len(lines))
    injected = [
        ByteCodec().decode(trajectory.completion_ids[span.start : span.stop])
        for span in spans(trajectory)
        if not span.is_sampled
    ]
    _, answered = run(*(strip_line(f"{line}\n") for line in lines))
    assert [shown for _, shown in answered][: len(injected)] == injected
    assert len(injected) == len(lines) - 1


def test_an_open_statement_is_kept_and_sent_whole() -> None:
    kernel = FakeKernel(ANSWERS)
    session, _ = run("def f():", "    # two", "    return 2", kernel=kernel)
    assert session.pending == "def f():\n    # two\n    return 2\n"
    assert kernel.sources[-1] == "def f():\n    # two\n    return 2"


def test_nothing_is_pending_after_a_statement_that_raised() -> None:
    assert run("if y:", "")[0].pending == ""


BENT = FakeKernel(lambda _: Execution(status=ExecStatus.OK, output="fine\n"))
HOSTILE = FakeKernel(
    lambda _: Execution(status=ExecStatus.ERROR, output="?\n", error_type="SyntaxError")
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["x = = 2"], ["syntax_error"]),
        (["1 +", "x"], ["syntax_error", "ok_output"]),
        (["return 1"], ["syntax_error"]),
        (["x\0"], ["syntax_error"]),
        (["submit_final_answer((yield))"], ["syntax_error"]),
        (["x\n1 1"], ["syntax_error"]),
        (["if x:", "  y", " z", "x"], ["incomplete", "incomplete", "syntax_error", "ok_output"]),
        (["def f(", "x):", "  y", "", "x"], [*["incomplete"] * 3, "ok_output", "ok_output"]),
        (["obj.None ''' 1", "x"], ["syntax_error", "ok_output"]),
        (["from __future__ import barry_as_FLUFL", "1 != 2"], ["ok_output", "syntax_error"]),
        (["1 <> 2"], ["syntax_error"]),
    ],
)
def test_a_kernel_that_says_ok_is_not_believed(lines: list[str], expected: list[str]) -> None:
    _, answered = run(*lines, kernel=BENT)
    assert [str(outcome.kind) for outcome, _ in answered] == expected


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("class SyntaxError(Exception): pass\n\nraise SyntaxError", OutcomeKind.RUNTIME_ERROR),
        ("submit_final_answer(f())", OutcomeKind.RUNTIME_ERROR),
        # Of a text that the line hands to the compiler, it may be.
        ("exec('1+')", OutcomeKind.SYNTAX_ERROR),
        ("submit_final_answer(exec('1+'))", OutcomeKind.SYNTAX_ERROR),
    ],
)
def test_a_kernel_that_says_syntax_error_is_believed_of_a_text_alone(
    line: str, kind: OutcomeKind
) -> None:
    _, ((outcome, _),) = run(line, kernel=HOSTILE)
    assert outcome.kind is kind


def test_an_open_statement_that_is_whole_is_no_longer_open() -> None:
    """A kernel that says so for ever would swallow all that follows, charges and all."""
    session, answered = run("x = 1", kernel=FakeKernel(lambda _: OPEN))
    assert (session.pending, answered[0][0].kind) == ("", OutcomeKind.RUNTIME_ERROR)


def test_what_no_compiler_can_say_for_certain_is_the_kernels_to_say() -> None:
    """Nested too deep for this stack, too many digits for this process, too long."""
    for line in ("-" * 3000 + "1", "9" * 4400, "x" * 5000, f"({'(' * 150}{')' * 151}"):
        _, ((outcome, _),) = run(line, kernel=BENT)
        assert outcome.kind is OutcomeKind.OK_OUTPUT


def test_no_warning_of_a_line_is_one_of_ours(recwarn: pytest.WarningsRecorder) -> None:
    assert kinds(r"'\d' is 1") == ["ok_silent"]
    assert not recwarn.list


def test_a_comment_reaches_no_kernel() -> None:
    kernel = FakeKernel()
    run("# think", "", "   ", kernel=kernel)
    assert kernel.sources == []


def test_a_submission_inside_an_open_statement_submits_nothing() -> None:
    session, _ = run("def f():", "submit_final_answer([2])")
    assert session.submission is None


def test_what_is_submitted_is_what_the_kernel_hands_over() -> None:
    session, ((outcome, _),) = run("submit_final_answer([2])")
    assert (session.submission, outcome.kind) == ("[2]", OutcomeKind.SUBMITTED)


def test_several_arguments_are_submitted_as_a_tuple() -> None:
    kernel = FakeKernel({"(x, y)": Execution(status=ExecStatus.OK, value="(1, 2)")})
    session, ((outcome, _),) = run("submit_final_answer(x, y)", kernel=kernel)
    assert (session.submission, outcome.kind) == ("(1, 2)", OutcomeKind.SUBMITTED)


def test_a_value_that_was_not_handed_over_is_no_submission() -> None:
    session, ((outcome, _),) = run("submit_final_answer(bent)")
    assert (session.submission, outcome.kind) == (None, OutcomeKind.BAD_SUBMIT)


def test_the_same_line_twice_is_a_duplicate_but_an_error_never_is() -> None:
    assert kinds("1+1", "1+1", "y", "y") == ["ok_output", "duplicate", "name_error", "name_error"]


def test_the_clocks_are_those_of_the_kernel() -> None:
    _, ((outcome, _),) = run("1+1")
    assert (outcome.wall_ms, outcome.cpu_ms) == (3.0, 2.0)


def test_statements_are_numbered_and_comments_are_statements() -> None:
    kernel = FakeKernel({**ANSWERS, "1+1": Execution(status=ExecStatus.OK, output="Out[{n}]: 2\n")})
    session, answered = run("1+1", "", "# think", "1+1", fmt=IPYTHON, number=4, kernel=kernel)
    assert [shown for _, shown in answered] == [
        "Out[4]: 2\nIn [5]:",
        "In [5]:",
        "In [6]:",
        "Out[6]: 2\nIn [7]:",
    ]
    assert session.number == 7


def test_a_statement_has_one_number_however_many_lines_it_takes() -> None:
    _, answered = run("if y:", "", "1+1", fmt=IPYTHON)
    assert [shown for _, shown in answered] == [
        "   ...:",
        "NameError: y\nIn [2]:",
        "2\nIn [3]:",
    ]


def test_the_number_changes_only_as_the_answer_is_shown() -> None:
    session = Session(FakeKernel(ANSWERS), IPYTHON)
    outcome = asyncio.run(session.run("1+1"))
    assert session.number == 1
    assert session.show("", outcome.kind) == "In [2]:"
    session.advance(outcome.kind)
    assert session.number == 2


def test_an_output_is_cut_to_what_the_transcript_takes_and_says_so() -> None:
    session = Session(FakeKernel(ANSWERS), PYTHON)
    session.shorten = lambda output: output[:1]
    outcome = asyncio.run(session.run("1+1"))
    assert (outcome.observation, outcome.is_truncated) == ("2", True)


def test_what_the_kernel_cut_is_cut() -> None:
    _, ((outcome, _),) = run("loud")
    assert (outcome.observation, outcome.is_truncated) == ("a\n", True)


def test_our_own_failure_is_no_outcome() -> None:
    kernel = FakeKernel()
    asyncio.run(kernel.aclose())
    with pytest.raises(SandboxError):
        run("1+1", kernel=kernel)
