"""Sample lines with a transformers model in this process: the engine `hf`.

    line(ids) -> a row of the KV cache -> steps shared with all other lines -> SampledLine

Tokens only: knows no text, no kernel, no reward. Shares its weights with the trainer, so
there is nothing to copy after an update: `sync` drops the cached keys and values.

One step is one forward over all rows that have tokens to add, where the model's attention finds
keys by itself; otherwise one over those with a single token and one over those that come back with
an observation. A row keeps its trajectory's keys between lines. It is found again by its tokens
(the longest row whose tokens begin the request), so there is no session to open or close. A row
that was given away in the meantime costs a prefill, never a wrong token. Siblings read their prompt
once: the others are given its keys. So is what all prompts begin with, if the engine is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch

from repl_rl.engines.base import NOT_FINITE, SampledLine, Weights, check_request, line_end
from repl_rl.engines.hf import attention as row_attention
from repl_rl.engines.hf.cache import (
    COLUMNS,
    Batch,
    BatchPart,
    CacheRow,
    LineRequest,
    Prompts,
    RowCache,
    best_row,
    packed,
    padded,
    up_to_multiple,
)
from repl_rl.engines.hf.steps import Steps, is_shortage
from repl_rl.errors import ConfigError, EngineError
from repl_rl.models.loading import context_tokens
from repl_rl.models.policy import Policy
from repl_rl.models.precision import CastWeights, autocast, keys_in, unwrapped

_FEW_RUNS = 4
"""Up to so many slices of the cache a GPU attends to one by one; more are copied together: each is
a kernel launch of its own, in every layer."""

_LARGE = 30_000_000
"""Weights from which on forwards outweigh the kernels, and take all cores. A token of 135 M weights
takes 7 ms of a core, a line of them about 100; a kernel runs most lines in a few."""

_TURNS = 8
"""Turns of the event loop between two steps. An answer takes several from a kernel's socket to the
next request; with fewer, its line would miss a step."""

_MISFITS = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of a model whose forward takes something else."""

_TRIAL = ((6, 11), (7, 12), (8, 13), (13, 15))
"""Lengths that the first and the last row grow to when a model is tried: prompts, tokens, chunks.
The two never have equal lengths: a model might rely on those."""


