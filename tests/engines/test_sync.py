"""Laws of the engine's choice, and of the check that it samples from the weights it was given."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from engine_kit import EOS, NEWLINE, qwen3
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import Engine, EngineWrapper, SampledLine, Weights, engine_kind
from repl_rl.engines.choice import chosen
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.errors import ConfigError, DivergedError, EngineError
from repl_rl.models.loading import LoadedModel
from repl_rl.models.precision import Precision
from repl_rl.testing.under_test import prompt, random_model, shake
from repl_rl.training.runtime import sync

SINGLE = Precision()
HALF = Precision(weights=torch.bfloat16, update=torch.bfloat16, sampling=torch.bfloat16)


class Codec:
    newline_ids = frozenset({NEWLINE})
    eos_ids = frozenset({EOS})


@dataclass
class Off(EngineWrapper):
    """An engine whose log-probabilities are `gap` too high."""

    gap: float

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await super().line(ids, max_tokens=max_tokens, seed=seed)
        return replace(line, logprobs=tuple(one + self.gap for one in line.logprobs))


def load(model: Any, precision: Precision = SINGLE) -> LoadedModel:
    codec: Any = Codec()  # nothing is encoded or decoded
    return LoadedModel(
        name="folder",
        source="folder",
        base="folder",
        config=model.config,
        model=model,
        tokenizer=None,
        codec=codec,
        context_tokens=512,
        precision=precision,
    )


@pytest.fixture
def loaded() -> LoadedModel:
    return load(random_model(qwen3))


def open_engine(model: Any, *, temperature: float = 1.0) -> HFEngine:
    return HFEngine(
        model,
        newline_ids=Codec.newline_ids,
        eos_ids=Codec.eos_ids,
        num_rows=2,
        temperature=temperature,
    )


def gap(
    engine: Engine, loaded: LoadedModel, *, temperature: float = 1.0, version: int = 3
) -> float:
    async def use() -> float:
        try:
            return await sync(engine, loaded, prompt(0), version=version, temperature=temperature)
        finally:
            await engine.aclose()

    return asyncio.run(use())


# Weights


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_an_engine_on_the_models_own_weights_agrees_with_it(
    loaded: LoadedModel, temperature: float
) -> None:
    engine = open_engine(loaded.model, temperature=temperature)
    assert gap(engine, loaded, temperature=temperature) < 1e-5


def test_an_engine_is_told_of_the_step_that_its_weights_are_of(loaded: LoadedModel) -> None:
    engine = open_engine(loaded.model)

    async def use() -> SampledLine:
        await sync(engine, loaded, prompt(0), version=3, temperature=1.0)
        line = await engine.line(prompt(1), max_tokens=1, seed=0)
        await engine.aclose()
        return line

    assert asyncio.run(use()).policy_version == 3


def test_an_engine_that_never_takes_its_weights_is_found_out(loaded: LoadedModel) -> None:
    class Hung(EngineWrapper):
        async def sync(self, weights: Weights, *, version: int) -> None:
            await asyncio.Event().wait()

    engine = Hung(open_engine(loaded.model))

    async def use() -> None:
        try:
            await sync(engine, loaded, prompt(0), version=3, temperature=1.0, timeout_s=0.05)
        finally:
            await engine.aclose()

    with pytest.raises(
        EngineError, match=r"^the engine took more than 0\.05 s for the weights of "
    ):
        asyncio.run(use())


def test_an_engine_with_old_weights_is_found_out(loaded: LoadedModel) -> None:
    engine = open_engine(copy.deepcopy(loaded.model))
    shake(loaded.model)
    with pytest.raises(EngineError, match="does not sample from the weights of step 3: log-prob"):
        gap(engine, loaded)


@pytest.mark.parametrize("is_shared", [True, False])
def test_weights_that_are_no_numbers_are_a_divergence(loaded: LoadedModel, is_shared: bool) -> None:
    """Not the engine's fault, though it refuses these weights, or goes on with what it has."""
    engine = open_engine(loaded.model if is_shared else copy.deepcopy(loaded.model))
    with torch.no_grad():
        loaded.model.get_output_embeddings().weight.fill_(math.nan)
    with pytest.raises(DivergedError, match="training diverged at step 3"):
        gap(engine, loaded)


