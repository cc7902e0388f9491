"""Rows that `benchmarks/gpu.py` measures, each a generator of what it found so far.

Knows the engine, the update and runs. Does not know the page.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAMPLED, OBSERVED, PROMPT = 12, 8, 64
VOCABULARY = 1024
"""Of the tiny model."""
LINE_TOKENS = 12
"""Of a line of random weights on average: one id in so many ends in a newline."""
PLUGINS = ("pytest_timeout", "repl_rl.golden.pytest_plugin")
"""Of pytest: those that its settings here name. The others that a machine has may warn, and a
warning ends a session of tests."""
Cells = dict[str, Any]


def save_model(folder: Path) -> None:
    """Random weights, and a tokenizer whose every id is text: some of it ends a line."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    newline = "\u010a"
    more = (f"x{n}{'' if n % LINE_TOKENS else newline}" for n in range(VOCABULARY))
    names = [*[*letters, *more][: VOCABULARY - 1], "<|end|>"]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        head_dim=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


class Job:
    """Machine, size and model that a row is measured on."""

    def __init__(self, device: str, size: str, model: str | None) -> None:
        self.device, self.is_tiny = device, size == "tiny"
        self.is_cuda = device == "cuda"
        self._folder = tempfile.TemporaryDirectory(prefix="repl-rl-rows-")
        self.folder = Path(self._folder.name)
        if model is None:
            model = str(self.folder / "model")
            save_model(Path(model))
        self.model = model

    def pick(self, small: int, usual: int) -> int:
        return small if self.is_tiny else usual

    def note(self, **cells: Any) -> None:
        """Keep what is known so far, even if the row does not come to its end."""
        print("ROW " + json.dumps(cells), flush=True)

    def load(self, *, update: str = "bfloat16", sampling: str = "bfloat16", rank: int = 0) -> Any:
        """The model in float32, to be sampled and updated in these types."""
        import torch

        from repl_rl.config.sections import LoraConfig
        from repl_rl.models.loading import load_weights, read_files, to_train
        from repl_rl.models.precision import Precision

        files = to_train(read_files(self.model), LoraConfig(rank=rank))
        held = Precision(
            update=getattr(torch, update), sampling=getattr(torch, sampling), is_shared=True
        )
        return load_weights(files, device=torch.device(self.device), precision=held)

    def engine(self, loaded: Any, *, is_fixed: bool, num_rows: int, row_tokens: int) -> Any:
        from repl_rl.engines.hf.engine import HFEngine

        never: frozenset[int] = frozenset()
        started = time.perf_counter()
        make = functools.partial(
            HFEngine,
            loaded.model,
            newline_ids=never,
            eos_ids=never,
            num_rows=num_rows,
            row_tokens=row_tokens,
            dtype=loaded.precision.sampling,
            is_fixed=is_fixed,
        )
        engine = make()
        if is_fixed and engine._steps is None and self.is_cuda:
            import torch

            self.note(**{f"open {num_rows} graph by default": engine.about})
            torch.backends.cuda.enable_cudnn_sdp(False)
            engine = make()
        self.note(**{f"open {num_rows} {'graph' if is_fixed else 'plain'}": (
            f"{time.perf_counter() - started:.2f} s, {engine.about or 'as on a CPU'}"
        )})  # fmt: skip
        if is_fixed and engine._steps is None:
            raise RuntimeError(engine.about)
        return engine

    def sync(self) -> None:
        if self.is_cuda:
            import torch

            torch.cuda.synchronize()


# 1. Laws


def laws_command(*more: str) -> list[str]:
    """Words of a pytest that runs the laws, for `LAWS_ENV`."""
    return [
        *(sys.executable, "-m", "pytest", "tests/e2e/test_device.py", "tests/laws/test_device.py"),
        *("-m", "gpu", "-vv", "--maxfail=8", "-p", "no:cacheprovider", "--tb=short"),
        *("-W", "default", *(word for name in PLUGINS for word in ("-p", name)), *more),
    ]


LAWS_ENV = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}


