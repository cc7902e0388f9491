"""Trajectories without text or kernel: lines of an engine with random tokens spliced in between.

Knows token ids and log-probabilities. Does not know how an engine was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from typing import Any

import torch

from repl_rl.engines.base import Engine

Written = tuple[list[int], list[float | None]]
"""All ids of a trajectory, and the log-probability of each that was sampled."""


def prompt(seed: int, length: int = 7) -> list[int]:
    """Random ids [length], none of which ends a line of a small model."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(11, 48, (length,), generator=generator).tolist()
    return ids


async def trajectory(
    engine: Engine, ids: Sequence[int], *, seed: int, num_lines: int = 4, max_tokens: int = 12
) -> Written:
    """Lines with observations of several lengths between them."""
    ids = list(ids)
    logprobs: list[float | None] = [None] * len(ids)
    for index in range(num_lines):
        line = await engine.line(ids, max_tokens=max_tokens, seed=1000 * seed + index)
        ids += line.ids
        logprobs += line.logprobs
        observation = prompt(77 * seed + index, 1 + (seed + 3 * index) % 6)
        ids += observation
        logprobs += [None] * len(observation)
        await asyncio.sleep(0.001 * (seed % 3))
    return ids, logprobs


async def trajectories(engine: Engine, count: int, **lengths: int) -> list[Written]:
    """Several at once, after prompts of several lengths."""
    return await asyncio.gather(
        *(trajectory(engine, prompt(i, 4 + i), seed=i, **lengths) for i in range(count))
    )


def worst_difference(
    model: Any,
    ids: Sequence[int],
    logprobs: Sequence[float | None],
    *,
    temperature: float = 1.0,
    forbidden_ids: Set[int] = frozenset(),
) -> float:
    """Largest gap between the engine's log-probabilities and a fresh forward of the same ids."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float() / temperature
    logits[:, sorted(forbidden_ids)] = -torch.inf
    fresh = torch.log_softmax(logits, -1)
    gaps = [
        abs(fresh[at - 1, ids[at]].item() - logprob)
        for at, logprob in enumerate(logprobs)
        if logprob is not None
    ]
    assert gaps
    return max(gaps)
