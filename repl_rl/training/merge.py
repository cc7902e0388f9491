"""Make a whole model of an adapter and the model that it belongs to.

    RUN/checkpoints/final (adapter) -> weights in float32 -> a folder that transformers loads alone

Knows folders and models. Does not know runs, flags or terminals.
"""

from __future__ import annotations

from pathlib import Path

from repl_rl.disk import written_aside
from repl_rl.engines.models import load_model, pick_device
from repl_rl.engines.precision import Precision
from repl_rl.engines.weights import is_adapted, save_merged
from repl_rl.errors import ConfigError


def merge(model: str, output: Path) -> None:
    """Write what the adapter in the folder `model` makes of its base, whole or not at all.

    What was at `output` is replaced. In float32, whatever the base is stored in: bfloat16 would
    round away most of what an adapter adds. Raises ConfigError where `model` holds no adapter,
    StorageError where the disk refuses.
    """
    loaded = load_model(model, device=pick_device("cpu"), precision=Precision())
    if not is_adapted(loaded.model):
        raise ConfigError(f"{model!r} holds a whole model; there is no adapter to merge")
    with written_aside(output) as aside:
        save_merged(loaded.model, aside)
        loaded.tokenizer.save_pretrained(aside)
