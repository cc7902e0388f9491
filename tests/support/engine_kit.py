"""Configs of models of many kinds and a way to use an engine once: what engine tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from transformers import (
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

from repl_rl.engines.hf.engine import HFEngine
from repl_rl.models.precision import Precision

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
EXPERTS: Mapping[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}


def attend(kind: str) -> Mapping[str, Any]:
    """Settings that every config takes, though none of them lists these."""
    return {"attn_implementation": kind}


def scorer(model: Any) -> Any:
    """Scorer that `models.loading.logprobs` takes: the model computes in its own weights."""
    return SimpleNamespace(model=model, precision=Precision(), forbidden_ids=frozenset())


def qwen3() -> PretrainedConfig:
    return Qwen3Config(**GROUPED)


def gpt2() -> PretrainedConfig:
    return GPT2Config(**SIZE)


def mistral() -> PretrainedConfig:
    return MistralConfig(**GROUPED, sliding_window=WINDOW)


def gemma2(attention: str) -> PretrainedConfig:
    return Gemma2Config(
        **GROUPED, **attend(attention), sliding_window=WINDOW, query_pre_attn_scalar=8
    )


def phi3(**more: Any) -> PretrainedConfig:
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
    "llama eager": lambda: LlamaConfig(**SIZE, **attend("eager")),
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
            async with asyncio.timeout(100):
                return await use(engine)
        finally:
            await engine.aclose()

    return asyncio.run(inside())
