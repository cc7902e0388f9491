"""Rows of a GPU on training: whole rollouts, updates, steps of GRPO and of a warm start.

Each is a generator of what it found so far. Knows runs. Does not know the page.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import json
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gpu_job import Cells, Job


def rollout(job: Job) -> Iterator[Cells]:
    """64 trajectories of sympy-proofs, tier 1, with kernels and an adapter."""
    yield from _rolled_out(job, is_fixed=True)
    yield from _rolled_out(job, is_fixed=False, count=job.pick(2, 8))


def plan_with_adapter(job: Job, *overrides: str) -> Any:
    """Plan of a training on tier 1 with an adapter, sampled by the engine that is measured here."""
    from repl_rl.config.resolve import resolve
    from repl_rl.rollout.plan import make_plan

    model = (f"model={job.model}", "lora.rank=32", "task.tiers=[1]")
    engine = ("sampling.engine=hf", f"sampling.device={job.device}")
    tokens = f"sampling.max_tokens={job.pick(48, 256)}"
    return make_plan(resolve(overrides=[*model, *engine, tokens, *overrides]), to_train=True)


def _rolled_out(job: Job, *, is_fixed: bool, count: int | None = None) -> Iterator[Cells]:
    count = count or job.pick(4, 64)
    plan = plan_with_adapter(
        job,
        *(f"sampling.max_in_flight={count}", f"sandbox.standby={min(8, count)}"),
        *("grpo.group_size=2", f"grpo.dtype={'mixed' if job.is_cuda else 'float32'}"),
    )
    from repl_rl.training.evaluate import held_out_attempts
    from repl_rl.training.runtime import load_policy, open_runtime

    loaded = load_policy(plan, job.model, say=lambda _: None, is_training=True)
    kind = f"{'graph' if is_fixed else 'plain'} {count}"
    attempts = held_out_attempts(plan.task, count=count, seed=1)
    with hf_with(is_fixed), open_runtime(plan, loaded) as runtime:
        job.note(**{f"{kind} engine": runtime.about_engine})
        for name in ("first", "second"):
            sampled, started = runtime.engine.num_sampled, time.perf_counter()
            scored = runtime.run(attempts)
            took = time.perf_counter() - started
            num = runtime.engine.num_sampled - sampled
            lines = statistics.fmean(len(one.trajectory.lines) for one in scored)
            yield {
                f"{kind} {name} s": round(took, 2),
                f"{kind} {name} tokens/s": round(num / took),
                f"{kind} {name} tokens": num,
                f"{kind} {name} lines a trajectory": round(lines, 1),
                f"{kind} {name} stops": _counts(str(one.trajectory.stop_reason) for one in scored),
            }
            if not is_fixed:
                break
        runtime.sleep()
        started = time.perf_counter()
        runtime.sync(1)
        yield {f"{kind} sleep and sync s": round(time.perf_counter() - started, 3)}


def _counts(names: Iterator[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


@contextmanager
def hf_with(is_fixed: bool) -> Iterator[None]:
    """Engines that are opened inside take this way."""
    from repl_rl.engines.hf.engine import HFEngine

    own = HFEngine.__init__
    HFEngine.__init__ = functools.partialmethod(own, is_fixed=is_fixed)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        HFEngine.__init__ = own  # type: ignore[method-assign]


class Sizes(NamedTuple):
    """Made-up trajectories of an update, and the ways it is taken."""

    groups: int
    siblings: int
    prompt: int
    common: int
    completion: int
    """Tokens of one, on average."""
    ways: Mapping[str, int]
    """Rows of a micro-batch."""
    settings: tuple[str, ...] = ()


_CHECKPOINTED = ("grpo.gradient_checkpointing=true",)
SHORT = Sizes(8, 8, 115, 70, 141, {"tree": 64, "loop": 64, "trl": 64})
LONG = Sizes(8, 8, 115, 70, 1933, {"tree": 4, "trl": 4}, _CHECKPOINTED)
PACKED = Sizes(1, 8, 64, 64, 1984, {"tree": 8, "trl": 1}, _CHECKPOINTED)
"""16,384 tokens."""


def update(job: Job) -> Iterator[Cells]:
    """Tokens per second of an update of 64 trajectories: as a tree, by branch, and by TRL."""
    yield from _updated(job, SHORT)


def update_long(job: Job) -> Iterator[Cells]:
    """The same of 64 trajectories of 2,048 tokens, with activations computed again."""
    yield from _updated(job, LONG)


def update_packed(job: Job) -> Iterator[Cells]:
    """The same of 16,384 tokens at once, for random weights in the shape of Qwen3-0.6B."""
    job.take_shape()
    yield from _updated(job, PACKED)


def _updated(job: Job, sizes: Sizes) -> Iterator[Cells]:
    import torch
    from update import measured, trajectories

    from repl_rl.models.loading import read_files
    from repl_rl.update import token_tree as tree_attention

    at_once = tree_attention.AT_ONCE
    if job.is_tiny:
        sizes = Sizes(2, 2, 12, 6, 20, sizes.ways, sizes.settings)
    for way, rows in sizes.ways.items():
        tree_attention.AT_ONCE = at_once
        args = argparse.Namespace(
            model=read_files(job.model).base,
            device=job.device,
            way=way,
            steps=job.pick(1, 3),
            set=[*sizes.settings, f"grpo.micro_batch_size={job.pick(min(rows, 4), rows)}"],
            **sizes._asdict(),
        )
        num = sum(len(one.prompt_ids) + len(one.completion_ids) for one in trajectories(args))
        try:
            wall, cpu, peak, loss = measured(args)
        except torch.OutOfMemoryError as error:
            yield {f"{way} ended": str(error)[:300]}
            continue
        yield {
            f"{way} tokens/s": round(num / wall),
            f"{way} s": round(wall, 3),
            f"{way} CPU s": round(cpu, 3),
            f"{way} GiB": round(peak / 2**30, 2),
            f"{way} loss": loss,
        }
        gc.collect()


def memory(job: Job) -> Iterator[Cells]:
    """The estimate of an update's memory beside the most that torch allocated, MiB."""
    from memory import CASES, peak

    job.take_shape()
    rows, tokens = job.pick(2, 4), job.pick(32, 1024)
    common = (
        *(f"model={job.model}", f"sampling.device={job.device}"),
        *(f"sampling.max_tokens={tokens // 2}", "sampling.max_in_flight=1"),
        *("grpo.steps=2", "grpo.problems_per_step=1", f"grpo.group_size={rows}"),
        f"grpo.micro_batch_size={rows}",
    )
    for name in ("mixed", "lora", "checkpointing")[: job.pick(1, 3)]:
        estimate, most = peak([*common, *CASES[name]])
        yield {f"{name} estimate / allocated MiB": f"{estimate:,.0f} / {most:,.0f}"}


