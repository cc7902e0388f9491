"""Laws of steps of fixed shape: what a GPU launches as a whole, op by op on a CPU."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from peft import LoraConfig, get_peft_model

from engine_kit import ARCHITECTURES, EOS, NEWLINE
from repl_rl.engines.base import SampledLine
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.engines.hf.fixed_step import Draw, FixedStep, Read, Shape, StepCache, in_view
from repl_rl.engines.hf.steps import WIDE, WIDE_SLOTS, is_shortage
from repl_rl.testing.under_test import (
    Written,
    prompt,
    random_model,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import launches

pytestmark = pytest.mark.slow

T = TypeVar("T")
NEVER: frozenset[int] = frozenset()
KINDS = ("llama", "qwen3", "gemma3", "mistral", "gpt2", "gpt_neox", "qwen2 full and sliding")


def adapted(model: Any) -> Any:
    """With an adapter whose sum is not zero."""
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(model, config).eval()


def make(name: str) -> Any:
    is_adapted = name == "adapter"
    model = random_model(ARCHITECTURES["llama" if is_adapted else name])
    return adapted(model) if is_adapted else model


@pytest.fixture(params=[*KINDS, "adapter"])
def any_model(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


def run(
    model: Any,
    use: Callable[[HFEngine], Awaitable[T]],
    *,
    num_rows: int = 4,
    is_fixed: bool = True,
    **settings: Any,
) -> T:
    async def inside() -> T:
        settings.setdefault("newline_ids", frozenset({NEWLINE}))
        engine = HFEngine(
            model, eos_ids=frozenset({EOS}), num_rows=num_rows, is_fixed=is_fixed, **settings
        )
        assert not is_fixed or engine._steps is not None, engine.about
        try:
            async with asyncio.timeout(20):
                return await use(engine)
        finally:
            await engine.aclose()

    return asyncio.run(inside())


async def sampled(engine: HFEngine, number: int) -> None:
    """Give way until so many tokens are there."""
    for _ in range(10_000):
        if engine.num_sampled >= number:
            return
        await asyncio.sleep(0)
    raise AssertionError(engine.num_sampled)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """All that slots have read."""
    seen: list[Read] = []
    launch = FixedStep.launch

    def watched(self: FixedStep, reads: Sequence[Read], draws: Sequence[Draw]) -> None:
        seen.extend(reads)
        launch(self, reads, draws)

    monkeypatch.setattr(FixedStep, "launch", watched)
    return seen


# What is sampled


def test_tokens_are_those_that_are_sampled_without_such_steps(any_model: Any) -> None:
    def written(is_fixed: bool) -> list[Written]:
        return run(any_model, lambda one: trajectories(one, 6, num_lines=5), is_fixed=is_fixed)

    fixed, plain = written(True), written(False)
    assert [ids for ids, _ in fixed] == [ids for ids, _ in plain]
    assert max(worst_difference(any_model, *one) for one in fixed) < 1e-5


FROZEN = [
    [41, 41, 34, 29, 24, 28, 41, 19, 32, 27, 10, 18, 42, 42, 42, 24, 30, 24, 2, 27],
    [0, 33, 28, 6, 22, 22, 27, 40, 1, 2, 23, 11, 45, 47, 10, 33, 7, 17, 12, 23],
    [46, 45, 5, 5, 25, 28, 28, 6, 32, 23, 10, 33, 13, 21, 28, 13, 32, 21, 3],
    [20, 26, 26, 33, 44, 2, 1, 44, 11, 18, 46, 44, 33, 44, 2, 9, 44, 2, 33, 45],
]
"""Tokens of two lines of each of four trajectories."""


@pytest.mark.parametrize("is_fixed", [True, False])
def test_tokens_are_those_of_every_machine(is_fixed: bool) -> None:
    """No draw lies so near to the border of two tokens that the order of a sum could move it."""
    model = random_model(ARCHITECTURES["qwen3"])
    with torch.no_grad():
        for name, weight in model.named_parameters():
            rng = random.Random(name)
            made = [rng.randrange(-64, 65) / 128 for _ in range(weight.numel())]
            weight.copy_(torch.tensor(made).view(weight.shape) + (weight.dim() == 1))

    async def line(engine: HFEngine, ids: list[int], seed: int) -> list[int]:
        return list((await engine.line(ids, max_tokens=10, seed=seed)).ids)

    async def two_lines(engine: HFEngine, seed: int) -> tuple[list[int], float]:
        ids, sampled, margins = list(range(20 + seed, 30 + 2 * seed)), [], []
        for at in (seed, 100 + seed):
            found = await line(engine, ids, at)
            margins += margins_of(model, [*ids, *found], len(found), random.Random(at))
            sampled += found
            ids += [*found, 31, 32, 33]
        return sampled, min(margins)

    async def use(engine: HFEngine) -> list[tuple[list[int], float]]:
        return await asyncio.gather(*(two_lines(engine, seed) for seed in range(4)))

    found = run(model, use, is_fixed=is_fixed, newline_ids=NEVER)
    assert [ids for ids, _ in found] == FROZEN
    assert min(margin for _, margin in found) > 1e-4


def margins_of(model: Any, ids: list[int], count: int, rng: random.Random) -> list[float]:
    """Distances of the draws of the last `count` tokens from what would draw another one."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -count - 1 : -1].double()
    shares = logits.softmax(-1).cumsum(-1)
    return [(row - rng.random()).abs().min().item() for row in shares]


