"""Wait for many things at once, a bounded number at a time.

Knows coroutines; does not know what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def run_all(
    function: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    *,
    at_once: int,
    more: Callable[[Result], Sequence[Item]] = lambda _: (),
) -> list[Result]:
    """`function` of every item, in the items' order.

    `more` says which items a result asks for: they wait behind all others, and their results stand
    behind those. The first failure ends the others and is raised as itself, not as a group.
    """
    gate = asyncio.Semaphore(at_once)
    tasks: list[asyncio.Task[Result]] = []

    async def one(item: Item) -> Result:
        async with gate:
            result = await function(item)
        start(more(result))
        return result

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
