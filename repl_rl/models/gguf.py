"""Models in one file of the format GGUF, converted once to the folder that everything else reads.

    FILE.gguf -> read_head, tokenizer_of, weights in float32 -> model_folder in the cache

Reads the file's head, makes its tokenizer, writes the model with both its configs. Knows
transformers' reader of the format. Does not know engines, or why the model is read.

In float32: that is what the package `gguf` computes of quantised weights. A smaller type would
round them once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import transformers
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
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from repl_rl.base import disk as cache
from repl_rl.base.disk import written_aside
from repl_rl.base.plugins import resolve_model
from repl_rl.errors import ConfigError

POSITION_FACTORS = "rope_freqs.weight"
_BROKEN = (
    *(OSError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(RuntimeError, AssertionError, MemoryError, ImportError, struct.error),
)
"""Errors that readers of the format raise where a number or a name in a file is not what it should
be."""


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """The head of a file: everything but its weights."""

    path: Path
    metadata: Mapping[str, Any]  # str, int, float, bool, or a list of them
    tensors: tuple[str, ...]
    """Names of weights, by llama.cpp."""
    num_weights: int
    position_factors: Any  # numpy, [D / 2], or None
    """Divisors of the frequencies of positions, where there is a tensor of them."""

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    def token_id(self, role: str) -> int | None:
        """The id of `bos`, `eos`, `eot`, ...; None where the file names none."""
        return self.metadata.get(f"tokenizer.ggml.{role}_token_id")


def read_head(path: Path) -> GGUFFile:
    """The head of a file. Raises ConfigError for one that is broken, or more or less than a model.

    Raises ModuleNotFoundError where the package `gguf` is not installed.
    """
    import gguf

    with broken_refused(path):
        reader = gguf.GGUFReader(path)
        factors = [one.data for one in reader.tensors if one.name == POSITION_FACTORS]
        head = GGUFFile(
            path=path,
            metadata={name: one.contents() for name, one in reader.fields.items()},
            tensors=tuple(one.name for one in reader.tensors),
            num_weights=sum(int(one.n_elements) for one in reader.tensors),
            position_factors=factors[0] if factors else None,
        )
    if (reason := _unusable(head)) is not None:
        raise refusal(path, reason)
    return head


def _unusable(file: GGUFFile) -> str | None:
    kind, num_parts = (file.metadata.get(key) for key in ("general.type", "split.count"))
    if "general.architecture" not in file.metadata:
        return "it does not say which architecture it has"
    if kind not in (None, "model"):
        return f"it holds an {kind}, not a model" if kind == "adapter" else f"it holds a {kind}"
    if num_parts not in (None, 0, 1):
        return f"it is one of {num_parts} parts; join them with llama-gguf-split --merge"
    num_layers = file.metadata.get(f"{file.architecture}.block_count")
    numbers = {name.split(".")[1] for name in file.tensors if name.startswith("blk.")}
    if num_layers != len(numbers):
        return f"it says {num_layers} layers, and has weights for {len(numbers)}; is it whole?"
    return None


def refusal(path: Path, reason: str) -> ConfigError:
    """Make the error for a file that cannot be loaded, with `reason`."""
    return ConfigError(f"cannot load a model from {str(path)!r}: {reason}")


@contextlib.contextmanager
def broken_refused(path: Path) -> Iterator[None]:
    """Turn what readers of a broken file raise into a ConfigError of one line."""
    try:
        yield
    except ConfigError:
        raise
    except _BROKEN as error:
        text = str(error).strip().partition("\n")[0]
        reason = text if isinstance(error, OSError | ValueError) and text else "it is broken"
        raise refusal(path, reason) from error


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
"""Values of `tokenizer.ggml.token_type`."""
_ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
"""Names of tokens in the file -> in transformers."""


def tokenizer_of(file: GGUFFile) -> PreTrainedTokenizerFast:
    """The file's tokenizer; ConfigError where it splits text by a rule that is not known here."""
    with broken_refused(file.path):
        is_bytes = file.metadata["tokenizer.ggml.model"] == "gpt2"
        if is_bytes:
            backend = _of_bytes(file)
        else:
            made: Any = PreTrainedTokenizerFast.from_pretrained(
                file.path.parent, gguf_file=str(file.path)
            )
            backend = made.backend_tokenizer
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
    metadata = file.metadata
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    rule = metadata.get("tokenizer.ggml.pre")
    backend = Tokenizer(
        models.BPE(
            vocab={token: at for at, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]],
            # Llama 3 has tokens that no merges make.
            ignore_merges=rule in _AS_LLAMA_3,
        )
    )
    backend.pre_tokenizer = _splitter(file, rule)
    if rule in _AS_QWEN_2:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    kinds = list(zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True))
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
    folder = cache.cache_folder("models") / f"{path.stem[:_NAME_CHARS]}-{digest.hexdigest()}"
    if folder.is_dir():
        return folder
    head = read_head(path)
    num_bytes = _WEIGHT_BYTES * head.num_weights + _BESIDE_BYTES
    cache.check(folder, f"what {path.name!r} holds", num_bytes=num_bytes)
    with cache.alone(folder):
        if not folder.is_dir():
            say(f"converting {path.name!r} to {str(folder)!r}, once")
            tokenizer, model = tokenizer_of(head), _model(head)
            with written_aside(folder) as aside:
                model.save_pretrained(aside)
                tokenizer.save_pretrained(aside)
    return folder


def _model(file: GGUFFile) -> Any:  # PreTrainedModel
    # Whole: a name alone is looked for in the current folder first.
    folder, path = file.path.parent, str(file.path)
    # Where there are kernels for them, weights would stay as they are in the file.
    dequantized: Any = getattr(transformers, "GgufConfig", None)
    options = {} if dequantized is None else {"quantization_config": dequantized(dequantize=True)}
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
    model, report = read
    if missing := sorted(report["missing_keys"]):
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
