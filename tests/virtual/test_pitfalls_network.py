"""Pitfalls of connections: whole clients on virtual time, and peers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

import kclient
from kclient.errors import BootstrapFailed, RequestTimedOut
from kclient.hooks import Throttled
from kclient.protocol.messages.api_versions import ApiVersionsResponse
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, MemoryNet, run_virtually
from kclient.testing.memory_link import Direction
from tests.virtual.relay import (
    Asked,
    Relay,
    Session,
    Watcher,
    core_of,
    network,
    now,
    numbers,
    sent_in_order,
    values,
)

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18


def reasons(watcher: Watcher) -> str:
    return "\n".join(event.reason for event in watcher.closed)


# 15: responses come in order; one that doesn't fit closes the connection


async def test_pitfall_15_swapped_responses_close_the_connection() -> None:
    held: list[tuple[Asked, bytes]] = []

    def swap(session: Session, asked: Asked, frame: bytes) -> Iterable[bytes]:
        if asked.api_key != PRODUCE or len(held) == 2:
            return [frame]
        held.append((asked, frame))
        return [] if len(held) == 1 else [held[1][1], held[0][1]]

    watcher = Watcher()
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t", partitions=2)
        async with kclient.Producer(cluster.bootstrap, linger=0.0, observers=[watcher]) as producer:
            for partition in (0, 1):
                await producer.send("t", b"first", partition=partition)
            relay.on_answer = swap
            one = producer.send("t", b"one", partition=0)
            await asyncio.sleep(0)
            two = producer.send("t", b"two", partition=1)
            metas = [await one, await two]
        assert len(held) == 2
        assert held[0][0].correlation_id != held[1][0].correlation_id
        assert f"came with correlation id {held[1][0].correlation_id}" in reasons(watcher)
        assert [(meta.partition, meta.offset) for meta in metas] == [(0, 1), (1, 1)]
        assert values(cluster, "t", 0) == [b"first", b"one"]
        assert values(cluster, "t", 1) == [b"first", b"two"]


@pytest.mark.parametrize("wrong", [b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
async def test_pitfall_15_a_wrong_correlation_id_closes_the_connection(wrong: bytes) -> None:
    spoiled: list[int] = []

    def spoil(session: Session, asked: Asked, frame: bytes) -> Iterable[bytes]:
        if asked.api_key == PRODUCE and not spoiled:
            spoiled.append(asked.correlation_id)
            return [wrong + frame[4:]]
        return [frame]

    watcher = Watcher()
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, observers=[watcher]) as producer:
            relay.on_answer = spoil
            await sent_in_order(producer, 3)
        assert "came with correlation id" in reasons(watcher)
        assert values(cluster) == numbers(3)


async def test_pitfall_15_an_unsolicited_response_closes_the_connection() -> None:
    watcher = Watcher()
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, observers=[watcher]) as producer:
            await sent_in_order(producer, 1)
            relay.sessions[-1].say(b"\x00\x00\x00\x07nonsense")
            await asyncio.sleep(1.0)
            assert "but no request waits" in reasons(watcher)
            await sent_in_order(producer, 2, first=1)
        assert values(cluster) == numbers(3)


# 61: ApiVersions in a version that the broker doesn't know, and other versions after a reconnect


@pytest.mark.parametrize("highest", [0, 1, 2, 3])
async def test_pitfall_61_an_older_apiversions_is_negotiated_down(highest: int) -> None:
    """The error response is written in version 0 and lists ApiVersions only (KIP-511)."""
    refusals: list[bytes] = []

    def note(session: Session, asked: Asked, frame: bytes) -> Iterable[bytes]:
        if asked.api_key == API_VERSIONS and asked.version > highest:
            refusals.append(frame)
        return [frame]

    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        relay.on_answer = note
        cluster.brokers[1].speak("ApiVersions", 0, highest)
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap) as producer:
            await sent_in_order(producer, 2)
        said = ApiVersionsResponse.decode(memoryview(refusals[0]), 0, 4)
        assert said.error_code == 35
        assert [key.api_key for key in said.api_keys] == [API_VERSIONS]
        asked = {one.version for one in relay.asked(API_VERSIONS)}
        assert asked == {4, highest}
        assert values(cluster) == numbers(2)


async def test_pitfall_61_an_error_response_that_lists_nothing_leads_to_version_0() -> None:
    """Brokers before 2.4 respond so."""

    def refuse(session: Session, asked: Asked, frame: bytes) -> Iterable[bytes]:
        if asked.api_key == API_VERSIONS and asked.version > 0:
            return [frame[:4] + b"\x00\x23" + b"\x00\x00\x00\x00"]
        return [frame]

    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        relay.on_answer = refuse
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap) as producer:
            await sent_in_order(producer, 2)
        assert {one.version for one in relay.asked(API_VERSIONS)} == {4, 0}
        assert values(cluster) == numbers(2)


async def test_pitfall_61_versions_are_negotiated_again_on_every_reconnect() -> None:
    """A roll down and up again: what a broker spoke before its restart means nothing."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(
                cluster.bootstrap, "t", auto_offset_reset="earliest", fetch_max_wait=0.1
            ) as consumer,
        ):
            spoken, read = [], []
            for turn, highest in enumerate([(13, 18), (7, 4), (9, 12), (3, 8), (13, 18)]):
                cluster.brokers[1].speak("Produce", 3, highest[0])
                cluster.brokers[1].speak("Fetch", 4, highest[1])
                await cluster.crash(1)
                await cluster.restart(1)
                await sent_in_order(producer, 5, first=5 * turn)
                async with asyncio.timeout(60.0):
                    while len(read) < 5 * (turn + 1):
                        read += await consumer.poll(timeout=1.0)
                spoken.append(
                    tuple(cluster.requests.of(api)[-1].version for api in ("Produce", "Fetch"))
                )
        assert spoken == [(13, 18), (7, 4), (9, 12), (3, 8), (13, 18)]
        assert [record.value for record in read] == values(cluster) == numbers(25)


