"""Rows of a GPU on sampling: rates of the engine, its steps, and its log-probabilities.

Each is a generator of what it found so far. Knows engines. Does not know runs or the page.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from gpu_job import Cells, Job

SAMPLED, OBSERVED, PROMPT = 12, 8, 64
"""Tokens of a line, of the answer to it, and of what comes before the first."""


def line_tax(job: Job) -> Iterator[Cells]:
    """Sampled tokens per second in lines with observations, and of as many in one piece."""
    yield from _taxed(job, True, job.pick(8, 64), job.pick(2, 10))
    yield from _taxed(job, False, job.pick(8, 64), job.pick(2, 4))


def line_tax_of_shape(job: Job) -> Iterator[Cells]:
    """The same for random weights in the shape of Qwen3-0.6B."""
    job.take_shape()
    yield from _taxed(job, True, job.pick(4, 64), job.pick(2, 10))


def in_flight(job: Job) -> Iterator[Cells]:
    """Tokens per second of the line tax, with fewer and with more trajectories."""
    for count in (4, 8) if job.is_tiny else (32, 128, 512):
        yield from _taxed(job, True, count, job.pick(2, 8 if count < 500 else 4))


def in_vllm(job: Job) -> Iterator[Cells]:
    """The line tax of vLLM, which takes a minute or two to start."""
    from repl_rl.engines.vllm.engine import VLLMEngine
    from repl_rl.models.loading import read_files

    count, num_lines, started = job.pick(8, 64), job.pick(2, 10), time.perf_counter()
    engine = VLLMEngine(
        read_files(job.model).base,
        dtype="bfloat16" if job.is_cuda else "float32",
        device=job.device,
        newline_ids=frozenset(),
        eos_ids=frozenset(),
        num_rows=count,
        row_tokens=_row_tokens(num_lines),
    )
    yield {"open s": round(time.perf_counter() - started, 1)}
    yield from _rates(job, engine, "vllm", count, num_lines)


def _row_tokens(num_lines: int) -> int:
    return PROMPT + (num_lines + 1) * (SAMPLED + OBSERVED)


def _taxed(job: Job, is_fixed: bool, count: int, num_lines: int) -> Iterator[Cells]:
    loaded, row_tokens = job.load(), _row_tokens(num_lines)
    engine = job.engine(loaded, is_fixed=is_fixed, num_rows=count, row_tokens=row_tokens)
    yield from _rates(job, engine, "graph" if is_fixed else "plain", count, num_lines)


def _rates(job: Job, engine: Any, kind: str, count: int, num_lines: int) -> Iterator[Cells]:
    rates: dict[str, float] = {}

    async def all_rates() -> None:
        await _rate(engine, min(count, 8), [2, 2], "warm")
        # Lines of one length keep all in step, those of many spread what they read.
        uneven = [4, 20, 8, 16] * (num_lines // 4) or [8, 16]
        for name, sizes in (
            ("lines", [SAMPLED] * num_lines),
            ("whole", [SAMPLED * num_lines]),
            ("uneven", uneven),
        ):
            rates[name] = await _rate(engine, count, sizes, name)
            job.note(**{f"{kind} {count} {name} tokens/s": round(rates[name])})
        await engine.aclose()

    asyncio.run(all_rates())
    yield {f"{kind} {count} line tax": round(rates["lines"] / rates["whole"], 3)}


async def _rate(engine: Any, count: int, sizes: Sequence[int], key: str) -> float:
    rngs = [random.Random(f"{key} {number}") for number in range(count)]
    vocabulary = engine._vocabulary

    def tokens(rng: random.Random, num: int) -> list[int]:
        return [rng.randrange(8, vocabulary) for _ in range(num)]

    async def begin(rng: random.Random) -> list[int]:
        prompt = tokens(rng, PROMPT)
        return [*prompt, *(await engine.line(prompt, max_tokens=1, seed=0)).ids]

    async def go_on(rng: random.Random, ids: list[int]) -> int:
        num = 0
        lengths = list(sizes)
        if key == "uneven":
            rng.shuffle(lengths)
        for size in lengths:
            line = await engine.line(ids, max_tokens=size, seed=rng.getrandbits(60))
            num += len(line.ids)
            ids = [*ids, *line.ids, *tokens(rng, OBSERVED)]
        return num

    begun = await asyncio.gather(*map(begin, rngs))
    gc.collect()
    started = time.perf_counter()
    sampled = await asyncio.gather(*map(go_on, rngs, begun))
    return sum(sampled) / (time.perf_counter() - started)


def busy(job: Job) -> Iterator[Cells]:
    """Share of a rollout's time that the device computes, by what a kernel takes for each line."""
    from tool_loop import COUNT, ROUNDS, Made

    num = (ROUNDS + 1) * SAMPLED + ROUNDS * OBSERVED
    _beside_kernels(job, Made(0.0, PROMPT, num), (0, 10) if job.is_tiny else (0, 10, 50, 250))
    yield {"trajectories": COUNT, "lines of each": ROUNDS}


