"""Laws of an open plan: one owner closes what it opened, however far it came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError
from repl_rl.records import Problem
from repl_rl.rollout import env
from repl_rl.rollout.env import Env
from repl_rl.rollout.plan import TaskPlan, make_task_plan
from repl_rl.rollout.scoring import Scorer
from repl_rl.transcript.format import PYTHON

PROBLEM = Problem(id="p", statement="What is 1 + 1?")


class Kernels:
    """A pool, and its only kernel."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def __aenter__(self) -> Kernels:
        self.told.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.told.append("closed")

    async def acquire(self, *, seed: int) -> Kernels:
        self.told.append(f"kernel {seed}")
        return self

    async def aclose(self) -> None:
        self.told.append("kernel closed")


@contextlib.asynccontextmanager
async def no_grader(_: TaskPlan) -> AsyncIterator[Scorer]:
    raise ConfigError("no grader")
    yield


@pytest.fixture
def plan() -> TaskPlan:
    return make_task_plan(resolve())


def test_kernels_are_closed_where_no_grader_starts(
    plan: TaskPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels: Any = Kernels()
    monkeypatch.setattr(env, "open_scorer", no_grader)

    async def opened() -> None:
        async with Env(plan, PYTHON, kernels=kernels):
            raise AssertionError("it is open")

    with pytest.raises(ConfigError, match="no grader"):
        asyncio.run(opened())
    assert kernels.told == ["opened", "closed"]


def test_an_episode_that_cannot_begin_gives_its_kernel_back(plan: TaskPlan) -> None:
    kernels: Any = Kernels()

    async def begun() -> None:
        ungraded = replace(plan, is_graded=False)
        async with Env(ungraded, PYTHON, kernels=kernels) as opened:
            await opened.episode(PROBLEM, seed=3, context_tokens=1)

    with pytest.raises(ConfigError, match="context holds 1"):
        asyncio.run(begun())
    assert kernels.told == ["opened", "kernel 3", "kernel closed", "closed"]
