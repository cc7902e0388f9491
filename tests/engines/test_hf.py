"""Laws of the transformers engine that do not depend on the model, on one of two layers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
import torch
from accelerate.utils import convert_outputs_to_fp32

from engine_kit import ARCHITECTURES, run
from repl_rl.engines.base import SampledLine
from repl_rl.engines.hf.cache import RowCache
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.models.precision import keys_in
from repl_rl.testing.under_test import (
    Written,
    prompt,
    random_model,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)

pytestmark = pytest.mark.slow

NEVER: frozenset[int] = frozenset()


async def some_steps(engine: HFEngine, *, more: int = 6) -> None:
    """The engine gives way to others after each token, so that it is seen in the middle of one."""
    wanted = engine.num_sampled + more
    for _ in range(20 * more):
        await asyncio.sleep(0)
        if engine.num_sampled >= wanted:
            break
    assert engine.num_sampled == wanted


# Log-probabilities


def test_logprobs_hold_beyond_the_first_columns_of_the_cache(model: Any) -> None:
    """Rows begin with 64 columns and double: these pass 64 and 128."""
    results = run(
        model, lambda engine: trajectories(engine, 3, num_lines=12, max_tokens=30), num_rows=2
    )
    assert max(len(ids) for ids, _ in results) > 192
    assert max(worst_difference(model, *result) for result in results) < 1e-5


def test_without_a_sync_old_keys_would_be_seen(model: Any) -> None:
    """The law of the weight update can fail: without `sync` it is off by far more."""

    async def use(engine: HFEngine) -> Written:
        first = await engine.line(prompt(0), max_tokens=8, seed=1)
        shake(model)
        return await trajectory(engine, [*prompt(0), *first.ids, 20], seed=2, num_lines=1)

    assert worst_difference(model, *run(model, use)) > 1e-3


def test_an_update_in_the_middle_of_a_line_is_seen_from_the_next_token_on(model: Any) -> None:
    async def use(engine: HFEngine) -> tuple[int, SampledLine]:
        line = asyncio.create_task(engine.line(prompt(0), max_tokens=40, seed=1))
        await some_steps(engine)
        shake(model)
        await engine.sync((), version=1)
        return engine.num_sampled, await line

    num_old, line = run(model, use, newline_ids=NEVER, eos_ids=NEVER)
    unknown = [None] * (len(prompt(0)) + num_old)
    logprobs = [*unknown, *line.logprobs[num_old:]]
    assert worst_difference(model, [*prompt(0), *line.ids], logprobs) < 1e-5


@pytest.mark.parametrize("name", ["qwen3", "gemma2 soft caps", "gpt2"])
def test_logprobs_in_half_precision_are_off_by_rounding_only(name: str) -> None:
    """bfloat16 has 8 bits: logits of about 2 are off by 2**-8. Wrong keys cost tenths and more."""
    model = random_model(ARCHITECTURES[name]).to(torch.bfloat16)
    results = run(model, lambda engine: trajectories(engine, 5), num_rows=2)
    assert max(worst_difference(model, *result) for result in results) < 0.03


def test_a_model_that_accelerate_has_prepared_is_sampled_from(model: Any) -> None:
    """It turns what a forward returns into float32, and looks for a type at all of it."""

    async def use(engine: HFEngine) -> Written:
        model.forward = convert_outputs_to_fp32(model.forward)
        return await trajectory(engine, prompt(0), seed=1, num_lines=2)

    assert worst_difference(model, *run(model, use, dtype=torch.bfloat16)) < 0.05


def types_of_keys(model: Any) -> tuple[set[torch.dtype], list[Written]]:
    """Types of keys and values while lines are sampled in half, and the lines."""
    seen: set[torch.dtype] = set()

    async def use(engine: HFEngine) -> list[Written]:
        found = await trajectories(engine, 1)  # of several, which share a batch is chance
        layer: Any
        for layer in engine._cache.layers:
            seen.update({layer.keys.dtype, layer.values.dtype})
        return found

    return seen, run(model, use, num_rows=1, dtype=torch.bfloat16)


@pytest.mark.parametrize("name", ["qwen3", "llama", "llama eager", "gemma2 soft caps", "gpt2"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_cpu_keeps_keys_in_the_type_that_it_attends_in(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others keep them in half of the memory, if half is what they compute in."""
    monkeypatch.setattr("repl_rl.engines.hf.engine.keys_in", lambda held, _: keys_in(held, device))
    model = random_model(ARCHITECTURES[name])
    seen, found = types_of_keys(model)
    assert seen == {torch.float32 if device == "cpu" else torch.bfloat16}
    assert max(worst_difference(model, *result) for result in found) < 0.05


# Lines that are cancelled


