"""Count what a decoding step launches: `python benchmarks/launches.py`.

Small random models of two layers and of three: the difference is a layer, what is left the rest.
Ops that only look at a tensor in another way launch nothing, and do not count. Beside the step of
fixed shape stands the forward of transformers over its own StaticCache, and an update's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen3Config
from transformers.cache_utils import StaticCache

from repl_rl.engines.hf.attention import register
from repl_rl.engines.hf.fixed_step import NAME, FixedStep, Shape, StepCache, View, attend, in_view
from repl_rl.engines.hf.steps import Shadow
from repl_rl.models.policy import Policy

SIZE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
ROWS, COLUMNS = 6, 192
NARROW = Shape(slots=2, width=8, rows=ROWS)
CPU = torch.device("cpu")


def llama(layers: int) -> LlamaConfig:
    return LlamaConfig(**SIZE, num_hidden_layers=layers)


def qwen3(layers: int) -> Qwen3Config:
    return Qwen3Config(**SIZE, num_hidden_layers=layers)


def gemma3(layers: int) -> Gemma3TextConfig:
    kinds = ["sliding_attention"] + ["full_attention"] * (layers - 1)
    return Gemma3TextConfig(**SIZE, num_hidden_layers=layers, sliding_window=32, layer_types=kinds)


CONFIGS: dict[str, Callable[[int], Any]] = {"llama": llama, "qwen3": qwen3, "gemma3": gemma3}


class Op(NamedTuple):
    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Of all tensors that go in."""


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped upstream
    """Records ops that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        shapes = tuple(tuple(one.shape) for one in given)
        out = func(*args, **(kwargs or {}))
        made = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        places = {one.untyped_storage().data_ptr() for one in given}
        is_view = made and all(one.untyped_storage().data_ptr() in places for one in made)
        is_written = func._schema.is_mutable
        if not (is_view and not is_written) and "empty" not in func.__name__:
            self.ops.append(Op(str(func), shapes))
        return out


def count(use: Callable[[], object]) -> int:
    """Launching ops of `use`."""
    with Launches() as seen:
        use()
    return len(seen.ops)


def make_step(
    model: Any, *, shape: Shape = NARROW, dtype: torch.dtype = torch.float32
) -> tuple[FixedStep, View]:
    """A step of fixed shape of a model, and the view that it is run under."""
    register(NAME, attend)
    shadow = Shadow(model, dtype=dtype, attention=NAME)
    cache = StepCache(model.config, num_rows=ROWS, num_columns=COLUMNS, dtype=dtype)
    policy = Policy(temperature=1.0, forbidden_ids={1, 2}, device=CPU)
    step = FixedStep(shadow.model, cache, policy, shape, device=CPU)
    return step, step.view


def of_step(make: Callable[[int], Any], layers: int) -> int:
    """Ops of a step of fixed shape, draws included."""
    step, view = make_step(AutoModelForCausalLM.from_config(make(layers)), dtype=torch.bfloat16)
    with in_view(view):
        step.forward()  # takes memory for keys
        return count(step.forward)


def of_static(make: Callable[[int], Any], layers: int) -> int:
    """Ops of transformers' own forward of one token a row over a StaticCache."""
    model = AutoModelForCausalLM.from_config(make(layers), dtype=torch.bfloat16).eval()
    cache = StaticCache(config=model.config, max_cache_len=COLUMNS)
    ids, at = torch.zeros(ROWS, 1, dtype=torch.long), torch.zeros(ROWS, 1, dtype=torch.long)

    @torch.no_grad()
    def forward() -> object:
        return model(input_ids=ids, position_ids=at, past_key_values=cache, logits_to_keep=1)

    forward()
    return count(forward)


def of_update(make: Callable[[int], Any], layers: int) -> int:
    """Ops of a padded forward and backward."""
    model = AutoModelForCausalLM.from_config(make(layers))
    ids = torch.zeros(ROWS, 16, dtype=torch.long)

    def update() -> None:
        model(input_ids=ids).logits.float().log_softmax(-1).sum().backward()

    update()
    return count(update)


def layer_and_rest(of: Callable[[Callable[[int], Any], int], int], name: str) -> tuple[int, int]:
    """Ops of a layer, and those besides."""
    two, three = of(CONFIGS[name], 2), of(CONFIGS[name], 3)
    return three - two, two - 2 * (three - two)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'model':8}{'step of fixed shape':>22}{'StaticCache':>16}{'update':>16}")
    for name in CONFIGS:
        cells = (f"{a} + {b}" for a, b in (layer_and_rest(of, name) for of in
                 (of_step, of_static, of_update)))  # fmt: skip
        first, *others = cells
        print(f"{name:8}{first:>22}" + "".join(f"{one:>16}" for one in others), flush=True)


if __name__ == "__main__":
    main()