def tool_loop(job: Job) -> Iterator[Cells]:
    """The same of TRL's tool loop at 50 ms, and of ours on as many tokens."""
    import torch
    from sampling import make_model
    from tool_loop import COUNT, ROUNDS, trl
    from transformers import AutoModelForCausalLM

    from repl_rl.models.loading import read_files

    def make() -> Any:
        if job.is_tiny:
            return make_model()
        base = read_files(job.model).base
        return AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)

    ms = job.pick(1, 50)
    spans: dict[bool, float] = {}
    for is_watched in (True, False):  # the first warms up
        made = trl(
            [ms / 1000] * (ROUNDS * COUNT),
            make=make,
            device=job.device,
            watch=functools.partial(_span, job, spans, is_watched),
        )
    yield _shares(f"trl {ms} ms", spans)
    _beside_kernels(job, made, (ms,))


def _beside_kernels(job: Job, like: Any, delays_ms: Sequence[int]) -> None:
    """Note our rollout, of rows as long as `like`, with kernels that sleep for each line."""
    from tool_loop import COUNT, ROUNDS, repl_rl

    row_tokens = like.num_prompt + like.num_completion
    engine = job.engine(job.load(), is_fixed=True, num_rows=COUNT, row_tokens=row_tokens)

    async def all_delays() -> None:
        await repl_rl([0.0] * (ROUNDS * COUNT), like, engine)  # warms up
        for ms in delays_ms:
            spans: dict[bool, float] = {}
            for is_watched in (True, False):
                watch = functools.partial(_span, job, spans, is_watched)
                await repl_rl([ms / 1000] * (ROUNDS * COUNT), like, engine, watch=watch)
            job.note(**_shares(f"{ms} ms", spans))
        await engine.aclose()

    asyncio.run(all_delays())


@contextmanager
def _span(job: Job, spans: dict[bool, float], is_watched: bool) -> Iterator[None]:
    """Seconds of what is inside; watched, those of its kernels on the device.

    Watching takes time, so the two are two spans. On a CPU it is the time of the process.
    """
    from torch.profiler import DeviceType, ProfilerActivity, profile

    job.sync()
    clock = time.process_time if is_watched else time.perf_counter
    is_profiled = is_watched and job.is_cuda
    watching: Any = profile(activities=[ProfilerActivity.CUDA]) if is_profiled else nullcontext()
    started = clock()
    with watching as seen:
        yield
        job.sync()
    spans[is_watched] = clock() - started
    if is_profiled:
        rows = [row for row in seen.key_averages() if row.device_type == DeviceType.CUDA]
        spans[True] = sum(row.self_device_time_total for row in rows) / 1e6


def _shares(name: str, spans: dict[bool, float]) -> Cells:
    return {
        f"{name} s": round(spans[False], 2),
        f"{name} busy": round(spans[True] / spans[False], 2),
    }


def gap(job: Job) -> Iterator[Cells]:
    """|log-probability of the engine - of the update|, nats, of the model's own samples."""
    num, length = job.pick(2, 32), job.pick(8, 96)
    for is_fixed, sampling in ((True, "bfloat16"), (False, "bfloat16"), (True, "float32")):
        if not is_fixed and not job.is_cuda:
            continue
        loaded = job.load(sampling=sampling)
        engine = job.engine(loaded, is_fixed=is_fixed, num_rows=num, row_tokens=length + 64)
        name = f"{'all' if is_fixed else 'autocast'} {sampling}"
        lines = asyncio.run(_texts(engine, loaded, num, length))
        for update in ("bfloat16", "float32"):
            gaps = _gaps(loaded, lines, update)
            yield {
                f"{name} against {'autocast' if update == 'bfloat16' else 'float32'}": (
                    f"mean {statistics.fmean(gaps):.4f} max {max(gaps):.3f} "
                    f"rms {math.sqrt(statistics.fmean(x * x for x in gaps)):.4f}"
                )
            }


async def _texts(engine: Any, loaded: Any, num: int, length: int) -> list[Any]:
    prompt = loaded.codec.encode("The sum of the first ten odd numbers is")
    lines = [engine.line(prompt, max_tokens=length, seed=seed) for seed in range(num)]
    found = await asyncio.gather(*lines)
    await engine.aclose()
    return [(prompt, line.ids, line.logprobs) for line in found]