def grpo(job: Job) -> Iterator[Cells]:
    """Steps of 8 x 8 with an adapter, all in; the first one warms up."""
    with hf_with(True):
        yield from _stepped(job)


def grpo_by_vllm(job: Job) -> Iterator[Cells]:
    """The same, sampled by vLLM in this process."""
    yield from _stepped(job, "sampling.engine=vllm")


def _stepped(job: Job, *overrides: str) -> Iterator[Cells]:
    from repl_rl.progress import SILENT
    from repl_rl.training.train import train

    size = job.pick(2, 8)
    plan = plan_with_adapter(
        job,
        *("grpo.steps=3", f"grpo.problems_per_step={size}", f"grpo.group_size={size}"),
        *(f"sampling.max_in_flight={size * size}", f"sandbox.standby={size}"),
        *("eval.problems=2", "report.curve=false", *overrides),
    )
    path = job.folder / "run"
    train(plan, path, SILENT)
    rows = [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]
    for number, row in enumerate(row for row in rows if "time/update" in row):
        times = {k.removeprefix("time/"): round(v, 2) for k, v in row.items() if "time/" in k}
        yield {
            f"step {number} s": round(sum(times.values()), 2),
            f"step {number} phases": times,
            f"step {number} tokens": row.get("active_tokens"),
            f"step {number} gap": {k: v for k, v in row.items() if "gap" in k or "ratio" in k},
        }
    if job.is_cuda:
        import torch

        yield {"peak GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2)}


def warm(job: Job) -> Iterator[Cells]:
    """Seconds of a step of 8 transcripts of 174 tokens with an adapter of rank 32."""
    from transformers import TrainerCallback

    from repl_rl.update.sft import adamw, fit

    loaded, rng = job.load(rank=32), random.Random(0)
    vocabulary = loaded.model.get_input_embeddings().num_embeddings
    shared = [rng.randrange(8, vocabulary) for _ in range(60)]

    def example() -> tuple[list[int], list[int]]:
        ids = shared + [rng.randrange(8, vocabulary) for _ in range(114)]
        return ids, [-100] * 60 + ids[60:]

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            job.sync()
            times.append(time.perf_counter())

    steps = job.pick(3, 24)
    for as_trees in (True, False):
        times.clear()
        fit(
            loaded.model,
            loaded.tokenizer,
            [example() for _ in range(64)],
            steps=steps,
            batch_size=8,
            optimizer=adamw(loaded.model, learning_rate=1e-4),
            is_mixed=job.is_cuda,
            seed=0,
            scratch=job.folder,
            as_trees=as_trees,
            callbacks=[Clock()],
        )
        each = [b - a for a, b in itertools.pairwise(times)]
        yield {f"{'trees' if as_trees else 'padded'} s a step": round(statistics.median(each), 3)}


def curve(job: Job) -> Iterator[Cells]:
    """Held-out solve rate against seconds: a warm start with an adapter, then GRPO steps."""
    from repl_rl.progress import SILENT
    from repl_rl.training.sources import Sources
    from repl_rl.training.train import train
    from repl_rl.training.warmstart import warm_start

    size, began = job.pick(2, 8), time.monotonic()
    settings = (
        *(f"eval.problems={job.pick(2, 64)}", "report.curve=false"),
        *(f"sampling.max_in_flight={size * size}", f"sandbox.standby={size}"),
        "sampling.max_tokens=256",  # that whole demonstrations fit
    )
    shown = f"warmstart.demonstrations={job.pick(4, 240)}"
    begun = f"warmstart.problems_before={job.pick(1, 32)}"
    warm = plan_with_adapter(job, *settings, shown, begun)
    path = job.folder / "warm"
    warm_start(warm, path, SILENT, Sources())
    points = list(_rates(path, time.monotonic() - began))
    yield {"rates": dict(points)}
    steps = (f"grpo.steps={job.pick(1, 4)}", f"eval.every={job.pick(1, 2)}")
    sizes = (f"grpo.problems_per_step={size}", f"grpo.group_size={size}")
    model = f"model={path / 'checkpoints' / 'final'}"
    train(plan_with_adapter(job, *settings, *steps, *sizes, model), job.folder / "run", SILENT)
    points += _rates(job.folder / "run", time.monotonic() - began)
    yield {"rates": dict(points)}


def _rates(run: Path, ended: float) -> Iterator[tuple[str, str]]:
    """(seconds, solve rate) of each measurement of a run that ended at `ended`."""
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if "eval_solve_rate" in row:
            at = ended - rows[-1]["wall_s"] + row["wall_s"]
            yield f"{at:.0f} s", f"{100 * row['eval_solve_rate']:.0f} %"


def killed(job: Job) -> Iterator[Cells]:
    """Losses of a run of a tiny model that SIGKILL ended and that went on, beside a whole run's."""
    from resume import kill, start, wait

    from small_run import small
    from tiny_model import save_tiny_model

    settings = {"sampling__device": job.device, "grpo__dtype": "float32", "grpo__steps": 4}
    # With a reference, so that a step whose trajectories are worth the same has a loss, too.
    more = {"grpo__learning_rate": 1e-3, "grpo__kl_beta": 0.01, "report__checkpoint_every": 1}
    words = small(**settings, **more)
    begin = ("--model", str(save_tiny_model(job.folder / "tiny")), *words, "--output")
    whole, ended = job.folder / "whole", job.folder / "ended"
    seconds = wait(start(job.folder, *begin, "whole"), whole)
    yield {"a whole run s": round(seconds, 1)}
    where, left = kill(start(job.folder, *begin, "ended"), ended, seconds / 2)
    yield {"killed in": where, "processes left": left}
    wait(start(job.folder, "--resume", "ended"), ended)
    losses = [
        [row["loss"] for text in (run / "metrics.jsonl").read_text().splitlines()
         if "loss" in (row := json.loads(text))]
        for run in (whole, ended)
    ]  # fmt: skip
    yield {"losses": losses}
    off = max(abs(a - b) for a, b in zip(*losses, strict=True))
    yield {"losses off by": f"{off:.1g} of {max(map(abs, losses[0])):.2g}"}
    if left or where == "the end" or off > 1e-2 * max(map(abs, losses[0])):
        raise RuntimeError("the run that went on is another, or was not killed")
