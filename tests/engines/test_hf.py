"""Laws of the in-process engine, on random models of two layers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.engines.hf import HFEngine
from repl_rl.errors import EngineError

T = TypeVar("T")
VOCABULARY, NEWLINE, EOS = 48, 10, 3
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": EOS,
}


def qwen3() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=8))


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**COMMON, num_key_value_heads=4))


def gpt2() -> Any:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=512,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    return GPT2LMHeadModel(config)


def random_model(make: Callable[[], Any], *, seed: int = 0) -> Any:
    """Weights three times as large as usual: flat distributions would hide a wrong position."""
    torch.manual_seed(seed)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    return model


@pytest.fixture(params=[qwen3, llama, gpt2], ids=lambda make: make.__name__)
def any_model(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param)


@pytest.fixture
def model() -> Any:
    return random_model(qwen3)


def run(
    model: Any,
    use: Callable[[HFEngine], Awaitable[T]],
    *,
    num_rows: int = 4,
    row_tokens: int = 1 << 20,
    temperature: float = 1.0,
    newline_ids: frozenset[int] = frozenset({NEWLINE}),
    eos_ids: frozenset[int] = frozenset({EOS}),
) -> T:
    """Use a fresh engine and close it; nothing may hang."""

    async def inside() -> T:
        engine = HFEngine(
            model,
            newline_ids=newline_ids,
            eos_ids=eos_ids,
            num_rows=num_rows,
            row_tokens=row_tokens,
            temperature=temperature,
        )
        try:
            async with asyncio.timeout(20):
                return await use(engine)
        finally:
            await engine.aclose()

    return asyncio.run(inside())


def prompt(seed: int, length: int = 7) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(11, VOCABULARY, (length,), generator=generator).tolist()


async def trajectory(
    engine: HFEngine, ids: Sequence[int], *, seed: int, num_lines: int = 4, max_tokens: int = 12
) -> tuple[list[int], list[float | None]]:
    """Lines with observations of several lengths between them: all ids, their logprobs or None."""
    ids, logprobs = list(ids), [None] * len(ids)
    for index in range(num_lines):
        line = await engine.line(ids, max_tokens=max_tokens, seed=1000 * seed + index)
        ids += line.ids
        logprobs += line.logprobs
        observation = prompt(77 * seed + index, 1 + (seed + 3 * index) % 6)
        ids += observation
        logprobs += [None] * len(observation)
        await asyncio.sleep(0.001 * (seed % 3))
    return ids, logprobs


def worst_difference(
    model: Any, ids: Sequence[int], logprobs: Sequence[float | None], *, temperature: float = 1.0
) -> float:
    """Largest gap between the engine's log-probabilities and a fresh forward of the same ids."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float() / temperature
    fresh = torch.log_softmax(logits, -1)
    gaps = [
        abs(fresh[at - 1, ids[at]].item() - logprob)
        for at, logprob in enumerate(logprobs)
        if logprob is not None
    ]
    assert gaps
    return max(gaps)


# Log-probabilities


