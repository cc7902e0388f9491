"""One forward of fixed shape: slots read, each row draws a token; on a GPU one CUDA graph.

    reads, draws -> one copy to the device -> forward and draws -> (rows, 2): the one copy back

Knows tensors. Does not know requests, nor who reads what.

Ops and their shapes never depend on what goes through it, so it can be captured and launched as a
whole, and a row's numbers do not depend on the others. A row that has more to read than its last
token is given slots for the rest; its draw may be in the same step, since all keys are written
before any is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from repl_rl.engines.policy import Policy
from repl_rl.engines.step_cache import Shape, StepCache, View, in_view


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
    """See the module. Run eagerly until `capture` is called."""

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
        """Make it one CUDA graph; returns the pool of memory that further ones may share."""
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
        found: list[list[float]] = self._answer.tolist()
        return found

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
