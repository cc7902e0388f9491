"""Models that engine tests sample from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine_kit import ARCHITECTURES, qwen3
from repl_rl.testing.under_test import one_thread, random_model


@pytest.fixture(autouse=True)
def single_threaded() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(params=ARCHITECTURES)
def any_model(request: pytest.FixtureRequest) -> Any:
    return random_model(ARCHITECTURES[request.param])


@pytest.fixture
def model() -> Any:
    return random_model(qwen3)
