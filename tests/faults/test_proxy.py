"""Clients work behind the proxy as they do without it: addresses, counts, ends of connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.faults import Answer, Corrupt, Cut, Drop, FaultProxy, Hold, Watch
from tests.faults.raw import Raw

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
    proxy: FaultProxy, topic: Any, producer: Any, consumer: Any
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


async def versions(proxy: FaultProxy, request: Any) -> list[int]:
    """Those of an API that both the broker and the codec speak."""
    async with Raw(proxy.bootstrap) as raw:
        answer = await raw.ask(ApiVersionsRequest(), 0)
    for api in answer.api_keys:
        if api.api_key == request.API_KEY:
            lowest = max(api.min_version, request.MIN_VERSION)
            return list(range(lowest, min(api.max_version, request.MAX_VERSION) + 1))
    return []


async def both(proxy: FaultProxy, broker: Any, request: Any, version: int) -> tuple[Any, Any]:
    """The responses through the proxy and without it, with no change of state between them."""
    async with Raw(proxy.bootstrap) as raw, Raw(broker.bootstrap) as direct:
        while True:
            before = await direct.ask(request, version)
            through = await raw.ask(request, version)
            after = await direct.ask(request, version)
            if before == after:
                return through, after


def moved(proxy: FaultProxy, nodes: list[Any], name: str = "node_id") -> None:
    """Give addresses of the proxy to the nodes of a response."""
    for node in nodes:
        if getattr(node, name) >= 0:
            node.host, node.port = proxy.address(getattr(node, name))


async def test_metadata_names_the_proxy_in_every_version(
    proxy: FaultProxy, broker: Any, topic: Any
) -> None:
    await topic(partitions=2)
    spoken = await versions(proxy, MetadataRequest)
    assert len(spoken) >= 6
    for version in spoken:
        request = MetadataRequest(topics=None if version else [])
        through, direct = await both(proxy, broker, request, version)
        assert direct.brokers and through != direct
        moved(proxy, direct.brokers)
        assert through == direct


async def test_coordinators_are_behind_the_proxy_in_every_version(
    proxy: FaultProxy, broker: Any
) -> None:
    spoken = await versions(proxy, FindCoordinatorRequest)
    async with Raw(broker.bootstrap) as raw:
        answer = await raw.ask(FindCoordinatorRequest(key="g"), 0)
        for _ in range(300):  # the first request creates the offsets topic
            if not answer.error_code:
                break
            await asyncio.sleep(0.1)
            answer = await raw.ask(FindCoordinatorRequest(key="g"), 0)
    assert spoken and answer.port > 0
    for version in spoken:
        key: dict[str, Any] = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        through, direct = await both(proxy, broker, FindCoordinatorRequest(**key), version)
        moved(proxy, direct.coordinators if version >= 4 else [direct])
        assert through == direct


async def test_describe_cluster_names_the_proxy_in_every_version(
    proxy: FaultProxy, broker: Any
) -> None:
    for version in await versions(proxy, DescribeClusterRequest):
        through, direct = await both(proxy, broker, DescribeClusterRequest(), version)
        assert direct.brokers
        moved(proxy, direct.brokers, "broker_id")
        assert through == direct


async def test_nodes_are_known_from_the_beginning(proxy: FaultProxy, broker: Any) -> None:
    async with Raw(proxy.bootstrap) as raw:
        answer = await raw.ask(MetadataRequest(topics=[]), 1)
        nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        [session] = proxy.sessions()
        assert session.node in nodes
        assert proxy.sessions(session.node) == [session] and proxy.sessions(77) == []
    async with FaultProxy(broker.bootstrap, learn=False) as late:
        assert late.bootstrap != proxy.bootstrap
        async with Raw(late.bootstrap) as raw:
            raw.say()
            await raw.frame()
            [session] = late.sessions()
            assert session.node is None
            await raw.ask(MetadataRequest(topics=[]), 1)
            assert session.node in nodes


async def test_brokers_are_learned_on_the_way(broker: Any, topic: Any) -> None:
    name = await topic(partitions=12)
    async with (
        FaultProxy(broker.bootstrap.split(",")[0], learn=False) as proxy,
        kclient.Producer(proxy.bootstrap) as out,
    ):
        await asyncio.gather(*(out.send(name, b"v", partition=i) for i in range(12)))
        nodes = [s.node for s in proxy.sessions() if s.requests[PRODUCE]]
        assert len(nodes) == len(set(nodes)) == (3 if broker.kind == "embedded" else 1)
        assert proxy.in_flight("Produce") == 0 < proxy.requests[PRODUCE]


async def test_a_held_response_comes_when_it_is_released(
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
    assert proxy.in_flight("Produce", session.node) == 1
    session.cut()
    assert proxy.cuts == 5 and session not in proxy.sessions()
    assert (await delivery).offset in (4, -1)


async def test_a_dropped_response_is_of_a_record_in_the_log(
    proxy: FaultProxy, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    dropped = proxy.add(Drop("Produce", then="cut"))
    watch = proxy.add(Watch("Produce"))
    await out.send(name, b"v")
    await out.send(name, b"w")
    assert dropped.hits == 1 and proxy.cuts == 1
    assert len(watch.seen) == 3  # the first one twice
    assert await values_of(await consumer(name, **READ), 2) == [b"v", b"w"]


async def test_a_response_that_a_rule_makes(proxy: FaultProxy, topic: Any, producer: Any) -> None:
    def refuse(request: Any) -> ProduceResponse:
        [asked] = request.topic_data
        part = PartitionProduceResponse(index=0, error_code=10)
        return ProduceResponse([TopicProduceResponse(asked.name, asked.topic_id, [part])])

    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    rule = proxy.add(Answer("Produce", refuse))
    with pytest.raises(kclient.errors.MessageTooLarge):
        await out.send(name, b"v")
    assert rule.hits == 1 and proxy.requests[PRODUCE] == 0


async def test_rules_for_one_topic_leave_others_alone(
    proxy: FaultProxy, topic: Any, producer: Any, consumer: Any
) -> None:
    one, other = await topic(partitions=2), await topic(partitions=2)
    out = await producer(bootstrap=proxy.bootstrap)
    asked = proxy.add(Watch("Produce", topic=one, partition=1))
    reported = proxy.add(Watch("Produce", on="answer", topic=one))
    for name in (one, other):
        for partition in (0, 1):
            await out.send(name, b"v", partition=partition)
    assert (asked.hits, reported.hits) == (1, 2)
    fetched = proxy.add(Watch("Fetch", on="answer", topic=other, partition=0))
    await values_of(await consumer(one, bootstrap=proxy.bootstrap, **READ), 2)
    assert fetched.hits == 0
    await values_of(await consumer(other, bootstrap=proxy.bootstrap, **READ), 2)
    assert fetched.hits >= 1


async def test_a_corrupt_batch_is_refused_by_the_broker(
    proxy: FaultProxy, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap)
    reported = proxy.add(Watch("Produce", on="answer"))
    rule = proxy.add(Corrupt("Produce", topic=name))
    await out.send(name, b"v")
    assert rule.hits == 1 and len(reported.seen) == 2
    [part] = reported.seen[0].responses[0].partition_responses
    assert part.error_code == 2  # CORRUPT_MESSAGE
    assert await values_of(await consumer(name, **READ), 1) == [b"v"]


async def test_a_corrupt_batch_is_not_given_to_a_consumer(
    proxy: FaultProxy, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer()
    await out.send(name, b"v")
    rule = proxy.add(Corrupt("Fetch", topic=name, partition=0, times=None))
    back = await consumer(name, bootstrap=proxy.bootstrap, **READ)
    with pytest.raises(kclient.errors.CorruptRecord):
        await values_of(back, 1)
    assert rule.hits >= 1
    proxy.clear()
    assert await values_of(await consumer(name, bootstrap=proxy.bootstrap, **READ), 1) == [b"v"]


async def test_no_request_waits_for_a_response_without_acks(
    proxy: FaultProxy, topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap, acks=0, idempotence=False)
    for i in range(3):
        await out.send(name, b"%d" % i)
    await proxy.until(lambda: proxy.requests[PRODUCE] >= 3)
    assert proxy.in_flight("Produce") == proxy.answers[PRODUCE] == 0
    assert len(await values_of(await consumer(name, **READ), 3)) == 3


async def test_a_close_by_the_broker_is_seen_behind_what_it_sent_before() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(b"\0\0\0\x08\0\0\0\x01tail")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, FaultProxy(f"127.0.0.1:{port}", learn=False) as proxy:
        rule = proxy.add(Hold("ApiVersions"))
        async with Raw(proxy.bootstrap) as raw:
            raw.say()
            await rule.reached()
            assert await raw.before_silence(0) == b""
            rule.release()
            assert await raw.rest() == b"\0\0\0\x08\0\0\0\x01tail"
        assert proxy.cuts == 0


async def test_without_a_broker_connections_end_and_a_proxy_raises() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionError, match=address):
        async with FaultProxy(address):
            pass
    async with FaultProxy(address, learn=False) as proxy, Raw(proxy.bootstrap) as raw:
        raw.say()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await raw.frame()


async def test_leaving_it_closes_all_connections(broker: Any) -> None:
    async with FaultProxy(broker.bootstrap) as proxy:
        held = proxy.add(Hold("ApiVersions"))
        async with Raw(proxy.bootstrap) as raw:
            raw.say()
            await held.reached()
            await proxy.close()
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await raw.frame()
            assert proxy.sessions() == []


async def test_waiting_for_what_never_comes_ends(proxy: FaultProxy) -> None:
    with pytest.raises(TimeoutError):
        await proxy.until(lambda: proxy.requests[PRODUCE], timeout=0.01)
