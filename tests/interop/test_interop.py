"""librdkafka, kafka-python and aiokafka beside kclient: each reads what another wrote.

On the embedded cluster this tests the cluster as much as the client; on real Kafka it tests the
client alone. Every pair exchanges nulls, empty bytes and all kinds of headers under every codec.
"""

from __future__ import annotations

import pytest

from tests.interop.peers.aiokafka_peer import AiokafkaPeer
from tests.interop.peers.confluent_peer import ConfluentPeer
from tests.interop.peers.kafka_python_peer import KafkaPythonPeer
from tests.interop.peers.kclient_peer import KclientPeer
from tests.interop.peers.sample import CODECS, Peer, by_partition, samples, writable_by
from tests.support.broker_fixtures import Broker, TopicFactory

PARTITIONS = 3
KCLIENT = KclientPeer()
FOREIGN: tuple[Peer, ...] = (ConfluentPeer(), KafkaPythonPeer(), AiokafkaPeer())


def _named(peer: Peer) -> str:
    return peer.name


async def _exchange(broker: Broker, name: str, writer: Peer, reader: Peer, codec: str) -> None:
    written = writable_by(writer, samples(PARTITIONS))
    await writer.write(broker.bootstrap, name, written, codec)
    read = await reader.read(broker.bootstrap, name, PARTITIONS, len(written))
    assert by_partition(read) == by_partition(written)


@pytest.mark.parametrize("peer", FOREIGN, ids=_named)
async def test_a_peer_reads_what_kclient_wrote(
    peer: Peer, codec: str, broker: Broker, topic: TopicFactory
) -> None:
    await _exchange(broker, await topic(PARTITIONS), KCLIENT, peer, codec)


@pytest.mark.parametrize("peer", FOREIGN, ids=_named)
async def test_kclient_reads_what_a_peer_wrote(
    peer: Peer, codec: str, broker: Broker, topic: TopicFactory
) -> None:
    await _exchange(broker, await topic(PARTITIONS), peer, KCLIENT, codec)


@pytest.mark.parametrize("peer", FOREIGN, ids=_named)
async def test_a_peer_reads_what_it_wrote_itself(
    peer: Peer, codec: str, broker: Broker, topic: TopicFactory
) -> None:
    await _exchange(broker, await topic(PARTITIONS), peer, peer, codec)


async def test_all_peers_write_to_one_topic_and_kclient_reads_all(
    broker: Broker, topic: TopicFactory
) -> None:
    name = await topic(PARTITIONS)
    written = writable_by(FOREIGN[1], samples(PARTITIONS))
    for index, peer in enumerate((*FOREIGN, KCLIENT)):
        await peer.write(broker.bootstrap, name, written, CODECS[index])
    total = 4 * len(written)
    read = by_partition(await KCLIENT.read(broker.bootstrap, name, PARTITIONS, total))
    for partition, expected in by_partition(written).items():
        assert read[partition] == expected * 4
