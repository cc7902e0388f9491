"""Adapters: low-rank updates (LoRA, arXiv:2106.09685) beside weights that stay as they are.

    [lora] or a folder, a model without memory -> Adapter -> the model, wrapped

Knows peft and names of layers. Does not know tokenizers, engines or training. Imported where there
is an adapter: peft takes seconds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLora
from peft import PeftConfig, PeftModelForCausalLM, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from transformers.pytorch_utils import Conv1D

from repl_rl.config.sections import LoraConfig
from repl_rl.errors import ConfigError

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = "default"
_BEYOND = (
    *("use_dora", "lora_bias", "modules_to_save", "target_parameters", "layer_replication"),
    *("trainable_token_indices", "alora_invocation_tokens", "use_qalora", "use_bdlora"),
    *("arrow_config", "kasa_config", "monteclora_config", "velora_config"),
)
"""Settings of an adapter of peft that a sum of two matrices does not have."""
_UNREAD = ("rank_pattern", "alpha_pattern")
"""Settings that vLLM passes over: it takes one rank and one alpha for all layers."""
_KEEPING = (True, False, "gaussian", "orthogonal", "eva")
"""Values of `init_lora_weights` that leave the model's own weights as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Facts about an adapter before its model's weights are read."""

    config: PeftLora
    layers: tuple[str, ...]
    """The layers that have one, by their full names."""
    num_parameters: int
    folder: Path | None
    """Folder of its weights. None: it begins at zero, where it changes nothing."""

    @property
    def about(self) -> str:
        """`rank 8, alpha 32, on k_proj, q_proj`."""
        return f"rank {self.config.r}, alpha {self.config.lora_alpha:g}, on {_last(self.layers)}"


class Adapted(PeftModelForCausalLM):
    """A model with an adapter, of which the adapter alone is saved, without a card.

    TRL may add a second one, its reference. peft would ask the hub for the model's vocabulary.
    """

    def save_pretrained(self, save_directory: Any, *_: Any, **options: Any) -> None:
        """Save the adapter alone: see `PeftModel.save_pretrained`."""
        options |= {"selected_adapters": [_NAME], "save_embedding_layers": False}
        super().save_pretrained(save_directory, **options)

    def create_or_update_model_card(self, *_: Any, **__: Any) -> None:
        """None: peft's knows neither the model nor what was trained."""


def base_of(folder: Path) -> str:
    """The model that the adapter in `folder` belongs to; ConfigError where nothing says it."""
    base = _read(folder).base_model_name_or_path
    if not base:
        raise ConfigError(f"the adapter in {str(folder)!r} does not say which model it belongs to")
    return base


def new_adapter(lora: LoraConfig, outline: Callable[[], Any], *, base: str) -> Adapter:
    """The adapter that `[lora]` asks for; `outline` makes the model without memory.

    Raises ConfigError for a target that is no linear layer of the model.
    """
    layers = _linear_layers(outline())
    for target in lora.targets:
        if not any(_is_named(layer, target) for layer in layers):
            raise ConfigError(
                f"lora.targets names {target!r}, which is no linear layer of this model; expected "
                f"some of {_last(layers)}"
            )
    targets = lora.targets or tuple(layers)
    config = PeftLora(
        r=lora.rank,
        lora_alpha=_whole(lora.alpha),
        target_modules=[one for one in layers if any(_is_named(one, name) for name in targets)],
        lora_dropout=0.0,
        # GPT-2's layers hold their weights transposed.
        fan_in_fan_out=any(isinstance(one, Conv1D) for one in layers.values()),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    return _measured(config, outline, folder=None)


def stored_adapter(folder: Path, outline: Callable[[], Any]) -> Adapter:
    """The adapter in a folder; ConfigError for a kind that cannot be merged by adding."""
    config = _read(folder)
    beyond = [name for name in _BEYOND if getattr(config, name, None)]
    if not isinstance(config, PeftLora):
        beyond = [str(getattr(config.peft_type, "value", config.peft_type))]
    elif config.bias != "none":
        beyond.append(f"bias = {config.bias!r}")
    if not isinstance(config, PeftLora) or beyond:
        raise ConfigError(
            f"the adapter in {str(folder)!r} is more than LoRA on linear layers "
            f"({', '.join(beyond)}); merge it with peft, and give the result"
        )
    # A file may say that nothing is to be trained, and that something be dropped out.
    config.inference_mode, config.lora_dropout = False, 0.0
    try:
        adapter = _measured(config, outline, folder=folder)
    except ValueError as error:  # no layer of the model has such a name
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"the adapter in {str(folder)!r} does not fit: {reason}") from None
    foreign = set(adapter.layers) - _linear_layers(outline()).keys()
    if foreign:
        raise ConfigError(
            f"the adapter in {str(folder)!r} is on {_last(sorted(foreign))}; expected linear "
            f"layers, and not the head; merge it with peft, and give the result"
        )
    return adapter


