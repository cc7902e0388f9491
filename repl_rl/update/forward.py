"""Forward passes of the update: which tokens go through a model's layers, which through its head.

    rows (B, P + T) -> log-probabilities and entropies (B, T) of the labels, by TRL's own head

Where a model allows it, rows are forwarded as a tree: without padding, and what several rows begin
with once. Elsewhere rows of like length go together.

Knows TRL's head. Does not know losses, advantages or steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import trl.trainer.utils
from torch.nn.functional import pad

from repl_rl.engines.memory import TORCH_TILE_WIDTH
from repl_rl.models.loading import sees_all
from repl_rl.update.token_tree import IGNORED, Labels, TokenTree, grow, in_use, labels_of_rows

# B rows, S = P + T tokens of each, prompts padded on the left, completions on the right

Score = Callable[..., tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]]
"""TRL's: (model, ids, mask, T) -> log-probabilities, entropies, a loss of routers."""
Forward = Callable[..., Any]

_TRIAL = ((1, 2, 3, 4, 5), (1, 2, 3, 6, 7, 4), (1, 2, 8), (9, 1, 2))
"""Rows that a model is tried on: one is left by two others at two places."""


def in_parts(
    score: Score,
    model: Any,
    input_ids: torch.Tensor,  # (B, S)
    attention_mask: torch.Tensor,  # (B, S)
    sampled: torch.Tensor,  # (B, T)
    *,
    num_parts: int,
    batch_size: int | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Forward rows of similar length together by `score`, each part cut to its longest row.

    TRL pads to the longest trajectory of the whole batch; where some give up early and some run
    into their budget, most of that is padding. Cut positions get 0, which the mask drops. TRL
    leaves positions to the model, which counts padding on the left. That is harmless where only
    distances matter, but changes the sequence for a model with absolute positions (GPT-2).
    """
    width = sampled.shape[1]
    num_prompt = input_ids.shape[1] - width
    order, parts = [], []
    for rows, start, stop in parts_by_length(attention_mask, num_prompt, num_parts, batch_size):
        seen, kept = attention_mask[rows, start:stop], stop - num_prompt
        placed = partial(model, position_ids=(seen.cumsum(dim=1) - 1).clamp(min=0))
        forward = on_sampled(placed, sampled[rows, :kept])
        found = score(forward, input_ids[rows, start:stop], seen, kept, **kwargs)
        order.append(rows)
        parts.append([x if x is None or x.dim() == 0 else pad(x, (0, width - kept)) for x in found])
    back = torch.cat(order).argsort()
    logps, entropies, aux_losses = zip(*parts, strict=True)
    return (
        torch.cat(logps)[back],
        None if entropies[0] is None else torch.cat(entropies)[back],
        None if aux_losses[0] is None else torch.stack(aux_losses).mean(),
    )


def parts_by_length(
    mask: torch.Tensor, num_prompt: int, num_parts: int, batch_size: int | None
) -> list[tuple[torch.Tensor, int, int]]:
    """(rows, start, stop): `[rows, start:stop]` is forwarded together."""
    size = min(len(mask), batch_size or len(mask))
    if num_parts == 1:
        rows = torch.arange(len(mask), device=mask.device)
        return [(part, 0, mask.shape[1]) for part in torch.split(rows, size)]
    device, mask = mask.device, mask.cpu()  # each look at a GPU's tensor waits for it
    parts = []
    for rows in torch.split(mask.sum(dim=1).argsort(), -(-size // num_parts)):
        used = mask[rows].any(dim=0).nonzero()
        stop = max(int(used[-1]) + 1, num_prompt + 1)
        parts.append((rows.to(device, non_blocking=True), int(used[0]), stop))
    return parts


def as_rows(model: Forward, inner: Any) -> Forward:
    """A forward for TRL's head, which gets the tokens that a label follows, and no others.

    `inner`: the model inside of `model`. Everything else is what `model` does.
    """

    def forward(*, labels: torch.Tensor, **inputs: Any) -> SimpleNamespace:
        return _scored(model, inner, labels_of_rows(labels), labels, **inputs)

    return forward


def as_tree(model: Forward, inner: Any) -> Forward:
    """A forward over the tree of its rows, for TRL's head; see `as_rows`."""

    def forward(
        *,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        position_ids: torch.Tensor | None = None,  # of rows, which the tree has its own of
        **rest: Any,
    ) -> SimpleNamespace:
        tree = grow(input_ids, attention_mask, labels)
        with in_use(inner):
            return _scored(model, inner, tree.labels, labels, **_inputs(tree), **rest)

    return forward


def _scored(
    model: Forward,
    inner: Any,
    scored: Labels,
    labels: torch.Tensor,  # (B, S)
    **inputs: Any,
) -> SimpleNamespace:
    """Scores of rows with these labels, (B, S - 1), by TRL's head on the states before them."""
    with _picked(inner.base_model, scored.before), _head_on_all():
        out = model(shift_labels=scored.ids[None], **inputs)

    def spread(scores: torch.Tensor | None) -> torch.Tensor | None:
        """(B, S - 1): TRL's head scores what follows each token."""
        shape = tuple(labels.shape)
        return None if scores is None else scored.spread(scores[0], shape)[:, 1:]

    return SimpleNamespace(
        **{name: spread(getattr(out, name)) for name in ("log_probs", "entropy", "is_top1")},
        label_mask=labels[:, 1:] != IGNORED,
        aux_loss=out.aux_loss,
    )


@contextmanager
def _head_on_all() -> Iterator[None]:
    """Let TRL's head score all tokens that it gets, in small tiles on a CPU.

    On a GPU it would look for those that have a label, and wait for each look. Without Triton it
    makes copies of each tile.
    """
    heads: Any = trl.trainer.utils
    uses_triton, width = heads._use_triton, heads._CHUNKED_LOGPROB_CHUNK_SIZE
    heads._use_triton = lambda _: False
    if not torch.cuda.is_available():
        heads._CHUNKED_LOGPROB_CHUNK_SIZE = TORCH_TILE_WIDTH
    try:
        yield
    finally:
        heads._use_triton, heads._CHUNKED_LOGPROB_CHUNK_SIZE = uses_triton, width


def _inputs(tree: TokenTree) -> dict[str, Any]:
    return {
        "input_ids": tree.ids[None],
        "position_ids": tree.positions[None],
        # With four dimensions it is taken for ready, and reaches the attention as it is.
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=tree.ids.device),
        "branches": tree.branches,
    }


