"""Laws of `repl-rl worker` on its own: rows from whoever started it."""

from __future__ import annotations

import asyncio
import io

import pytest

from repl_rl.commands.worker import Rows
from repl_rl.errors import ConfigError
from repl_rl.rollout.workers import Order


def next_of(sent: bytes) -> Order | None:
    async def inside() -> Order | None:
        orders = asyncio.StreamReader()
        orders.feed_data(sent)
        orders.feed_eof()
        return await Rows(orders, io.BytesIO()).next()

    return asyncio.run(inside())


@pytest.mark.parametrize(
    "sent", [b"ls\n", b"[]\n", b'{"number": "one"}\n', b'{"adopt": ["\xff", 1]}\n']
)
def test_a_row_that_is_no_order_is_refused_in_a_line(sent: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^stdin has a row that is no order: "):
        next_of(sent)


@pytest.mark.parametrize("sent", [b"", b'{"number": 1'])
def test_a_trainer_that_is_gone_leaves_no_order_nor_half_of_one(sent: bytes) -> None:
    assert next_of(sent) is None
