"""Random models of two layers: what the engines under test sample from.

Knows weights. Does not know engines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, Qwen3Config

CONTEXT_TOKENS = 512
"""Tokens that a small model attends to."""
VOCABULARY = 257
"""Bytes, and one more id that ends a sequence."""


def random_model(make: Callable[[], PretrainedConfig], *, seed: int = 0, scale: float = 3.0) -> Any:
    """Weights three times as large as usual: flat distributions would hide a wrong position."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


def small_model(*, is_tied: bool) -> Any:
    """A Qwen3 in float32, the same at each call, with heads as large as vLLM's kernels for a CPU
    ask for; `is_tied` says whether its output layer is its embedding."""

    def config() -> PretrainedConfig:
        return Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=CONTEXT_TOKENS,
            bos_token_id=None,
            eos_token_id=3,
            pad_token_id=None,
            tie_word_embeddings=is_tied,
        )

    return random_model(config)


def shake(model: Any) -> None:
    """Other weights, as after an update; the same ones for the same model."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Models of this size compute faster than two threads find each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