def test_no_bit_depends_on_company(any_model: Any) -> None:
    """Alone, in a crowd that takes all slots, and beside rows that begin later."""

    async def crowd(engine: HFEngine) -> Written:
        others = (trajectory(engine, prompt(i, 3 + 30 * i), seed=i) for i in range(2, 12))
        mine, *_ = await asyncio.gather(trajectory(engine, prompt(0, 90), seed=1), *others)
        return mine

    async def late(engine: HFEngine) -> Written:
        others = [asyncio.create_task(trajectory(engine, prompt(9, 50), seed=9))]
        await asyncio.sleep(0.01)
        mine = asyncio.create_task(trajectory(engine, prompt(0, 90), seed=1))
        await asyncio.sleep(0.01)
        others.append(asyncio.create_task(trajectory(engine, prompt(8, 5), seed=8)))
        await asyncio.gather(*others)
        return await mine

    alone = run(any_model, lambda one: trajectory(one, prompt(0, 90), seed=1), num_rows=12)
    assert run(any_model, crowd, num_rows=12) == alone
    assert run(any_model, late, num_rows=12) == alone


def test_an_update_is_seen_and_moves_no_tensor(any_model: Any) -> None:
    """A graph reads where weights lay when it was captured."""

    async def use(engine: HFEngine) -> Written:
        steps = engine._steps
        assert steps is not None
        assert steps._shadow is not None
        before = [one.data_ptr() for one in steps._shadow.model.parameters()]
        await engine.line(prompt(0, 20), max_tokens=8, seed=1)
        shake(any_model)
        await engine.sync((), version=1)
        assert [one.data_ptr() for one in steps._shadow.model.parameters()] == before
        return await trajectory(engine, prompt(0, 20), seed=2, num_lines=2)

    assert worst_difference(any_model, *run(any_model, use)) < 1e-5


def test_the_model_itself_is_left_alone(model: Any) -> None:
    seen: set[str] = set()

    async def use(engine: HFEngine) -> None:
        hook = model.register_forward_pre_hook(lambda *_: seen.add("forward"))
        await trajectory(engine, prompt(0, 20), seed=2, num_lines=2)
        hook.remove()

    state = torch.random.get_rng_state()
    run(model, use)
    assert not seen
    assert torch.equal(torch.random.get_rng_state(), state)


# Where rows read


def test_a_prompt_is_read_once_for_its_siblings_however_long_it_is(
    model: Any, reads: list[Read]
) -> None:
    """1,300 of 1,301 tokens: more than a step has room for, so it is read in several."""
    model.config.max_position_embeddings = 2048
    ids = prompt(0, 1301)

    async def use(engine: HFEngine) -> None:
        reads.clear()
        lines = [engine.line(ids, max_tokens=2, seed=seed) for seed in range(4)]
        await asyncio.gather(*lines)

    run(model, use, newline_ids=NEVER)
    widths = [len(one.ids) for one in reads]
    assert widths == [*[WIDE] * 10, 16, 4]  # 20 are left


def test_what_all_prompts_begin_with_is_read_once(model: Any) -> None:
    shared = prompt(5, 40)

    async def use(engine: HFEngine) -> list[Written]:
        engine.share(shared)
        made = (trajectory(engine, [*shared, *prompt(i, 9)], seed=i, num_lines=2) for i in range(4))
        written = await asyncio.gather(*made)
        assert engine.prefix_tokens[0] >= 3 * len(shared)
        return written

    assert max(worst_difference(model, *one) for one in run(model, use)) < 1e-5


