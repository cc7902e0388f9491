"""A model in one file, of the format GGUF, made the folder that everything else reads.

FILE.gguf -> weights in float32, tokenizer, generation config -> a folder in the cache, once

Knows transformers' reader of the format. Does not know engines, or why the model is read.

In float32: that is what the package `gguf` computes of quantised weights. A smaller type would
round them once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from repl_rl import cache
from repl_rl.disk import written_aside
from repl_rl.engines.gguf_file import (
    POSITION_FACTORS,
    GGUFFile,
    broken_refused,
    read_head,
    refusal,
)
from repl_rl.engines.gguf_tokenizer import tokenizer_of
from repl_rl.plugins import resolve_model

VERSION = 1
"""Version of how folders are made. Raise it where kept ones should be made anew."""
_NAME_CHARS = 100
_WEIGHT_BYTES = 4
_BESIDE_BYTES = 64 << 20
"""The most that a vocabulary and its merges take."""
_LLAMA_3: dict[str, Any] = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def model_folder(name: str, *, say: Callable[[str], None]) -> str:
    """The folder, or `owner/name`, that the model is read from: see `plugins.resolve_model`.

    A GGUF file is made a folder, which `say` hears of. Raises ConfigError for a file that holds no
    model or more than could be kept, StorageError where the disk refuses.
    """
    source = resolve_model(name)
    return str(_converted(Path(source), say)) if Path(source).is_file() else source


def _converted(path: Path, say: Callable[[str], None]) -> Path:
    """All of the file is read to name the folder: files of one size may differ in any weight."""
    with broken_refused(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8))
    digest.update(bytes([VERSION]))
    folder = cache.kept("models") / f"{path.stem[:_NAME_CHARS]}-{digest.hexdigest()}"
    if folder.is_dir():
        return folder
    head = read_head(path)
    num_bytes = _WEIGHT_BYTES * head.num_weights + _BESIDE_BYTES
    cache.check(folder, f"what {path.name!r} holds", num_bytes=num_bytes)
    with cache.alone(folder):
        if not folder.is_dir():
            say(f"converting {path.name!r} to {str(folder)!r}, once")
            _convert(head, folder)
    return folder


def _convert(file: GGUFFile, folder: Path) -> None:
    tokenizer = tokenizer_of(file)
    model = _model(file)
    with written_aside(folder) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)


def _model(file: GGUFFile) -> Any:  # PreTrainedModel
    # Whole: a name alone is looked for in the current folder first.
    folder, path = file.path.parent, str(file.path)
    # Where there are kernels for them, weights would stay as they are in the file.
    kept: Any = getattr(transformers, "GgufConfig", None)
    options = {} if kept is None else {"quantization_config": kept(dequantize=True)}
    # The reader has a bar of its own on stderr, which no setting turns off.
    with broken_refused(file.path), contextlib.redirect_stderr(io.StringIO()):
        config = AutoConfig.from_pretrained(folder, gguf_file=path)
        _scale_positions(file, config)
        read: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=path,
            config=config,
            dtype="float32",
            output_loading_info=True,
            **options,
        )
    model, found = read
    if missing := sorted(found["missing_keys"]):
        raise refusal(file.path, f"it has no weights for {missing[0]} ({len(missing)} are missing)")
    return _plain(model, file)


def _plain(model: Any, file: GGUFFile) -> Any:
    """The model without what says that it is quantised, and with all ids that end its turns."""
    for holder, name in ((model, "hf_quantizer"), (model.config, "quantization_config")):
        if hasattr(holder, name):
            delattr(holder, name)
    model.is_quantized = False
    ends = {file.token_id(role) for role in ("eos", "eot", "eom")} - {None}
    model.generation_config = GenerationConfig(
        bos_token_id=file.token_id("bos"),
        eos_token_id=sorted(ends) or None,
        pad_token_id=file.token_id("padding"),
    )
    return model


def _scale_positions(file: GGUFFile, config: Any) -> None:
    """Put Llama 3's scale of positions into the config; ConfigError for any other.

    transformers' reader leaves all of them out, but for gpt-oss.
    """
    kind = str(file.metadata.get(f"{file.architecture}.rope.scaling.type", "none"))
    lost = [name for name in file.tensors if name.startswith("rope_")]
    if kind != "none":
        lost.append(kind)
    if not lost or file.architecture == "gpt-oss":
        return
    scaled = None
    if lost == [POSITION_FACTORS]:
        scaled = _as_llama_3(file.position_factors, theta=config.rope_parameters["rope_theta"])
    if scaled is None:
        raise refusal(file.path, f"it scales positions ({lost[0]}), which would be lost")
    config.rope_parameters = {**config.rope_parameters, **scaled}


def _as_llama_3(factors: Any, *, theta: float) -> dict[str, Any] | None:
    """Settings by which Llama 3 divides frequencies by these numbers; None where there are none."""
    half = len(factors)
    wavelength = 2 * np.pi * theta ** (np.arange(half) / half)
    longest = _LLAMA_3["original_max_position_embeddings"]
    low, high = _LLAMA_3["low_freq_factor"], _LLAMA_3["high_freq_factor"]
    share = np.clip((longest / wavelength - low) / (high - low), 0, 1)
    factor = float(factors.max())
    if not np.allclose(factors, 1 / ((1 - share) / factor + share), rtol=1e-3):
        return None
    return {**_LLAMA_3, "factor": factor}
