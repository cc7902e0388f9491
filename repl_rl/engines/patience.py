"""How long an engine is waited for.

Knows clocks. Does not know what the engine is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from repl_rl.errors import EngineError


@contextlib.asynccontextmanager
async def answered_within(limit_s: float, what: str) -> AsyncIterator[None]:
    """EngineError if the block takes longer: the engine hangs. What it waits for is cancelled."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # the engine's own
        raise EngineError(
            f"the engine took more than {limit_s:g} s for {what} and counts as hung; see its log, "
            f"or give it longer with sampling.engine_timeout_s"
        ) from None
