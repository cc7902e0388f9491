"""Models that engine tests sample from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from engine_kit import ARCHITECTURES, qwen3, random_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models of this size compute faster than two threads find each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=ARCHITECTURES)
def any_model(request: pytest.FixtureRequest) -> Any:
    return random_model(ARCHITECTURES[request.param])


@pytest.fixture
def model() -> Any:
    return random_model(qwen3)