# 62: the same address for two ids, an id at a new address, addresses that swap


async def test_pitfall_62_one_address_for_two_brokers_is_two_connections() -> None:
    """Such a response comes from a broker that is being replaced; it must not stop the rest."""
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])

        def same(request: Any, response: Any) -> None:
            first, second = response.brokers
            second.host, second.port = first.host, first.port

        watcher = Watcher()
        lie = cluster.faults.rewrite("Metadata", same, times=None)
        async with kclient.Producer(cluster.bootstrap, observers=[watcher]) as producer:
            meant_for_2 = producer.send("t", b"two", partition=1)
            await sent_in_order(producer, 3)
            await asyncio.sleep(5.0)
            assert not meant_for_2.done()
            wrong = {e.node_id for e in watcher.opened if e.address == "broker-1:9092"}
            assert {1, 2} <= wrong
            cluster.faults.remove(lie)
            assert (await meant_for_2).offset == 0
        assert values(cluster, "t", 0) == numbers(3)
        assert values(cluster, "t", 1) == [b"two"]


async def test_pitfall_62_a_broker_at_a_new_address_is_left_at_the_old_one() -> None:
    """The old address still responds: only metadata shows that the broker is elsewhere now."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        new_home = Relay(name="new-home")
        watcher = Watcher()
        async with kclient.Producer(
            cluster.bootstrap, metadata_max_age=5.0, observers=[watcher]
        ) as producer:
            await sent_in_order(producer, 2)

            def moved(request: Any, response: Any) -> None:
                response.brokers[0].host = "new-home"

            cluster.faults.rewrite("Metadata", moved, times=None)
            await asyncio.sleep(10.0)
            await sent_in_order(producer, 2, first=2)
            assert new_home.asked(PRODUCE)
            known = {c.address for c in producer.health().client.connections if c.node_id == 1}
            assert known == {"new-home:9092"}
        assert values(cluster) == numbers(4)


async def test_pitfall_62_brokers_that_swap_addresses_are_followed() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 3], [2, 3]])
        async with kclient.Producer(cluster.bootstrap) as producer:
            for turn in range(3):
                for partition in (0, 1):
                    await sent_in_order(producer, 2, partition=partition, first=2 * turn)
                await cluster.swap_addresses(1, 2)
                for partition in (0, 1):
                    cluster.move_leader("t", partition, partition + 1)
        assert values(cluster, "t", 0) == values(cluster, "t", 1) == numbers(6)


async def test_pitfall_62_an_id_that_comes_back_at_a_new_host_is_followed() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        async with kclient.Producer(cluster.bootstrap) as producer:
            await sent_in_order(producer, 2)
            await cluster.move(1, host="another-machine", port=9999)
            await sent_in_order(producer, 2, first=2)
            await cluster.move(1)
            await sent_in_order(producer, 2, first=4)
        assert values(cluster) == numbers(6)


# 63: a throttle time begins with its response, and is for that connection only


async def test_pitfall_63_throttling_mutes_its_connection_only_and_after_the_response() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])
        watcher = Watcher()
        async with kclient.Producer(cluster.bootstrap, linger=0.0, observers=[watcher]) as producer:
            for partition in (0, 1):
                await producer.send("t", b"0", partition=partition)
            cluster.faults.throttle("Produce", 2.0, broker=1)
            begun = now()
            await producer.send("t", b"1", partition=0)
            assert now() - begun < 0.1  # the response itself is not delayed
            muted = now()
            behind = producer.send("t", b"2", partition=0)
            await producer.send("t", b"1", partition=1)  # another broker
            core = cast(Any, producer)._core
            await core.metadata.wait_newer(_asked_for_metadata(core), 1.0)  # another lane
            assert now() - muted < 1.5
            assert not behind.done()
            await behind
            assert 2.0 <= now() - muted < 2.1
        throttled = [event for _, event in watcher.reported if isinstance(event, Throttled)]
        assert [(event.node_id, event.lane, event.seconds) for event in throttled] == [
            (1, "produce", 2.0)
        ]
        # We kept silent ourselves: it was not the broker that let the next request wait.
        assert all(event.seconds < 0.1 for _, event in watcher.completed("Produce"))
        assert values(cluster, "t", 0) == numbers(3)


def _asked_for_metadata(core: Any) -> int:
    core.metadata.request_update()
    version: int = core.metadata.view.version
    return version


# 64: a broker that closes an idle connection just as it is used


async def test_pitfall_64_an_idle_close_between_write_and_read_is_retried() -> None:
    """Neither an error of authentication nor one of the user: the request goes again."""
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t")
        watcher = Watcher()
        async with kclient.Producer(cluster.bootstrap, linger=0.0, observers=[watcher]) as producer:
            await sent_in_order(producer, 1)
            for turn in range(20):
                await asyncio.sleep(10.0)
                delivery = producer.send("t", b"%d" % (turn + 1), partition=0)
                await asyncio.sleep(0.0001 * turn)  # before, while and after it is written
                relay.sessions[-1].close()
                assert (await delivery).offset == turn + 1
            lost = [e for e in watcher.closed if e.lane == "produce" and e.in_flight]
            assert lost  # some of them were in flight
            assert not any("SASL" in event.reason for event in lost)
            assert producer.health().client.failure is None
        assert values(cluster) == numbers(21)


async def test_pitfall_64_an_idle_close_under_an_admin_call_is_retried() -> None:
    async with Cluster(brokers=1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        cluster.faults.close("DescribeCluster", times=3)
        assert (await admin.describe_cluster()).cluster_id == cluster.cluster_id
        assert cluster.requests.count("DescribeCluster") == 4


# 66: back-off is over with a usable connection, not with an open socket


class HangsUp(asyncio.Protocol):
    """Accepts, and closes at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class HangsUpWhenAsked(asyncio.Protocol):
    """Accepts, waits for the first request, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.close()


@pytest.mark.parametrize("peer", [HangsUp, HangsUpWhenAsked])
async def test_pitfall_66_a_listener_that_accepts_and_closes_is_backed_off(
    peer: type[asyncio.Protocol],
) -> None:
    net = network()
    net.listen(peer, "broker-1", 9092)
    begun = now()
    with pytest.raises(BootstrapFailed, match="before it was usable"):
        async with kclient.Producer("broker-1:9092", bootstrap_timeout=20.0):
            raise AssertionError("it can't have started")
    assert now() - begun == pytest.approx(20.0, abs=0.1)
    assert 15 <= len(net.dials) <= 28
    gaps = [b - a for (a, _), (b, _) in zip(net.dials[6:], net.dials[7:], strict=False)]
    assert min(gaps) >= 0.8  # reconnect_backoff_max less 20%


async def test_pitfall_66_a_known_broker_that_accepts_and_closes_is_backed_off() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        net = network()
        async with kclient.Producer(cluster.bootstrap, delivery_timeout=60.0) as producer:
            await sent_in_order(producer, 1)
            net.set_name("broker-1", "mad")
            net.listen(HangsUp, "mad", 9092)
            await cluster.crash(1)
            before = len(net.dials)
            delivery = producer.send("t", b"1")
            await asyncio.sleep(20.0)
            # Its own id and that of the bootstrap address, each at most once a second in the end.
            assert len(net.dials) - before <= 2 * 28
            net.forget_name("broker-1")
            await cluster.restart(1)
            await delivery
        assert values(cluster) == numbers(2)


# A request and its response may end anywhere


async def conversation(cut: tuple[int, Direction, int] | None) -> MemoryNet:
    """Start, send, read back and close, while connections are cut at a byte."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        net = network()
        if cut is not None:
            byte, direction, times = cut
            net.cut_at("broker-1", byte=byte, direction=direction, times=times)
        async with kclient.Producer(cluster.bootstrap) as producer:
            await sent_in_order(producer, 2)
        async with kclient.Consumer(
            cluster.bootstrap, "t", auto_offset_reset="earliest", fetch_max_wait=0.05
        ) as consumer:
            read: list[bytes | None] = []
            async with asyncio.timeout(60.0):
                while len(read) < 2:
                    read += [record.value for record in await consumer.poll(timeout=1.0)]
        assert values(cluster) == read == numbers(2)
        return net


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("direction", ["to_client", "to_server"])
def test_a_conversation_may_be_cut_at_every_byte(direction: Direction, step: int) -> None:
    """Nothing is lost or doubled, wherever a request or a response ends.

    The long run tries every position, the other one each fifth.
    """
    byte = 0
    # Once, or on four connections one after the other.
    while run_virtually(conversation((byte, direction, (1, 4)[byte % 2])), seed=byte).stats.cuts:
        byte += step
    assert byte > 250


