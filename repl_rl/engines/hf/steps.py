"""Steps of fixed shape for the engine `hf`, which a GPU launches as a whole.

    rows with requests -> slots that read, rows that draw -> FixedStep -> a token for each

Holds the copy of the model that the steps run (`Shadow`), and the steps (`Steps`), with their
room for tokens. Knows rows and requests. Does not know ends of lines, nor when a step is wanted.

What a step does to a row depends on this row alone: where its tokens are cut, and by which of the
two shapes they are read. Only when it is its turn depends on the others. So the numbers of a row do
not, even on a GPU, where products of other shapes add up in another order.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from repl_rl.engines.hf.attention import register
from repl_rl.engines.hf.cache import COLUMNS, CacheRow, Prompts, up_to_multiple
from repl_rl.engines.hf.fixed_step import NAME, Draw, FixedStep, Read, Shape, StepCache, attend
from repl_rl.models.policy import Policy
from repl_rl.models.weights import inner_model, named_weights


class Shadow:
    """Copy of the model in another type and attention. The model itself is left alone."""

    def __init__(self, model: Any, *, dtype: torch.dtype, attention: str) -> None:
        inner, device = inner_model(model), model.device
        config = copy.deepcopy(inner.config)
        # The weights that it is made with are random, and drawn from everybody's generator.
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.device(device):
            made = type(inner)._from_config(config, dtype=dtype)
        made.config.get_text_config()._attn_implementation = attention
        self.model: Any = made.to(device).eval().requires_grad_(False)
        self._source = model
        buffers = dict(inner.named_buffers())
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in buffers and buffers[name].shape == buffer.shape:
                    buffer.copy_(buffers[name])
        self.load()

    @torch.no_grad()
    def load(self) -> None:
        """Take the weights as they are; RuntimeError where those of the model are others."""
        own = dict(self.model.named_parameters())
        for name, weight in named_weights(self._source):
            if name not in own or own[name].shape != weight.shape:
                raise RuntimeError(f"a copy of the model has no place for {name!r}")
            own.pop(name).copy_(weight)
        if own:
            raise RuntimeError(f"the model has no {next(iter(own))!r}, a copy of it has")

    @property
    def num_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.model.parameters())


FEWEST_SLOTS, ROWS_A_SLOT, WIDTH = 8, 8, 16
"""64 rows in lines of 12 tokens and 8 observed need 5.3 slots a step on average; 8 keep 0.99 of the
rate, 4 only 0.74."""
WIDE_SLOTS, WIDE = 8, 128
"""Slots and width of the second shape, for prompts: no row draws in it."""
LONG = 64
"""Tokens from which on a piece is read by the second shape."""
FEWEST_COLUMNS = 256
"""Columns of the smallest bucket that is tried where memory is short."""


class Steps:
    """Steps of all rows, each with room for `num_tokens` at first, or fewer where memory is short.

    Updates leave them `spare_bytes` of the device.
    Raises RuntimeError for a model that no such step can be made of, and torch.OutOfMemoryError.
    """

    def __init__(
        self,
        model: Any,
        policy: Policy,
        *,
        num_rows: int,
        num_tokens: int,
        dtype: torch.dtype,
        spare_bytes: int,
    ) -> None:
        register(NAME, attend)
        self._model = model
        self._device: torch.device = model.device
        self._policy = policy
        self._num_rows = num_rows
        self._dtype = dtype
        self._spare_bytes = spare_bytes
        self._shadow: Shadow | None = None
        self._cache: StepCache | None = None
        self._narrow: FixedStep | None = None
        self._wide: FixedStep | None = None
        self._num_columns = self._num_wanted = _columns_for(num_tokens)
        self._fit(self._num_columns, least=FEWEST_COLUMNS)

    @property
    def capacity(self) -> int:
        """Tokens that a row has room for."""
        return self._num_columns - 1

    @property
    def about(self) -> str:
        """Way in which steps are launched, in a few words."""
        kind = "CUDA graph" if self._device.type == "cuda" else "forward of fixed shape"
        wanted = self._num_wanted - 1
        short = f" (no memory for {wanted})" if wanted > self.capacity else ""
        return f"one {kind} a step, {self.capacity} tokens a row{short}"

    def make_room(self, num_tokens: int, *, most: int) -> None:
        """Be ready for rows of so many tokens, which keep what they hold.

        Rows that are too short double their room up to `most` tokens, if there is memory. Raises
        torch.OutOfMemoryError where there is none for `num_tokens`; rows may hold nothing then.
        """
        least, num_columns = _columns_for(num_tokens), self._num_columns
        if least > num_columns:
            num_columns = max(least, min(2 * num_columns, _columns_for(most)))
        elif self._narrow is not None:
            return
        self._fit(num_columns, least=max(least, FEWEST_COLUMNS))

    def _fit(self, num_columns: int, *, least: int) -> None:
        """Make the steps with so many columns, or with the most that there is memory for."""
        self._num_wanted = max(self._num_wanted, num_columns)
        is_held = self._cache is not None
        while True:
            try:
                self._make(num_columns)
            except RuntimeError as error:
                if not is_shortage(error) or num_columns <= least:
                    self.close()
                    raise
            else:
                return
            # Behind the handler: an error keeps alive what its frames hold.
            if not is_held:
                self._cache = None
            num_columns = max(least, up_to_multiple(num_columns // 2, COLUMNS))

    def _make(self, num_columns: int) -> None:
        """Copy the weights, take memory for keys and capture the steps, as far as is not done."""
        self._release()
        if self._shadow is None:
            self._shadow = Shadow(self._model, dtype=self._dtype, attention=NAME)
        if self._cache is None:
            config = self._shadow.model.config
            self._cache = StepCache(
                config, num_rows=self._num_rows, num_columns=num_columns, dtype=self._dtype
            )
        elif num_columns != self._cache.num_columns:
            self._cache.resize(num_columns)
        slots = max(FEWEST_SLOTS, self._num_rows // ROWS_A_SLOT)
        shapes = (Shape(slots, WIDTH, self._num_rows), Shape(WIDE_SLOTS, WIDE, 0))
        self._narrow, self._wide = (
            FixedStep(self._shadow.model, self._cache, self._policy, shape, device=self._device)
            for shape in shapes
        )
        self._wide.capture(self._narrow.capture())
        self._cache.clear_spare()
        self._num_columns = num_columns

    def _release(self) -> None:
        """Give the graphs back, and what they compute in."""
        for step in (self._narrow, self._wide):
            if step is not None:
                step.close()
        self._narrow = self._wide = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Give keys and graphs back; `make_room` takes them anew. Rows hold nothing then."""
        self._cache = None
        self._release()

    def rest(self) -> None:
        """Leave an update the memory that it needs: what rows hold is worth nothing any more.

        To give keys back costs a capture, since graphs know where they lie.
        """
        if self._cache is None or self._shadow is None:
            return
        weights = self._shadow.num_bytes
        if weights + self._cache.num_bytes > self._spare_bytes:
            if weights > self._spare_bytes:
                self._shadow = None
            self.close()

    def load(self) -> None:
        """Take the model's weights as they are."""
        if self._shadow is not None:
            self._shadow.load()

    def clear(self) -> None:
        """Forget what may not be finite."""
        if self._cache is not None:
            self._cache.clear()

    def copy(self, source: int, target: int, *, num_keys: int) -> None:
        """Copy a row's keys and values to another: see `StepCache.copy`."""
        assert self._cache is not None
        self._cache.copy(source, target, num_keys=num_keys)

    async def step(
        self, rows: Iterable[CacheRow], prompts: Prompts
    ) -> list[tuple[CacheRow, int, float]]:
        """One step of all rows with requests: those that drew, each with its token and its
        log-probability. The event loop goes on while a GPU is at work."""
        assert self._narrow is not None
        assert self._wide is not None
        active = [row for row in rows if row.request is not None]
        ready = [row for row in active if not num_unread(row, prompts)]
        reading = [row for row in active if num_unread(row, prompts)]
        # Who came first reads first: none waits for ever.
        reading.sort(key=lambda row: row.turn)
        if long := taken(reading, prompts, self._wide.shape, LONG + 1):
            self._wide.launch(long, ())
        reads = taken(reading, prompts, self._narrow.shape, 1, LONG)
        ready += [row for row in reading if not num_unread(row, prompts)]
        if not (reads or ready):
            return []
        self._narrow.launch(reads, [_draw(row) for row in ready])
        # Nobody tells an event loop that a GPU is done.
        while not self._narrow.is_done:  # noqa: ASYNC110
            await asyncio.sleep(0)
        answer = self._narrow.answer
        return [(row, int(answer[row.index][0]), answer[row.index][1]) for row in ready]

    def tried(self, ids: Sequence[int], stops: Sequence[Sequence[int]]) -> torch.Tensor:
        """(token, log-probability) of the first and the last row after so many of `ids`, as the
        rows grow from one of `stops` to the next, (len(stops), P, 2). They are left as they were
        found, but hold nothing."""
        assert self._narrow is not None
        assert self._wide is not None
        rows, answers = [0, self._num_rows - 1][: self._num_rows], []
        starts = [0 for _ in rows]
        for at, each in enumerate(stops):
            spans = list(zip(rows, starts, each, strict=False))
            reads = [
                Read(row, first, ids[first : stop - 1]) for row, first, stop in spans
                if first < stop - 1
            ]  # fmt: skip
            if at == 0:
                self._wide.launch(reads, ())
                reads = []
            draws = [Draw(row, stop - 1, ids[stop - 1], 0.5) for row, _, stop in spans]
            self._narrow.launch(reads, draws)
            while not self._narrow.is_done:
                pass
            answer = self._narrow.answer
            answers.append([answer[row] for row in rows])
            starts = list(each)
        return torch.tensor(answers)