async def cancelled(engine: HFEngine) -> None:
    """A line that is given up after some tokens."""
    doomed = asyncio.create_task(engine.line(prompt(0), max_tokens=400, seed=0))
    await some_steps(engine)
    doomed.cancel()


@pytest.mark.parametrize("start", [prompt(0), prompt(0, 4), prompt(1, 30)])
def test_a_cancelled_line_leaves_nothing_in_the_row_it_had(model: Any, start: list[int]) -> None:
    """The next trajectory on that row: after the same prompt, a part of it, another one."""

    async def use(engine: HFEngine) -> Written:
        await cancelled(engine)
        return await trajectory(engine, start, seed=1)

    plain = run(model, lambda one: trajectory(one, start, seed=1), newline_ids=NEVER, eos_ids=NEVER)
    ids, logprobs = run(model, use, num_rows=1, newline_ids=NEVER, eos_ids=NEVER)
    assert ids == plain[0]
    assert worst_difference(model, ids, logprobs) < 1e-5


def test_a_line_cancelled_before_it_had_a_row_is_never_sampled(model: Any) -> None:
    async def use(engine: HFEngine) -> int:
        first = asyncio.create_task(engine.line(prompt(0), max_tokens=20, seed=0))
        second = asyncio.create_task(engine.line(prompt(1), max_tokens=20, seed=0))
        await asyncio.sleep(0)
        second.cancel()
        await first
        return engine.num_sampled

    assert run(model, use, num_rows=1, newline_ids=NEVER, eos_ids=NEVER) == 20


# Without chance


def test_at_temperature_0_the_likeliest_token_is_taken_whatever_the_seed(model: Any) -> None:
    """Its log-probability is that at temperature 1, of one forward over everything."""
    for seed in (0, 1):
        use = partial(HFEngine.line, ids=prompt(0), max_tokens=9, seed=seed)
        line = run(model, use, temperature=0.0, newline_ids=NEVER, eos_ids=NEVER)
        ids = [*prompt(0), *line.ids]
        with torch.no_grad():
            scores = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        start = len(prompt(0))
        assert scores[start - 1 : -1].argmax(-1).tolist() == list(line.ids)
        assert worst_difference(model, ids, [None] * start + list(line.logprobs)) < 1e-5


# What an engine holds


def test_sampling_leaves_the_number_of_threads_as_it_was(model: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(model, lambda engine: engine.line(prompt(0), max_tokens=4, seed=0))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("least", "num_threads"), [(1 << 60, 1), (1, 2)], ids=["small", "large"])
def test_a_small_model_leaves_a_core_to_the_kernels(
    model: Any, monkeypatch: pytest.MonkeyPatch, least: int, num_threads: int
) -> None:
    monkeypatch.setattr("repl_rl.engines.hf.engine._LARGE", least)
    before, seen = torch.get_num_threads(), set[int]()
    torch.set_num_threads(2)
    hook = model.register_forward_pre_hook(lambda *_: seen.add(torch.get_num_threads()))
    try:
        run(model, lambda engine: engine.line(prompt(0), max_tokens=4, seed=0))
    finally:
        hook.remove()
        torch.set_num_threads(before)
    assert seen == {num_threads}


def test_a_model_is_given_back_where_the_event_loop_stands_still(model: Any) -> None:
    """Between two rollouts the trainer is at work on the model, and nobody runs the engine."""
    attention = model.config.get_text_config()._attn_implementation
    with asyncio.Runner() as loop:
        engine = HFEngine(
            model,
            newline_ids=NEVER,
            eos_ids=NEVER,
            num_rows=1,
            row_tokens=64,
            temperature=1.0,
        )
        model.train()
        try:
            loop.run(engine.line(prompt(0), max_tokens=4, seed=0))
            assert model.training
            assert model.config.get_text_config()._attn_implementation == attention
        finally:
            model.eval()
            loop.run(engine.aclose())


@pytest.mark.parametrize(
    ("row_tokens", "columns"),
    [(1000, [64, 128, 256, 512]), (150, [64, 128, 192, 256, 320])],
    ids=["doubling", "beyond what was expected"],
)
def test_rows_grow(model: Any, row_tokens: int, columns: list[int]) -> None:
    """299 tokens one by one: doubled as long as `row_tokens` asks for it, then by 64."""
    seen: set[int] = set()

    async def use(engine: HFEngine) -> SampledLine:
        watch = model.register_forward_hook(
            lambda *given: seen.add(given[2]["past_key_values"].capacity), with_kwargs=True
        )
        try:
            return await engine.line(prompt(0), max_tokens=293, seed=0)
        finally:
            watch.remove()

    run(model, use, row_tokens=row_tokens, newline_ids=NEVER, eos_ids=NEVER)
    assert sorted(seen) == columns


