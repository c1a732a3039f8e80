"""The proxy does what its rules say, before the broker under test."""

from __future__ import annotations

import asyncio
from typing import Any

import kclient
from kclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.faults import Answer, Cut, Drop, FaultProxy, Hold

READ: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.05}
PRODUCE, FETCH = 0, 1


async def values_of(consumer: Any, count: int) -> list[bytes]:
    """Poll until so many values came."""
    values: list[bytes] = []
    async with asyncio.timeout(30.0):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(timeout=1.0)]
    return values


async def test_all_goes_through_the_proxy(
    proxy: FaultProxy, broker: Any, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic(partitions=3)
    out = await producer(bootstrap=proxy.bootstrap)
    for i in range(30):
        await out.send(name, b"%d" % i, partition=i % 3)
    back = await consumer(name, bootstrap=proxy.bootstrap, **READ)
    assert sorted(await values_of(back, 30)) == sorted(b"%d" % i for i in range(30))
    assert proxy.requests[PRODUCE] == proxy.answers[PRODUCE] >= 3
    assert proxy.requests[FETCH] >= 1
    assert proxy.in_flight("Produce") == 0


async def test_a_held_answer_comes_when_it_is_released(
    proxy: FaultProxy, topic: Any, producer: Any
) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    held = proxy.add(Hold("Produce"))
    delivery = out.send(name, b"v")
    await held.reached()
    assert held.held == 1 and proxy.in_flight("Produce") == 1
    assert not delivery.done()
    held.release()
    assert (await delivery).offset == 0
    assert held.held == 0 and proxy.in_flight("Produce") == 0


async def test_a_held_request_has_not_reached_the_broker(
    proxy: FaultProxy, topic: Any, producer: Any
) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    held = proxy.add(Hold("Produce", on="request"))
    delivery = out.send(name, b"v")
    await held.reached()
    assert held.held == 1 and proxy.in_flight("Produce") == proxy.requests[PRODUCE] == 0
    held.release()
    assert (await delivery).offset == 0


async def test_a_cut_is_survived_and_counted(proxy: FaultProxy, topic: Any, producer: Any) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    for at in (0, 7, 0.5, None):
        proxy.add(Cut("Produce", at=at))
        await out.send(name, b"v")
    assert proxy.cuts == 4
    held = proxy.add(Hold("Produce"))
    delivery = out.send(name, b"v")
    await held.reached()
    [session] = [one for one in proxy.sessions() if one.in_flight("Produce")]
    session.cut()
    assert proxy.cuts == 5 and session not in proxy.sessions()
    held.release()
    assert (await delivery).offset in (4, -1)


async def test_a_dropped_answer_is_of_a_record_in_the_log(
    proxy: FaultProxy, broker: Any, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    dropped = proxy.add(Drop("Produce", then="cut"))
    await out.send(name, b"v")
    await out.send(name, b"w")
    assert dropped.hits == 1 and proxy.cuts == 1
    assert await values_of(await consumer(name, **READ), 2) == [b"v", b"w"]


async def test_an_answer_of_our_own(proxy: FaultProxy, topic: Any, producer: Any) -> None:
    def refuse(request: Any) -> ProduceResponse:
        [asked] = request.topic_data
        part = PartitionProduceResponse(index=0, error_code=10)
        return ProduceResponse([TopicProduceResponse(asked.name, asked.topic_id, [part])])

    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    rule = proxy.add(Answer("Produce", refuse))
    delivery = out.send(name, b"v")
    await asyncio.wait([asyncio.ensure_future(delivery)])
    assert isinstance(delivery.exception(), kclient.errors.MessageTooLarge)
    assert rule.hits == 1 and proxy.requests[PRODUCE] == 0
