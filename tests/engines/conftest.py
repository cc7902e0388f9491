"""Models that engine tests sample from."""

from __future__ import annotations

from typing import Any

import pytest

from engine_kit import gpt2, llama, qwen3, random_model


@pytest.fixture(params=[qwen3, llama, gpt2], ids=lambda make: make.__name__)
def any_model(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param)


@pytest.fixture
def model() -> Any:
    return random_model(qwen3)