def trained_adapter(
    lora: LoraConfig, stored: Adapter | None, outline: Callable[[], Any], *, name: str, base: str
) -> Adapter | None:
    """The adapter to train: a new one, or that of the policy `name`. None: all weights are trained.

    Raises ConfigError where the policy holds an adapter, and `[lora]` says something else.
    """
    if stored is None:
        return new_adapter(lora, outline, base=base) if lora.rank else None
    hint = f"or merge it first: repl-rl merge {name} --output DIR"
    if not lora.rank:
        raise ConfigError(
            f"{name!r} holds an adapter ({stored.about}), but lora.rank = 0 trains all weights; "
            f"give lora.rank = {stored.config.r}, {hint}"
        )
    requested = new_adapter(lora, outline, base=base)
    shape, expected = ((one.about, one.layers, one.num_parameters) for one in (stored, requested))
    if shape != expected:
        raise ConfigError(
            f"{name!r} holds an adapter ({stored.about}), but [lora] asks for another "
            f"({requested.about}); give the same, {hint}"
        )
    return stored


def attach(model: Any, adapter: Adapter) -> Adapted:  # Any: a PreTrainedModel
    """The model with the adapter, whose weights alone are trained, in float32.

    Raises ConfigError where the weights in its folder are not there, or another model's.
    """
    adapted = Adapted(model, copy.deepcopy(adapter.config), _NAME)
    if adapter.folder is None:
        return adapted
    path = adapter.folder / _WEIGHTS
    if not path.is_file():
        raise ConfigError(f"no weights of an adapter in {str(adapter.folder)!r}: no {_WEIGHTS}")
    try:
        loaded: Any = set_peft_model_state_dict(adapted, load_file(path), _NAME)
    except RuntimeError:
        loaded = None
    missing = [] if loaded is None else [name for name in loaded.missing_keys if "lora_" in name]
    if loaded is None or missing or loaded.unexpected_keys:
        raise ConfigError(
            f"the adapter in {str(adapter.folder)!r} does not fit "
            f"{adapter.config.base_model_name_or_path!r}: its weights are another model's"
        )
    return adapted


def unread_by_servers(model: Any) -> str | None:  # Any: peft's wrapper of a PreTrainedModel
    """Say why vLLM would read the model's adapter as another one; None where it would not."""
    config = model.peft_config[_NAME]
    unread = [name for name in _UNREAD if getattr(config, name)]
    if config.init_lora_weights not in _KEEPING:
        unread.append(f"init_lora_weights = {config.init_lora_weights!r}")
    return f"vLLM does not read the adapter's {', '.join(unread)}" if unread else None


def tuned_layers(model: torch.nn.Module) -> dict[str, Any]:  # Any: a LoraLayer is a Module, untyped
    """Layers that have adapters, by their full names."""
    return {name: one for name, one in model.named_modules() if isinstance(one, LoraLayer)}


def _read(folder: Path) -> PeftConfig:
    try:
        config: PeftConfig = PeftConfig.from_pretrained(str(folder))
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"cannot read {str(folder / _CONFIG)!r}: {reason}") from None
    return config


def _measured(config: PeftLora, outline: Callable[[], Any], *, folder: Path | None) -> Adapter:
    model = outline()
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        adapted = Adapted(model, copy.deepcopy(config), _NAME)
    trained = [one for one in adapted.parameters() if one.requires_grad]
    return Adapter(
        config=config,
        layers=tuple(tuned_layers(model)),
        num_parameters=sum(one.numel() for one in trained),
        folder=folder,
    )


def _linear_layers(model: Any) -> dict[str, torch.nn.Module]:  # Any: a PreTrainedModel
    head = model.get_output_embeddings()
    linear = (torch.nn.Linear, Conv1D)
    return {
        name: one
        for name, one in model.named_modules()
        if isinstance(one, linear) and one is not head
    }


def _whole(alpha: float) -> Any:  # Any: peft says int, and does arithmetic alone
    """An integer where it is one, as other readers of peft's files expect it."""
    return int(alpha) if int(alpha) == alpha else alpha


def _is_named(layer: str, name: str) -> bool:
    """Say whether a name means a layer, by the rule of peft: all of its name, or its last parts."""
    return layer == name or layer.endswith(f".{name}")


def _last(layers: Any) -> str:
    return ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
