"""Waiters inside a client wake in the order of arrival.

That is fair, and the same in every process: an order by memory address would make each run of
the same seed differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kclient.errors import ClientClosed
from tests.unit.cluster.test_calls import Stage
from tests.unit.cluster.virtual import run, turns

WAITERS = 100


async def woken(waits: list[Coroutine[Any, Any, object]]) -> list[int]:
    """Return the numbers of the waiters that have ended, in that order."""
    order: list[int] = []
    # Objects created in between spread the futures over memory.
    kept: list[object] = []

    async def wait(number: int, what: Coroutine[Any, Any, object]) -> None:
        kept.append([object() for _ in range(number % 7)])
        try:
            await what
        except ClientClosed:
            order.append(number)

    for number, what in enumerate(waits):
        kept.append(asyncio.create_task(wait(number, what)))
    await turns()
    assert not order
    return order


def test_waiters_for_metadata_are_woken_in_the_order_of_arrival() -> None:
    async def main() -> None:
        metadata = Stage(lambda node: None).metadata
        order = await woken([metadata.wait_newer(0, 60.0) for _ in range(WAITERS)])
        metadata.end(ClientClosed("closed"))
        await turns()
        assert order == list(range(WAITERS))

    run(main())


def test_calls_that_back_off_are_woken_in_the_order_of_arrival() -> None:
    async def main() -> None:
        calls = Stage(lambda node: None).calls
        order = await woken([calls.pause(60.0) for _ in range(WAITERS)])
        calls.end(ClientClosed("closed"))
        await turns()
        assert order == list(range(WAITERS))

    run(main())
