"""A tiny model with an adapter that has learnt something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from repl_rl.config.sections import LoraConfig
from repl_rl.models.loading import LoadedModel, load_weights, read_files, to_train
from repl_rl.models.lora import tuned_layers
from repl_rl.models.precision import Precision

CPU = torch.device("cpu")
IDS = [62, 62, 62, 1, 7, 100, 30, 31, 32, 33]
SINGLE = Precision()


def wrapped(folder: Path, *, precision: Precision = SINGLE, **lora: Any) -> LoadedModel:
    """The model in a folder with an adapter that changes what it says; rank 4 unless given."""
    files = to_train(read_files(str(folder)), LoraConfig(**{"rank": 4, **lora}))
    torch.manual_seed(0)
    loaded = load_weights(files, device=CPU, precision=precision)
    for layer in tuned_layers(loaded.model).values():
        layer.lora_B["default"].weight.data.normal_(std=0.05)
    return loaded


def logits(model: Any) -> torch.Tensor:
    """Logits of one forward over `IDS`."""
    with torch.no_grad():
        found: torch.Tensor = model.eval()(torch.tensor([IDS])).logits
    return found