@pytest.mark.parametrize(
    ("held", "remedy"),
    [
        (Precision(is_shared=False), "as --dtype, or use the engine 'hf', which shares"),
        (Precision(), "its cache reads that model wrongly; use 'vllm'"),
        (Precision(update=torch.bfloat16), "give grpo.dtype = 'float32' to see whether"),
    ],
)
def test_an_engine_at_another_temperature_is_found_out(
    held: Precision, remedy: str, loaded: LoadedModel
) -> None:
    engine = open_engine(loaded.model, temperature=0.1)
    with pytest.raises(EngineError, match=remedy):
        gap(engine, replace(loaded, precision=held))


@pytest.mark.parametrize(("off", "is_found"), [(0.0009, False), (0.0011, True), (math.nan, True)])
def test_in_float32_a_thousandth_of_a_nat_is_too_much(
    loaded: LoadedModel, off: float, is_found: bool
) -> None:
    engine = Off(open_engine(loaded.model), off)
    if is_found:
        with pytest.raises(EngineError, match=rf"differ by {off:.2g} \(root mean square\)"):
            gap(engine, loaded)
    else:
        assert gap(engine, loaded) == pytest.approx(off, abs=1e-5)


@pytest.mark.parametrize(("off", "is_found"), [(0.1, False), (0.3, True)])
def test_in_half_precision_a_fifth_of_a_nat_is(off: float, is_found: bool) -> None:
    loaded = load(random_model(qwen3).to(torch.bfloat16), HALF)
    engine = Off(open_engine(loaded.model), off)
    if is_found:
        with pytest.raises(EngineError, match="differ by"):
            gap(engine, loaded)
    else:
        assert 0.0 < gap(engine, loaded) < 0.2


# Which engine


def make(loaded: LoadedModel, **sampling: Any) -> Engine:
    config = Config(sampling=SamplingConfig(max_in_flight=2, **sampling))
    return chosen(config).kind.open(config, loaded, row_tokens=64)


def test_the_default_engine_samples_with_the_trainers_model(loaded: LoadedModel) -> None:
    engine = make(loaded)
    shake(loaded.model)
    assert isinstance(engine, HFEngine)
    assert gap(engine, loaded) < 1e-5


def test_vllm_that_is_not_installed_is_a_config_error_that_names_what_installs_it(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "vllm" else find(name)
    )
    with pytest.raises(ConfigError, match=r"not installed: run `make vllm` in the"):
        make(loaded, engine="vllm")


def test_an_engine_of_servers_without_a_server_is_a_config_error(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigError, match=r"no server; name some in sampling\.servers"):
        make(loaded, engine="vllm-server")


def test_an_engine_of_servers_takes_the_models_vocabulary(loaded: LoadedModel) -> None:
    """A model of 48 ids: a request with another is refused before a server is asked."""

    async def use() -> None:
        engine = make(loaded, engine="vllm-server", servers=("http://127.0.0.1:9",))
        try:
            await engine.line([48], max_tokens=1, seed=0)
        finally:
            await engine.aclose()

    with pytest.raises(ConfigError, match="the model embeds 48"):
        asyncio.run(use())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "vllm"}, "the starter's heads are too small for vLLM; give --model PATH"),
        ({"engine": "vllm-server", "servers": ("ftp://x",)}, "expected an address such as"),
        (
            {"engine": "vllm-server", "servers": ("http://x",), "temperature": 3.0},
            "a vLLM server takes 0.01 to 2",
        ),
    ],
)
def test_an_engine_that_cannot_be_is_refused_before_a_model_is_read(
    settings: dict[str, Any], message: str
) -> None:
    model = None if settings["engine"] == "vllm" else "somewhere"
    named: dict[str, Any] = {"preset": "starter"} if model is None else {"model": model}
    config = Config(**named, sampling=SamplingConfig(**settings))
    with pytest.raises(ConfigError, match=message):
        engine_kind(config.sampling.engine).check(config)


def test_one_token_that_is_rounded_another_way_is_no_sign_of_other_weights(
    loaded: LoadedModel,
) -> None:
    """1.5e-3 once, then right: the root mean square falls with the number of tokens."""

    class OnceOff(Off):
        async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
            line = await super().line(ids, max_tokens=max_tokens, seed=seed)
            self.gap = 0.0
            return line

    async def use() -> float:
        engine = make(loaded)
        off = OnceOff(engine, 1.5e-3)
        try:
            return await sync(off, loaded, prompt(0), version=0, temperature=1.0)
        finally:
            await engine.aclose()

    assert 1e-4 < asyncio.run(use()) < 1e-3
