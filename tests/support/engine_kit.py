"""Random models of many kinds and a way to use an engine once: what engine tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

from repl_rl.engines.base import Engine
from repl_rl.engines.hf import HFEngine
from repl_rl.engines.precision import Precision

T = TypeVar("T")
VOCABULARY, NEWLINE, EOS = 48, 10, 3
WINDOW = 8
"""Tokens that layers of sliding attention look back on: fewer than any trajectory has."""
SIZE: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": EOS,
    "pad_token_id": None,
}
GROUPED: Mapping[str, Any] = {**SIZE, "num_key_value_heads": 2, "head_dim": 8}
ALTERNATING = ["sliding_attention", "full_attention"]
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}


def scorer(model: Any) -> Any:
    """What `models.logprobs` takes of a loaded model: one that computes in its own weights."""
    return SimpleNamespace(model=model, precision=Precision())


def qwen3() -> PretrainedConfig:
    return Qwen3Config(**GROUPED)


def gpt2() -> PretrainedConfig:
    return GPT2Config(**SIZE)


def mistral() -> PretrainedConfig:
    return MistralConfig(**GROUPED, sliding_window=WINDOW)


def gemma2(attention: str) -> PretrainedConfig:
    return Gemma2Config(
        **GROUPED, sliding_window=WINDOW, query_pre_attn_scalar=8, attn_implementation=attention
    )


def phi3(**more: object) -> PretrainedConfig:
    return Phi3Config(**SIZE, num_key_value_heads=2, **more)


def deepseek_v3() -> PretrainedConfig:
    """Keys and values of unlike size."""
    return DeepseekV3Config(
        **SIZE,
        **EXPERTS,
        num_key_value_heads=4,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
    )


ARCHITECTURES: Mapping[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SIZE),
    "llama eager": lambda: LlamaConfig(**SIZE, attn_implementation="eager"),
    "qwen2": lambda: Qwen2Config(**SIZE, num_key_value_heads=2),
    "qwen2 full and sliding": lambda: Qwen2Config(
        **SIZE,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=WINDOW,
        max_window_layers=1,
    ),
    "qwen3": qwen3,
    "qwen3 experts": lambda: Qwen3MoeConfig(**GROUPED, **EXPERTS, num_experts=4),
    "mistral": mistral,
    "gemma": lambda: GemmaConfig(**GROUPED),
    "gemma2": lambda: gemma2("sdpa"),
    "gemma2 soft caps": lambda: gemma2("eager"),
    "gemma3": lambda: Gemma3TextConfig(
        **GROUPED, sliding_window=WINDOW, query_pre_attn_scalar=8, layer_types=ALTERNATING
    ),
    "phi3": lambda: phi3(sliding_window=WINDOW),
    "olmo2": lambda: Olmo2Config(**SIZE),
    "smollm3": lambda: SmolLM3Config(**SIZE, num_key_value_heads=2, no_rope_layers=[1, 0]),
    "gpt2": gpt2,
    "gpt_neox": lambda: GPTNeoXConfig(**SIZE),
    "gpt_oss sinks": lambda: GptOssConfig(
        **GROUPED,
        sliding_window=WINDOW,
        layer_types=ALTERNATING,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
    "deepseek_v3": deepseek_v3,
}


def random_model(make: Callable[[], PretrainedConfig], *, seed: int = 0, scale: float = 3.0) -> Any:
    """Weights three times as large as usual: flat distributions would hide a wrong position."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


def shake(model: Any) -> None:
    """Other weights, as after an update; the same ones for the same model."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def run(
    model: Any,
    use: Callable[[HFEngine], Awaitable[T]],
    *,
    num_rows: int = 4,
    row_tokens: int = 1 << 20,
    temperature: float = 1.0,
    dtype: torch.dtype = torch.float32,
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
            dtype=dtype,
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


Written = tuple[list[int], list[float | None]]
"""All ids of a trajectory, and the log-probability of each that was sampled."""


async def trajectory(
    engine: Engine, ids: Sequence[int], *, seed: int, num_lines: int = 4, max_tokens: int = 12
) -> Written:
    """Lines with observations of several lengths between them."""
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


async def trajectories(engine: Engine, count: int, **lengths: int) -> list[Written]:
    """Several at once, after prompts of several lengths."""
    return await asyncio.gather(
        *(trajectory(engine, prompt(i, 4 + i), seed=i, **lengths) for i in range(count))
    )


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
