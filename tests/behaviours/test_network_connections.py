"""The network package on any broker: negotiation, order, lanes, limits, time-outs."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
import trustme

from kclient.clock import SystemClock
from kclient.config import NetworkConfig
from kclient.errors import (
    BrokerUnreachable,
    ClientClosed,
    InvalidArgument,
    KafkaError,
    NoCommonVersion,
    RequestTimedOut,
)
from kclient.hooks import Counters, Hooks
from kclient.network import Lane, NetworkClient, Node, RawResponse
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kclient.protocol.messages.produce import ProduceRequest
from kclient.security import Security
from tests.support import tls
from tests.support.broker_fixtures import Broker, TopicFactory
from tests.support.unsupervised import Unsupervised
from tests.unit.network.scripted_broker import ScriptedBroker

FIRST = -1
FETCH_BY_NAME = 12
"""The last version of Fetch that names topics; later ones have ids."""
NetworkFactory = Callable[..., Awaitable[NetworkClient]]


@pytest_asyncio.fixture
async def network(broker: Broker) -> AsyncIterator[NetworkFactory]:
    """Start network clients: `await network(**settings)`; closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> NetworkClient:
            settings.setdefault("bootstrap", broker.bootstrap)
            client = NetworkClient(
                NetworkConfig(**settings),
                clock=SystemClock(),
                supervisor=Unsupervised(),
                hooks=Hooks(),
                counters=Counters(),
                rng=random.Random(7),
            )
            await client.start()
            stack.push_async_callback(client.close, 5.0)
            return client

        yield start


async def leader_of(client: NetworkClient, topic: str) -> int:
    """Return partition 0's leader once it serves that; the client then knows the brokers."""
    async with asyncio.timeout(20.0):
        while True:
            metadata: MetadataResponse = await client.send(
                FIRST, MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            )
            client.update_nodes([Node(b.node_id, b.host, b.port) for b in metadata.brokers])
            partitions = metadata.topics[0].partitions
            if not partitions or partitions[0].leader_id < 0:
                continue
            leader = partitions[0].leader_id
            fetched: FetchResponse = await client.send(
                leader, parked_fetch(topic, 0), lane=Lane.FETCH, max_version=FETCH_BY_NAME
            )
            if fetched.responses and not fetched.responses[0].partitions[0].error_code:
                return leader