def test_logprobs_are_those_of_a_fresh_forward(any_model: Any) -> None:
    ids, logprobs = run(any_model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(any_model, ids, logprobs) < 1e-5


def test_logprobs_are_those_of_the_tempered_distribution(model: Any) -> None:
    ids, logprobs = run(
        model, lambda engine: trajectory(engine, prompt(0), seed=1), temperature=0.7
    )
    assert worst_difference(model, ids, logprobs, temperature=0.7) < 1e-5


async def many(engine: HFEngine, count: int, **lengths: int) -> list[Any]:
    return await asyncio.gather(
        *(trajectory(engine, prompt(i, 4 + i), seed=i, **lengths) for i in range(count))
    )


def test_logprobs_hold_when_trajectories_share_too_few_rows(any_model: Any) -> None:
    """Nine trajectories on three rows: rows are given away between lines all the time."""
    results = run(any_model, lambda engine: many(engine, 9), num_rows=3)
    assert max(worst_difference(any_model, *result) for result in results) < 1e-5


def test_logprobs_hold_beyond_the_first_columns_of_the_cache(model: Any) -> None:
    """Rows begin with 64 columns and double: these pass 64 and 128."""
    results = run(model, lambda engine: many(engine, 3, num_lines=12, max_tokens=30), num_rows=2)
    assert max(len(ids) for ids, _ in results) > 192
    assert max(worst_difference(model, *result) for result in results) < 1e-5


def test_logprobs_follow_the_weights_after_a_sync(model: Any) -> None:
    async def use(engine: HFEngine) -> tuple[SampledLine, list[int], SampledLine]:
        first = await engine.line(prompt(0), max_tokens=8, seed=1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        engine.sync(5)
        ids = [*prompt(0), *first.ids, 20]
        return first, ids, await engine.line(ids, max_tokens=8, seed=2)

    torch.manual_seed(1)
    first, ids, second = run(model, use)
    assert (first.policy_version, second.policy_version) == (0, 5)
    logprobs = [None] * len(ids) + list(second.logprobs)
    assert worst_difference(model, [*ids, *second.ids], logprobs) < 1e-5


def test_without_a_sync_old_keys_would_be_seen(model: Any) -> None:
    """The check above can fail: the same without `sync` is off by far more."""

    async def use(engine: HFEngine) -> tuple[list[int], SampledLine]:
        first = await engine.line(prompt(0), max_tokens=8, seed=1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        ids = [*prompt(0), *first.ids, 20]
        return ids, await engine.line(ids, max_tokens=8, seed=2)

    torch.manual_seed(1)
    ids, second = run(model, use)
    logprobs = [None] * len(ids) + list(second.logprobs)
    assert worst_difference(model, [*ids, *second.ids], logprobs) > 1e-3


def test_the_same_prompt_twice_needs_no_new_token(model: Any) -> None:
    """A row that holds the whole request still runs its last token for a distribution."""

    async def use(engine: HFEngine) -> list[SampledLine]:
        return [await engine.line(prompt(0), max_tokens=5, seed=4) for _ in range(2)]

    first, second = run(model, use, num_rows=1)
    assert first.ids == second.ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)


# Seeds


def test_the_same_seed_gives_the_same_line_whatever_else_is_in_flight(model: Any) -> None:
    async def crowd(engine: HFEngine) -> tuple[list[int], list[float | None]]:
        results = await asyncio.gather(
            trajectory(engine, prompt(0), seed=1),
            *(trajectory(engine, prompt(i, 3 + 5 * i), seed=10 + i) for i in range(7)),
        )
        return results[0]

    alone = run(model, lambda engine: trajectory(engine, prompt(0), seed=1), num_rows=8)
    assert run(model, crowd, num_rows=8)[0] == alone[0]


def test_different_seeds_give_different_lines(model: Any) -> None:
    async def use(engine: HFEngine) -> set[tuple[int, ...]]:
        lines = [engine.line(prompt(0), max_tokens=8, seed=seed) for seed in range(16)]
        return {line.ids for line in await asyncio.gather(*lines)}

    assert len(run(model, use)) > 12


def test_lines_are_drawn_from_the_distribution_of_the_model(model: Any) -> None:
    """2,000 first tokens: their shares are off by less than five standard errors."""

    async def use(engine: HFEngine) -> list[int]:
        lines = [engine.line(prompt(0), max_tokens=1, seed=seed) for seed in range(2000)]
        return [line.ids[0] for line in await asyncio.gather(*lines)]

    drawn = torch.bincount(torch.tensor(run(model, use, num_rows=200)), minlength=VOCABULARY)
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([prompt(0)])).logits[0, -1], -1)
    error = (expected * (1 - expected) / 2000).sqrt()
    assert ((drawn / 2000 - expected).abs() <= 5 * error + 1e-3).all()


# Ends


EVERY = frozenset(range(VOCABULARY))


@pytest.mark.parametrize(
    ("newline_ids", "eos_ids", "end", "length"),
    [
        (EVERY, frozenset(), LineEnd.NEWLINE, 1),
        (frozenset(), EVERY, LineEnd.EOS, 1),
        (frozenset(), frozenset(), LineEnd.LENGTH, 6),
    ],
)
def test_a_line_ends_by_its_last_token(
    model: Any, newline_ids: frozenset[int], eos_ids: frozenset[int], end: LineEnd, length: int
) -> None:
    line = run(
        model,
        lambda engine: engine.line(prompt(0), max_tokens=6, seed=0),
        newline_ids=newline_ids,
        eos_ids=eos_ids,
    )
    assert (line.end, len(line.ids), len(line.logprobs)) == (end, length, length)


def test_only_the_last_token_of_a_line_ends_it(model: Any) -> None:
    stops = frozenset(range(0, VOCABULARY, 6))

    async def use(engine: HFEngine) -> list[SampledLine]:
        requests = [engine.line(prompt(i), max_tokens=40, seed=i) for i in range(12)]
        return await asyncio.gather(*requests)

    lines = run(model, use, newline_ids=stops, eos_ids=frozenset())
    assert [stops & set(line.ids[:-1]) for line in lines] == [set()] * 12
    assert {line.end for line in lines} >= {LineEnd.NEWLINE}


# Trouble


def test_a_cancelled_line_leaves_the_engine_usable(model: Any) -> None:
    async def use(engine: HFEngine) -> SampledLine:
        doomed = [
            asyncio.create_task(engine.line(prompt(i), max_tokens=400, seed=i)) for i in range(3)
        ]
        await asyncio.sleep(0.02)
        for task in doomed:
            task.cancel()
        return await engine.line(prompt(0), max_tokens=8, seed=1)

    never = {"newline_ids": frozenset(), "eos_ids": frozenset()}
    plain = run(model, lambda engine: engine.line(prompt(0), max_tokens=8, seed=1), **never)
    assert run(model, use, num_rows=2, **never).ids == plain.ids


