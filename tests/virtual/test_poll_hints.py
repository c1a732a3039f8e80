"""The advice that a running consumer gets where a call can't work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.errors import InvalidArgument, NoPosition
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import P, T, fill
from tests.virtual.group_scene import GROUP, SETTINGS


@asynccontextmanager
async def member(*topics: str) -> AsyncIterator[Any]:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 5, 2)
        async with kclient.Consumer(
            cluster.bootstrap, *topics, group=GROUP, **SETTINGS
        ) as consumer:
            yield consumer


def refusal(call: Any, *given: Any, **named: Any) -> str:
    with pytest.raises(InvalidArgument) as refused:
        call(*given, **named)
    return str(refused.value)


def test_a_member_without_topics_that_polls_is_advised_to_subscribe() -> None:
    async def main() -> None:
        async with member() as consumer:
            with pytest.raises(NoPosition, match=r"call subscribe\(\) or assign\(\)"):
                await consumer.poll()
            assert "subscribe()" in refusal(consumer.seek, P, 1)
            consumer.subscribe(T)
            await consumer.poll(timeout=10.0)
            await consumer.unsubscribe()
            with pytest.raises(NoPosition, match=r"call subscribe\(\) or assign\(\)"):
                await consumer.poll()

    run_virtually(main())


def test_a_member_of_a_group_is_not_sent_to_assign() -> None:
    async def main() -> None:
        async with member(T) as consumer:
            await consumer.poll(timeout=10.0)
            other = ("another", 0)
            with pytest.raises(InvalidArgument) as refused:
                await consumer.position(other)
            texts = [
                str(refused.value),
                refusal(consumer.seek, other, 1),
                refusal(consumer.pause, other),
                refusal(consumer.lag, other),
            ]
            for text in texts:
                assert "another-0 is not assigned" in text
                assert "on_assigned" in text
                assert "assign()" not in text

    run_virtually(main())


def test_the_call_that_is_refused_is_the_one_that_is_named() -> None:
    async def main() -> None:
        async with member(T) as consumer:
            assert refusal(consumer.unassign).startswith("unassign() can't be used")
            assert refusal(consumer.assign, [P]).startswith("assign() can't be used")
            assert "`subscribe(*topics)`" in refusal(consumer.subscribe, [T])
            assert "names of topics or a pattern" in refusal(consumer.subscribe)
            assert "give topics or a pattern, not both" in refusal(
                consumer.subscribe, T, pattern="f.*"
            )

    run_virtually(main())
