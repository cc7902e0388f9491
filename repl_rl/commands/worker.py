"""`repl-rl worker`: kernels, a grader, the line loop and a client of an engine, in one process.

    rows on stdin -> Opening, then attempts -> rows on stdout; the end of stdin is the end

`rollout/workers.py` is the other end, and says what rows there are. What anything else prints goes
to stderr. Knows rows and what opens a plan. Does not know groups, steps or weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from repl_rl.base.plugins import search_too
from repl_rl.config.resolve import resolve
from repl_rl.engines.base import BusyEngine
from repl_rl.errors import ConfigError
from repl_rl.grading.worker import die_with_parent, private_stdout
from repl_rl.records import Attempt
from repl_rl.rollout.env import Env
from repl_rl.rollout.plan import make_plan
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.workers import Opening, Order, Report
from repl_rl.runs.folder import own_versions
from repl_rl.runs.trajectory_file import FORMAT

_BEATS = 4
"""Signs of life within `workers.timeout_s`."""


@click.command()
def worker() -> None:
    """Sample trajectories for `repl-rl train`, which starts it.

    Both speak in rows of JSON, on stdin and stdout.
    """
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise ConfigError("`repl-rl train` starts its workers itself; set workers.count there")
    die_with_parent()
    with private_stdout() as output:
        asyncio.run(_serve(output))


async def _serve(output: BinaryIO) -> None:
    rows = Rows(await _stdin(), output)
    if (first := await rows.next()) is None:
        return
    if first.open is None:
        raise ConfigError(
            "the first row on stdin opens nothing; set workers.count of `repl-rl train`, which "
            "starts workers"
        )
    await work(first.open, rows)


async def _stdin() -> asyncio.StreamReader:
    """The rows; whoever else reads stdin finds its end."""
    reader = asyncio.StreamReader(limit=1 << 26)
    pipe = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    return reader


@dataclass(slots=True)
class Rows:
    """Both directions of a worker."""

    orders: asyncio.StreamReader
    reports: BinaryIO

    async def next(self) -> Order | None:
        """The next order; None at the end, which may come within a row."""
        row = await self.orders.readline()
        try:
            return msgspec.json.decode(row, type=Order) if row.endswith(b"\n") else None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"stdin has a row that is no order: {error}") from None

    def say(self, report: Report) -> None:
        """Nobody may hear it: then stdin ends as well."""
        with contextlib.suppress(OSError):
            self.reports.write(msgspec.json.encode(report) + b"\n")
            self.reports.flush()


async def work(opening: Opening, rows: Rows) -> None:
    """Open all that samples, runs and grades, and serve until stdin ends."""
    for folder in opening.search:
        search_too(Path(folder))
    plan = make_plan(resolve(saved=opening.config))
    plan.engine.check_workers()
    plan.engine.prepare()
    from repl_rl.models.loading import read_files  # torch: seconds

    files = read_files(opening.policy, run_on=plan.sampling.run_on)
    client: Any = plan.engine.open(plan.config, files, row_tokens=opening.row_tokens)
    engine, fmt = BusyEngine(client), plan.format(files.chat_template)
    most = {"context_tokens": opening.context_tokens}
    async with contextlib.aclosing(engine), Env(plan, fmt) as env:
        sampler = plan.make_sampler(engine, files.codec, fmt, plan.sampling, **most)
        versions = own_versions(plan.sandbox.preload)
        rows.say(Report(format=FORMAT, versions=versions, walls=str(env.walls)))
        beat_s = plan.workers.timeout_s / _BEATS
        await serve(rows, env.runner(sampler), engine, beat_s=beat_s)


async def serve(rows: Rows, runner: RolloutRunner, engine: BusyEngine, *, beat_s: float) -> None:
    """Make the attempts of `rows` until these end. What a rollout raises ends all of them."""
    places, counted = asyncio.Semaphore(runner.max_in_flight), (0, 0.0)

    async def beat() -> None:
        while True:
            await asyncio.sleep(beat_s)
            rows.say(Report(format=FORMAT))

    async def make(attempt: Attempt, number: int) -> None:
        nonlocal counted
        own = runner.counting_apart()
        async with places:
            (scored,) = await own.run([attempt])
        before, counted = counted, (engine.num_sampled, engine.busy_s)
        rows.say(
            Report(
                format=FORMAT,
                scored=scored,
                number=number,
                waits=own.waits,
                num_retries=own.num_retries,
                num_sampled=counted[0] - before[0],
                busy_s=counted[1] - before[1],
            )
        )

    client: Any = engine.engine
    try:
        async with asyncio.TaskGroup() as group:
            under_way = {group.create_task(beat())}
            while (order := await rows.next()) is not None:
                if order.adopt is not None:
                    label, version = order.adopt
                    await client.adopt(label, version=version)
                elif order.attempt is not None:
                    task = group.create_task(make(order.attempt, order.number))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
            for task in under_way:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