def test_lines_in_flight_end_in_an_error_when_the_engine_is_closed(model: Any) -> None:
    async def use(engine: HFEngine) -> list[object]:
        waiting = [
            asyncio.create_task(engine.line(prompt(i), max_tokens=400, seed=i)) for i in range(3)
        ]
        await asyncio.sleep(0.02)
        await engine.aclose()
        return await asyncio.gather(*waiting, return_exceptions=True)

    results = run(model, use, num_rows=2, newline_ids=frozenset(), eos_ids=frozenset())
    assert [type(result) for result in results] == [EngineError] * 3


def test_a_line_asked_of_a_closed_engine_ends_in_an_error(model: Any) -> None:
    async def use(engine: HFEngine) -> SampledLine:
        await engine.aclose()
        async with asyncio.timeout(1):
            return await engine.line(prompt(0), max_tokens=2, seed=0)

    with pytest.raises(EngineError, match="closed"):
        run(model, use)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), IndexError("out of range")])
def test_a_forward_that_fails_ends_waiting_lines_in_an_error(
    model: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(model, "forward", broken)

    async def use(engine: HFEngine) -> SampledLine:
        async with asyncio.timeout(1):
            return await engine.line(prompt(0), max_tokens=2, seed=0)

    with pytest.raises(EngineError, match=str(error)):
        run(model, use)


def test_weights_that_are_no_numbers_end_lines_in_an_error(model: Any) -> None:
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="logits are not finite"):
        run(model, lambda engine: engine.line(prompt(0), max_tokens=2, seed=0))


def test_what_a_model_computes_while_sampling_can_be_trained_through(model: Any) -> None:
    """Some rotary embeddings replace their frequencies in a forward, and keep them."""
    rotary = model.model.rotary_emb
    original = rotary.forward

    def replacing(*args: Any, **kwargs: Any) -> Any:
        rotary.inv_freq = rotary.inv_freq * 1.0
        return original(*args, **kwargs)

    rotary.forward = replacing
    run(model, lambda engine: engine.line(prompt(0), max_tokens=2, seed=0))
    scale = torch.ones(1, requires_grad=True)
    (rotary.inv_freq * scale).sum().backward()
    assert scale.grad is not None


@pytest.mark.parametrize(
    ("row_tokens", "columns"),
    [(1000, [64, 128, 256, 512]), (150, [64, 128, 192, 256, 320])],
    ids=["doubling", "beyond what was expected"],
)
def test_rows_grow(model: Any, row_tokens: int, columns: list[int]) -> None:
    """299 tokens one by one: doubled as long as `row_tokens` asks for it, then by 64."""
    seen: list[int] = []
    watch = model.register_forward_hook(
        lambda *given: seen.append(given[2]["past_key_values"].capacity),
        with_kwargs=True,
    )

    async def use(engine: HFEngine) -> SampledLine:
        return await engine.line(prompt(0), max_tokens=293, seed=0)

    never: frozenset[int] = frozenset()
    try:
        run(model, use, row_tokens=row_tokens, newline_ids=never, eos_ids=never)
    finally:
        watch.remove()
    assert sorted(set(seen)) == columns


def test_sampling_leaves_the_model_in_the_mode_it_was_in(model: Any) -> None:
    model.train()
    run(model, lambda engine: engine.line(prompt(0), max_tokens=4, seed=0))
    assert model.training


def test_gradient_checkpointing_does_not_disturb_the_cache(model: Any) -> None:
    model.train()
    model.gradient_checkpointing_enable()
    ids, logprobs = run(model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(model.eval(), ids, logprobs) < 1e-5


def test_a_model_can_be_trained_after_it_was_sampled_from(any_model: Any) -> None:
    run(any_model, lambda engine: trajectory(engine, prompt(0), seed=1))
    any_model.train()(input_ids=torch.tensor([prompt(0)])).logits.sum().backward()


def test_dropout_is_off_while_sampling() -> None:
    """GPT-2 drops a tenth of everything in training mode: logprobs would be off by far."""
    model = random_model(gpt2).train()
    ids, logprobs = run(model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(model.eval(), ids, logprobs) < 1e-5


def test_sampled_tokens_are_counted(model: Any) -> None:
    async def use(engine: HFEngine) -> int:
        await engine.line(prompt(0), max_tokens=6, seed=0)
        await engine.line(prompt(1), max_tokens=5, seed=0)
        return engine.num_sampled

    assert run(model, use, newline_ids=frozenset(), eos_ids=frozenset()) == 11