def laws(job: Job) -> Iterator[Cells]:
    """The laws of engines, on the device, with steps of fixed shape and without."""
    process = subprocess.Popen(
        laws_command(),
        cwd=ROOT,
        env=os.environ | LAWS_ENV | {"REPL_RL_TEST_DEVICE": job.device},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip())
        passed = sum(" PASSED" in one for one in said)
        yield {"passed": passed, "last": said[-1]}
    if process.wait():
        yield {"said": [line for line in said if " PASSED" not in line][-90:]}
        raise RuntimeError(f"pytest ended with {process.returncode}")


# 2. Line tax


def line_tax(job: Job) -> Iterator[Cells]:
    """Sampled tokens per second in lines with observations, and of as many in one piece."""
    num_lines = job.pick(2, 10)
    yield from _taxed(job, True, job.pick(8, 64), num_lines)
    yield from _taxed(job, False, job.pick(8, 64), job.pick(2, 4))


def in_flight(job: Job) -> Iterator[Cells]:
    """Tokens per second of the line tax, with fewer and with more trajectories."""
    for count in (4, 8) if job.is_tiny else (32, 128, 512):
        yield from _taxed(job, True, count, job.pick(2, 8 if count < 500 else 4))


def _taxed(job: Job, is_fixed: bool, count: int, num_lines: int) -> Iterator[Cells]:
    loaded = job.load()
    row_tokens = PROMPT + (num_lines + 1) * (SAMPLED + OBSERVED)
    engine = job.engine(loaded, is_fixed=is_fixed, num_rows=count, row_tokens=row_tokens)
    kind, rates = "graph" if is_fixed else "plain", {}

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


# 3. A whole rollout


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


# 4. Gap


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


# 5. The step itself


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


# 6. A GRPO step


def grpo(job: Job) -> Iterator[Cells]:
    """Steps of 8 x 8 with an adapter, all in; the first one warms up."""
    from repl_rl.progress import SILENT

    size = job.pick(2, 8)
    plan = plan_with_adapter(
        job,
        *("grpo.steps=3", f"grpo.problems_per_step={size}", f"grpo.group_size={size}"),
        *(f"sampling.max_in_flight={size * size}", f"sandbox.standby={size}"),
        *("eval.problems=2", "report.curve=false"),
    )
    from repl_rl.training.train import train

    path = job.folder / "run"
    with hf_with(True):
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


# 7. Warm start


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


# 8. Updates


def update(job: Job) -> Iterator[Cells]:
    """Tokens per second of an update as a tree, by branch and as TRL makes it."""
    from update import measured, trajectories

    from repl_rl.models.loading import read_files
    from repl_rl.update import token_tree as tree_attention

    size, at_once = job.pick(2, 8), tree_attention.AT_ONCE
    for way in ("tree", "loop", "trl"):
        tree_attention.AT_ONCE = at_once
        args = argparse.Namespace(
            model=read_files(job.model).base,
            device=job.device,
            way=way,
            steps=job.pick(2, 3),
            groups=size,
            siblings=size,
            prompt=job.pick(12, 115),
            common=job.pick(6, 70),
            completion=job.pick(20, 141),
            set=[],
        )
        num = sum(len(one.prompt_ids) + len(one.completion_ids) for one in trajectories(args))
        wall, cpu, peak, loss = measured(args)
        yield {
            f"{way} tokens/s": round(num / wall),
            f"{way} s": round(wall, 3),
            f"{way} CPU s": round(cpu, 3),
            f"{way} GiB": round(peak / 2**30, 2),
            f"{way} loss": loss,
        }
        gc.collect()


# 9. Beyond


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


ROWS: dict[str, tuple[Callable[[Job], Iterator[Cells]], float]] = {
    "laws": (laws, 150),
    "line tax": (line_tax, 60),
    "rollout": (rollout, 75),
    "update": (update, 60),
    "grpo": (grpo, 75),
    "gap": (gap, 60),
    "warm": (warm, 60),
    "replay": (replay, 60),
    "in flight": (in_flight, 60),
    "compiled": (compiled, 120),
}
"""By worth, each with the seconds that it may take."""