def parked_fetch(topic: str, max_wait_ms: int) -> FetchRequest:
    """A fetch whose response an empty topic delays for ``max_wait_ms``."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


async def closed_address() -> str:
    async with ScriptedBroker() as gone:
        return f"127.0.0.1:{gone.port}"


async def test_the_first_request_finds_out_what_the_broker_speaks(
    network: NetworkFactory, broker: Broker
) -> None:
    client = await network()
    answer = await client.send(FIRST, MetadataRequest(topics=[]), raw=True)
    assert MetadataResponse.decode(answer.detach(), answer.version).brokers
    expected = {(1, 0, 2): 5, (2, 8, 2): 11, (3, 9, 1): 12, (4, 3, 0): 13}.get(broker.version)
    assert expected is None or answer.version == expected


async def test_negotiation_takes_one_connection_even_where_it_falls_back(
    network: NetworkFactory,
) -> None:
    """1.0.2 and 2.8.2 refuse our first ApiVersions; the second goes out on the same connection."""
    client = await network()
    await client.send(FIRST, MetadataRequest(topics=[]))
    assert len(client.snapshot()) == 1
    assert client.snapshot()[0].failures == 0
    assert client.snapshot()[0].state == "ready"


async def test_a_hundred_pipelined_requests_are_answered_in_order(network: NetworkFactory) -> None:
    client = await network()
    done: list[int] = []
    futures = [client.send(FIRST, MetadataRequest(topics=[])) for _ in range(100)]
    for index, future in enumerate(futures):
        future.add_listener(lambda _, index=index: done.append(index))
    for future in futures:
        assert isinstance(await future, MetadataResponse)
    assert done == list(range(100))


async def test_the_callers_cap_on_the_version_holds(network: NetworkFactory) -> None:
    client = await network()
    seen: list[int] = []

    def build(version: int) -> MetadataRequest:
        seen.append(version)
        return MetadataRequest(topics=[])

    await client.send(FIRST, build, api=MetadataRequest, max_version=4)
    await client.send(FIRST, build, api=MetadataRequest)
    assert seen[0] == 4
    assert seen[1] > 4


async def test_an_api_that_the_broker_lacks_fails_its_own_request_only(
    network: NetworkFactory, broker: Broker
) -> None:
    client = await network()
    asked = client.send(FIRST, DescribeClusterRequest())
    other = client.send(FIRST, MetadataRequest(topics=[]))
    if broker.version < (2, 8, 0):
        with pytest.raises(NoCommonVersion, match="DescribeCluster"):
            await asked
    else:
        assert (await asked).brokers
    assert isinstance(await other, MetadataResponse)


async def test_no_version_below_the_cap_is_typed(network: NetworkFactory) -> None:
    client = await network()
    with pytest.raises(NoCommonVersion, match="Metadata"):
        await client.send(FIRST, MetadataRequest(topics=[]), max_version=-1)


async def test_a_raw_answer_has_the_bytes_of_the_decoded_one(network: NetworkFactory) -> None:
    client = await network()
    decoded = await client.send(FIRST, MetadataRequest(topics=[]), max_version=5)
    raw = await client.send(FIRST, MetadataRequest(topics=[]), max_version=5, raw=True)
    assert isinstance(raw, RawResponse)
    assert MetadataResponse.decode(raw.body, raw.version).cluster_id == decoded.cluster_id
    raw.release()


async def test_every_lane_is_a_connection_of_its_own(network: NetworkFactory) -> None:
    client = await network()
    for lane in Lane:
        await client.send(FIRST, MetadataRequest(topics=[]), lane=lane)
    assert [health.state for health in client.snapshot()] == ["ready"] * 4


async def test_a_parked_fetch_holds_up_nothing_on_another_lane(
    network: NetworkFactory, topic: TopicFactory
) -> None:
    client = await network()
    name = await topic()
    leader = await leader_of(client, name)
    parked = client.send(
        leader, parked_fetch(name, 600), lane=Lane.FETCH, max_version=FETCH_BY_NAME
    )
    await client.send(leader, MetadataRequest(topics=[]))
    assert not parked.done
    assert isinstance(await parked, FetchResponse)


async def test_a_request_past_its_timeout_closes_its_connection_and_a_new_one_works(
    network: NetworkFactory, topic: TopicFactory
) -> None:
    client = await network(reconnect_backoff=0.001)
    name = await topic()
    leader = await leader_of(client, name)
    await client.send(leader, MetadataRequest(topics=[]), lane=Lane.FETCH)
    slow = client.send(
        leader,
        parked_fetch(name, 2000),
        lane=Lane.FETCH,
        max_version=FETCH_BY_NAME,
        timeout=0.1,
    )
    with pytest.raises(RequestTimedOut) as raised:
        await slow
    assert raised.value.retriable
    assert raised.value.maybe_written
    await client.send(leader, MetadataRequest(topics=[]), lane=Lane.FETCH)


async def test_a_request_without_an_answer_leaves_the_order_of_the_others_alone(
    network: NetworkFactory,
) -> None:
    client = await network()
    silent = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[])
    for _ in range(3):
        assert (
            await client.send(
                FIRST, silent, lane=Lane.PRODUCE, expect_response=False, max_version=9
            )
            is None
        )
        answered = await client.send(FIRST, MetadataRequest(topics=[]), lane=Lane.PRODUCE)
        assert isinstance(answered, MetadataResponse)


async def test_an_idle_connection_closes_and_the_next_request_opens_another(
    network: NetworkFactory,
) -> None:
    client = await network(connections_max_idle=0.1)
    await client.send(FIRST, MetadataRequest(topics=[]))
    gone = asyncio.Event()
    client.add_ready_listener(lambda node, lane: client.is_connected(node, lane) or gone.set())
    async with asyncio.timeout(10.0):
        await gone.wait()
    assert client.retry_at(FIRST) == 0.0
    await client.send(FIRST, MetadataRequest(topics=[]))


async def test_a_dead_bootstrap_address_does_not_hide_a_living_one(
    network: NetworkFactory, broker: Broker
) -> None:
    client = await network(bootstrap=f"{await closed_address()},{broker.bootstrap}")
    answered = None
    errors: list[KafkaError] = []
    while answered is None:
        node_id = client.least_loaded()
        assert node_id is not None
        try:
            answered = await client.send(node_id, MetadataRequest(topics=[]))
        except BrokerUnreachable as error:
            errors.append(error)
    assert len(errors) <= 1


async def test_a_closed_port_is_one_typed_error_with_address_and_reason(
    network: NetworkFactory,
) -> None:
    address = await closed_address()
    client = await network(bootstrap=address)
    with pytest.raises(BrokerUnreachable, match="Connection refused") as raised:
        await client.send(FIRST, MetadataRequest(topics=[]))
    assert address in str(raised.value)
    assert raised.value.maybe_written is False


async def test_a_tls_client_is_refused_by_a_plaintext_listener_with_a_hint(
    network: NetworkFactory,
) -> None:
    client = await network(security=Security.tls(), connection_setup_timeout=5.0)
    with pytest.raises(BrokerUnreachable) as raised:
        await client.send(FIRST, MetadataRequest(topics=[]))
    assert "can't be reached" in str(raised.value)


@pytest_asyncio.fixture
async def tls_listener(broker: Broker) -> AsyncIterator[tuple[str, Security]]:
    """A TLS listener and the settings that trust it: the broker's own, or a scripted broker's."""
    if broker.tls_bootstrap is not None:
        yield broker.tls_bootstrap, Security.tls(ca_file=tls.certificate())
        return
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with ScriptedBroker(ssl_context=context) as scripted:
        yield f"127.0.0.1:{scripted.port}", Security.tls(ssl_context=trusting)


async def test_a_trusted_tls_listener_is_spoken_to(
    network: NetworkFactory, tls_listener: tuple[str, Security]
) -> None:
    address, security = tls_listener
    client = await network(bootstrap=address, security=security)
    futures = [client.send(FIRST, MetadataRequest(topics=[])) for _ in range(10)]
    for future in futures:
        assert isinstance(await future, MetadataResponse)


async def test_an_untrusted_tls_listener_is_refused(
    network: NetworkFactory, tls_listener: tuple[str, Security]
) -> None:
    client = await network(bootstrap=tls_listener[0], security=Security.tls())
    with pytest.raises(BrokerUnreachable, match="certificate is refused") as raised:
        await client.send(FIRST, MetadataRequest(topics=[]))
    assert not raised.value.retriable


async def test_a_plaintext_client_at_a_tls_listener_gets_that_reason(
    network: NetworkFactory, tls_listener: tuple[str, Security]
) -> None:
    client = await network(bootstrap=tls_listener[0])
    with pytest.raises(BrokerUnreachable, match="TLS"):
        await client.send(FIRST, MetadataRequest(topics=[]))


async def test_an_unresolvable_name_is_typed(network: NetworkFactory) -> None:
    client = await network(bootstrap="no-such-host.invalid:9092")
    with pytest.raises(BrokerUnreachable, match=r"no-such-host\.invalid.*resolved"):
        await client.send(FIRST, MetadataRequest(topics=[]), timeout=20.0)


async def test_closing_fails_what_is_under_way_and_refuses_more(
    network: NetworkFactory, topic: TopicFactory
) -> None:
    client = await network()
    name = await topic()
    leader = await leader_of(client, name)
    parked = client.send(
        leader, parked_fetch(name, 5000), lane=Lane.FETCH, max_version=FETCH_BY_NAME
    )
    await client.send(leader, MetadataRequest(topics=[]))
    started = asyncio.get_running_loop().time()
    await client.close(5.0)
    assert asyncio.get_running_loop().time() - started < 4.0
    with pytest.raises(ClientClosed):
        await parked
    with pytest.raises(ClientClosed):
        await client.send(FIRST, MetadataRequest(topics=[]))


async def test_a_callable_without_its_api_is_a_mistake_of_the_caller(
    network: NetworkFactory,
) -> None:
    client = await network()
    with pytest.raises(InvalidArgument):
        client.send(FIRST, lambda version: MetadataRequest())


async def test_connections_have_nagle_off_and_keepalive_on(network: NetworkFactory) -> None:
    client = await network()
    await client.send(FIRST, MetadataRequest(topics=[]))
    channel = client._connections[FIRST, Lane.GENERAL].channel
    assert channel is not None
    assert channel._transport is not None
    sock = channel._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