def test_rows_grow_for_a_request_that_is_longer_than_expected(model: Any) -> None:
    async def use(engine: HFEngine) -> tuple[Written, int]:
        before = await engine.line(prompt(1, 20), max_tokens=4, seed=0)
        assert len(before.ids) == 4
        written = await trajectory(engine, prompt(0, 300), seed=1, num_lines=2)
        assert engine._steps is not None
        return written, engine._steps.capacity

    written, capacity = run(model, use, row_tokens=60, newline_ids=NEVER)
    assert worst_difference(model, *written) < 1e-5
    assert capacity == 575  # of 313 tokens, 320 columns, doubled as far as the context goes


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_longer_request_moves_no_bit_of_other_rows(any_model: Any, is_fixed: bool) -> None:
    """Neither of a row in the middle of a line nor of one between two lines."""

    async def beside(engine: HFEngine, *lengths: int) -> list[SampledLine]:
        ids = prompt(0, 20)
        begun = asyncio.create_task(engine.line(ids, max_tokens=24, seed=1))
        await sampled(engine, 9)
        longer = [
            asyncio.create_task(engine.line(prompt(5, length), max_tokens=2, seed=2))
            for length in lengths
        ]
        first = await begun
        await asyncio.gather(*longer)
        ids = [*ids, *first.ids, *prompt(3, 5)]
        return [first, await engine.line(ids, max_tokens=8, seed=3)]

    run_it = partial(run, any_model, is_fixed=is_fixed, row_tokens=60, newline_ids=NEVER)
    assert run_it(lambda one: beside(one, 90, 200)) == run_it(beside)


def test_a_longer_request_lets_no_row_read_again(model: Any, reads: list[Read]) -> None:
    """Rows hold what they held, in more columns."""

    async def use(engine: HFEngine) -> list[int]:
        reads.clear()
        before = await engine.line(prompt(0, 20), max_tokens=4, seed=0)
        begun = asyncio.create_task(engine.line(prompt(1, 30), max_tokens=24, seed=1))
        await sampled(engine, 9)
        await engine.line(prompt(2, 150), max_tokens=1, seed=2)
        await begun
        await engine.line([*prompt(0, 20), *before.ids, *prompt(3, 5)], max_tokens=1, seed=3)
        return [len(one.ids) for one in reads]

    # All but the last token of each prompt, then the last one of the line, and four of five.
    assert run(model, use, row_tokens=60, newline_ids=NEVER) == [16, 3, 16, 13, 128, 16, 5, 5]


# Where it cannot be


class Card:
    """A GPU that captures steps over so many columns and no more."""

    def __init__(self) -> None:
        self.most_columns = 1 << 30
        self.tried: list[int] = []

    def capture(self, step: FixedStep, pool: Any = None) -> None:
        self.tried.append(num := step._cache.num_columns)
        if num > self.most_columns:
            try:
                raise torch.OutOfMemoryError("CUDA out of memory")
            finally:
                raise RuntimeError("capture ended")  # as CUDA ends it


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(FixedStep, "capture", lambda step, pool=None: card.capture(step, pool))
    return card


BY_OP = "no CUDA graph, so each op is launched by itself"


def test_a_lack_of_memory_leads_to_a_smaller_bucket(model: Any, card: Card) -> None:
    card.most_columns = 320

    async def use(engine: HFEngine) -> tuple[str, Written]:
        return engine.about, await trajectory(engine, prompt(0), seed=1)

    about, written = run(model, use)
    assert card.tried == [576, 320, 320]  # both shapes
    assert about == "one forward of fixed shape a step, 319 tokens a row (no memory for 575)"
    assert worst_difference(model, *written) < 1e-5


def test_without_memory_for_steps_lines_are_sampled_op_by_op(model: Any, card: Card) -> None:
    card.most_columns = 0

    async def use(engine: HFEngine) -> tuple[str, Written]:
        return engine.about, await trajectory(engine, prompt(0), seed=1)

    about, written = asyncio.run(opened_with(model, use))
    assert card.tried == [576, 320, 256]
    assert about == f"{BY_OP} (capture ended)"
    assert worst_difference(model, *written) < 1e-5


