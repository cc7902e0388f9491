"""Measure the engine `hf` beside transformers on a real model: `sampling.py --model PATH` runs it.

Groups of 8 prompts are alike, as those of siblings, and all prompts begin with the same tokens.

    plain        one piece of text after each prompt
    interleaved  lines with observed tokens between them. For transformers each line is a call with
                 all there is so far; `generate_batch` keeps its manager between calls, and with it
                 whole blocks of keys.

All lines have one length, so no call of `generate` waits for its longest line. Rounds alternate
between the three, and the best of each counts: other work only ever slows. A core's milliseconds
for each sampled token stand beside the rate, since they depend less on that work.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    logging,
)

from repl_rl.engines.hf.engine import HFEngine
from repl_rl.models.loading import read_files

GROUP, COMMON, PROMPT = 8, 70, 115
SAMPLED, OBSERVED = 12, 8
BLOCK, BLOCKS_A_ROW, BATCH_TOKENS = 32, 16, 2048
"""Of `generate_batch`: tokens of a block, blocks, tokens of a forward. By itself it takes most of
the memory."""

Sample = Callable[[Any, list[list[int]], int], list[list[int]]]
"""(model, ids, tokens to sample after each) -> what was sampled."""


@dataclass(frozen=True, slots=True)
class Rate:
    tokens_per_s: float
    core_ms: float
    """CPU time for each sampled token."""


def compare(path: str, *, counts: list[int], rounds: int, num_lines: int) -> None:
    """Print a row for each count of trajectories, kind of work and way to sample."""
    logging.set_verbosity_error()  # -1 for an id that never ends a text
    model = AutoModelForCausalLM.from_pretrained(read_files(path).base, dtype=torch.float32).eval()
    print(f"{'n':>4}  {'work':12}{'by':16}{'tokens/s':>9}{'core ms/token':>15}{'to generate':>13}")
    for count in counts:
        for work, lines in (("plain", 1), ("interleaved", num_lines)):
            found: dict[str, list[Rate]] = {name: [] for name in WAYS}
            for seed in range(rounds):
                for name, measure in WAYS.items():
                    size = SAMPLED * num_lines // lines
                    found[name].append(rate(measure, model, count, lines, size, seed))
            best = {name: max(one, key=lambda it: it.tokens_per_s) for name, one in found.items()}
            for name, it in best.items():
                least = min(one.core_ms for one in found[name])
                ratio = it.tokens_per_s / best["generate"].tokens_per_s
                print(f"{count:>4}  {work:12}{name:16}{it.tokens_per_s:>9.1f}{least:>15.1f}"
                      f"{ratio:>13.2f}", flush=True)  # fmt: skip


def rate(
    measure: Callable[[Any, list[list[int]], int, int], None],
    model: Any,  # a PreTrainedModel: transformers ships no types for what is used of it
    count: int,
    lines: int,
    size: int,
    seed: int,
) -> Rate:
    """Sampled tokens per second of `count` trajectories of `lines` lines of `size` tokens."""
    rng = random.Random(seed)
    common = tokens(rng, COMMON)
    prompts = [[*common, *tokens(rng, PROMPT - COMMON)] for _ in range(-(-count // GROUP))]
    ids = [list(prompts[at // GROUP]) for at in range(count)]
    started, cpu_started = time.perf_counter(), time.process_time()
    measure(model, ids, lines, size)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    model.destroy_cached_continuous_batching_manager()
    num_sampled = count * lines * size
    return Rate(num_sampled / took, 1000 * cpu / num_sampled)


def by_engine(model: Any, ids: list[list[int]], lines: int, size: int) -> None:
    """Its own cache is made anew, which includes the trial of the model."""

    async def go_on(engine: HFEngine, at: int, one: list[int]) -> None:
        rng = random.Random(at)
        for _ in range(lines):
            line = await engine.line(one, max_tokens=size, seed=rng.getrandbits(60))
            one = [*one, *line.ids, *tokens(rng, OBSERVED)]

    async def inside() -> None:
        row_tokens = len(ids[0]) + lines * (size + OBSERVED)
        engine = HFEngine(
            model,
            newline_ids=frozenset(),
            eos_ids=frozenset(),
            num_rows=len(ids),
            row_tokens=row_tokens,
        )
        try:
            await asyncio.gather(*(go_on(engine, at, one) for at, one in enumerate(ids)))
        finally:
            await engine.aclose()

    asyncio.run(inside())


def in_calls(sample: Sample) -> Callable[[Any, list[list[int]], int, int], None]:
    """A call for each line of all trajectories."""

    def measure(model: Any, ids: list[list[int]], lines: int, size: int) -> None:
        rng = random.Random(0)
        for _ in range(lines):
            sampled = sample(model, ids, size)
            ids = [
                [*one, *new, *tokens(rng, OBSERVED)] for one, new in zip(ids, sampled, strict=True)
            ]

    return measure


def generate(model: Any, ids: list[list[int]], size: int) -> list[list[int]]:
    batch = torch.tensor(ids)  # all of one length
    with torch.no_grad():
        found = model.generate(
            batch, attention_mask=torch.ones_like(batch), generation_config=settings(size)
        )
    sampled: list[list[int]] = found[:, batch.shape[1] :].tolist()
    assert {len(one) for one in sampled} == {size}
    return sampled


def generate_batch(model: Any, ids: list[list[int]], size: int) -> list[list[int]]:
    found = model.generate_batch(
        ids,
        generation_config=settings(size),
        continuous_batching_config=ContinuousBatchingConfig(
            block_size=BLOCK, num_blocks=BLOCKS_A_ROW * len(ids), max_batch_tokens=BATCH_TOKENS
        ),
        persistent_manager=True,
        warmup=False,
    )
    by_request = sorted(found.items(), key=lambda item: int(item[0].rpartition("_")[2]))
    sampled = [list(output.generated_tokens) for _, output in by_request]
    assert [len(one) for one in sampled] == [size] * len(ids)
    return sampled


def settings(size: int) -> GenerationConfig:
    """Plain sampling of `size` tokens, whatever they are."""
    return GenerationConfig(
        max_new_tokens=size, do_sample=True, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0
    )


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(8, 4096) for _ in range(count)]


WAYS: dict[str, Callable[[Any, list[list[int]], int, int], None]] = {
    "hf": by_engine,
    "generate": in_calls(generate),
    "generate_batch": in_calls(generate_batch),
}
