"""Laws of a person in the policy's place: what is typed runs, is shown, is scored and is kept."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

from own_processes import survivors
from repl_rl.commands import attempts
from repl_rl.commands.cli import open_streams
from repl_rl.errors import GraderError
from repl_rl.records import OutcomeKind, Problem, Scored, StopReason, Verdict, VerdictKind
from repl_rl.rollout import env, scoring
from repl_rl.runs.trajectory_file import places
from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.types import ExecStatus, Execution, SandboxError

Called = tuple[int, str, str]
EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = ("--task", "multiplication:Multiplication")
ANSWERS = {
    "1+1": Execution(status=ExecStatus.OK, output="2\n"),
    "boo": Execution(
        status=ExecStatus.ERROR, output="NameError: name 'boo'\n", error_type="NameError"
    ),
    "paint()": Execution(status=ExecStatus.OK, output="\x1b[2J[red]\u202e\n"),
    "def f():": Execution(status=ExecStatus.INCOMPLETE),
    "4": Execution(status=ExecStatus.OK, value="4"),
}


class FakeJudge:
    """Finds 4 right."""

    def __init__(self, **_: object) -> None: ...

    async def __aenter__(self) -> FakeJudge:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        kind = VerdictKind.PROVED if submission == "4" else VerdictKind.WRONG
        return Verdict(kind=kind, method="structural", evidence=f"it is {submission}")


class FakePool(FakeKernels):
    """Answers as written above, behind no walls."""

    walls = "none"

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(ANSWERS)

    async def __aenter__(self) -> FakePool:
        return self

    async def __aexit__(self, *_: object) -> None: ...


Typed = Callable[..., Called]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, call: Callable[..., Called]) -> Typed:
    """`typed(text, *arguments)`: `repl-rl play` with `text` on its standard input, saved to game/.

    Kernel and grader are fakes.
    """
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(env, "kernel_pool", FakePool)
    monkeypatch.setattr(scoring, "Grader", FakeJudge)
    monkeypatch.setenv("COLUMNS", "80")

    def run(text: str, *arguments: str) -> Called:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return call("play", *TASK, "--output", "game", *arguments)

    return run


def kept(folder: Path) -> Scored:
    (place,) = places(folder / "game" / "trajectories" / "play.jsonl")
    assert place.origin is not None
    assert place.origin.tokenizer is None
    return place.read()


def test_a_submission_ends_it_with_a_verdict_and_a_reward(typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed("1+1\nsubmit_final_answer(4)\n")
    scored = kept(tmp_path)
    assert (code, err) == (0, "")
    assert [line.source for line in scored.trajectory.lines] == [
        " 1+1\n",
        " submit_final_answer(4)\n",
    ]
    assert scored.trajectory.stop_reason is StopReason.SUBMITTED
    assert scored.reward.outcome_reward == 1.0
    assert "verdict      right (exact), by structural, it is 4\n" in out
    assert "reward       +1.000 = outcome +1.000, lines +0.000\n" in out
    assert out.endswith("run folder: game\nnext: repl-rl replay game\n")


def test_a_log_of_a_pipe_reads_as_a_transcript(typed: Typed) -> None:
    _, out, _ = typed("1+1\n\nboo\nsubmit_final_answer(4)\n")
    rows = [row for row in out.splitlines() if not row.startswith(" " * 20)]
    first = rows.index(">>> 1+1")
    assert rows[first : first + 6] == [
        ">>> 1+1",
        "2",
        ">>>",
        ">>> boo",
        "NameError: name 'boo'",
        ">>> submit_final_answer(4)",
    ]


def test_each_line_is_followed_by_its_outcome_and_its_reward(typed: Typed) -> None:
    """At the right edge of 80 columns."""
    _, out, _ = typed("1+1\nboo\n", "--set", "sampling.max_lines=7")
    notes = [row for row in out.splitlines() if row.startswith(" " * 20)]
    assert [note.strip() for note in notes] == [
        "line 1 of 7: ok_output +0.00, all lines +0.00",
        "line 2 of 7: name_error -0.10, all lines -0.10",
    ]
    assert {len(note) for note in notes} == {79}


def test_a_line_that_waits_for_more_is_asked_for_with_dots(typed: Typed) -> None:
    _, out, _ = typed("def f():\n    return 1\n")
    assert "\n>>> def f():\n" in out
    assert "\n...     return 1\n" in out


def test_the_end_of_input_ends_the_sequence(typed: Typed, tmp_path: Path) -> None:
    code, out, _ = typed("1+1\n")
    scored = kept(tmp_path)
    assert code == 0
    assert scored.trajectory.stop_reason is StopReason.EOS
    assert scored.reward.outcome_reward == -0.6
    assert "verdict      nothing submitted\n" in out


def test_a_closed_input_has_ended(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    open_streams()
    with sys.stdin as opened:
        code, *_ = typed(opened.read())
    assert code == 0


def test_the_limit_of_lines_stands(typed: Typed, tmp_path: Path) -> None:
    _, out, _ = typed("1+1\n1+1\n1+1\n", "--set", "sampling.max_lines=2")
    scored = kept(tmp_path)
    assert len(scored.trajectory.lines) == 2
    assert scored.trajectory.stop_reason is StopReason.MAX_LINES
    assert "2 lines at most" in out


@pytest.mark.parametrize(
    "limit", ["max_tokens=2", "max_line_tokens=1", "max_observation_tokens=64"]
)
def test_limits_in_tokens_do_not_count_bytes(typed: Typed, tmp_path: Path, limit: str) -> None:
    typed("1+1\n", "--set", f"sampling.{limit}")
    (line, _) = kept(tmp_path).trajectory.lines
    assert line.outcome.kind is OutcomeKind.OK_OUTPUT


def test_what_a_line_prints_is_shown_and_never_obeyed(typed: Typed) -> None:
    _, out, _ = typed("paint()\n\x1b[2Jpaint\u202e()\n")
    assert "\n[red]\n" in out
    assert "\n>>> paint()\n" in out
    assert not re.search("[\x1b\u202e]", out)


def test_bytes_that_are_no_text_become_a_mark(typed: Typed, tmp_path: Path) -> None:
    typed("'\udcff'\n")
    assert kept(tmp_path).trajectory.lines[0].source == " '\ufffd'\n"


class Interrupted(io.StringIO):
    """A terminal where Ctrl-C comes in place of a line `^C`."""

    def readline(self, *_: Any) -> str:  # type: ignore[override]  # as typeshed has StringIO do
        row = super().readline()
        if row == "^C\n":
            signal.raise_signal(signal.SIGINT)
        return row


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, typed: Typed) -> Typed:
    monkeypatch.setattr(io, "StringIO", Interrupted)
    return typed


def test_what_was_written_before_an_interrupt_is_kept(interrupted: Typed, tmp_path: Path) -> None:
    code, out, _ = interrupted("1+1\n^C\n1+1\n")
    trajectory = kept(tmp_path).trajectory
    assert code == 130
    assert trajectory.stop_reason is StopReason.CANCELLED
    assert [line.source for line in trajectory.lines] == [" 1+1\n"]
    assert out.endswith("next: repl-rl replay game\n")


def test_an_interrupt_before_the_first_line_leaves_no_folder(
    interrupted: Typed, tmp_path: Path
) -> None:
    code, out, _ = interrupted("^C\n")
    assert code == 130
    assert out.endswith("cancelled before the first line: nothing is kept\n")
    assert not (tmp_path / "game").exists()


def test_the_same_problem_is_asked_again_and_another_by_its_id(typed: Typed) -> None:
    first = typed("", "--output", "a", "--seed", "3")[1]
    again = typed("", "--output", "b", "--seed", "3")[1]
    other = typed("", "--output", "c", "--problem", "12x13")[1]
    assert first.splitlines()[:6] == again.splitlines()[:6]
    assert ">>> # What is 12 * 13?\n" in other


def test_an_unknown_problem_is_one_line_that_names_another(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "NUM_LOOKED_AT", 20)
    code, _, err = typed("", "--problem", "no-such")
    assert (code, err.count("\n")) == (2, 1)
    assert re.fullmatch(
        r"repl-rl: no problem 'no-such' among 60 of task 'multiplication:Multiplication' at seed "
        r"0; expected an id such as '\d+x\d+', or one that `repl-rl tasks "
        r"multiplication:Multiplication` prints\n",
        err,
    )


def test_a_problem_that_was_looked_at_twice_counts_once(typed: Typed) -> None:
    code, _, err = typed("", "--task", str(EXAMPLES / "ten.jsonl"), "--problem", "no-such")
    assert code == 2
    assert "no problem 'no-such' among 10 of task" in err


@pytest.mark.parametrize("chosen", [(), ("--problem", "no-such")])
def test_a_task_without_problems_is_one_line(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, chosen: tuple[str, ...]
) -> None:
    monkeypatch.setattr("multiplication.Multiplication.problems", lambda *_, **__: iter(()))
    assert typed("", *chosen)[::2] == (
        2,
        "repl-rl: task 'multiplication:Multiplication' has no problems in its split train\n",
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("transcript=chat", "transcript = 'chat' needs a model's chat template; play with --set "),
        ("sampling.sampler=a:B", "sampling.sampler = 'a:B' asks a model for more than lines; "),
    ],
)
def test_what_a_person_cannot_write_is_one_line(typed: Typed, setting: str, message: str) -> None:
    code, _, err = typed("", "--set", setting)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"repl-rl: {message}")


def test_a_folder_that_holds_a_run_is_refused_before_anything_is_typed(typed: Typed) -> None:
    typed("")
    code, out, err = typed("1+1\n")
    assert (code, out) == (2, "")
    assert err.startswith("repl-rl: 'game' already holds a run")


@pytest.mark.kernel
def test_a_person_plays_at_a_terminal_of_80_by_24(tmp_path: Path) -> None:
    """With real kernels and the real grader: edited lines, an interrupt in a line that runs."""
    boot = "from repl_rl.commands.cli import main; main()"
    words = ["-c", boot, "play", "--task", "sympy-proofs", "--output", "game"]
    screen = pexpect.spawn(
        sys.executable, words, cwd=str(tmp_path), dimensions=(24, 80), encoding="utf-8", timeout=60
    )
    try:
        screen.expect_exact(">>> ")
        screen.expect_exact("submit_final_answer")
        screen.expect(r"\r\n>>> $")
        screen.sendline("1+2\x7f1")  # Backspace takes the 2 back
        screen.expect_exact("\r\n2\r\n")
        screen.expect_exact("line 1 of 10: ok_output +0.00, all lines +0.00")
        screen.expect(r">>> $")
        screen.sendline("\x1b[A + 1")  # the line before, from the history
        screen.expect_exact("\r\n3\r\n")
        screen.expect(r">>> $")
        screen.send("import time; time.sleep(9)\r")
        screen.expect_exact("sleep(9)")
        children = psutil.Process(screen.pid).children(recursive=True)
        screen.sendintr()
        screen.expect_exact("next: repl-rl replay game")
        screen.expect(pexpect.EOF)
    finally:
        screen.close(force=True)
    trajectory = kept(tmp_path).trajectory
    assert screen.exitstatus == 130
    assert trajectory.stop_reason is StopReason.CANCELLED
    assert [line.source for line in trajectory.lines[:2]] == [" 1+1\n", " 1+1 + 1\n"]
    assert children
    assert survivors(children) == []


class LosesKernels(FakePool):
    """Our side of a kernel fails at the second source."""

    async def acquire(self, *, seed: int) -> FakeKernel:
        def answer(source: str) -> Execution:
            if source == "boo":
                raise SandboxError("the fork server is gone")
            return ANSWERS[source]

        return FakeKernel(answer, seed=seed)


def test_lines_outlive_a_failure_of_ours(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "kernel_pool", LosesKernels)
    code, _, err = typed("1+1\nboo\n")
    assert (code, err) == (1, "repl-rl: the fork server is gone\n")
    trajectory = kept(tmp_path).trajectory
    assert [line.source for line in trajectory.lines] == [" 1+1\n", " boo\n"]
    assert trajectory.stop_reason is StopReason.CANCELLED


def test_an_answer_outlives_a_grader_that_fails(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Verdict:
        raise GraderError("a grader cannot be started")

    monkeypatch.setattr(FakeJudge, "grade", fail)
    code, _, err = typed("submit_final_answer(4)\n")
    assert (code, err) == (1, "repl-rl: a grader cannot be started\n")
    assert kept(tmp_path).trajectory.submission == "4"