@pytest.mark.parametrize("most", [384, 320], ids=["less than doubled", "none"])
def test_where_memory_is_short_for_a_longer_request_all_lines_go_on(
    model: Any, card: Card, most: int
) -> None:
    async def use(engine: HFEngine) -> tuple[str, list[Written]]:
        card.most_columns = most
        begun = asyncio.create_task(trajectory(engine, prompt(0), seed=1))
        await sampled(engine, 3)
        longer = await trajectory(engine, prompt(1, 340), seed=2, num_lines=1)
        return engine.about, [await begun, longer]

    about, written = run(model, use, row_tokens=300, newline_ids=NEVER)
    expected = {384: "383 tokens a row (no memory for 575)", 320: f"{BY_OP} (capture ended)"}
    assert about.endswith(expected[most])
    assert max(worst_difference(model, *one) for one in written) < 1e-5


def test_where_memory_is_short_after_an_update_rows_have_less(model: Any, card: Card) -> None:
    async def use(engine: HFEngine) -> tuple[list[str], Written]:
        abouts = [engine.about]
        await engine.sleep()
        card.most_columns = 320
        await engine.sync((), version=1)
        written = await trajectory(engine, prompt(0), seed=1)
        return [*abouts, engine.about], written

    abouts, written = run(model, use)
    assert abouts == [
        "one forward of fixed shape a step, 575 tokens a row",
        "one forward of fixed shape a step, 319 tokens a row (no memory for 575)",
    ]
    assert worst_difference(model, *written) < 1e-5


KEYS, WEIGHTS = 2 * 2 * 4 * 2 * 576 * 8 * 4, 4 * 18_624
"""Bytes: two layers of keys and values in 4 rows of 2 heads, 576 columns and 8 numbers; weights."""


@pytest.mark.parametrize(
    ("spare", "captures", "is_kept"),
    [(KEYS + WEIGHTS, 2, True), (KEYS + WEIGHTS - 1, 4, True), (WEIGHTS - 1, 4, False)],
    ids=["all stays", "keys go", "weights go, too"],
)
def test_an_update_is_given_the_memory_that_it_needs_and_no_more(
    model: Any, card: Card, spare: int, captures: int, is_kept: bool
) -> None:
    """Graphs are captured again only where keys had to go."""

    async def use(engine: HFEngine) -> tuple[bool, Written]:
        steps = engine._steps
        assert steps is not None
        shadow = steps._shadow
        await engine.line(prompt(0), max_tokens=2, seed=0)
        await engine.sleep()
        shake(model)
        await engine.sync((), version=1)
        written = await trajectory(engine, prompt(0), seed=1)
        return steps._shadow is shadow, written

    found, written = run(model, use, spare_bytes=spare)
    assert found is is_kept
    assert len(card.tried) == captures  # of two shapes
    assert worst_difference(model, *written) < 1e-5


@pytest.mark.parametrize(
    ("text", "is_found"), [("out of memory", True), ("invalid argument", False)]
)
def test_what_cuda_finds_no_memory_for_is_a_shortage_too(text: str, is_found: bool) -> None:
    """A graph is no tensor: it is CUDA that has no memory for it, and torch quotes it."""
    assert is_shortage(RuntimeError(f"CUDA error: {text}")) is is_found


