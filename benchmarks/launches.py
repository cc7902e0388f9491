"""Count what decoding steps and updates launch: `python benchmarks/launches.py`.

Small random models of two layers and of three: the difference is a layer, what is left the rest.
Ops that only look at a tensor in another way launch nothing, and do not count. Beside the step of
fixed shape stands the forward of transformers over its own StaticCache. A micro-batch of the update
goes forward and backward as padded rows, as a tree in one call, as on a GPU, and as a tree branch
by branch, as on a CPU; `-` where a model takes no trees.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen3Config
from transformers.cache_utils import StaticCache
from trl.trainer.utils import add_fused_lm_head

from repl_rl.engines.hf.attention import register
from repl_rl.engines.hf.fixed_step import NAME, FixedStep, Shape, StepCache, View, attend, in_view
from repl_rl.engines.hf.steps import Shadow
from repl_rl.models.policy import Policy
from repl_rl.update import forward, token_tree

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
    dtypes: tuple[torch.dtype, ...]


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped upstream
    """Records ops that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        shapes = tuple(tuple(one.shape) for one in given)
        dtypes = tuple(one.dtype for one in given)
        out = func(*args, **(kwargs or {}))
        made = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        places = {one.untyped_storage().data_ptr() for one in given}
        is_view = made and all(one.untyped_storage().data_ptr() in places for one in made)
        is_written = func._schema.is_mutable
        if not (is_view and not is_written) and "empty" not in func.__name__:
            self.ops.append(Op(str(func), shapes, dtypes))
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


Form = Literal["rows", "at once", "by branch"]
"""Padded rows, or a tree, by one call of attention a layer or by one for each branch."""


def of_update(make: Callable[[int], Any], layers: int, *, form: Form, branches: int = 8) -> int:
    """Ops of a micro-batch of as many siblings, forward and backward, head included.

    Raises ValueError for a model that takes no trees, where it is asked for one.
    """
    model = AutoModelForCausalLM.from_config(make(layers))
    if form != "rows" and not forward.takes_trees(model):
        raise ValueError(f"{model.config.model_type} takes no trees")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.tensor([[1, 2, 3, 4 + i, 5, 6 + i] for i in range(branches)])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": ids.masked_fill(torch.arange(ids.shape[1]) < 3, token_tree.IGNORED),
    }
    make_forward = forward.as_rows if form == "rows" else forward.as_tree

    def update() -> None:
        make_forward(model, model)(**inputs, fused_lm_head=True).log_probs.sum().backward()

    at_once = {"cpu"} if form == "at once" else set()
    with host_unseen(), patch.object(token_tree, "AT_ONCE", at_once):
        return count(update)


@contextmanager
def host_unseen() -> Iterator[None]:
    """Count nothing within the block of what is found on the host before a forward."""
    places = [(forward, "grow"), (forward, "labels_of_rows"), (forward, "parts_by_length"),
              (token_tree.Branches, "dense_mask")]  # fmt: skip
    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(patch.object(owner, name, _unseen(getattr(owner, name))))
        yield


def _unseen(work: Callable[..., Any]) -> Callable[..., Any]:
    def done(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return work(*args, **kwargs)

    return done


def layer_and_rest(of: Callable[[Callable[[int], Any], int], int], name: str) -> tuple[int, int]:
    """Ops of a layer, and those besides."""
    two, three = of(CONFIGS[name], 2), of(CONFIGS[name], 3)
    return three - two, two - 2 * (three - two)


COLUMNS_OF_TABLE: dict[str, Callable[[Callable[[int], Any], int], int]] = {
    "step of fixed shape": of_step,
    "StaticCache": of_static,
    "padded rows": partial(of_update, form="rows"),
    "tree at once": partial(of_update, form="at once"),
    "tree by branch": partial(of_update, form="by branch"),
}


def cell(of: Callable[[Callable[[int], Any], int], int], name: str) -> str:
    """Ops of a layer and besides, as `a + b`."""
    try:
        layer, rest = layer_and_rest(of, name)
    except ValueError:
        return "-"
    return f"{layer} + {rest}"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'model':8}" + "".join(f"{title:>21}" for title in COLUMNS_OF_TABLE))
    for name in CONFIGS:
        cells = (f"{cell(of, name):>21}" for of in COLUMNS_OF_TABLE.values())
        print(f"{name:8}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
