"""The engine that `sampling.engine = "auto"` comes to, and what becomes of one that fails."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import torch

from repl_rl.config import Config
from repl_rl.config.resolve import resolve, to_toml
from repl_rl.engines import choice
from repl_rl.engines.base import Engine, EngineWrapper, SampledLine, Weights
from repl_rl.engines.choice import chosen
from repl_rl.engines.hf import HF
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.engines.vllm.engine import VLLM
from repl_rl.errors import ConfigError, EngineError
from repl_rl.models.loading import LoadedModel, load_model
from repl_rl.models.precision import Precision
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.training.runtime import open_runtime
from small_run import small_settings
from tiny_model import save_tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """A machine with a driver, a GPU and vLLM; a test takes away what it names."""
    there = {"driver", "GPU", "vllm"}
    find: Callable[..., ModuleSpec | None] = importlib.util.find_spec

    def found(name: str, *more: Any) -> ModuleSpec | None:
        if name != "vllm":
            return find(name, *more)
        return ModuleSpec("vllm", None) if name in there else None

    monkeypatch.setattr(importlib.util, "find_spec", found)
    monkeypatch.setattr(choice, "has_driver", lambda: "driver" in there)
    monkeypatch.setattr(choice, "sees_gpu", lambda: "GPU" in there)
    return there


@pytest.mark.usefixtures("installed")
def test_on_a_gpu_auto_is_vllm_where_it_is_installed() -> None:
    kind, why = chosen(resolve(overrides=["model=MODEL"]))
    assert (kind.name, why) == ("vllm", "vLLM is installed, and there is a GPU")


@pytest.mark.parametrize(
    ("missing", "overrides", "why"),
    [
        ("driver", ["model=M"], "no NVIDIA GPU"),
        ("GPU", ["model=M"], "torch sees no GPU"),
        ("vllm", ["model=M"], "vLLM is not installed"),
        (None, [], "the starter's heads are too small for vLLM"),
        (None, ["model=M", "sampling.device=cpu"], "sampling.device = 'cpu'"),
        (
            None,
            ["model=M", "sampling.temperature=0"],
            "sampling.temperature = 0 needs the engine 'hf', not 'vllm'",
        ),
        (
            None,
            ["model=M", "sampling.run_on=forbid"],
            "vLLM forbids few tokens, and sampling.run_on = 'forbid'",
        ),
    ],
)
def test_auto_is_hf_for_a_reason(
    installed: set[str], missing: str | None, overrides: Sequence[str], why: str
) -> None:
    installed -= {missing}
    kind, found = chosen(resolve(overrides=overrides))
    assert (kind.name, found) == ("hf", why)


@pytest.mark.usefixtures("installed")
def test_under_a_launcher_auto_is_hf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "num_processes", lambda: 2)
    assert chosen(resolve(overrides=["model=M"]))[1] == (
        "the engine 'vllm' needs a single process, but a launcher has started several"
    )


@pytest.mark.usefixtures("installed")
def test_servers_that_are_listed_are_the_engine() -> None:
    listed = ["model=M", 'sampling.servers=["http://a:8000"]']
    assert chosen(resolve(overrides=listed))[0].name == "vllm-server"
    assert chosen(resolve(overrides=[*listed, "sampling.engine=hf"]))[0].name == "hf"


@pytest.mark.usefixtures("installed")
def test_an_engine_that_a_person_names_has_no_reason() -> None:
    kind, why = chosen(resolve(overrides=["model=M", "sampling.engine=hf"]))
    assert (kind.name, why) == ("hf", "")


def test_without_a_driver_nobody_asks_torch(
    installed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> bool:
        raise AssertionError("torch takes a second to load")

    monkeypatch.setattr(choice, "sees_gpu", asked)
    installed.remove("driver")
    chosen(resolve(overrides=["model=M"]))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("given", ["auto", "hf", "vllm"])
def test_a_plan_keeps_the_engine_that_it_came_to(given: str) -> None:
    plan = make_plan(resolve(overrides=["model=M", f"sampling.engine={given}"]))
    name = "vllm" if given == "auto" else given
    assert (plan.engine.name, plan.config.sampling.engine) == (name, name)
    assert plan.about_engine == (
        "vllm (vLLM is installed, and there is a GPU)" if given == "auto" else name
    )


@pytest.mark.usefixtures("installed")
def test_an_engine_that_auto_came_to_is_chosen_anew_for_other_sampling() -> None:
    plan = make_plan(resolve(overrides=["model=M"]))
    greedy = plan.sampling_as(replace(plan.sampling, temperature=0.0))
    assert (greedy.engine.name, greedy.config.sampling.engine) == ("hf", "hf")
    named = make_plan(resolve(overrides=["model=M", "sampling.engine=vllm"]))
    with pytest.raises(ConfigError, match="needs the engine 'hf', not 'vllm'"):
        named.sampling_as(replace(named.sampling, temperature=0.0))


@pytest.mark.parametrize(
    ("given", "hint"),
    [("atuo", "did you mean 'auto'?"), ("sglang", "known: auto, hf, vllm, vllm-server")],
)
def test_an_unknown_engine_is_answered_with_auto_among_the_others(given: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chosen(resolve(overrides=[f"sampling.engine={given}"]))
    assert str(refused.value) == f"unknown engine '{given}'; {hint} (or give module:attribute)"


# What fails when it opens


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    types = Precision(is_shared=False)
    return load_model(str(folder), device=torch.device("cpu"), precision=types)


def plan_for(loaded: LoadedModel, engine: str) -> Plan:
    """As on a GPU, though the model is on a CPU."""
    overrides = [*small_settings(sampling__device="auto"), f"sampling.engine={engine}"]
    return make_plan(resolve(flags={"model": loaded.name}, overrides=overrides))


class Stale(EngineWrapper):
    """Says that it is sure of each token."""

    is_closed = False

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await super().line(ids, max_tokens=max_tokens, seed=seed)
        return replace(line, logprobs=(0.0,) * len(line.ids))

    async def aclose(self) -> None:
        self.is_closed = True
        await super().aclose()


def cannot_open(kind: VLLM, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
    raise ConfigError("the engine 'vllm' cannot serve 'M': no kernel")


@pytest.mark.kernel
@pytest.mark.usefixtures("installed")
def test_where_vllm_does_not_open_auto_samples_with_hf_and_says_why(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VLLM, "open", cannot_open)
    with open_runtime(plan_for(loaded, "auto"), loaded) as runtime:
        assert isinstance(runtime.engine.engine, HFEngine)
        assert runtime.about_engine.startswith(
            "hf (the engine 'vllm' cannot serve 'M': no kernel): 4 trajectories at once"
        )
        assert runtime.plan.engine.name == "hf"
        assert 'engine = "hf"' in runtime.origin.config
        assert runtime.loaded.precision.is_shared


@pytest.mark.kernel
@pytest.mark.usefixtures("installed")
def test_where_vllm_samples_from_other_weights_auto_samples_with_hf(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Stale] = []

    def open_stale(kind: VLLM, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        opened.append(Stale(HF().open(config, loaded, row_tokens=row_tokens)))
        return opened[-1]

    monkeypatch.setattr(VLLM, "open", open_stale)
    with open_runtime(plan_for(loaded, "auto"), loaded) as runtime:
        assert isinstance(runtime.engine.engine, HFEngine)
        assert opened[0].is_closed
        assert "hf (the engine does not sample from the weights of step 0" in runtime.about_engine
    with (
        pytest.raises(EngineError, match="does not sample from the weights"),
        open_runtime(plan_for(loaded, "vllm"), loaded),
    ):
        raise AssertionError("it has opened")


@pytest.mark.kernel
@pytest.mark.usefixtures("installed")
def test_a_vllm_that_failed_is_gone_when_hf_opens(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold a GPU's memory, of which the engine `hf` then has less."""
    failed: list[weakref.ref[Engine]] = []
    open_hf = HF.open

    def open_stale(kind: VLLM, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        stale = Stale(open_hf(HF(), config, loaded, row_tokens=row_tokens))
        failed.append(weakref.ref(stale))
        return stale

    def open_after(kind: HF, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        assert [one() for one in failed] == [None]
        return open_hf(kind, config, loaded, row_tokens=row_tokens)

    monkeypatch.setattr(VLLM, "open", open_stale)
    monkeypatch.setattr(HF, "open", open_after)
    with open_runtime(plan_for(loaded, "auto"), loaded) as runtime:
        assert runtime.plan.engine.name == "hf"


@pytest.mark.usefixtures("installed")
def test_where_the_vllm_that_a_person_named_does_not_open_nothing_takes_its_place(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VLLM, "open", cannot_open)
    with (
        pytest.raises(ConfigError, match="no kernel"),
        open_runtime(plan_for(loaded, "vllm"), loaded),
    ):
        raise AssertionError("it has opened")


def test_a_failure_of_hf_itself_is_no_choice(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(kind: HF, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        raise ConfigError("the engine 'hf' cannot go on")

    monkeypatch.setattr(HF, "open", fail)
    with (
        pytest.raises(ConfigError, match="cannot go on"),
        open_runtime(plan_for(loaded, "auto"), loaded),
    ):
        raise AssertionError("it has opened")


# Runs


@pytest.mark.kernel
def test_an_engine_that_goes_on_in_another_way_is_said_once(loaded: LoadedModel) -> None:
    said: list[str] = []
    with open_runtime(plan_for(loaded, "hf"), loaded, say=said.append) as runtime:
        engine = runtime.engine.engine
        assert isinstance(engine, HFEngine)
        engine._do_without_steps(RuntimeError("CUDA out of memory. Tried\nto allocate"))
        runtime.sync(0)
        runtime.sync(0)
    expected = "no CUDA graph, so each op is launched by itself (CUDA out of memory. Tried)"
    assert said == [f"engine: from here on {expected}"]


@pytest.mark.kernel
def test_what_the_first_weights_decide_stands_in_the_engines_row_and_is_not_said_again(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deciding(EngineWrapper):
        about = ""

        async def sync(self, weights: Weights, *, version: int) -> None:
            self.about = "they come by themselves"
            await super().sync(weights, version=version)

    open_hf = HF.open

    def open_deciding(kind: HF, config: Config, loaded: LoadedModel, *, row_tokens: int) -> Engine:
        return Deciding(open_hf(kind, config, loaded, row_tokens=row_tokens))

    monkeypatch.setattr(HF, "open", open_deciding)
    said: list[str] = []
    with open_runtime(plan_for(loaded, "hf"), loaded, say=said.append) as runtime:
        runtime.sync(0)
        assert runtime.about_engine.endswith("; they come by themselves")
    assert said == []


def test_a_run_that_goes_on_keeps_its_engine_or_is_refused(
    installed: set[str], tmp_path: Path
) -> None:
    saved = to_toml(make_plan(resolve(overrides=["model=M"])).config)
    assert 'engine = "vllm"' in saved
    installed -= {"vllm"}
    with pytest.raises(
        ConfigError, match=r"needs vLLM, which is not installed: .*; or give --engine hf"
    ):
        make_plan(resolve(saved=saved))
    installed |= {"vllm"}
    saved = to_toml(make_plan(resolve(overrides=["model=M", "sampling.device=cpu"])).config)
    assert make_plan(resolve(saved=saved)).engine.name == "hf"