def test_a_capture_that_fails_for_another_reason_is_not_tried_again(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def unsupported(self: FixedStep, pool: Any = None) -> None:
        tried.append(self._cache.num_columns)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(FixedStep, "capture", unsupported)

    async def use(engine: HFEngine) -> str:
        return engine.about

    about = asyncio.run(opened_with(model, use))
    assert tried == [576]
    assert about == f"{BY_OP} (operation not permitted when stream is capturing)"


@pytest.mark.parametrize("name", ["gemma2 soft caps", "gpt_oss sinks"])
def test_a_model_that_attends_in_its_own_way_is_sampled_op_by_op(name: str) -> None:
    model = random_model(ARCHITECTURES[name])

    async def use(engine: HFEngine) -> tuple[str, Written]:
        return engine.about, await trajectory(engine, prompt(0), seed=1)

    about, written = asyncio.run(opened_with(model, use))
    assert about == f"{BY_OP} (its attention is its own)"
    assert worst_difference(model, *written) < 1e-5


def test_a_step_that_is_wrong_is_not_used(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first trial of an engine judges its steps, too."""
    own = StepCache.masks
    monkeypatch.setattr(StepCache, "masks", lambda self, at, columns: own(self, at - 1, columns))

    async def use(engine: HFEngine) -> tuple[str, Written]:
        return engine.about, await trajectory(engine, prompt(0), seed=1)

    about, written = asyncio.run(opened_with(model, use))
    assert "log-probabilities are off by" in about
    assert worst_difference(model, *written) < 1e-5


async def opened_with(model: Any, use: Callable[[HFEngine], Awaitable[T]]) -> T:
    engine = HFEngine(model, newline_ids=NEVER, eos_ids=NEVER, num_rows=4, is_fixed=True)
    try:
        return await use(engine)
    finally:
        await engine.aclose()


def test_a_cpu_takes_no_such_steps(model: Any) -> None:
    engine = HFEngine(model, newline_ids=NEVER, eos_ids=NEVER, num_rows=4)
    assert engine._steps is None
    assert engine.about == ""


# What is launched


SHAPES = {"narrow": launches.NARROW, "wide": Shape(WIDE_SLOTS, WIDE, rows=0)}
both_shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
FILLED: dict[str, list[tuple[list[Read], list[Draw]]]] = {
    "narrow": [
        ([Read(1, 0, [5, 6, 7])], [Draw(0, 0, 4, 0.3)]),
        ([Read(2, 9, [1] * 8), Read(4, 40, [8])], [Draw(at, 10 + at, at, 0.9) for at in range(6)]),
        ([], []),
    ],
    "wide": [
        ([Read(1, 0, [5] * 90)], []),
        ([Read(at % 6, 20 + at, [at] * (121 + at)) for at in range(8)], []),
        ([], []),
    ],
}
"""Reads and draws: few, as many as there is room for, and none."""


@pytest.mark.parametrize("name", [*KINDS, "adapter"])
@pytest.mark.parametrize("kind", SHAPES)
def test_ops_and_shapes_do_not_depend_on_what_goes_through(name: str, kind: str) -> None:
    step, view = launches.make_step(make(name), shape=SHAPES[kind])
    seen = []
    with in_view(view):
        step.forward()
    for reads, draws in FILLED[kind]:
        step._lay_out(reads, draws)
        step._input.copy_(step._host)
        with in_view(view), launches.Launches() as launched:
            step.forward()
        seen.append(launched.ops)
    assert seen[0] == seen[1] == seen[2]
    names = {op.name.split(".")[1] for op in seen[0]}
    assert names.isdisjoint({"item", "nonzero", "_local_scalar_dense", "is_nonzero"})


@both_shapes
def test_a_step_copies_once_to_the_device_and_once_back(any_model: Any, shape: Shape) -> None:
    """Nothing comes back from a step in which no row draws."""
    step, _ = launches.make_step(any_model, shape=shape)
    step.launch([], [])
    with launches.Launches() as launched:
        step.launch([Read(1, 0, [5, 6, 7])], [Draw(0, 0, 4, 0.3)] if shape.rows else [])
    num, rows = step._host.numel(), shape.rows
    copies = [op.shapes for op in launched.ops if op.name == "aten.copy_.default"]
    assert copies == [((num,), (num,)), *([((rows, 2), (rows, 2))] if rows else [])]


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "narrow") for name in KINDS), ("gemma3", "wide"), ("gpt2", "wide")],
)
def test_a_step_traces_as_a_whole(name: str, kind: str) -> None:
    """With the same draws, and the same keys and values."""
    torch.compiler.reset()  # it gives up on a function that it has traced for eight other models
    step, view = launches.make_step(make(name), shape=SHAPES[kind])
    reads, draws = FILLED[kind][0]
    step._lay_out(reads, draws)
    step._input.copy_(step._host)
    with in_view(view):
        plain = step.forward()
        written = [one.clone() for one in step._cache.held()]
        step._cache.clear()
        traced = torch.compile(step.forward, fullgraph=True, backend="aot_eager")()
    for one, other in zip(written, step._cache.held(), strict=True):
        assert (one - other).abs().max() < 1e-5
    if plain is not None and traced is not None:
        assert torch.equal(plain[:1, 0], traced[:1, 0])
        assert (plain[:1] - traced[:1]).abs().max() < 1e-5
    assert (plain is None) is (traced is None) is (kind == "wide")


@pytest.mark.parametrize("name", launches.CONFIGS)
def test_a_layer_launches_no_more_than_that_of_transformers(name: str) -> None:
    layer, rest = launches.layer_and_rest(launches.of_step, name)
    static, _ = launches.layer_and_rest(launches.of_static, name)
    assert layer <= (48 if name == "llama" else static + 2)
    assert name != "llama" or rest <= 45
