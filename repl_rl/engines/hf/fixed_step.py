"""One forward of fixed shape over a cache of its own; on a GPU one CUDA graph.

    reads, draws -> one copy to the device -> forward and draws -> (rows, 2): the one copy back

Holds the shape of a step, the attention and the cache (`StepCache`) that it forwards over, and
the step itself (`FixedStep`). Slots read; each row draws a token. Knows tensors. Does not know
requests, nor who reads what.

Ops and their shapes never depend on what goes through it, so it can be captured and launched as a
whole, and a row's numbers do not depend on the others. A row that has more to read than its last
token is given slots for the rest; its draw may be in the same step, since all keys are written
before any is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from repl_rl.engines.hf.cache import KeyCache, KeyLayer, Masks, for_model
from repl_rl.models.policy import Policy

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
    (slots, width, rows), parts = _view.shape, []
    queries, mask = query[0], attention_mask[0, 0]
    heads, kv_heads, num_keys = queries.shape[0], key.shape[1], key.shape[2]
    shared, num_read = heads // kv_heads, slots * width
    if slots:
        reading = queries[:, :num_read].reshape(kv_heads, shared, slots, width, -1)
        seen = mask[:num_read].reshape(slots, 1, 1, width, num_keys)
        out = scaled_dot_product_attention(
            reading.permute(2, 0, 1, 3, 4).reshape(slots, kv_heads, shared * width, -1),
            key.index_select(0, _view.slot),
            value.index_select(0, _view.slot),
            attn_mask=seen.expand(-1, -1, shared, -1, -1).reshape(slots, 1, -1, num_keys),
            scale=scaling,
        ).reshape(slots, heads, width, -1)
        parts.append(out.transpose(1, 2).reshape(num_read, heads, -1))
    if rows:
        out = scaled_dot_product_attention(
            queries[:, num_read:].transpose(0, 1).reshape(rows, kv_heads, shared, -1),
            key,
            value,
            attn_mask=mask[num_read:, None, None],
            scale=scaling,
        )
        parts.append(out.reshape(rows, heads, -1))
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[None], None


class _StepLayer(KeyLayer):
    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (1, KV, T, D) states at their places; keys and values of all rows, as they lie."""
        keys, values = self.tensors(key_states, value_states)
        assert _view is not None
        at = (_view.row, slice(None), _view.column)
        keys[at] = key_states[0].transpose(0, 1).to(keys.dtype)
        values[at] = value_states[0].transpose(0, 1).to(values.dtype)
        return keys, values


class StepCache(KeyCache):
    """All layers' keys and values. The last column of a row takes what has no meaning."""

    kept_in: torch.dtype

    def __init__(self, config: Any, *, num_rows: int, num_columns: int, dtype: torch.dtype) -> None:
        super().__init__(config, num_rows=num_rows, num_columns=num_columns, dtype=dtype)
        self.capacity = self.num_keys = num_columns

    def resize(self, num_columns: int) -> None:
        """Let rows have so many columns; what they hold in these stays."""
        self.capacity = self.num_keys = self.num_columns = num_columns
        self._move()

    def make_layer(self) -> KeyLayer:
        return _StepLayer(self)

    def masks(self, position: torch.Tensor, columns: torch.Tensor) -> Masks:
        """Masks: what is added to scores of tokens at `position` (T,) for `columns` (K,),
        (1, 1, T, K); by kind of layer where a model has two."""
        shown = torch.zeros((), dtype=self.kept_in, device=position.device)
        hidden = torch.full_like(shown, torch.finfo(self.kept_in).min)
        kinds = self.seen(position[:, None], columns)
        return for_model(
            {kind: torch.where(seen, shown, hidden)[None, None] for kind, seen in kinds}
        )

    def clear(self) -> None:
        """Zeros everywhere: a mask does not hide a NaN."""
        for tensor in self.held():
            tensor.zero_()

    def clear_spare(self) -> None:
        """Zeros where steps of nothing have written."""
        for tensor in self.held():
            tensor[:, :, -1].zero_()

    @property
    def num_bytes(self) -> int:
        return sum(held.nbytes for held in self.held())


class Read(NamedTuple):
    """Tokens that go into a row in one slot."""

    row: int
    num_held: int
    """Leading tokens that the row holds: where these begin."""
    ids: Sequence[int]


class Draw(NamedTuple):
    """The last token of a row, and the number in [0, 1) that draws what follows."""

    row: int
    position: int
    token: int
    uniform: float


