"""A KV cache with one row per trajectory, written anywhere and never shifted.

Floor 2. Knows `transformers`' cache protocol. Does not know tokens, requests or sampling.

Rows keep their keys and values between lines, so resuming a trajectory computes nothing twice. A
forward names its rows and, per token, the position to write; a token sees what its row holds up to
its own position, so whatever an earlier use left behind further on is never visible.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

# B rows of a forward, Q new tokens per row, H key-value heads, K keys in view, D head dimension


class _RowLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # untyped upstream
    """Keys and values of one layer, [rows, H, capacity + 1, D]; the last column takes padding."""

    def __init__(self, cache: RowCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped upstream
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        shape = (self._cache.num_rows, like.shape[1], self._cache.capacity + 1, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (B, H, Q, D) states at their positions; the rows' keys and values (B, H, K, D)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        rows, positions, num_keys = self._cache.rows, self._cache.positions, self._cache.num_keys
        size = len(positions)
        index = torch.arange(size, device=positions.device) if rows is None else rows
        self.keys[index[:, None], :, positions] = key_states.transpose(1, 2)
        self.values[index[:, None], :, positions] = value_states.transpose(1, 2)
        if rows is None:
            return self.keys[:size, :, :num_keys], self.values[:size, :, :num_keys]
        return self.keys[rows, :, :num_keys], self.values[rows, :, :num_keys]

    def grow(self) -> None:
        if not self.is_initialized:
            return
        assert self.keys is not None
        assert self.values is not None
        for name, old in (("keys", self.keys), ("values", self.values)):
            new = self._allocate(old)
            new[:, :, : old.shape[2] - 1] = old[:, :, :-1]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.num_keys, 0

    def get_seq_length(self) -> int:
        return self._cache.num_keys

    def get_max_length(self) -> int:
        return self._cache.capacity


class RowCache(Cache):
    """All layers' rows. `view` says what the next forward works on."""

    def __init__(self, *, num_layers: int, num_rows: int, capacity: int) -> None:
        self.num_rows = num_rows
        self.capacity = capacity
        self.rows: torch.Tensor | None = None  # (B,)
        self.positions = torch.empty(0, dtype=torch.long)  # (B, Q)
        self.num_keys = 0
        self._row_layers = [_RowLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self._row_layers))

    def view(self, rows: torch.Tensor | None, positions: torch.Tensor, *, num_keys: int) -> None:
        """Set rows (B,) and write positions (B, Q) of the next forward; keys in sight: num_keys.

        None stands for the rows 0..B-1: read in place, where named rows are copied together.
        """
        self.rows, self.positions, self.num_keys = rows, positions, num_keys

    def grow(self, capacity: int) -> None:
        """Make room for longer rows; what they hold stays."""
        self.capacity = capacity
        for layer in self._row_layers:
            layer.grow()

    def clear(self) -> None:
        """Give the memory back. The cache cannot be used afterwards."""
        self._row_layers = []
        self.layers = []