# Half-open peers, drips


async def test_a_half_open_peer_costs_its_own_requests_and_no_others() -> None:
    """Its bytes vanish without a reset: the connection is closed with the first time-out."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1], [2], [3]])
        watcher = Watcher()
        net = network()
        async with kclient.Producer(
            cluster.bootstrap, request_timeout=5.0, observers=[watcher]
        ) as producer:
            for partition in range(3):
                await sent_in_order(producer, 1, partition=partition)
            net.blackhole("broker-1")
            begun = now()
            stuck = producer.send("t", b"1", partition=0)
            for turn in range(1, 20):
                for partition in (1, 2):
                    await sent_in_order(producer, 1, partition=partition, first=turn)
            assert now() - begun < 1.0
            await asyncio.sleep(6.0)
            assert not stuck.done()
            lost = [e for e in watcher.closed if e.node_id == 1 and e.lane == "produce"]
            assert len(lost) == 1
            assert "timed out" in lost[0].reason
            net.heal()
            await stuck
        assert values(cluster, "t", 0) == numbers(2)
        assert values(cluster, "t", 1) == values(cluster, "t", 2) == numbers(20)


async def test_a_drip_of_bytes_does_not_prolong_a_request() -> None:
    async with Cluster(brokers=1) as cluster:
        for number in range(50):
            cluster.create_topic(f"topic-{number}")
        async with core_of(cluster, request_timeout=5.0) as core:
            await core.network.send(1, MetadataRequest())
            network().trickle("broker-1", bytes_per_second=20.0)
            begun = now()
            with pytest.raises(RequestTimedOut, match="no answer within 5 s"):
                await core.network.send(1, MetadataRequest(topics=None))
            assert 5.0 <= now() - begun < 5.1
            network().heal()
            answer = await core.network.send(1, MetadataRequest(topics=None))
            assert len(answer.topics) == 50


async def test_a_drip_of_bytes_does_not_prolong_a_handshake() -> None:
    async with Cluster(brokers=1) as cluster:
        network().trickle("broker-1", bytes_per_second=2.0)
        begun = now()
        with pytest.raises(BootstrapFailed, match="gave no answer to ApiVersions in time"):
            async with kclient.Producer(
                cluster.bootstrap,
                connection_setup_timeout=3.0,
                connection_setup_timeout_max=3.0,
                bootstrap_timeout=8.0,
            ):
                raise AssertionError("it can't have started")
        assert now() - begun == pytest.approx(8.0, abs=0.1)


async def test_bytes_that_come_one_by_one_are_read() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        network().trickle("broker-1", bytes_per_second=20.0)
        async with kclient.Producer(
            cluster.bootstrap,
            bootstrap_timeout=600.0,
            connection_setup_timeout=100.0,
            connection_setup_timeout_max=100.0,
            request_timeout=100.0,
            delivery_timeout=600.0,
        ) as producer:
            await sent_in_order(producer, 2)
        assert network().stats.chunks == network().stats.bytes
        assert values(cluster) == numbers(2)
