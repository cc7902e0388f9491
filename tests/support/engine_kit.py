"""Random models of several kinds and a way to use an engine once: what engine tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from repl_rl.engines.hf import HFEngine

T = TypeVar("T")
VOCABULARY, NEWLINE, EOS = 48, 10, 3
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": EOS,
}


def qwen3() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=8))


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**COMMON, num_key_value_heads=4))


def gpt2() -> Any:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=512,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    return GPT2LMHeadModel(config)


def random_model(make: Callable[[], Any], *, seed: int = 0) -> Any:
    """Weights three times as large as usual: flat distributions would hide a wrong position."""
    torch.manual_seed(seed)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    return model


def run(
    model: Any,
    use: Callable[[HFEngine], Awaitable[T]],
    *,
    num_rows: int = 4,
    row_tokens: int = 1 << 20,
    temperature: float = 1.0,
    newline_ids: frozenset[int] = frozenset({NEWLINE}),
    eos_ids: frozenset[int] = frozenset({EOS}),
) -> T:
    """Use a fresh engine and close it; nothing may hang."""

    async def inside() -> T:
        engine = HFEngine(
            model,
            newline_ids=newline_ids,
            eos_ids=eos_ids,
            num_rows=num_rows,
            row_tokens=row_tokens,
            temperature=temperature,
        )
        try:
            async with asyncio.timeout(20):
                return await use(engine)
        finally:
            await engine.aclose()

    return asyncio.run(inside())


def prompt(seed: int, length: int = 7) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(11, VOCABULARY, (length,), generator=generator).tolist()


async def trajectory(
    engine: HFEngine, ids: Sequence[int], *, seed: int, num_lines: int = 4, max_tokens: int = 12
) -> tuple[list[int], list[float | None]]:
    """Lines with observations of several lengths between them: all ids, their logprobs or None."""
    ids, logprobs = list(ids), [None] * len(ids)
    for index in range(num_lines):
        line = await engine.line(ids, max_tokens=max_tokens, seed=1000 * seed + index)
        ids += line.ids
        logprobs += line.logprobs
        observation = prompt(77 * seed + index, 1 + (seed + 3 * index) % 6)
        ids += observation
        logprobs += [None] * len(observation)
        await asyncio.sleep(0.001 * (seed % 3))
    return ids, logprobs


def worst_difference(
    model: Any, ids: Sequence[int], logprobs: Sequence[float | None], *, temperature: float = 1.0
) -> float:
    """Largest gap between the engine's log-probabilities and a fresh forward of the same ids."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float() / temperature
    fresh = torch.log_softmax(logits, -1)
    gaps = [
        abs(fresh[at - 1, ids[at]].item() - logprob)
        for at, logprob in enumerate(logprobs)
        if logprob is not None
    ]
    assert gaps
    return max(gaps)
