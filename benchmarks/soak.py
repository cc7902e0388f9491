"""Make rollouts by the thousand: `python benchmarks/soak.py [--trajectories 2000]`.

Samples as `repl-rl train` does, without its updates: kernels, grader, the engine `hf` with a tiny
random model, trajectory files. Half of the lines are the model's own, the others a script's, which
ends most trajectories with an answer, and some with a dead kernel or a deadline. Prints after each
tenth what the run holds; at the end, what the closed run has left. Exit code 1 if anything is left,
or if something has grown beyond its bound since the third tenth.
"""

import argparse
import contextlib
import gc
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repl_rl.base.concurrency import Interrupts
from repl_rl.config.resolve import resolve
from repl_rl.engines.base import Engine, EngineWrapper, SampledLine, line_end
from repl_rl.models.loading import LoadedModel
from repl_rl.progress import SILENT
from repl_rl.records import Scored
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.rollout.sampler import LineSampler
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.sink import Sink
from repl_rl.training.evaluate import HeldOut
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.steps import ProblemSequence, Training
from repl_rl.transcript.tokens import Codec

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from tiny_model import save_tiny_model

SETTINGS = (
    "task=sympy-proofs",
    "sampling.device=cpu",
    "sampling.max_lines=6",
    "sampling.max_line_tokens=48",
    "sampling.max_tokens=400",
    "sampling.max_in_flight=16",
    "sandbox.standby=4",
    "sandbox.line_cpu_s=1.0",
    "grpo.group_size=4",
)
ROWS = 40
"""Trajectories of a step, of which there are at least ten."""

BOUNDS = {
    "objects": 4_000,
    "trainer": 64.0,
    "server": 4.0,
    "graders": 16.0,
    "descriptors": 0,
    "processes": 0,
    "files": 0,
}
"""What may come on top of the third tenth: MiB, or a count.

A trajectory has 20 objects and more. The trainer's memory grows by steps of tens of MiB: the
engine's rows double when one of them needs it.
"""

SCRIPT = {
    " submit_final_answer([-3, Rational(-1, 2)])\n": 30,
    " submit_final_answer(x**2 + 1)\n": 20,
    " submit_final_answer(open)\n": 2,
    " solve(x**2 - 4, x)\n": 10,
    " y = symbols('y')\n": 10,
    " for i in range(3):\n": 5,
    " print('a' * 9999)\n": 5,
    " 1 / 0\n": 5,
    " bytearray(10**10)\n": 2,
    " import os; os._exit(1)\n": 2,
    " sum(iter(int, 1))\n": 1,
}
"""Lines and how often they come."""


