"""Run many coroutines, a bounded number at a time, and give each a seed of its own.

A seed depends on names and numbers alone, so the order in which coroutines end changes nothing.
Any room may use it. Knows coroutines. Does not know what they do, nor what they draw.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Start = Callable[[Iterable[Item]], None]


async def run_all(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], *, at_once: int
) -> list[Result]:
    """`function` of every item, in the items' order.

    The first failure ends the others and is raised as itself, not as a group.
    """

    async def alone(item: Item, _: Start[Item]) -> Result:
        return await function(item)

    return await run_growing(alone, items, at_once=at_once)


async def run_growing(
    function: Callable[[Item, Start[Item]], Awaitable[Result]],
    items: Iterable[Item],
    *,
    at_once: int,
) -> list[Result]:
    """Run like `run_all`, but let an item that is under way start others.

    They wait behind all that were there before, and their results stand behind those.
    """
    gate = asyncio.Semaphore(at_once)
    tasks: list[asyncio.Task[Result]] = []

    async def one(item: Item) -> Result:
        async with gate:
            return await function(item, start)

    def start(wanted: Iterable[Item]) -> None:
        tasks.extend(group.create_task(one(item)) for item in wanted)

    try:
        async with asyncio.TaskGroup() as group:
            start(items)
        return [task.result() for task in tasks]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        tasks.clear()  # the functions above name each other, and would keep all results


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers, equal on every machine and Python.

    `hash()` would differ between processes, and one constant seed per request would restart the
    sampler's generator at every line.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3)
    True
    """
    path = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest()) >> 1