class FixedStep:
    """Step of one shape. Run eagerly until `capture` is called."""

    def __init__(
        self, model: Any, cache: StepCache, policy: Policy, shape: Shape, *, device: torch.device
    ) -> None:
        self._model = model
        self._cache = cache
        self._policy = policy
        self.shape = shape
        self._graph: torch.cuda.CUDAGraph | None = None
        self._is_cuda = device.type == "cuda"
        self._columns = torch.arange(cache.num_columns, device=device)
        num, spare = shape.num_tokens, cache.num_columns - 1
        sizes = [num, num, num, num, shape.slots, shape.rows]
        self._host = torch.zeros(sum(sizes), dtype=torch.long, pin_memory=self._is_cuda)
        self._tokens, self._positions, self._rows, self._places, self._slots, uniform = np.split(
            self._host.numpy(), np.cumsum(sizes)[:-1]
        )
        self._uniform = uniform.view(np.float64)
        self._rows[shape.num_read :] = np.arange(shape.rows)
        self._places[:] = spare
        self._nothing = self._host.numpy().copy()
        self._input = self._host.to(device)
        token, position, row, column, slot, drawn = torch.split(self._input, sizes)
        self._token, self._position, self._draws = token, position, drawn.view(torch.float64)
        self.view = View(shape, slot, row, column)
        self._answer = torch.zeros((shape.rows, 2), dtype=torch.float64, pin_memory=self._is_cuda)
        self._output: torch.Tensor | None = None
        # Any: torch's events and streams are untyped.
        make_event: Any = torch.cuda.Event
        self._copied = make_event() if self._is_cuda else None
        self._done = make_event() if self._is_cuda else None

    @torch.no_grad()
    def forward(self) -> torch.Tensor | None:
        """(rows, 2): what each row draws, and its log-probability; None for a step without rows."""
        output = self._model(
            input_ids=self._token[None],
            attention_mask=self._cache.masks(self._position, self._columns),
            position_ids=self._position[None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=max(1, self.shape.rows),
        )
        if not self.shape.rows:
            return None
        logprobs = self._policy.logprobs(output.logits[0])
        drawn = self._policy.draw(logprobs, self._draws)
        chosen = logprobs.gather(-1, drawn[:, None])[:, 0]
        return torch.stack((drawn.double(), chosen.double()), -1)

    def capture(self, pool: Any = None) -> Any:
        """Make it one CUDA graph; returns the pool of memory that further ones may share.

        It writes to spare columns alone. On a CPU steps run as they are.
        """
        if not self._is_cuda:
            return None
        make_stream: Any = torch.cuda.Stream
        stream, graph = make_stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), in_view(self.view):
            # Libraries choose kernels and take their memory at the first calls.
            for _ in range(2):
                self.forward()
        torch.cuda.current_stream().wait_stream(stream)
        # Other threads may call CUDA meanwhile.
        capturing = torch.cuda.graph(
            graph, pool=pool, stream=stream, capture_error_mode="thread_local"
        )
        with in_view(self.view), capturing:
            self._output = self.forward()
        self._graph = graph
        return graph.pool()

    def launch(self, reads: Sequence[Read], draws: Sequence[Draw]) -> None:
        """Begin a step; it is over when `is_done`."""
        if self._copied is not None:
            self._copied.synchronize()  # what the step before was given may still be on its way
        self._lay_out(reads, draws)
        self._input.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
        if self._graph is None:
            with in_view(self.view):
                self._output = self.forward()
        else:
            self._graph.replay()
        if self._output is not None:
            self._answer.copy_(self._output, non_blocking=True)
        if self._done is not None:
            self._done.record()

    @property
    def is_done(self) -> bool:
        return self._done is None or bool(self._done.query())

    @property
    def answer(self) -> list[list[float]]:
        """(token, log-probability) of each row, once it is done; without meaning where none was
        asked for."""
        rows: list[list[float]] = self._answer.tolist()
        return rows

    def _lay_out(self, reads: Sequence[Read], draws: Sequence[Draw]) -> None:
        np.copyto(self._host.numpy(), self._nothing)
        width, num_read = self.shape.width, self.shape.num_read
        for at, read in enumerate(reads):
            start, end = at * width, at * width + len(read.ids)
            places = range(read.num_held, read.num_held + len(read.ids))
            self._tokens[start:end] = read.ids
            self._positions[start:end] = self._places[start:end] = places
            self._rows[start : start + width] = self._slots[at] = read.row
        for draw in draws:
            at = num_read + draw.row
            self._tokens[at] = draw.token
            self._positions[at] = self._places[at] = draw.position
            self._uniform[draw.row] = draw.uniform

    def close(self) -> None:
        """Give its memory back."""
        if self._graph is not None:
            torch.cuda.synchronize()
            self._graph.reset()
        self._graph = self._output = None
