"""Judge submissions in processes of their own, each under a deadline.

    task_spec, Problem, submission -> idle worker -> Verdict

A worker that overruns its deadline, dies or sends nonsense is killed with its group and replaced.
Who is to blame decides the verdict. A submission is MALFORMED if it cannot be read in time, or
cannot be judged although the task's own reference answer can. Otherwise the verdict is UNDECIDED
with `grader_error` set: a failure of the grader is not a wrong answer.

Knows no task: `module:Class` is text that the worker resolves. Knows no reward.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Self

import msgspec

from repl_rl.errors import GraderError
from repl_rl.grading.protocol import (
    MAX_MESSAGE_BYTES,
    MAX_TEXT_CHARS,
    READ_SIGNAL,
    READING_S,
    GraderReply,
    GraderRequest,
)
from repl_rl.records import Problem, Verdict, VerdictKind

START_TIMEOUT_S = 60.0
"""For starting Python and importing a task: once for each worker, outside every deadline."""
STOP_TIMEOUT_S = 5.0


class Grader:
    """Owns its workers: `async with Grader() as grader: await grader.grade(...)`."""

    def __init__(self, *, num_workers: int = 1, deadline_s: float = 5.0) -> None:
        self.deadline_s = deadline_s
        self._workers = [_Worker() for _ in range(num_workers)]
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        """Raises GraderError if a worker cannot be started."""
        try:
            for worker in self._workers:
                await worker.start()
                self._idle.put_nowait(worker)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Kill every worker, even if one cannot be stopped. Safe to call twice."""
        async with contextlib.AsyncExitStack() as stops:
            for worker in self._workers:
                stops.push_async_callback(worker.stop)

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        """Waits for an idle worker, then at most `deadline_s` for its verdict.

        Raises GraderError only where nothing can be graded: a worker or the task does not load.
        """
        if len(submission) > MAX_TEXT_CHARS:
            evidence = f"{len(submission)} characters"
            return Verdict(kind=VerdictKind.MALFORMED, method="length", evidence=evidence)
        worker = await self._idle.get()
        try:
            await worker.load(task_spec)
            started = time.monotonic()
            request = GraderRequest(task_spec=task_spec, problem=problem, submission=submission)
            verdict = await self._verdict_of(worker, request)
            assert verdict is not None, "a worker answers a submission with a verdict"
            if verdict.grader_error is not None and await self._is_reference_judged(
                worker, replace(request, submission=None)
            ):
                verdict = _blamed(verdict.grader_error)
            return replace(verdict, ms=(time.monotonic() - started) * 1e3)
        finally:
            self._idle.put_nowait(worker)

    async def _verdict_of(self, worker: _Worker, request: GraderRequest) -> Verdict | None:
        """None only where the reference is asked for and the task has none."""
        try:
            return (await worker.ask(request, timeout_s=self.deadline_s)).verdict
        except TimeoutError:
            return _ungraded(f"deadline of {self.deadline_s:g} s")
        except _ReadingTooSlowError as slow:
            return Verdict(kind=VerdictKind.MALFORMED, method="reading", evidence=str(slow))
        except _WorkerLostError as lost:
            return _ungraded(str(lost))

    async def _is_reference_judged(self, worker: _Worker, request: GraderRequest) -> bool:
        """Say whether the same worker solves the same problem with the task's own answer to it."""
        await worker.load(request.task_spec)
        verdict = await self._verdict_of(worker, request)
        return verdict is not None and verdict.is_solved


class _WorkerLostError(Exception):
    """The worker died, or sent no valid reply."""


class _ReadingTooSlowError(_WorkerLostError):
    """The worker was ended while it read a submission."""


class _WorkerKilledError(_WorkerLostError):
    """Somebody else killed the worker, as Linux does where memory runs out."""


class _Worker:
    """One process and its pipes. After any failure it is stopped, and `load` starts it afresh."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._loaded: str | None = None
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(GraderReply)

    async def start(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "repl_rl.grading.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_MESSAGE_BYTES,
                env=clean_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise GraderError(f"the grader's process cannot be started: {error}") from error
        self._loaded = None

    async def load(self, task_spec: str) -> None:
        """Let the worker import the task; starts the process first where it is gone.

        A process holds one task: what it takes to load another may lie beyond its walls.
        """
        if self._loaded not in (None, task_spec):
            await self.stop()
        if self._process is None:
            await self.start()
        if task_spec == self._loaded:
            return
        try:
            reply = await self.ask(GraderRequest(task_spec=task_spec), timeout_s=START_TIMEOUT_S)
        except (TimeoutError, _WorkerLostError) as error:
            reason = str(error) or f"no answer in {START_TIMEOUT_S:g} s"
            raise GraderError(f"the grader cannot load {task_spec!r}: {reason}") from error
        if reply.failure:
            raise GraderError(f"the grader cannot load {task_spec!r}: {reply.failure}")
        self._loaded = task_spec

    async def ask(self, request: GraderRequest, *, timeout_s: float) -> GraderReply:
        """One request, one reply. Without one the worker is stopped, cancellation included.

        Asked once more where somebody killed the worker: it says nothing of the request.
        """
        try:
            return await self._ask_once(request, timeout_s)
        except _WorkerKilledError:
            if request.problem is None:
                await self.start()
            else:
                await self.load(request.task_spec)
            return await self._ask_once(request, timeout_s)

    async def _ask_once(self, request: GraderRequest, timeout_s: float) -> GraderReply:
        is_answered = False
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._exchange(self._encoder.encode(request) + b"\n")
            is_answered = True
            return reply
        finally:
            if not is_answered:
                await self.stop()

    async def _exchange(self, message: bytes) -> GraderReply:
        process = self._process
        assert process is not None, "load starts a worker before it is asked"
        assert process.stdin is not None, "started with a pipe"
        assert process.stdout is not None, "started with a pipe"
        try:
            process.stdin.write(message)
            await process.stdin.drain()
            line = await process.stdout.readline()
        except OSError:  # a closed pipe
            line = b""
        except ValueError as error:  # a line beyond the limit
            raise _WorkerLostError(f"worker lost: {error}") from error
        if not line:
            raise _lost(await process.wait())
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _WorkerLostError(f"the worker sent an invalid reply: {error}") from error

    async def stop(self) -> None:
        """Kill the process group and reap it; one that is slow to die is left behind."""
        process, self._process = self._process, None
        self._loaded = None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):  # killed already; verdicts must not be lost for it
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _lost(code: int) -> _WorkerLostError:
    if code == -READ_SIGNAL:
        return _ReadingTooSlowError(f"not read in {READING_S:g} s")
    if code == -signal.SIGKILL:
        return _WorkerKilledError("worker killed")
    return _WorkerLostError("worker died")


def _ungraded(reason: str) -> Verdict:
    return Verdict(kind=VerdictKind.UNDECIDED, grader_error=reason)


def _blamed(reason: str) -> Verdict:
    evidence = f"{reason}, where the reference answer is judged"
    return Verdict(kind=VerdictKind.MALFORMED, method="reference", evidence=evidence)


def clean_environment() -> dict[str, str]:
    """Environment with all that a worker needs to find the same modules, and nothing else."""
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": search_path,
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "SYMPY_GROUND_TYPES": "python",
    }
