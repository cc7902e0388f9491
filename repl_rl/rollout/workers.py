"""Rollouts in worker processes, by rows of JSON: attempts down, scored trajectories up.

    Attempt -> a worker's stdin;  its stdout -> Scored, checked against what was asked for

A worker is `repl-rl worker`, on this machine or behind a command such as `ssh HOST`. One that dies,
hangs or says what cannot be is ended and started again, and what it had is attempted anew, with the
same seeds. Knows processes, rows and what a trajectory must agree with. Does not know engines,
kernels or tensors; `commands/worker.py` is the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from repl_rl.base.concurrency import run_all
from repl_rl.base.disk import explained
from repl_rl.base.plugins import searched
from repl_rl.base.terminal import one_row
from repl_rl.config.resolve import to_toml
from repl_rl.credit.base import More
from repl_rl.engines.base import fault_of_line
from repl_rl.errors import ConfigError, WorkerError
from repl_rl.records import Attempt, Scored
from repl_rl.rollout.builder import fault
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.runner import RolloutRunner, Waits
from repl_rl.runs.folder import own_versions
from repl_rl.runs.trajectory_file import StoredRow
from repl_rl.tasks.base import make_prompt
from repl_rl.transcript.encoding import prompt_ids

if TYPE_CHECKING:
    from repl_rl.models.loading import ModelFiles

_COMMAND = (sys.executable, "-P", "-m", "repl_rl.commands.cli", "worker")
"""None of its words means anything to a shell, such as the one that ssh hands them to."""
_MAX_ROW_BYTES, _MAX_WORDS_BYTES = 1 << 26, 1 << 12
_START_S, _CLOSE_S = 600.0, 10.0
"""The most that a worker may take to open what it needs, and to close it."""
_PAUSES_S = (0.1, 1.0, 5.0)
"""Before each start of a worker that was lost, until it delivers a trajectory."""
_MOST_LOST = 3
"""Workers that may be lost with one attempt: the next one would be, too."""
_TICKS = 6
"""Parts of `workers.timeout_s`. They are counted, so that time in which this process did not run,
such as that of an update, is nobody's silence."""
_MAY_DIFFER = {"platform", "torch", "trl", "accelerate", "peft"}
"""Versions of what neither samples, runs nor grades in a worker."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker must know before its first attempt."""

    config: str
    """The resolved config, as TOML."""
    policy: str
    """Folder or name of the model, of which it reads config and tokenizer."""
    row_tokens: int
    """The most tokens of an engine's row."""
    context_tokens: int
    """The most tokens of a trajectory, prompt included."""
    search: tuple[str, ...]
    """Folders of modules that the config names."""


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row to a worker: one of these."""

    open: Opening | None = None
    adopt: tuple[str, int] | None = None
    """Label and version of the weights that the servers have: see `SharedEngine.adopt`."""
    attempt: Attempt | None = None
    number: int = 0
    """Number of the attempt; 0 for no attempt."""


class Report(StoredRow, frozen=True, kw_only=True, omit_defaults=True):
    """A row from a worker: one of a file of trajectories, with its number and what it took.

    The first one has `versions` instead, others without `scored` are signs of life.
    """

    number: int = 0
    versions: Mapping[str, str] | None = None
    walls: str = ""
    """Walls around its kernels."""
    waits: Waits | None = None
    num_retries: int = 0
    num_sampled: int = 0
    """Tokens sampled since the row before, as `busy_s`, seconds with a line in flight."""
    busy_s: float = 0.0


_ORDERS, _REPORTS = msgspec.json.Encoder(), msgspec.json.Decoder(Report)
_Answer = asyncio.Future[Report | None]
"""None: the worker was lost."""


class _Worker:
    """One worker: its process, and the next one where that was lost."""

    def __init__(self, name: str, launch: str, pool: WorkerPool) -> None:
        self.name = f"{name} ({launch})" if launch else name
        self.walls: str | None = None
        """Walls around its kernels; None while it is not ready."""
        self.fault = ""
        """Reason why it was lost last: the end of a sentence."""
        self.owed: dict[int, tuple[Attempt | None, _Answer]] = {}
        """Attempts under way, by number. 0, without an attempt, is that it is ready."""
        self._words = (*launch.split(), *_COMMAND)
        self._log = pool.logs / f"{name.replace(' ', '-')}.log"
        self._pool = pool
        self._process: asyncio.subprocess.Process | None = None
        self._num_lost = 0
        """Since it delivered a trajectory."""
        self._silence = self._delay = 0
        """Ticks since it said something, and since it said what it owes, while it owes something.
        """

    async def start(self, pause_s: float = 0.0) -> None:
        """Start it behind a pause; it has `walls` if it comes up, else a `fault`."""
        await asyncio.sleep(pause_s)
        try:
            with self._log.open("ab") as errors:
                begin = errors.tell()
                self._process = await asyncio.create_subprocess_exec(
                    *self._words,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    limit=_MAX_ROW_BYTES,
                    start_new_session=True,
                )
        except OSError as error:
            self._lose(f"cannot be started: {error.strerror}")
            return
        _keep(self._listen(self._process, begin), self._pool.listening)
        ready = self.ask(None)
        self.adopt()
        await ready

    def ask(self, attempt: Attempt | None, number: int = 0) -> _Answer:
        """Ask for a trajectory, or to get ready."""
        answer: _Answer = asyncio.get_running_loop().create_future()
        self.owed[number] = attempt, answer
        opening = None if attempt is not None else self._pool.opening
        self._send(Order(open=opening, attempt=attempt, number=number))
        return answer

    def adopt(self) -> None:
        """Say what weights the servers have."""
        if self._pool.weights is not None:
            self._send(Order(adopt=self._pool.weights))

    def tick(self) -> None:
        """Lose it where it has been silent for too long, or owes what it could have delivered."""
        if not self.owed:
            self._silence = self._delay = 0
        self._silence, self._delay = self._silence + 1, self._delay + 1
        is_starting = 0 in self.owed
        if self._delay * self._pool.tick_s > (_START_S if is_starting else self._pool.most_s):
            self._lose("did not answer in time")
        elif self._silence > _TICKS and not is_starting:
            self._lose(f"was silent for {_TICKS * self._pool.tick_s:g} s")

    def hang_up(self) -> None:
        """Let it end by itself, if it is ready to hear so."""
        if self.walls is None:
            self.end()
        elif self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def end(self) -> None:
        """Kill it, if it is there. Nothing comes of what it owes."""
        process, self._process, self.walls = self._process, None, None
        owed, self.owed = self.owed, {}
        self._silence = self._delay = 0
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for _, answer in owed.values():
            if not answer.done():
                answer.set_result(None)

    def _lose(self, fault: str) -> None:
        """End it for this reason, and have it started again."""
        self.fault, self._num_lost = one_row(fault), self._num_lost + 1
        num_owed = sum(attempt is not None for attempt, _ in self.owed.values())
        self.end()
        if not self._pool.is_open:
            return
        again = self._num_lost <= len(_PAUSES_S)
        owed = f"attempts that are made again: {num_owed}, and " if num_owed else ""
        self._pool.warn(
            f"{self.name} {self.fault}; {owed}it is {'' if again else 'not '}started again"
        )
        if again:
            _keep(self.start(_PAUSES_S[self._num_lost - 1]), self._pool.starting)

    def _send(self, order: Order) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(_ORDERS.encode(order) + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process, begin: int) -> None:
        """Hear a process until it ends, whatever the reason. `begin` is where its log begins."""
        assert process.stdout is not None, "started with a pipe"
        fault = ""
        try:
            while (row := await process.stdout.readline()).endswith(b"\n"):
                if self._process is process:
                    self._hear(row)
        except ConfigError as error:
            fault = str(error)
        except ValueError:
            fault = f"sent a row of more than {_MAX_ROW_BYTES >> 20} MiB"
        if not fault:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await process.wait()
            fault = f"has ended (exit code {process.returncode})" + self._last_words(begin)
        if self._process is process:  # nobody has ended it for another reason
            self._lose(fault)
        await process.wait()

    def _last_words(self, begin: int) -> str:
        with self._log.open("rb") as said:
            said.seek(max(begin, said.seek(0, os.SEEK_END) - _MAX_WORDS_BYTES))
            last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
        return last and f": {last}"

    def _hear(self, row: bytes) -> None:
        """ConfigError for what no worker of this run says."""
        try:
            report = _REPORTS.decode(row)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"sent a row that is none: {error}") from None
        self._silence = 0
        if report.versions is None and report.scored is UNSET:
            return
        attempt, answer = self.owed.get(report.number, (None, None))
        if answer is None:
            raise ConfigError("sent what it was not asked for")
        if attempt is None:
            self._pool.check_versions(report.versions or {})
            self.walls = report.walls
        else:
            self._pool.take(attempt, report)
            self._num_lost = 0
        self._delay = 0
        del self.owed[report.number]
        if not answer.done():
            answer.set_result(report)


@dataclass(kw_only=True)
class WorkerPool:
    """The workers of one process that trains. `async with` starts them, and ends them all."""

    plan: Plan
    files: ModelFiles
    row_tokens: int
    context_tokens: int
    """Most tokens of a trajectory, prompt included; `row_tokens` are those of an engine's row."""
    runner: RolloutRunner
    """Its clocks and its counter take in what workers measure."""
    on_sampled: Callable[[int, float], None]
    """Hears of tokens that workers have sampled, and for how long, on average."""
    logs: Path
    """Folder that keeps what each worker says on stderr."""
    warn: Callable[[str], None]
    """Hears of each worker that is lost."""
    first: int = 0
    """Number of the first one, among those of all processes that train."""
    weights: tuple[str, int] | None = field(default=None, init=False)
    """Label and version of those that the servers have."""
    is_open: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        config, sampling = self.plan.workers, self.plan.sampling
        launch, numbers = config.launch or ("",), range(self.first, self.first + config.count)
        self._workers = [_Worker(f"worker {n}", launch[n % len(launch)], self) for n in numbers]
        self._numbers = itertools.count(1)
        self.listening: set[asyncio.Task[None]] = set()
        self.starting: set[asyncio.Task[None]] = set()
        self._versions = own_versions(self.plan.sandbox.preload)
        self._vocabulary = self.files.vocabulary
        self.tick_s = config.timeout_s / _TICKS
        self.opening = Opening(
            config=to_toml(self.plan.config),
            policy=self.files.name,
            row_tokens=self.row_tokens,
            context_tokens=self.context_tokens,
            search=searched(),
        )
        # Twice: a rollout is tried again where its kernel was lost.
        self.most_s = 2 * (sampling.engine_timeout_s + sampling.time_limit_s) + _START_S
        """Time for a trajectory, its kernel and its verdict."""

    def __str__(self) -> str:
        walls = {one.walls: None for one in self._workers if one.walls}
        return f"{len(self._workers)}, kernels {' or '.join(walls)}"

    async def __aenter__(self) -> Self:
        """ConfigError, which names the worker, where one does not come up."""
        try:
            self._clock = asyncio.create_task(self._tick())
            with explained(self.logs):
                self.logs.mkdir(parents=True, exist_ok=True)
            await run_all(_Worker.start, self._workers)
            for lost in (one for one in self._workers if one.walls is None):
                raise ConfigError(f"{lost.name} {lost.fault}")
        except BaseException:
            await self.__aexit__()
            raise
        self.is_open = True
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self.is_open = False
        for task in (others := {self._clock, *self.starting}):
            task.cancel()
        await asyncio.wait(others)
        for worker in self._workers:
            worker.hang_up()
        for _ in range(2):
            if self.listening:
                await asyncio.wait(self.listening, timeout=_CLOSE_S)
            for worker in self._workers:
                worker.end()

    def adopt(self, label: str, *, version: int) -> None:
        """Have workers follow the weights that the servers were given."""
        self.weights = (label, version)
        for worker in self._workers:
            worker.adopt()

    async def run(
        self,
        attempts: Sequence[Attempt],
        *,
        on_sampled: Callable[[], None] = lambda: None,
        on_scored: Callable[[Scored], None] | None = None,
        more: More | None = None,
    ) -> list[Scored]:
        """Run like `RolloutRunner.run`, without `more`; what is called off under way is not kept.

        Raises WorkerError where no worker is left, or an attempt has lost several.
        """
        assert more is None, "refused with credit that grows"

        async def one(attempt: Attempt) -> Scored:
            for _ in range(_MOST_LOST):
                worker = await self._free()
                report = await worker.ask(attempt, next(self._numbers))
                if report is not None and report.scored is not UNSET:
                    on_sampled()
                    if on_scored is not None:
                        on_scored(report.scored)
                    return report.scored
            raise WorkerError(
                f"the attempt at problem {attempt.problem.id} (group {attempt.group_index}, "
                f"sibling {attempt.sibling_index}) has lost {_MOST_LOST} workers; the last one, "
                f"{worker.name}, {worker.fault}"
            )

        at_once = self.plan.sampling.max_in_flight * len(self._workers)
        try:
            return await run_all(one, attempts, at_once=at_once)
        finally:
            for worker in self._workers:
                if worker.walls is not None and worker.owed:  # nobody waits for it
                    worker.end()
                    _keep(worker.start(), self.starting)

    def check_versions(self, versions: Mapping[str, str]) -> None:
        """ConfigError for others than those here."""
        for name, here in self._versions.items():
            if name not in _MAY_DIFFER and (there := versions.get(name)) != here:
                raise ConfigError(f"has {name} {there}, and {here} is here; install the same")

    def take(self, attempt: Attempt, report: Report) -> None:
        """Count what a trajectory took; ConfigError unless it is one of this attempt."""
        self._check(attempt, report.scored)
        if report.waits is not None:
            self.runner.waits.add(report.waits)
        self.runner.num_retries += report.num_retries
        self.on_sampled(report.num_sampled, report.busy_s / len(self._workers))

    def _check(self, attempt: Attempt, scored: Scored | UnsetType) -> None:
        if scored is UNSET:
            raise ConfigError("sent no trajectory")
        made, problem = scored.trajectory, attempt.problem
        prompt = make_prompt(self.runner.task, problem, self.runner.fmt)
        beginnings = (attempt.kernel_seed, attempt.branch), (attempt.seed, None)
        for name, is_so in {
            "problem": (scored.problem, made.problem_id) == (problem, problem.id),
            "group_index": made.group_index == attempt.group_index,
            "sibling_index": made.sibling_index == attempt.sibling_index,
            "seed": (made.seed, made.branch) in beginnings,
            "policy_version": self.weights is None or made.policy_version == self.weights[1],
            "prompt_ids": made.prompt_ids == tuple(prompt_ids(prompt, self.files.codec)),
        }.items():
            if not is_so:
                raise ConfigError(f"sent a trajectory of another {name} than it was asked for")
        ids, logprobs = made.completion_ids, made.logprobs
        wrong = fault(made) or fault_of_line(ids, logprobs, vocabulary=self._vocabulary)
        if len(scored.reward.line_rewards) != len(made.lines):
            wrong = "it does not have a reward for each line"
        if wrong or not made.num_sampled:
            raise ConfigError(f"sent a trajectory that cannot be: {wrong or 'no token to train'}")

    async def _free(self) -> _Worker:
        """Return the worker that owes least; WorkerError where there is none."""
        while not (ready := [one for one in self._workers if one.walls is not None]):
            if not self.starting:
                faults = "; ".join(f"{one.name} {one.fault}" for one in self._workers)
                raise WorkerError(f"no worker is left: {faults}")
            await asyncio.wait(self.starting, return_when=asyncio.FIRST_COMPLETED)
        return min(ready, key=lambda one: len(one.owed))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.tick_s)
            for worker in self._workers:
                worker.tick()


def _keep(work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
    """Begin it, and keep it there until it ends: the event loop does not."""
    task = asyncio.create_task(work)
    among.add(task)
    task.add_done_callback(among.discard)