def _columns_for(num_tokens: int) -> int:
    """Columns of a row with room for so many tokens and a spare one."""
    return up_to_multiple(num_tokens + 1, COLUMNS)


def is_shortage(error: BaseException | None) -> bool:
    """Say whether it is a lack of memory, or what a capture made of one.

    What CUDA itself takes for a graph is no type of torch's.
    """
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return True
        error = error.__context__
    return False


def num_unread(row: CacheRow, prompts: Prompts) -> int:
    """Tokens that a row reads before it draws: its last one is for the draw, unless there is more
    behind what it reads first."""
    piece = prompts.piece(row)
    return len(piece) - (piece is not prompts.beginning) - len(row.cached)


def taken(
    rows: Sequence[CacheRow], prompts: Prompts, shape: Shape, least: int, most: int = 1 << 60
) -> list[Read]:
    """Reads of rows with so many unread tokens, in the slots of a step. They hold them from then
    on."""
    reads: list[Read] = []
    for row in rows:
        while len(reads) < shape.slots and least <= (num := num_unread(row, prompts)) <= most:
            start = len(row.cached)
            ids = prompts.piece(row)[start : start + min(num, shape.width)]
            reads.append(Read(row.index, start, ids))
            row.cached.extend(ids)
    return reads


def _draw(row: CacheRow) -> Draw:
    request = row.request
    assert request is not None
    position = len(row.cached)
    token = request.ids[position]
    row.cached.append(token)
    return Draw(row.index, position, token, request.rng.random())
