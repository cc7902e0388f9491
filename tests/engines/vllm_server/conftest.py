"""Real vLLM servers of a random model whose output layer is its embedding."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from repl_rl.testing.under_test import small_model
from vllm_serve import Farm, serving, small_server


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Started once, all at the same time: half a minute on two cores."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    folder = tmp_path_factory.mktemp("served")
    small_model(is_tied=True).save_pretrained(folder / "model")
    model = folder / "model"
    pair = [small_server(model, folder / f"{index}.log") for index in range(2)]
    raw = small_server(model, folder / "raw.log", flags=())
    with serving(*pair, raw) as urls:
        yield Farm(model, urls[:2], urls[2])


@pytest.fixture
def policy(farm: Farm) -> Any:
    """The served model, to be trained."""
    return AutoModelForCausalLM.from_pretrained(farm.folder).eval()
