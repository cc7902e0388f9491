"""A notebook runs again on the kernel that it came from."""

import asyncio
import copy
import platform
from contextlib import aclosing
from typing import Any

import pytest
from nbclient import NotebookClient

from attempt_kit import an_attempt
from notebook_kit import SETUP, error, line_cells, notebook_of, stream
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Limits

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("quiet_home")]
TIMEOUT_S = 60
SEED = 11
LINES = (
    " # a value, what is printed, what fails\n",
    " 6*7\n",
    " print('a'); x\n",
    " def f(n):\n",
    "     # inside\n",
    "     return 1/n\n",
    "\n",
    " f(0)\n",
    " import random\n",
    " random.random(), Dummy('t').dummy_index, __import__('sympy').core.random.random()\n",
    " y = submit_final_answer(3)\n",
    " for i in range(2): i; 1/0\n",
    "\n",
    " solve(x**2 - 4, x))\n",
    " undefined\n",
    " submit_final_answer(undefined)\n",
    " raise SystemExit\n",
    "\n",
    " # done\n",
    " submit_final_answer(_)\n",
)


async def sampled(*lines: str, limits: Limits | None = None, seed: int = SEED) -> Trajectory:
    """A trajectory of fixed lines that ran in a real kernel."""
    codec = ByteCodec()
    config = SamplingConfig(max_lines=len(lines), max_tokens=20_000)
    sampler = LineSampler(
        ScriptedEngine(codec, script(*lines)), codec, PYTHON, config, context_tokens=1 << 16
    )
    prompt = Prompt.plain(">>>")
    attempt = an_attempt(seed=seed)
    async with (
        KernelPool(limits or Limits(), setup=SETUP) as pool,
        aclosing(await pool.acquire(seed=seed)) as kernel,
    ):
        return await sampler.sample(attempt, prompt, kernel)


def run_again(notebook: Any) -> Any:
    again = copy.deepcopy(notebook)
    NotebookClient(again, timeout=TIMEOUT_S).execute()
    return again


def test_every_output_comes_out_as_it_was_recorded() -> None:
    notebook = notebook_of(asyncio.run(sampled(*LINES)))
    again = run_again(notebook)
    assert [cell.get("outputs") for cell in again.cells] == [
        cell.get("outputs") for cell in notebook.cells
    ]
    version = {"version": platform.python_version()}
    assert again.metadata.language_info == notebook.metadata.language_info | version
    # None of it is equal because it is empty.
    assert [len(cell.outputs) for cell in line_cells(notebook)] == [
        1, 1, 0, 2, 0, 1, 2, 2, 2, 2, 2, 2, 1,
    ]  # fmt: skip


def test_a_submission_comes_out_though_the_policy_had_taken_the_name() -> None:
    lines = (" submit_final_answer = 5\n", " submit_final_answer(x)\n")
    notebook = run_again(notebook_of(asyncio.run(sampled(*lines))))
    assert notebook.cells[-1].outputs == [stream("x\n")]


def test_a_line_that_timed_out_does_not_stop_the_cells_below() -> None:
    limits = Limits(line_cpu_s=0.3)
    trajectory = asyncio.run(sampled(" while True: pass\n", "\n", " x + 1\n", limits=limits))
    notebook = notebook_of(trajectory)
    loop, after = line_cells(run_again(notebook))
    assert loop.outputs[1] == error("KeyboardInterrupt")
    assert loop.source == "while True: pass\n"
    assert after.outputs == [stream("x + 1\n")]