@dataclass
class HalfScripted(EngineWrapper):
    """A line is the engine's own or one of `SCRIPT`: its seed decides."""

    codec: Codec

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        draw = random.Random(seed)
        if draw.random() < 0.5:
            return await super().line(ids, max_tokens=max_tokens, seed=seed)
        codec = self.codec
        (text,) = draw.choices(list(SCRIPT), list(SCRIPT.values()))
        kept = tuple(codec.encode(text)[:max_tokens])
        end = line_end(kept[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        return SampledLine(ids=kept, logprobs=(0.0,) * len(kept), end=end, policy_version=0)


def half_scripted(engine: Engine, codec: Codec, *args: Any, **limits: Any) -> LineSampler:
    """The usual sampler. The checks of the engine's weights still see the engine as it is."""
    return LineSampler(HalfScripted(engine, codec), codec, *args, **limits)


@dataclass(frozen=True)
class Holdings:
    """What this process and those below it hold."""

    objects: int
    """Python's in this process, of those that its collector knows."""
    trainer: float
    """MiB without pages of files, as all memory here: these come and go with other processes."""
    server: float
    graders: float
    descriptors: int
    """Of this process."""
    processes: int
    files: int
    """In `folder`."""
    folder: Path
    """The fork server's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=int, default=2_000)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="repl-rl-soak-") as folder:
        model = str(save_tiny_model(Path(folder) / "model", context_tokens=2048))
        settings = [*SETTINGS, f"model={model}", *args.overrides]
        plan = make_plan(resolve(overrides=settings), to_train=True)
        plan = replace(plan, make_sampler=half_scripted)
        loaded = load_policy(plan, model, say=print, is_training=True)
        before = left()
        with Interrupts() as interrupts:
            run = Path(folder) / "run"
            found = soak(plan, loaded, interrupts, run, args.trajectories)
        after = left()
    print(f"before {before}\nafter  {after}")
    failures = grown(found)
    if after != before:
        failures.append("processes or descriptors are left")
    if (kernels := found[-1].folder).exists():
        failures.append(f"{kernels} is left")
    for failure in failures:
        print(failure)
    sys.exit(bool(failures))


def soak(
    plan: Plan, loaded: LoadedModel, interrupts: Interrupts, run: Path, count: int
) -> list[Holdings]:
    """Roll out `count` trajectories into `run`. Returns what it held after each tenth."""
    folder = RunFolder(run)
    problems, found = ProblemSequence(plan.task, seed=0), list[Holdings]()
    config, ends, lines = plan.config, Counter[str](), Counter[str]()

    with (
        open_runtime(plan, loaded, interrupts=interrupts) as runtime,
        Sink(folder, config, warn=print) as sink,
    ):
        print(f"kernels: {runtime.env.walls}")
        problems[count // config.grpo.group_size + ROWS]  # fills sympy's caches, and is kept
        folder.write_config(runtime.origin, policy=loaded.source, device="cpu")
        training = Training(
            settings=plan,
            problems=problems,
            held_out=HeldOut(attempts=[], runtime=runtime, progress=SILENT, sink=sink),
            runtime=runtime,
            progress=SILENT,
            credit=plan.credit,
            sink=sink,
        )
        print(f"{'trajectories':>12} {'s':>6} " + " ".join(f"{name:>11}" for name in BOUNDS))
        per_tenth, started = -(-count // 10 // ROWS), time.monotonic()
        for step in range(10 * per_tenth):
            first = step * ROWS // config.grpo.group_size
            numbers = [first + row // config.grpo.group_size for row in range(ROWS)]
            scored = training.collect(numbers, step)
            ends.update(map(end_of, scored))
            lines.update(line.outcome.kind for one in scored for line in one.trajectory.lines)
            training.log(step + 1, 10 * per_tenth, {"loss": 0.0})
            if (step + 1) % per_tenth == 0:
                found.append(holdings(runtime))
                row = " ".join(f"{vars(found[-1])[name]:>11}" for name in BOUNDS)
                seconds = time.monotonic() - started
                print(f"{(step + 1) * ROWS:>12} {seconds:>6.0f} {row}", flush=True)
        for counts in (ends, lines):
            print(", ".join(f"{count} {name}" for name, count in counts.most_common()))
    return found


def grown(found: Sequence[Holdings]) -> list[str]:
    """What has grown beyond its bound, in words."""
    early, last = vars(found[2]), vars(found[-1])
    return [
        f"{name}: {early[name]} after the third tenth, {last[name]} at the end; expected at most "
        f"{bound} more"
        for name, bound in BOUNDS.items()
        if last[name] > early[name] + bound
    ]


def end_of(scored: Scored) -> str:
    """Its verdict, or why there is none."""
    verdict = scored.verdict
    return str(scored.trajectory.stop_reason if verdict is None else verdict.kind)


def holdings(runtime: Runtime) -> Holdings:
    """Once nothing is on its way: kernels are made and ended behind the trainer's back."""
    seen = list[tuple[int, int]]()
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        assert len(seen) < 300, "processes come and go without end"
        runtime.run([])  # the event loop takes what has come
        time.sleep(0.1)
        seen.append((num_descriptors(), len(descendants(os.getpid()))))
    kinds = dict[str, list[int]](server=[], graders=[])
    for pid in children(os.getpid()):
        is_grader = b"repl_rl.grading" in Path(f"/proc/{pid}/cmdline").read_bytes()
        kinds["graders" if is_grader else "server"].append(pid)
    (server,) = kinds["server"]
    # Kernels are below it, and under bubblewrap the fork server itself.
    chain = [server, *children(server)[:1]]
    folder = Path(f"/proc/{server}/cwd").readlink()
    gc.collect()
    return Holdings(
        objects=len(gc.get_objects()),
        trainer=heap_mib([os.getpid()]),
        server=heap_mib(chain),
        graders=heap_mib(kinds["graders"]),
        descriptors=seen[-1][0],
        processes=seen[-1][1],
        files=sum(1 for _ in folder.rglob("*")),
        folder=folder,
    )


def left() -> dict[str, int]:
    """What must be the same before and after a run."""
    return {"descriptors": num_descriptors(), "processes": len(descendants(os.getpid()))}


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children(pid: int) -> list[int]:
    """The oldest first; of all its threads."""
    found = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return sorted(found)


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def heap_mib(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        found = re.search(r"Anonymous:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
        total += int(found[1]) if found else 0
    return round(total / 1024, 1)


if __name__ == "__main__":
    main()