@contextmanager
def _picked(backbone: torch.nn.Module, tokens: torch.Tensor) -> Iterator[None]:
    """Let the backbone of a model give the states of these tokens alone, in this order."""

    def pick(_module: torch.nn.Module, _inputs: Any, out: Any) -> Any:
        out.last_hidden_state = out.last_hidden_state.flatten(0, 1)[tokens][None]
        return out

    handle = backbone.register_forward_hook(pick)
    try:
        yield
    finally:
        handle.remove()


def takes_trees(model: Any) -> bool:  # Any: a PreTrainedModel
    """Return whether a model can be forwarded as a tree: by its config, and by what it does.

    It is tried on a few rows because some do more with a mask or with keys than their config says.
    """
    config = model.config.get_text_config()
    is_replaceable = model._supports_attention_backend and config._attn_implementation == "sdpa"
    if not is_replaceable or not sees_all(config):
        return False
    ids = torch.zeros(len(_TRIAL), max(map(len, _TRIAL)), dtype=torch.long, device=model.device)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(_TRIAL):
        ids[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), 1
    labels = ids.masked_fill(mask == 0, IGNORED)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            states = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
            tree = grow(ids, mask, labels)
            with in_use(model), _picked(model.base_model, tree.labels.before):
                by_tree = model.base_model(**_inputs(tree)).last_hidden_state[0]
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return False
    finally:
        model.train(was_training)
    rows, columns = tree.labels.place
    expected = states[rows, columns - 1].float()
    # Wrong keys move states by about their spread, rounding to half precision by a few hundredths
    # of it. A trained model has entries of 30 spreads, which float32 rounds by thousandths of one.
    limit = 0.01 if model.dtype is torch.float32 else 0.2
    gap: float = (by_tree.float() - expected).abs().max().item()
    return gap < limit * float(expected.std())


def on_sampled(model: Forward, sampled: torch.Tensor) -> Forward:
    """A forward without labels for the tokens at the end of its rows that are not in `sampled`."""

    def forward(*, labels: torch.Tensor, **inputs: Any) -> Any:
        num_before = labels.shape[1] - sampled.shape[1]
        is_known = pad(~sampled, (num_before, 0), value=False)
        return model(labels=labels.masked_fill(is_known, IGNORED), **inputs)

    return forward
