"""A worker without a model, whose lines are drawn by their seeds: `python scripted_worker.py`.

With a trouble and a folder as its arguments, the first process that gets as far as that trouble
is in it; all others work. What a launch command puts behind is not read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from repl_rl.commands.worker import Rows, _stdin, serve
from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import bound_reward
from repl_rl.engines.base import BusyEngine, LineEnd, SampledLine, Weights
from repl_rl.errors import EngineError
from repl_rl.grading.worker import private_stdout
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.rollout.workers import Report
from repl_rl.runs.folder import own_versions
from repl_rl.runs.trajectory_file import FORMAT
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution

CODEC = ByteCodec()
CONTEXT_TOKENS = 4096
LINES = (" x = 1\n", " 1 + 1\n", " 1/0\n", " # so\n", " submit_final_answer(2)\n")
ANSWERS = {
    "1 + 1": Execution(status=ExecStatus.OK, output="2\n"),
    "2": Execution(status=ExecStatus.OK, value="2"),
}


class SeededEngine:
    """Draws one of `LINES` by ids and seed. Takes any weights, and keeps their version."""

    def __init__(self) -> None:
        self.num_sampled, self.version, self.label, self.delay_s = 0, 0, "", 0.0

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        await asyncio.sleep(self.delay_s)
        rng = random.Random(f"{list(ids)} {seed}")
        sampled = tuple(rng.choice(LINES).encode())
        self.num_sampled += len(sampled)
        return SampledLine(
            ids=sampled,
            logprobs=tuple(-rng.random() for _ in sampled),
            end=LineEnd.NEWLINE,
            policy_version=self.version,
        )

    async def sync(self, weights: Weights, *, version: int) -> None:
        raise AssertionError("the trainer's engine gets weights")

    async def adopt(self, label: str, *, version: int) -> None:
        self.label, self.version = label, version

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


class OneTask:
    name = "one"
    prompt = "{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        raise AssertionError("problems are given")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("a judge grades")


class FixedJudge:
    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        return Verdict(kind=VerdictKind.PROVED, ms=1.5)


def runner_of(engine: SeededEngine, *, max_in_flight: int = 4) -> RolloutRunner:
    return RolloutRunner(
        task=OneTask(),
        fmt=PYTHON,
        sampler=LineSampler(
            engine, CODEC, PYTHON, SamplingConfig(max_lines=6), context_tokens=CONTEXT_TOKENS
        ),
        kernels=FakeKernels(ANSWERS),
        scorer=Scorer(task_spec="", judge=FixedJudge(), reward=bound_reward(RewardConfig())),
        max_in_flight=max_in_flight,
    )


# Trouble


class Troubled(Rows):
    """Gets into `trouble`, once in all processes that share `folder`."""

    trouble: str
    folder: Path
    num_said: int

    def is_due(self, at: int) -> bool:
        """Say whether it is this process's turn, where `at` rows of trajectories were sent."""
        if self.num_said != at:
            return False
        try:
            (self.folder / "trouble").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def say(self, report: Report) -> None:
        if report.number == 0:
            self.say_ready(report)
            return
        act, _, at = self.trouble.partition("@")
        is_due = act in (*ROWS, *ACTS) and (at == "always" or self.is_due(int(at or 0)))
        self.num_said += 1
        if is_due and act in ROWS:
            self.reports.write(ROWS[act](self.row(report)))
            self.reports.flush()
        elif is_due:
            ACTS[act](self, report)
        else:
            super().say(report)

    def say_ready(self, report: Report) -> None:
        act = self.trouble
        if act == "other version":
            report = Report(format=FORMAT, versions={**(report.versions or {}), "repl_rl": "0.0"})
        if act == "not ready":
            time.sleep(100)
        super().say(report)

    def row(self, report: Report) -> dict[str, Any]:
        import msgspec

        made: dict[str, Any] = json.loads(msgspec.json.encode(report))
        return made


Row = dict[str, Any]


def encoded(row: Row) -> bytes:
    return json.dumps(row).encode() + b"\n"


ROWS: dict[str, Callable[[Row], bytes]] = {
    "garbage": lambda row: b"Traceback (most recent call last):\n",
    "no text": lambda row: b'{"format": 2, "number": 1, "walls": "\xff\xfe"}\n',
    "half a row": lambda row: encoded(row)[: len(encoded(row)) // 2] + b"\n",
    "nested": lambda row: b'{"format": 2, "scored": ' + b"[" * 100_000 + b"\n",
    "without an end": lambda row: b"x" * (70 << 20),
    "a number of nobody": lambda row: encoded({**row, "number": 10**6}),
    "twice": lambda row: 2 * encoded(row),
    "no trajectory": lambda row: encoded({"format": 2, "number": row["number"], "versions": {}}),
    "that of another": lambda row: encoded(
        {**row, "scored": {**row["scored"], "problem": {"id": "q", "statement": "q"}}}
    ),
}
"""Texts that are written in place of a row."""


def close_stdout(rows: Troubled, _: Report) -> None:
    rows.reports.close()


def kill(rows: Troubled, report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_within(rows: Troubled, report: Report) -> None:
    rows.reports.write(encoded(rows.row(report))[:100])
    rows.reports.flush()
    kill(rows, report)


def kill_behind(rows: Troubled, report: Report) -> None:
    Rows.say(rows, report)
    kill(rows, report)


def stop(rows: Troubled, report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def block(rows: Troubled, report: Report) -> None:
    time.sleep(100)


def fail(rows: Troubled, report: Report) -> None:
    raise EngineError("the server is gone")


def leave(rows: Troubled, report: Report) -> None:
    print("no space left on device", file=sys.stderr)
    os._exit(7)


ACTS: dict[str, Callable[[Troubled, Report], None]] = {
    "killed": kill,
    "killed within a row": kill_within,
    "killed behind a row": kill_behind,
    "stopped": stop,
    "blocked": block,
    "fails": fail,
    "leaves": leave,
    "closes stdout": close_stdout,
    "keeps a trajectory": lambda rows, report: None,
}
"""Deeds that are done in place of a row."""


async def main(trouble: str, folder: str) -> None:
    if trouble == "clock jumps":
        read, looks = time.time, itertools.count()
        time.time = lambda: read() + 21_600 * (next(looks) % 3 - 1)
    with private_stdout() as output:
        rows = Troubled(await _stdin(), output)
        rows.trouble, rows.folder, rows.num_said = trouble, Path(folder), 0
        first = await rows.next()
        assert first is not None
        assert first.open is not None
        if trouble == "cannot start":
            raise SystemExit("no module named 'torch'")
        rows.say(Report(format=FORMAT, versions=own_versions(("sympy",)), walls="none"))
        await serve(rows, runner_of(engine := SeededEngine()), BusyEngine(engine), beat_s=0.1)


if __name__ == "__main__":
    trouble = sys.argv[1].replace("_", " ")
    asyncio.run(main(trouble, sys.argv[2]))
    if trouble == "never ends":
        time.sleep(100)
