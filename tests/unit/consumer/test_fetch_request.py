"""The fetch request in each version: names or ids, sessions, epochs, the rack."""

from __future__ import annotations

import pytest

from kclient.consumer.fetch_session import (
    FetchLimits,
    PartitionFetch,
    SessionRequest,
    fetch_request,
)
from kclient.protocol.messages.fetch import FetchRequest
from kclient.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": b"A" * 16, "b": b"B" * 16}
LIMITS = FetchLimits(500, 1, 50_000_000, 1, "north")


def wishes(session_id: int = 7, epoch: int = 3) -> SessionRequest:
    asks = {
        tp: PartitionFetch(offset, 1000, 5, IDS[tp.topic]) for offset, tp in enumerate((A0, B0, A1))
    }
    return SessionRequest(session_id, epoch, asks, {TopicPartition("a", 9): IDS["a"]})


@pytest.mark.parametrize("version", range(4, FetchRequest.MAX_VERSION + 1))
def test_every_version_can_be_written_and_read_back(version: int) -> None:
    request = fetch_request(version, wishes(), LIMITS)
    back = FetchRequest.decode(request.encode(version), version)
    named = {
        (topic.topic or topic.topic_id, part.partition): part.fetch_offset
        for topic in back.topics
        for part in topic.partitions
    }
    if version <= 12:
        assert named == {("a", 0): 0, ("b", 0): 1, ("a", 1): 2}
    else:
        assert named == {(IDS["a"], 0): 0, (IDS["b"], 0): 1, (IDS["a"], 1): 2}
    assert len(back.topics) == 2
    assert back.isolation_level == 1
    assert (back.max_wait_ms, back.min_bytes, back.max_bytes) == (500, 1, 50_000_000)
    epochs = {p.current_leader_epoch for t in back.topics for p in t.partitions}
    assert epochs == ({5} if version >= 9 else {-1})
    assert back.rack_id == ("north" if version >= 11 else "")
    if version >= 7:
        assert (back.session_id, back.session_epoch) == (7, 3)
        [forgotten] = back.forgotten_topics_data
        assert (forgotten.topic or forgotten.topic_id) == ("a" if version <= 12 else IDS["a"])
        assert forgotten.partitions == [9]
    else:
        assert (back.session_id, back.session_epoch) == (0, -1)


def test_the_request_that_ends_a_session_names_nothing() -> None:
    request = fetch_request(17, SessionRequest(7, -1, {}, {}), LIMITS)
    assert (request.session_id, request.session_epoch, request.topics) == (7, -1, [])
