"""What a GGUF file says of a model, and whether all of it can be kept.

FILE.gguf -> metadata, names of tensors | a refusal of one line

Knows the format (llama.cpp's `docs/gguf.md`). Does not know models' code, folders or caches.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repl_rl.errors import ConfigError

POSITION_FACTORS = "rope_freqs.weight"
_BROKEN = (
    *(OSError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(RuntimeError, AssertionError, MemoryError, ImportError, struct.error),
)
"""What readers of the format raise where a number or a name in a file is not what it should be."""


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """The head of a file: everything but its weights."""

    path: Path
    metadata: Mapping[str, Any]  # str, int, float, bool, or a list of them
    tensors: tuple[str, ...]
    """Names of weights, by llama.cpp."""
    num_weights: int
    position_factors: Any  # numpy, [D / 2], or None
    """What the frequencies of positions are divided by, where there is a tensor of it."""

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
        found = GGUFFile(
            path=path,
            metadata={name: one.contents() for name, one in reader.fields.items()},
            tensors=tuple(one.name for one in reader.tensors),
            num_weights=sum(int(one.n_elements) for one in reader.tensors),
            position_factors=factors[0] if factors else None,
        )
    if (reason := _unusable(found)) is not None:
        raise refusal(path, reason)
    return found


def _unusable(file: GGUFFile) -> str | None:
    kind, num_parts = (file.metadata.get(key) for key in ("general.type", "split.count"))
    if "general.architecture" not in file.metadata:
        return "it does not say which architecture it has"
    if kind not in (None, "model"):
        return f"it holds an {kind}, not a model" if kind == "adapter" else f"it holds a {kind}"
    if num_parts not in (None, 0, 1):
        return f"it is one of {num_parts} parts; join them with llama-gguf-split --merge"
    num_layers = file.metadata.get(f"{file.architecture}.block_count")
    held = {name.split(".")[1] for name in file.tensors if name.startswith("blk.")}
    if num_layers != len(held):
        return f"it says {num_layers} layers, and has weights for {len(held)}; is it whole?"
    return None


def refusal(path: Path, reason: str) -> ConfigError:
    """The same words for whatever is wrong with a file."""
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