def _gaps(loaded: Any, lines: list[Any], update: str) -> list[float]:
    from dataclasses import replace

    import torch

    from repl_rl.models.loading import logprobs

    held = replace(loaded.precision, update=getattr(torch, update))
    scorer = replace(loaded, precision=held)
    found: list[float] = []
    for prompt, ids, own in lines:
        scored = logprobs(scorer, [*prompt, *ids], len(prompt), temperature=1.0)
        found += [abs(a - b) for a, b in zip(scored, own, strict=True)]
    return found


def replay(job: Job) -> Iterator[Cells]:
    """Milliseconds of a step by columns, by the kernel that attends, and what it consists of."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    count, loaded = job.pick(4, 64), job.load()
    for columns in (127,) if job.is_tiny else (319, 1023, 2303):
        engine = job.engine(loaded, is_fixed=True, num_rows=count, row_tokens=columns)
        for name in ("narrow", "wide"):
            yield {f"{name} {columns} columns ms": _ms(job, getattr(engine._steps, f"_{name}"))}
        if columns in (127, 319):
            try:
                yield _profiled(job, engine._steps._narrow)
            except Exception as error:  # noqa: BLE001  # a machine may not let us
                yield {"profile": f"{type(error).__name__}: {str(error)[:300]}"}
        asyncio.run(engine.aclose())
        del engine
    if not job.is_cuda:
        return
    kinds = ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
    for kind in kinds:
        try:
            with sdpa_kernel(getattr(SDPBackend, kind)):
                engine = job.engine(loaded, is_fixed=True, num_rows=count, row_tokens=319)
            yield {f"narrow 319 {kind} ms": _ms(job, engine._steps._narrow)}
            asyncio.run(engine.aclose())
            del engine
        except Exception as error:  # noqa: BLE001  # the next kernel may do
            yield {f"narrow 319 {kind} ms": f"{type(error).__name__}: {str(error)[:200]}"}
    torch.cuda.synchronize()


def _ms(job: Job, step: Any) -> str:
    step.launch([], [])
    job.sync()
    times, num = [], job.pick(2, 40)
    for _ in range(num):
        started = time.perf_counter()
        step.launch([], [])
        launched = time.perf_counter()
        job.sync()
        times.append((time.perf_counter() - started, launched - started))
    whole, host = (1000 * statistics.median(part) for part in zip(*times, strict=True))
    return f"{whole:.3f}, of which the host {host:.3f}"


def _profiled(job: Job, step: Any) -> Cells:
    from torch.profiler import ProfilerActivity, profile

    acts = [ProfilerActivity.CUDA if job.is_cuda else ProfilerActivity.CPU]
    with profile(activities=acts) as seen:
        for _ in range(3):
            step.launch([], [])
        job.sync()
    names = "self_device_time_total" if job.is_cuda else "self_cpu_time_total"
    rows = sorted(seen.key_averages(), key=lambda row: -getattr(row, names))
    shown = [
        f"{getattr(row, names) / 3000:.3f} ms x{row.count / 3:.0f} {row.key[:90]}"
        for row in rows[:16]
    ]
    words = ("attention", "fmha", "flash", "sdpa", "sdp")
    attends = [row.key[:160] for row in rows if any(word in row.key.lower() for word in words)]
    total = sum(getattr(row, names) for row in rows) / 3000
    launched = sum(row.count for row in rows) / 3
    return {
        "kernels": f"{launched:.0f} a step, busy {total:.2f} ms",
        "attends by": attends[:6],
        "most": shown,
    }


def compiled(job: Job) -> Iterator[Cells]:
    """Milliseconds of a step whose forward torch compiles before it is captured."""
    import torch

    from repl_rl.engines.hf.fixed_step import in_view

    count, loaded = job.pick(2, 64), job.load()
    engine = job.engine(loaded, is_fixed=True, num_rows=count, row_tokens=319)
    step = engine._steps._narrow
    yield {"plain ms": _ms(job, step)}
    backend = "inductor" if job.is_cuda else "aot_eager"
    started = time.perf_counter()
    step.forward = torch.compile(step.forward, fullgraph=True, backend=backend)
    with in_view(step.view):
        step.forward()
    yield {"compiled in s": round(time.perf_counter() - started, 1)}
    if job.is_cuda:
        step.close()
        step.capture()
    yield {"compiled ms": _ms(job, step)}
    asyncio.run(engine.aclose())
