"""Measure the engines: `python benchmarks/sampling.py [--engines hf vllm] [--threads 1]`.

One random model of 1.3 M weights, many trajectories at once, each with a prompt of 200 tokens that
the engine has read before the clock starts, then 20 lines of 12 sampled tokens with 8 observed
tokens after each. Beside it, in the same run:

    whole      as many tokens sampled in one go, nothing observed
    resident   the same, after the engine has read all observed tokens in one piece: their cost to
               read once and look back on, without that of resuming lines
    uneven     lines of 4 to 20 tokens, as drawn: lines of one length keep all trajectories in step
    latency    the same lines, with a kernel that takes 50 ms to answer each

Rates are sampled tokens per second, the best of the rounds: other work only ever slows.

`--model PATH` measures another thing: the engine `hf` with that model beside `generate` and
`generate_batch` of transformers (`benchmarks/generate.py`).
"""

import argparse
import asyncio
import gc
import importlib.util
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial

import generate
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from repl_rl.engines.base import Engine
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.engines.vllm.engine import VLLMEngine

PROMPT, LINES, SAMPLED, OBSERVED = 200, 20, 12, 8
ROW_TOKENS = PROMPT + 1 + LINES * (SAMPLED + OBSERVED)
STOPS = frozenset({7})
"""Hardly ever sampled: random weights make all of the 4,096 ids about as likely as each other."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    installed = ["hf", *(["vllm"] if importlib.util.find_spec("vllm") else [])]
    parser.add_argument("--engines", nargs="+", default=installed, choices=["hf", "vllm"])
    parser.add_argument("--trajectories", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", help="beside transformers, on this model")
    parser.add_argument("--lines", type=int, default=6, help="of each trajectory, with --model")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.model:
        generate.compare(
            args.model, counts=args.trajectories, rounds=args.rounds, num_lines=args.lines
        )
        return
    model = make_model()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        print(f"{'engine':8}{'n':>4}{'whole':>9}{'resident':>10}{'lines':>9}{'/whole':>8}"
              f"{'/resident':>11}{'lines/s':>9}{'50 ms / 0 ms':>14}")  # fmt: skip
        for count in args.trajectories:
            for name in args.engines:
                make = partial(MAKERS[name], model, folder)
                print(asyncio.run(row(name, make, count, args.rounds)))


async def row(name: str, make: Callable[[], Engine], count: int, rounds: int) -> str:
    """One engine's measurements with `count` trajectories."""
    engine = make()
    try:
        await rate(engine, count, (SAMPLED,) * 2, num_read=0, key="warm", delay=0.0)
        found: dict[str, float] = {}
        for seed in range(rounds):
            for kind, sizes, num_read, delay in (
                ("whole", (LINES * SAMPLED,), 0, 0.0),
                ("resident", (LINES * SAMPLED,), LINES * OBSERVED, 0.0),
                ("lines", (SAMPLED,) * LINES, 0, 0.0),
                ("uneven", None, 0, 0.0),
                ("latency", None, 0, 0.05),
            ):
                # Fresh prompts: a cache must not know them from the round before.
                key = f"{kind} {seed}"
                found[kind] = max(
                    found.get(kind, 0.0),
                    await rate(engine, count, sizes, num_read=num_read, key=key, delay=delay),
                )
    finally:
        await engine.aclose()
    lines = found["lines"]
    return (
        f"{name:8}{count:>4}{found['whole']:>9.0f}{found['resident']:>10.0f}{lines:>9.0f}"
        f"{lines / found['whole']:>8.2f}{lines / found['resident']:>11.2f}{lines / SAMPLED:>9.0f}"
        f"{found['uneven'] / found['latency']:>14.2f}"
    )


async def rate(
    engine: Engine,
    count: int,
    sizes: tuple[int, ...] | None,
    *,
    num_read: int,
    key: str,
    delay: float,
) -> float:
    """Sampled tokens per second of `count` trajectories at once; sizes None: uneven lines."""

    async def begin(rng: random.Random) -> list[int]:
        prompt = tokens(rng, PROMPT)
        return [*prompt, *(await engine.line(prompt, max_tokens=1, seed=0)).ids]

    async def continue_from(rng: random.Random, ids: list[int]) -> int:
        ids = ids + tokens(rng, num_read)
        num_sampled = 0
        for size in sizes or uneven(rng):
            line = await engine.line(ids, max_tokens=size, seed=rng.getrandbits(60))
            num_sampled += len(line.ids)
            if delay:
                await asyncio.sleep(delay)
            ids = [*ids, *line.ids, *tokens(rng, OBSERVED)]
        return num_sampled

    rngs = [random.Random(f"{key} {number}") for number in range(count)]
    begun = await asyncio.gather(*map(begin, rngs))
    gc.collect()
    started = time.perf_counter()
    sampled = await asyncio.gather(*map(continue_from, rngs, begun))
    return sum(sampled) / (time.perf_counter() - started)


def uneven(rng: random.Random) -> list[int]:
    """As many tokens as those of the even lines."""
    sizes = [rng.randint(4, 20) for _ in range(LINES)]
    while (left := LINES * SAMPLED - sum(sizes)) != 0:
        at = rng.randrange(LINES)
        sizes[at] = min(20, max(4, sizes[at] + left))
    return sizes


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(8, 4096) for _ in range(count)]


def make_model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=4096,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
        )
    )
    model.eval()
    return model


def make_hf(model: Qwen3ForCausalLM, _: str) -> Engine:
    return HFEngine(
        model, newline_ids=STOPS, eos_ids=frozenset({0}), num_rows=64, row_tokens=ROW_TOKENS
    )


def make_vllm(_: Qwen3ForCausalLM, folder: str) -> Engine:
    return VLLMEngine(
        folder,
        dtype="float32",
        device="cpu",
        newline_ids=STOPS,
        eos_ids=frozenset({0}),
        num_rows=64,
        row_tokens=ROW_TOKENS,
    )


MAKERS: dict[str, Callable[[Qwen3ForCausalLM, str], Engine]] = {"hf": make_hf, "vllm": make_vllm}

if __name__ == "__main__":
    main()