def test_memory_is_taken_for_the_trajectories_that_there_are(model: Any) -> None:
    """Three of 64 rows are held for three, again after an update, and twice as many for more."""

    async def use(engine: HFEngine) -> list[int]:
        await sample(engine, 0, 1, 2)
        held = [rows_held(engine)]
        await engine.sync([], version=1)
        await sample(engine, 3, 4, 5)
        held.append(rows_held(engine))
        await sample(engine, 6)
        return [*held, rows_held(engine)]

    assert run(model, use, num_rows=64) == [3, 3, 6]


def test_a_rollout_begins_with_the_rows_of_the_one_before(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five one after another move 1, 2 and 4 rows; then five are there at once, then two."""
    moved: list[int] = []
    move = RowCache._move

    def counted(self: RowCache) -> None:
        moved.append(self.num_rows)
        move(self)

    monkeypatch.setattr(RowCache, "_move", counted)

    async def use(engine: HFEngine) -> list[int]:
        held = []
        for count in (5, 2, 1):
            moved.clear()
            for at in range(count):
                await sample(engine, at)
            held += [rows_held(engine), len(moved)]
            await engine.sleep()
        return held

    assert run(model, use, num_rows=64) == [8, 4, 5, 0, 2, 0]


async def sample(engine: HFEngine, *prompts: int) -> None:
    lines = (engine.line(prompt(i), max_tokens=4, seed=i) for i in prompts)
    await asyncio.gather(*lines)


def rows_held(engine: HFEngine) -> int:
    return len(next(engine._cache.held()))


@pytest.mark.parametrize("num_rows", [5, 64])
def test_rows_that_come_later_change_no_bit(model: Any, num_rows: int) -> None:
    """As if all five rows had been there from the start."""

    async def one_by_one(engine: HFEngine) -> list[Written]:
        return [await trajectory(engine, prompt(i), seed=i) for i in range(5)]

    async def all_there(engine: HFEngine) -> list[Written]:
        engine._cache.make_rows(5)
        return await one_by_one(engine)

    expected = run(model, all_there, num_rows=5)
    assert run(model, one_by_one, num_rows=num_rows) == expected


def test_a_cancelled_line_leaves_its_row_where_the_line_began(model: Any) -> None:
    """The next line of that trajectory reads what is new to it and no more."""
    widths: list[int] = []

    class Counting(HFEngine):
        def _forward(self, rows: Any, ids: Any) -> torch.Tensor:
            widths.extend(len(one) - len(row.cached) for row, one in zip(rows, ids, strict=True))
            return super()._forward(rows, ids)

    async def use() -> None:
        engine = Counting(model, newline_ids=NEVER, eos_ids=NEVER, num_rows=2)
        first = await engine.line(prompt(0, 30), max_tokens=4, seed=0)
        ids = [*prompt(0, 30), *first.ids]
        guess = asyncio.create_task(engine.line([*ids, 20], max_tokens=40, seed=1))
        await some_steps(engine)
        guess.cancel()
        widths.clear()
        await engine.line([*ids, 21, 22, 23], max_tokens=2, seed=1)
        await engine.aclose()

    asyncio.run(use())
    assert widths[0] == 4  # the last token that was sampled, and the observation of three


def test_the_model_attends_as_before_once_lines_are_sampled(model: Any) -> None:
    during: set[str] = set()
    hook = model.register_forward_pre_hook(lambda *_: during.add(model.config._attn_implementation))
    try:
        run(model, lambda engine: engine.line(prompt(0), max_tokens=20, seed=1))
    finally:
        hook.remove()
    assert len(during) == 1
    assert during != {"sdpa"}
    assert model.config._attn_implementation == "sdpa"


def test_rounding_costs_no_model_its_keys_in_place(model: Any) -> None:
    """A trained model may be off by a spread of its logits where it computes in bfloat16."""

    def rounded(_module: Any, _inputs: Any, out: torch.Tensor) -> torch.Tensor:
        is_half = torch.is_autocast_enabled("cpu")
        return out + is_half * out.std() * torch.randn_like(out)

    model.lm_head.register_forward_hook(rounded)
    engine = HFEngine(model, newline_ids=NEVER, eos_ids=NEVER, num_rows=2, dtype=torch.bfloat16)
    assert engine._reads_in_place


def test_a_model_that_attends_in_its_own_way_has_its_keys_copied_together(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("keys of another shape")

    monkeypatch.setattr("repl_rl.engines.hf.attention.attention", broken)
    results = run(model, lambda engine: trajectories(engine, 3))
    assert max(worst_difference(model, *result) for result in results) < 1e-5
