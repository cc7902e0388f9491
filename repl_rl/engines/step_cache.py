"""Keys and values for a forward of fixed shape, and the attention that reads them in place.

    tokens of a step, each with a row and a column -> written there -> seen by those after them

Knows `transformers`' cache and attention. Does not know tokens, requests or sampling.

Nothing in it depends on what rows hold: tensors keep their places and their shapes, masks hide what
a token may not see. Heads that share keys become further queries, as in `row_attention`; repeated,
keys would be read once for each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import sdpa_mask

from repl_rl.engines.shape import attention_windows

# T tokens of a step, H heads, KV heads of keys, K columns, D head dimension

NAME = "repl_rl_steps"


class Shape(NamedTuple):
    """Shape of a step: slots that read tokens first, then one token for each row."""

    slots: int
    width: int
    """Tokens of a slot."""
    rows: int

    @property
    def num_read(self) -> int:
        return self.slots * self.width

    @property
    def num_tokens(self) -> int:
        return self.num_read + self.rows


class View(NamedTuple):
    """Places of the tokens of the step that is forwarded."""

    shape: Shape
    slot: torch.Tensor  # (slots,)
    """The row that each slot reads into."""
    row: torch.Tensor  # (T,)
    column: torch.Tensor  # (T,)


_view: View | None = None


@contextlib.contextmanager
def in_view(view: View) -> Iterator[None]:
    """Set the places of the tokens that forwards inside are of."""
    global _view
    _view = view
    try:
        yield
    finally:
        _view = None


def install() -> None:
    """Register the attention under its name; a second call does nothing."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # (1, H, T, D)
    key: torch.Tensor,  # (rows, KV, K, D)
    value: torch.Tensor,
    attention_mask: torch.Tensor,  # (1, 1, T, K), added to scores
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of each token to its row, (1, T, H, D)."""
    assert _view is not None
    (slots, width, rows), found = _view.shape, []
    queries, mask = query[0], attention_mask[0, 0]
    heads, kv_heads, num_keys = queries.shape[0], key.shape[1], key.shape[2]
    shared, num_read = heads // kv_heads, slots * width
    if slots:
        asked = queries[:, :num_read].reshape(kv_heads, shared, slots, width, -1)
        seen = mask[:num_read].reshape(slots, 1, 1, width, num_keys)
        out = scaled_dot_product_attention(
            asked.permute(2, 0, 1, 3, 4).reshape(slots, kv_heads, shared * width, -1),
            key.index_select(0, _view.slot),
            value.index_select(0, _view.slot),
            attn_mask=seen.expand(-1, -1, shared, -1, -1).reshape(slots, 1, -1, num_keys),
            scale=scaling,
        ).reshape(slots, heads, width, -1)
        found.append(out.transpose(1, 2).reshape(num_read, heads, -1))
    if rows:
        out = scaled_dot_product_attention(
            queries[:, num_read:].transpose(0, 1).reshape(rows, kv_heads, shared, -1),
            key,
            value,
            attn_mask=mask[num_read:, None, None],
            scale=scaling,
        )
        found.append(out.reshape(rows, heads, -1))
    return (found[0] if len(found) == 1 else torch.cat(found))[None], None


class _StepLayer(CacheLayerMixin):
    """Keys and values of one layer, [rows, KV, K, D]."""

    def __init__(self, cache: StepCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped upstream
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = (self._cache.zeros(one) for one in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (1, KV, T, D) states at their places; keys and values of all rows, as they lie."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        assert _view is not None
        at = (_view.row, slice(None), _view.column)
        self.keys[at] = key_states[0].transpose(0, 1).to(self.keys.dtype)
        self.values[at] = value_states[0].transpose(0, 1).to(self.values.dtype)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.num_columns, 0

    def get_seq_length(self) -> int:
        return self._cache.num_columns

    def get_max_length(self) -> int:
        return self._cache.num_columns


class StepCache(Cache):
    """All layers' keys and values. The last column of a row takes what has no meaning."""

    def __init__(self, config: Any, *, num_rows: int, num_columns: int, dtype: torch.dtype) -> None:
        self.kept_in = dtype  # see `RowCache`
        self.num_rows = num_rows
        self.num_columns = num_columns
        self._windows = attention_windows(config)
        num_layers = config.get_text_config().num_hidden_layers
        self._step_layers = [_StepLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self._step_layers))

    def zeros(self, like: torch.Tensor) -> torch.Tensor:
        """Room for states (1, KV, T, D) of every row and column."""
        shape = (self.num_rows, like.shape[1], self.num_columns, like.shape[3])
        return torch.zeros(shape, dtype=self.kept_in, device=like.device)

    def masks(
        self, position: torch.Tensor, columns: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """Masks: what is added to scores of tokens at `position` (T,) for `columns` (K,),
        (1, 1, T, K); by kind of layer where a model has two."""
        at, masks = position[:, None], {}
        shown = torch.zeros((), dtype=self.kept_in, device=position.device)
        hidden = torch.full_like(shown, torch.finfo(self.kept_in).min)
        for kind, window in self._windows.items():
            seen = columns <= at
            if window is not None and window < self.num_columns:
                seen = seen & (columns > at - window)
            masks[kind] = torch.where(seen, shown, hidden)[None, None]
        return masks if len(masks) > 1 else masks.popitem()[1]

    def _held(self) -> Iterator[torch.Tensor]:
        for layer in self._step_layers:
            yield from (one for one in (layer.keys, layer.values) if one is not None)

    def copy(self, source: int, target: int, *, num_keys: int) -> None:
        """Give the row `target` the first keys and values that the row `source` holds."""
        for held in self._held():
            held[target, :, :num_keys] = held[source, :, :num_keys]

    def clear(self) -> None:
        """Zeros everywhere: a mask does not hide a NaN."""
        for held in self._held():
            held.zero_()

    @property
    def num_bytes(self) -> int:
        return sum(held.nbytes for held in self._held())
