"""Wait for many things at once, a bounded number at a time.

Knows coroutines; does not know what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def run_all(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], *, at_once: int
) -> list[Result]:
    """`function` of every item, in the items' order.

    The first failure ends the others and is raised as itself, not as a group.
    """
    gate = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Result:
        async with gate:
            return await function(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
