"""A random Qwen3 of two layers over bytes, with a newline in each fourth token: lines are short."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def save_tiny_model(
    path: Path, *, seed: int = 0, context_tokens: int = 1024, runs_on: bool = False
) -> Path:
    """Write model and tokenizer to `path`; the vocabulary is the same for every seed.

    With `runs_on` it has tokens with a character behind a newline, too: a fifth of all.
    """
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    visible = [chr(code) for code in range(33, 127)]
    merges = [(symbol, "\u010a") for symbol in visible]
    merges += [("\u010a", symbol) for symbol in visible if runs_on]
    names = [*symbols, *(a + b for a, b in merges), "<|end|>"]
    backend = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>"
    )
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,  # the least that vLLM's attention takes on a CPU
        max_position_embeddings=context_tokens,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
