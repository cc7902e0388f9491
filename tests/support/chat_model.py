"""A tiny chat model of random weights, whose template has calls that TRL can read."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from trainer_kit import byte_tokenizer, random_qwen


def save_chat_model(path: Path) -> Path:
    """Write model and tokenizer to `path`."""
    tokenizer = byte_tokenizer("<|im_end|>")
    tokenizer.chat_template = (files("trl") / "chat_templates" / "qwen3.jinja").read_text()
    tokenizer.save_pretrained(path)
    random_qwen(context_tokens=8192).save_pretrained(path)
    return path