class HFEngine:
    """Engine over a model in this process. `num_rows` bounds the lines in flight; more wait.

    Forwards compute in `dtype`; float32 leaves them to the model's weights. No id in
    `forbidden_ids` is ever sampled. With `is_fixed` steps have a fixed shape, in a copy of the
    model (see `steps`): by default on a GPU. Their keys and weights stay there during an update,
    unless they take more than the `spare_bytes` that it does without.
    Memory is taken for as many rows as there were lines at once. Rows double their columns up to
    `row_tokens`, and grow beyond it only for a request that does.
    Raises ConfigError for a model that cannot continue from a row's keys and values.
    """

    def __init__(
        self,
        model: Any,  # a PreTrainedModel; transformers ships no types for what is used of it
        *,
        newline_ids: Set[int],
        eos_ids: Set[int],
        num_rows: int,
        row_tokens: int = 1 << 30,
        temperature: float = 1.0,
        forbidden_ids: Set[int] = frozenset(),
        dtype: torch.dtype = torch.float32,
        is_fixed: bool | None = None,
        spare_bytes: int = 0,
    ) -> None:
        self._model = model
        self._newline_ids = newline_ids
        self._eos_ids = eos_ids
        self._policy = Policy(
            temperature=temperature, forbidden_ids=forbidden_ids, device=model.device
        )
        self._row_tokens = up_to_multiple(row_tokens, COLUMNS)
        self._is_closed = False
        self._rows = [CacheRow(index) for index in range(num_rows)]
        self._waiting: list[LineRequest] = []
        self._prompts = Prompts(most=num_rows)
        self._stepper: asyncio.Task[None] | None = None
        self._is_large = sum(weight.numel() for weight in model.parameters()) >= _LARGE
        self._version = 0
        self._clock = 0
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._context_tokens = context_tokens(model.config)
        self.num_sampled = 0
        """Tokens sampled since the engine was made."""
        self.prefix_tokens = (0, 0)
        """Tokens of prefixes, as in `BusyEngine.prefix_tokens`."""
        text = model.config.get_text_config()
        self._reads_in_place = text._attn_implementation == "sdpa"
        row_attention.register(row_attention.NAME, row_attention.attend)
        # The type makes no difference to how a model treats keys, only to rounding.
        self._compute_in(torch.float32 if model.dtype is torch.float32 else dtype)
        try:
            self._try_model()
        except ConfigError:
            if not self._reads_in_place:
                raise
            self._reads_in_place = False  # it does more with keys than hand them on
            self._forget()
            self._try_model()
        self._compute_in(dtype)
        self._steps: Steps | None = None
        self._why_without = ""
        if model.device.type == "cuda" if is_fixed is None else is_fixed:
            num_tokens = min(row_tokens, self._context_tokens)
            self._open_steps(num_tokens=num_tokens, spare_bytes=spare_bytes)

    @property
    def about(self) -> str:
        """Way in which steps are launched, in a few words; empty on a CPU."""
        return self._why_without if self._steps is None else self._steps.about

    def _open_steps(self, *, num_tokens: int, spare_bytes: int) -> None:
        """Sample by steps of fixed shape, if the model can; else as on a CPU."""
        try:
            if not self._reads_in_place:
                raise RuntimeError("its attention is its own")
            self._steps = steps = Steps(
                self._model,
                self._policy,
                num_rows=len(self._rows),
                num_tokens=num_tokens,
                # Float32 leaves it to the weights.
                dtype=self._model.dtype if self._dtype is torch.float32 else self._dtype,
                spare_bytes=spare_bytes,
            )
            self._try_steps(steps)
        except (*_MISFITS, AssertionError) as error:  # models assert what shapes they take
            self._do_without_steps(error)

    def _do_without_steps(self, error: Exception) -> None:
        """Go on as on a CPU, with rows that hold nothing."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()
        self._forget()
        reason = str(error).strip().partition("\n")[0] or repr(error)
        self._why_without = f"no CUDA graph, so each op is launched by itself ({reason})"

    def _try_steps(self, steps: Steps) -> None:
        """RuntimeError if log-probabilities differ from those of one forward over everything."""
        ids, stops = self._trial()
        with self._model_borrowed(), torch.no_grad(), unwrapped(self._model):
            expected = self._whole(ids, stops)  # (4, P, V)
        self._cast.forget()
        sampled = steps.tried(ids, stops)
        tokens = sampled[..., 0].long().to(expected.device)
        own = self._policy.logprobs(expected).gather(-1, tokens[..., None])[..., 0]
        gap = (own.cpu().double() - sampled[..., 1]).abs().max().item()
        limit = self._limit(expected) / self._policy.divisor
        if not gap <= limit:
            raise RuntimeError(f"log-probabilities are off by {gap:.2g}")

    def _compute_in(self, dtype: torch.dtype) -> None:
        """Begin with an empty cache for forwards in `dtype`."""
        self._dtype, self._cast = dtype, CastWeights(self._model, dtype=dtype)
        kept_in = None if dtype is torch.float32 else keys_in(dtype, self._model.device.type)
        self._cache = RowCache(
            self._model.config, most_rows=len(self._rows), capacity=COLUMNS, dtype=kept_in
        )

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """Sample a line: see `Engine.line`."""
        if self._is_closed:
            raise EngineError("the engine was closed")
        check_request(
            ids, max_tokens, vocabulary=self._vocabulary, context_tokens=self._context_tokens
        )
        done: asyncio.Future[SampledLine] = asyncio.get_running_loop().create_future()
        self._waiting.append(LineRequest(list(ids), max_tokens, random.Random(seed), done))
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.create_task(self._run())
        return await done

    def share(self, beginning: Sequence[int]) -> None:
        """Share a beginning: see `PrefixSharing.share`."""
        self._prompts.beginning = list(beginning)

    async def sync(self, weights: Weights, *, version: int) -> None:
        """Drop cached keys and values, as the model is the trainer's: see `Engine.sync`."""
        self._version = version
        self._cast.forget()
        self._drop()
        if self._steps is not None:
            self._steps.load()

    def _drop(self) -> None:
        """Let rows hold nothing. The first ones are taken first again."""
        self._prompts.clear()
        for row in self._rows:
            row.cached, row.last_used = [], 0

    async def sleep(self) -> None:
        """Forget what is cached, worthless once the weights have moved: see `Engine.sleep`."""
        if self._stepper is not None:
            await asyncio.wait([self._stepper])
        self._forget()
        if self._steps is not None:
            self._steps.rest()

    def _forget(self) -> None:
        """Drop all keys and values, and their memory."""
        self._cast.forget()
        self._drop()
        self._cache.reset()

    async def aclose(self) -> None:
        """Stop the steps and fail the lines in flight: see `Engine.aclose`."""
        self._is_closed = True
        if self._stepper is not None:
            self._stepper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._stepper
        self._fail(EngineError("the engine was closed"))
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _try_model(self) -> None:
        """ConfigError if logits from rows differ from those of one forward over everything.

        A model is judged by what it does, not by its name: some keep a state in place of keys, read
        positions off a padding mask or attend without any mask.
        """
        ids, stops = self._trial()
        rows = self._rows[:1] if len(self._rows) == 1 else [self._rows[0], self._rows[-1]]
        try:
            with self._model_borrowed(), torch.no_grad(), unwrapped(self._model):
                expected = self._whole(ids, stops)
                logits = [self._forward(rows, [ids[:stop] for stop in each]) for each in stops]
        except _MISFITS as error:
            reason = str(error).strip().partition("\n")[0]
            raise self._refusal(f"{type(error).__name__}: {reason}") from error
        for row in rows:
            row.cached = []
        gap = (torch.stack(logits).float() - expected).abs().max().item()
        if gap > self._limit(expected):
            spread = expected.std().item()
            raise self._refusal(f"logits are off by {gap:.2g}, their spread is {spread:.2g}")

    def _trial(self) -> tuple[list[int], list[tuple[int, ...]]]:
        """Ids, and the lengths [4][P] that the first and the last row grow to."""
        ids = [i % self._vocabulary for i in range(1, 1 + max(map(max, _TRIAL)))]
        return ids, [lengths[: len(self._rows)] for lengths in _TRIAL]

    def _whole(self, ids: list[int], stops: list[tuple[int, ...]]) -> torch.Tensor:
        """Logits (4, P, V) after so many ids, by one forward over everything."""
        with autocast(self._model.device, self._dtype):
            whole = self._model(input_ids=torch.tensor([ids], device=self._model.device))
        logits: torch.Tensor = whole.logits[0, torch.tensor(stops) - 1].float()
        return logits

    def _limit(self, expected: torch.Tensor) -> float:
        """Wrong keys move logits by about their spread; rounding to half precision moves them by a
        few hundredths of it."""
        is_exact = self._model.dtype is torch.float32 and self._dtype is torch.float32
        return (0.01 if is_exact else 0.5) * expected.std().item()

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(
            f"the engine 'hf' cannot continue from cached keys and values with a "
            f"{self._model.config.model_type} model ({reason}); give a model of full or sliding "
            f"attention that takes a mask, with attn_implementation 'sdpa' or 'eager'"
        )

    async def _run(self) -> None:
        try:
            while self._admit():
                if self._steps is not None:
                    for row, token, logprob in await self._steps.step(self._rows, self._prompts):
                        if not math.isfinite(logprob):
                            raise FloatingPointError(NOT_FINITE)
                        self._take(row, token, logprob)
                else:
                    # Given back before anything is awaited: the event loop may stop there while
                    # the trainer is at work on the model.
                    with self._model_borrowed():
                        for rows in self._batches():
                            self._step(rows)
                # Lines whose kernels have answered join before the next step.
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        # A model may raise anything, and a line that nobody answers would wait for ever.
        except Exception as error:  # noqa: BLE001
            self._fail(EngineError(f"the model's forward failed: {error!r}"))

    def _make_room(self, num_tokens: int) -> None:
        """Let the rows of fixed steps have so many tokens, or do without such steps."""
        if self._steps is None:
            return
        try:
            self._steps.make_room(num_tokens, most=self._context_tokens)
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            self._do_without_steps(error)

    @contextlib.contextmanager
    def _model_borrowed(self) -> Iterator[None]:
        """The trainer's model in evaluation mode, with a thread less if small; all put back."""
        was_training, num_threads = self._model.training, torch.get_num_threads()
        config = self._model.config.get_text_config()
        attention = config._attn_implementation
        self._model.eval()
        if self._reads_in_place:
            config._attn_implementation = row_attention.NAME
        if not self._is_large:
            # One core is the kernels': a thread that loses its core holds up all the others.
            torch.set_num_threads(max(1, num_threads - 1))
        try:
            with self._cast.in_place():
                yield
        finally:
            torch.set_num_threads(num_threads)
            config._attn_implementation = attention
            self._model.train(was_training)

    def _admit(self) -> bool:
        """Seat waiting requests on free rows; False when there is nothing left to do."""
        for row in self._rows:
            if row.request is not None and row.request.done.cancelled():
                # Its sampled tokens may never be asked for again; those before them may.
                del row.cached[row.request.num_kept :]
                row.request = None
        self._waiting = [request for request in self._waiting if not request.done.cancelled()]
        self._make_room(max((len(one.ids) + one.max_tokens for one in self._waiting), default=0))
        free = [row for row in self._rows if row.request is None]
        # At least so many trajectories are under way.
        self._cache.make_rows(
            min(len(self._rows), len(self._rows) - len(free) + len(self._waiting))
        )
        reading = self._prompts.reading(self._rows)
        for request in list(self._waiting):
            if not free:
                break
            if self._prompts.is_being_read(request.ids, reading):
                continue
            self._waiting.remove(request)
            row = best_row(free, request.ids)
            free.remove(row)
            self._seat(request, row)
            reading += self._prompts.reading([row])
        return bool(self._waiting) or any(row.request is not None for row in self._rows)

    def _seat(self, request: LineRequest, row: CacheRow) -> None:
        """Put a request on a row, which keeps what it holds of it or is given what another has."""
        prompts = self._prompts
        self._cache.make_rows(row.index + 1)
        known = prompts.find(request.ids)
        if known is not None:
            self._give(known[0], row, request.ids)
        else:
            row.cached = prompts.kept(row, request.ids)
            if (lent := prompts.lent(row, request.ids, self._rows)) is not None:
                self._give(lent[0], row, lent[1])
        row.request = request
        self._clock += 1
        row.turn = self._clock
        request.num_kept = len(row.cached)
        num_kept, num_asked = self.prefix_tokens
        self.prefix_tokens = (num_kept + request.num_kept, num_asked + len(request.ids))
        if known is not None:
            self._sample([row], known[1][None])

    def _give(self, holder: CacheRow, row: CacheRow, ids: list[int]) -> None:
        """Let `row` hold these, which `holder` holds."""
        (self._steps or self._cache).copy(holder.index, row.index, num_keys=len(ids))
        row.cached = list(ids)

    def _batches(self) -> Iterator[list[CacheRow]]:
        """All rows together where nothing is padded, else those with one new token and others."""
        active = [row for row in self._rows if row.request is not None]
        if self._reads_in_place and self._model.device.type == "cpu":
            if active:
                yield active
            return
        single = [row for row in active if row.num_new == 1]
        chunks = [row for row in active if row.num_new > 1]
        yield from (batch for batch in (single, chunks) if batch)

    # Not inference_mode: a buffer that a model makes or replaces in its forward (scaled rotary
    # frequencies, say) would become an inference tensor, which the trainer's backward refuses.
    @torch.no_grad()
    def _step(self, rows: list[CacheRow]) -> None:
        """Run the new tokens of `rows` through the model and sample one token for each."""
        prompts = self._prompts
        pieces = [prompts.piece(row) for row in rows]
        at_start = [at for at, row in enumerate(rows) if prompts.is_at_start(row)]
        logits = self._forward(rows, pieces)  # (P, V)
        whole = [at for at, piece in enumerate(pieces) if piece is not prompts.beginning]
        for at in at_start:
            if at in whole:
                prompts.add(list(pieces[at]), rows[at], logits[at].clone())
        if len(whole) < len(rows):
            logits = logits[whole]
        self._sample([rows[at] for at in whole], logits)

    def _sample(self, rows: list[CacheRow], logits: torch.Tensor) -> None:
        """Sample a token for each row from its logits (P, V)."""
        requests = [row.request for row in rows if row.request is not None]
        logprobs = self._policy.logprobs(logits)
        uniform = torch.tensor(
            [request.rng.random() for request in requests],
            dtype=torch.float64,
            device=logprobs.device,
        )
        drawn = self._policy.draw(logprobs, uniform)
        chosen = logprobs.gather(-1, drawn[:, None])[:, 0].tolist()
        if not all(map(math.isfinite, chosen)):
            raise FloatingPointError(NOT_FINITE)
        for row, token, logprob in zip(rows, drawn.tolist(), chosen, strict=True):
            self._take(row, token, logprob)

    def _forward(self, rows: list[CacheRow], ids: list[list[int]]) -> torch.Tensor:
        """Logits (P, V) after the last of each row's ids; the rows hold their keys from then on."""
        device = self._model.device
        self._cache.make_rows(1 + max(row.index for row in rows))
        longest = max(map(len, ids))
        if longest > self._cache.capacity:
            # At least doubled: each column is copied about once, however long the rows become.
            most = min(2 * self._cache.capacity, self._row_tokens)
            self._cache.grow(max(up_to_multiple(longest, COLUMNS), most))
        batch = self._laid_out(
            [BatchPart(row.index, len(row.cached), one) for row, one in zip(rows, ids, strict=True)]
        )
        for row, one in zip(rows, ids, strict=True):
            row.cached.extend(one[len(row.cached) :])
        position_ids = torch.tensor(batch.positions, device=device)  # (B, Q)
        self._cache.view(
            torch.tensor(batch.rows, device=device),
            torch.tensor(batch.writes, device=device),
            num_keys=batch.num_keys,
            is_whole=bool(batch.runs),
        )
        ends = torch.tensor(batch.ends, device=device)
        with autocast(self._model.device, self._dtype), row_attention.in_view(batch.runs):
            output = self._model(
                input_ids=torch.tensor(batch.tokens, device=device),
                attention_mask=self._cache.mask(position_ids, dtype=self._model.dtype),
                position_ids=position_ids,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=ends if batch.runs else 1,
            )
        logits: torch.Tensor = output.logits
        return logits[0, : len(rows)] if batch.runs else logits[:, -1]

    def _laid_out(self, parts: list[BatchPart]) -> Batch:
        """Packed, unless keys are copied together, or that is faster."""
        device, spare = self._model.device, self._cache.capacity
        if self._reads_in_place:
            is_cpu = device.type == "cpu"
            num_threads = torch.get_num_threads() if is_cpu else 0
            batch = packed(parts, spare=spare, num_threads=num_threads)
            if is_cpu or len(batch.runs) <= _FEW_RUNS:
                return batch
        return padded(parts, spare=spare)

    def _take(self, row: CacheRow, token: int, logprob: float) -> None:
        request = row.request
        assert request is not None
        self.num_sampled += 1
        request.ids.append(token)
        request.sampled.append(token)
        request.logprobs.append(logprob)
        is_end = token in self._newline_ids or token in self._eos_ids
        if not is_end and len(request.sampled) < request.max_tokens:
            return
        row.request = None
        self._clock += 1
        row.last_used = self._clock
        if not request.done.done():
            request.done.set_result(
                SampledLine(
                    ids=tuple(request.sampled),
                    logprobs=tuple(request.logprobs),
                    end=line_end(token, newline_ids=self._newline_ids, eos_ids=self._eos_ids),
                    policy_version=self._version,
                )
            )

    def _fail(self, error: EngineError) -> None:
        requests = [*self._waiting, *(row.request for row in self._rows if row.request is not None)]
        self._waiting = []
        for row in self._rows:
            row.request = None
        for request in requests:
            if not request.done.done():
                request.done.set_exception(error)
        with contextlib.suppress(RuntimeError):  # of a device that has failed for good
            # A mask does not hide a NaN: 0 times NaN is NaN.
            self._forget()
            if self._steps is not None:
                self._steps.clear()
