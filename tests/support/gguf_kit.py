"""Small models as GGUF files, written tensor by tensor as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

WIDTH, LAYERS, HEADS, KEY_HEADS, INNER, CONTEXT = 32, 2, 4, 2, 64, 512
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("\u0120 \u0120", "\u010a \u010a", "1 2", "12 3", "\u0120 x")
"""Two spaces, two newlines, `12`, `123` and ` x` have tokens of their own."""
TOKENS = (
    *CONTROL,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
    "<think>",
)
METADATA: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 2,
    "tokenizer.chat_template": TEMPLATE,
}
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def small_llama(**settings: Any) -> LlamaForCausalLM:
    """Random weights over the vocabulary of `TOKENS`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        **settings,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model


def tensors_of(model: LlamaForCausalLM) -> dict[str, np.ndarray[Any, Any]]:
    """Its weights under the names of llama.cpp, which turns heads in pairs of neighbours."""
    state = {name: one.numpy() for name, one in model.state_dict().items()}
    found = {"token_embd.weight": state["model.embed_tokens.weight"]}
    found["output_norm.weight"] = state["model.norm.weight"]
    for layer in range(LAYERS):
        for ours, theirs in _NAMES.items():
            weight = state[f"model.layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                heads = HEADS if theirs == "attn_q" else KEY_HEADS
                halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
                weight = halves.swapaxes(1, 2).reshape(weight.shape)
            found[f"blk.{layer}.{theirs}.weight"] = weight
    return found


def write_gguf(
    path: Path,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    *,
    architecture: str = "llama",
    quantised: GGMLQuantizationType | None = None,
    metadata: Mapping[str, object] = MappingProxyType({}),
) -> Path:
    """The file, in which `metadata` stands over `METADATA`."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_token_list(list(TOKENS))
    kinds = {**dict.fromkeys(CONTROL, TokenType.CONTROL), "<think>": TokenType.USER_DEFINED}
    writer.add_token_types([kinds.get(token, TokenType.NORMAL) for token in TOKENS])
    writer.add_token_merges(list(MERGES))
    for key, value in {**METADATA, **metadata}.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
    for name, weight in tensors.items():
        if quantised is not None and weight.ndim == 2:
            writer.add_tensor(name, quantize(weight, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(name, np.ascontiguousarray(weight, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
