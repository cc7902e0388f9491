"""The grader survives what its worker does, and its worker is alone in the world."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from own_processes import is_running, survivors
from repl_rl.errors import GraderError
from repl_rl.grading.grader import Grader
from repl_rl.grading.worker import serve
from repl_rl.records import Problem, Verdict, VerdictKind

pytestmark = pytest.mark.slow

PROBLEM = Problem(id="p", statement="1 + 1", meta={"answer": "2"})
JUDGE = "judges:Judge"
REFEREE = "judges:Referee"
SYMPY_TASK = "repl_rl.tasks.sympy_proofs:SympyProofs"


@pytest.fixture(autouse=True)
def _judges_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def graded(
    *submissions: str, deadline_s: float = 5.0, task_spec: str = JUDGE, problem: Problem = PROBLEM
) -> list[Verdict]:
    async def grade_all() -> list[Verdict]:
        async with Grader(deadline_s=deadline_s) as grader:
            return [await grader.grade(task_spec, problem, text) for text in submissions]

    return asyncio.run(grade_all())


def test_a_hang_is_undecided_and_the_next_submission_is_graded() -> None:
    hung, served = graded("hang", "2", deadline_s=2.0)
    assert (hung.kind, hung.grader_error) == (VerdictKind.UNDECIDED, "deadline of 2 s")
    assert (served.kind, served.evidence, served.grader_error) == (VerdictKind.PROVED, "2", None)


def test_a_worker_that_dies_is_replaced() -> None:
    died, served = graded("die", "2")
    assert (died.kind, died.grader_error) == (VerdictKind.UNDECIDED, "worker died")
    assert served.kind is VerdictKind.PROVED


@pytest.mark.parametrize("when", ["before its first task", "idle", "at work"])
def test_a_worker_that_somebody_kills_costs_no_submission(when: str) -> None:
    """Linux kills a worker where memory runs out."""

    async def kill_and_grade() -> Verdict:
        async with Grader() as grader:
            if when != "before its first task":
                await grader.grade(REFEREE, PROBLEM, "2")
            (worker,) = grader._workers
            assert worker._process is not None
            if when != "at work":
                os.kill(worker._process.pid, signal.SIGKILL)
                return await grader.grade(REFEREE, PROBLEM, "2")
            os.kill(worker._process.pid, signal.SIGSTOP)
            judged = asyncio.create_task(grader.grade(REFEREE, PROBLEM, "2"))
            await asyncio.sleep(0.1)
            os.kill(worker._process.pid, signal.SIGKILL)
            return await judged

    verdict = asyncio.run(kill_and_grade())
    assert (verdict.kind, verdict.grader_error) == (VerdictKind.PROVED, None)


def test_a_submission_that_gets_every_worker_killed_is_to_blame() -> None:
    (verdict,) = graded("be killed", task_spec=REFEREE)
    assert (verdict.kind, verdict.method) == (VerdictKind.MALFORMED, "reference")


@pytest.mark.parametrize("said", ["garbage", "no text"])
def test_garbage_is_undecided_and_the_worker_replaced(said: str) -> None:
    garbled, served = graded(said, "2")
    assert garbled.kind is VerdictKind.UNDECIDED
    assert (garbled.grader_error or "").startswith("the worker sent an invalid reply")
    assert served.kind is VerdictKind.PROVED


def test_what_a_task_raises_is_named() -> None:
    raised, served = graded("raise", "2")
    assert raised.kind is VerdictKind.UNDECIDED
    assert raised.grader_error == "KeyError: 'no such certificate'"
    assert served.kind is VerdictKind.PROVED


def test_what_is_not_read_in_time_is_malformed_and_the_worker_replaced() -> None:
    # Far below the deadline: reading has a time of its own, by the clock of the processor.
    slow, served = graded("slow to read", "2", deadline_s=30.0, task_spec=REFEREE)
    assert (slow.kind, slow.method, slow.grader_error) == (VerdictKind.MALFORMED, "reading", None)
    assert slow.evidence == "not read in 1 s"
    assert served.kind is VerdictKind.PROVED


@pytest.mark.parametrize(
    ("submission", "reason"),
    [
        ("slow to judge", "deadline of 3 s"),
        ("die", "worker died"),
        ("raise", "KeyError: 'no such certificate'"),
    ],
)
def test_a_submission_is_to_blame_where_the_reference_is_judged(
    submission: str, reason: str
) -> None:
    blamed, served = graded(submission, "2", deadline_s=3.0, task_spec=REFEREE)
    assert (blamed.kind, blamed.method) == (VerdictKind.MALFORMED, "reference")
    assert blamed.evidence == f"{reason}, where the reference answer is judged"
    assert blamed.grader_error is None
    assert served.kind is VerdictKind.PROVED


def test_where_nobody_knows_an_answer_a_blank_one_says_who_is_to_blame() -> None:
    hung, served = graded("hang", "2", deadline_s=2.0, task_spec="judges:Clueless")
    assert (hung.kind, hung.grader_error) == (VerdictKind.MALFORMED, None)
    assert served.kind is VerdictKind.PROVED
    breaking = replace(PROBLEM, meta={"breaks": "yes"})
    (failed,) = graded("raise", task_spec="judges:Clueless", problem=breaking)
    assert (failed.kind, failed.grader_error) == (
        VerdictKind.UNDECIDED,
        "KeyError: 'no such certificate'",
    )


@pytest.mark.parametrize("reference", ["hang", "die", "raise"])
def test_the_grader_is_to_blame_where_the_reference_fails_as_well(reference: str) -> None:
    problem = replace(PROBLEM, meta={"reference": reference})
    (failed,) = graded("raise", deadline_s=3.0, task_spec=REFEREE, problem=problem)
    assert failed.kind is VerdictKind.UNDECIDED
    assert failed.grader_error == "KeyError: 'no such certificate'"


@pytest.mark.parametrize(
    "submission",
    [
        "re((pi + I)**4096)",
        "im((pi + I)**4096)",
        "floor((pi + E)**4096)",
        "1/(sin(1)**2 + cos(1)**2 - 1)",
        "(x + 1)**4096/0",
        "log(sin(1)**2 + cos(1)**2 - 1)",
    ],
)
def test_no_answer_to_everything_goes_unpriced(submission: str) -> None:
    meta = {"family": "calculus", "kind": "definite", "answer": "4*exp(6)", "points": "s"}
    problem = Problem(id="p", statement="", meta=meta)
    (verdict,) = graded(submission, task_spec=SYMPY_TASK, problem=problem)
    assert verdict.kind in (VerdictKind.MALFORMED, VerdictKind.WRONG)
    assert verdict.method != "reading", "what is known to be slow is refused, not waited for"


def test_printing_does_not_reach_the_pipe() -> None:
    assert graded("print")[0].evidence == "2"


def test_memory_is_limited() -> None:
    assert graded("memory")[0].grader_error == "MemoryError: "


def test_evidence_is_cut_to_fit_a_message() -> None:
    assert len(graded("long")[0].evidence) == 65536


def test_a_submission_of_65537_characters_is_refused_before_a_worker_sees_it() -> None:
    async def refused() -> Verdict:
        async with asyncio.timeout(60):
            return await Grader(num_workers=0).grade(JUDGE, PROBLEM, "1" * 65537)

    verdict = asyncio.run(refused())
    assert (verdict.kind, verdict.method) == (VerdictKind.MALFORMED, "length")
    assert verdict.evidence == "65537 characters"
    assert graded("1" * 65536)[0].kind is VerdictKind.PROVED


def test_a_worker_for_the_shipped_task_never_imports_torch() -> None:
    async def modules() -> str:
        async with Grader() as grader:
            problem = Problem(id="p", statement="", meta={"family": "none"})
            unknown = await grader.grade(SYMPY_TASK, problem, "1")
            assert unknown.grader_error == "KeyError: 'none'"
            return (await grader.grade(JUDGE, PROBLEM, "modules")).evidence

    loaded = set(asyncio.run(modules()).split())
    assert "sympy" in loaded
    assert not loaded & {"torch", "transformers", "trl", "jupyter_client", "numpy"}


def test_the_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s")
    names = set(graded("environment")[0].evidence.split())
    assert "SECRET_TOKEN" not in names
    assert "HOME" not in names


def test_a_worker_leads_its_own_process_group() -> None:
    pid, group = map(int, graded("group")[0].evidence.split())
    assert pid == group != os.getpgid(0)


def test_no_worker_outlives_its_grader() -> None:
    pid = int(graded("group")[0].evidence.split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def test_a_worker_that_is_slow_to_die_costs_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def grade() -> Verdict:
        async with Grader(num_workers=2) as grader:
            verdict = await grader.grade(REFEREE, PROBLEM, "2")
            processes = [worker._process for worker in grader._workers]
            monkeypatch.setattr("repl_rl.grading.grader.STOP_TIMEOUT_S", 0.0)
        for process in filter(None, processes):  # else they are left to the garbage collector
            await process.wait()
        return verdict

    assert asyncio.run(grade()).kind is VerdictKind.PROVED


def test_a_cancelled_end_kills_every_worker() -> None:
    async def end() -> list[str]:
        grader = Grader(num_workers=3)
        await grader.__aenter__()
        verdicts = [await grader.grade(JUDGE, PROBLEM, "group") for _ in range(3)]
        workers = [psutil.Process(int(verdict.evidence.split()[0])) for verdict in verdicts]
        ending = asyncio.create_task(grader.aclose())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        return survivors(workers)

    assert asyncio.run(end()) == []


def test_a_task_that_cannot_be_loaded_is_our_error() -> None:
    with pytest.raises(GraderError, match=r"cannot load 'judges:Unloadable'.*no data"):
        graded("2", task_spec="judges:Unloadable")
    with pytest.raises(GraderError, match="no module named 'nowhere'"):
        graded("2", task_spec="nowhere:Task")


def test_a_cancelled_grade_leaves_the_grader_usable() -> None:
    async def cancel_then_grade() -> Verdict:
        async with Grader() as grader:
            await grader.grade(JUDGE, PROBLEM, "2")
            hanging = asyncio.create_task(grader.grade(JUDGE, PROBLEM, "hang"))
            await asyncio.sleep(0.1)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return await grader.grade(JUDGE, PROBLEM, "2")

    assert asyncio.run(cancel_then_grade()).kind is VerdictKind.PROVED


def test_two_workers_grade_side_by_side() -> None:
    async def hang_twice() -> bool:
        async with Grader(num_workers=2, deadline_s=30.0) as grader:
            await asyncio.gather(*(grader.grade(JUDGE, PROBLEM, "2") for _ in range(2)))
            hanging = [asyncio.create_task(grader.grade(JUDGE, PROBLEM, "hang")) for _ in range(2)]
            await asyncio.sleep(0.1)
            both_taken = grader._idle.empty()
            for task in hanging:
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
            return both_taken

    assert asyncio.run(hang_twice())


def test_a_worker_takes_another_task_afresh() -> None:
    async def grade_both() -> list[str]:
        async with Grader() as grader:
            return [
                (await grader.grade(spec, PROBLEM, "group")).evidence
                for spec in (JUDGE, REFEREE, REFEREE)
            ]

    first, second, third = asyncio.run(grade_both())
    assert first != second == third


HANGING_PARENT = """
import asyncio, sys
from repl_rl.grading.grader import Grader
from repl_rl.records import Problem

async def main():
    async with Grader(deadline_s=50) as grader:
        problem = Problem(id="p", statement="")
        print((await grader.grade("judges:Judge", problem, "group")).evidence, flush=True)
        await grader.grade("judges:Judge", problem, "hang")

asyncio.run(main())
"""


def test_a_busy_worker_dies_with_its_parent() -> None:
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen(
        [sys.executable, "-c", HANGING_PARENT],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert parent.stdout is not None
    with parent.stdout:
        worker = psutil.Process(int(parent.stdout.readline().split()[0]))
    assert is_running(worker)
    parent.kill()
    parent.wait(60)
    assert survivors([worker]) == []


def test_half_a_request_ends_a_worker_without_a_word() -> None:
    replies = io.BytesIO()
    serve(io.BytesIO(b'{"task_spec": "jud'), replies)
    assert replies.getvalue() == b""
