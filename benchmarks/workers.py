"""Load that workers carry: `python benchmarks/workers.py [-n 400] [--workers 0 1 2 4]`, one table.

Trajectories a second by how many workers make them, 0 being this process itself, with real kernels
and an engine of 0 ms: what is left is the line loop, kernels and rows. Each writes six lines of
sympy. `loop` is the CPU time that the process which trains spends on a trajectory; behind workers
that is its row, sent, read and checked. Starts are left out. Policy and tokenizer are a folder
without weights.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config

from repl_rl.base.plugins import search_too
from repl_rl.config.resolve import resolve
from repl_rl.engines.base import EngineKind, LineEnd, SampledLine
from repl_rl.models.loading import read_files
from repl_rl.records import Attempt, Scored, Split
from repl_rl.rollout.env import Env
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.rollout.workers import WorkerPool
from repl_rl.runs.trajectory_file import rows_of

LINES = (
    " a = expand((x + 1)**3)\n",
    " a\n",
    " # now the roots\n",
    " solve(x**2 - 5*x + 6, x)\n",
    " 1/0\n",
    " submit_final_answer(2)\n",
)
CONTEXT_TOKENS = 4096
Run = Callable[[Sequence[Attempt]], Awaitable[list[Scored]]]


class InstantEngine:
    """Writes `LINES`, one after the other: how many are there already, the ids say."""

    label = ""

    def __init__(self, codec: Any) -> None:
        self.num_sampled, self._codec = 0, codec
        self._lines = [tuple(codec.encode(line)) for line in LINES]

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        text = self._codec.decode(ids)
        written = self._lines[sum(text.count(f">>>{line}") for line in LINES)]
        self.num_sampled += len(written)
        return SampledLine(
            ids=written, logprobs=(-0.5,) * len(written), end=LineEnd.NEWLINE, policy_version=0
        )

    async def sync(self, weights: Any, *, version: int) -> None: ...

    async def adopt(self, label: str, *, version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


class Instant(EngineKind):
    """Kind that workers find by the name `workers:Instant`."""

    name = "instant"
    is_client = True

    def open(self, config: Any, loaded: Any, *, row_tokens: int) -> InstantEngine:
        return InstantEngine(loaded.codec)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", dest="number", type=int, default=400)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    args = parser.parse_args()
    search_too(Path(__file__).parent)
    table = Table("workers", "trajectories/s", "lines/s", "loop, ms each", "KiB a row")
    with tempfile.TemporaryDirectory() as folder:
        save_policy(Path(folder) / "policy")
        for count in args.workers:
            table.add_row(str(count), *asyncio.run(measured(count, args.number, Path(folder))))
    Console().print(f"{os.cpu_count()} cores, {args.number} trajectories of {len(LINES)} lines")
    Console().print(table)


def save_policy(path: Path) -> None:
    """Config and tokenizer, a token a byte."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*symbols, "<|end|>"]
    backend = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>"
    )
    tokenizer.save_pretrained(path)
    Qwen3Config(
        vocab_size=len(names), hidden_size=32, intermediate_size=32, num_hidden_layers=1
    ).save_pretrained(path)


async def measured(count: int, number: int, folder: Path) -> list[str]:
    """A row of the table."""
    settings = {
        "model": str(folder / "policy"),
        "sampling.engine": "workers:Instant",
        "sampling.max_tokens": CONTEXT_TOKENS // 2,
        "sampling.max_in_flight": 16,
        "workers.count": count,
    }
    plan = make_plan(resolve(overrides=[f"{key}={value}" for key, value in settings.items()]))
    files = read_files(str(folder / "policy"))
    engine, fmt = InstantEngine(files.codec), plan.format(None)
    sizes = {"context_tokens": CONTEXT_TOKENS}
    async with Env(plan, fmt) as env:
        sampler = plan.make_sampler(engine, files.codec, fmt, plan.sampling, **sizes)
        runner = env.runner(sampler)
        if not count:
            return await timed(runner.run, plan, number)
        pool = WorkerPool(
            plan=plan,
            files=files,
            row_tokens=CONTEXT_TOKENS,
            runner=runner,
            on_sampled=lambda tokens, seconds: None,
            logs=folder / "workers",
            warn=print,
            **sizes,
        )
        async with pool:
            return await timed(pool.run, plan, number)


async def timed(run: Run, plan: Plan, number: int) -> list[str]:
    problem = next(iter(plan.task.problems(Split.TRAIN, seed=0)))
    attempts = [
        Attempt(problem=problem, group_index=at // 8, sibling_index=at % 8, seed=at)
        for at in range(number)
    ]
    await run([replace(one, seed=-1 - at) for at, one in enumerate(attempts[:64])])
    began, cpu = time.monotonic(), time.process_time()
    scored = await run(attempts)
    wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
    lines = sum(len(one.trajectory.lines) for one in scored)
    size = len(rows_of(scored)) / number / 1024
    return [
        f"{number / wall_s:,.1f}",
        f"{lines / wall_s:,.0f}",
        f"{1e3 * cpu_s / number:.2f}",
        f"{size:.0f}",
    ]


if __name__ == "__main__":
    main()
