r"""The tokenizer that a GGUF file holds.

metadata -> tokens, merges, the rule that splits text -> a fast tokenizer of transformers

Vocabularies of bytes (`tokenizer.ggml.model = "gpt2"`) are made here, of what the file says and
nothing else: transformers splits `a  1` into `a`, ` `, ` `, `1` for every one of them, swaps the
ends of texts and knows some of the added tokens. Others are as transformers makes them.
"""

from __future__ import annotations

from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast

from repl_rl.engines.gguf_file import GGUFFile, broken_refused, refusal

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    r"NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SINGLE_DIGITS = (
    *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
)
_AS_GPT_2 = (None, "default", "gpt-2", "phi-2", "olmo", "jais", "mpt")
_AS_QWEN_2 = ("qwen2", "deepseek-r1-qwen", "stablelm2")
_AS_LLAMA_3 = ("llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe", "dbrx")
"""Names of `tokenizer.ggml.pre`, and what llama.cpp splits text by for them."""
_CONTROL, _USER_DEFINED = 3, 4
"""Of `tokenizer.ggml.token_type`."""
_ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
"""Names of tokens in the file -> in transformers."""


def tokenizer_of(file: GGUFFile) -> PreTrainedTokenizerFast:
    """The file's tokenizer; ConfigError where it splits text by a rule that is not known here."""
    with broken_refused(file.path):
        is_bytes = file.metadata["tokenizer.ggml.model"] == "gpt2"
        backend = _of_bytes(file) if is_bytes else _by_transformers(file)
        tokens: list[str] = file.metadata["tokenizer.ggml.tokens"]
        ids = {name: file.token_id(role) for role, name in _ROLES.items()}
        named = {f"{name}_token": tokens[at] for name, at in ids.items() if at is not None}
        if file.metadata.get("tokenizer.ggml.add_bos_token") and ids["bos"] is not None:
            first = (named["bos_token"], ids["bos"])
            backend.post_processor = processors.TemplateProcessing(
                single=f"{first[0]} $A", pair=f"{first[0]} $A $B", special_tokens=[first]
            )
        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            chat_template=file.metadata.get("tokenizer.chat_template"),
            model_max_length=file.metadata[f"{file.architecture}.context_length"],
            **named,
        )


def _of_bytes(file: GGUFFile) -> Tokenizer:
    found = file.metadata
    tokens: list[str] = found["tokenizer.ggml.tokens"]
    rule = found.get("tokenizer.ggml.pre")
    backend = Tokenizer(
        models.BPE(
            vocab={token: at for at, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in found["tokenizer.ggml.merges"]],
            # Llama 3 has tokens that no merges make.
            ignore_merges=rule in _AS_LLAMA_3,
        )
    )
    backend.pre_tokenizer = _splitter(file, rule)
    if rule in _AS_QWEN_2:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    kinds = list(zip(tokens, found["tokenizer.ggml.token_type"], strict=True))
    backend.add_special_tokens([_added(token) for token, kind in kinds if kind == _CONTROL])
    backend.add_tokens([_added(token) for token, kind in kinds if kind == _USER_DEFINED])
    return backend


def _added(token: str) -> AddedToken:
    return AddedToken(token, normalized=False)


def _splitter(file: GGUFFile, rule: str | None) -> Any:  # Any: a PreTokenizer of some kind
    as_gpt_2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if rule in _AS_GPT_2:
        return as_gpt_2
    if rule in _SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, as_gpt_2])
    if rule in (*_AS_QWEN_2, *_AS_LLAMA_3):
        number = r"\p{N}" if rule in _AS_QWEN_2 else r"\p{N}{1,3}"
        words = Regex(_WORDS.replace("NUMBER", number))
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Split(words, "isolated"), as_bytes])
    raise refusal(
        file.path,
        f"its vocabulary splits text by a rule, {rule!r}, that is not known here; give the folder "
        f"that it was made from",
    )


def _by_transformers(file: GGUFFile) -> Tokenizer:
    folder, path = file.path.parent, str(file.path)
    made: Any = PreTrainedTokenizerFast.from_pretrained(folder, gguf_file=path)
    backend: Tokenizer = made.backend_tokenizer
    return backend
