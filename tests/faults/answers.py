"""Addresses in responses: replace those of brokers by those of the proxy.

``session.py`` calls ``with_own_addresses`` for each response. One that can't hold an address, by
its API, version and last bytes, isn't decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.faults.passage import FETCH, METADATA, PRODUCE, Asked

FIND_COORDINATOR, DESCRIBE_CLUSTER = 10, 60
_BROKERS = 1
"""The endpoint type of DescribeCluster; controllers are not behind the proxy."""

Address: TypeAlias = tuple[str, int]
Moved: TypeAlias = Callable[[int, Address], Address]
"""Takes node id and address of a broker, returns the address that clients shall use."""


def with_own_addresses(
    asked: Asked, frame: bytes, moved: Moved, topic_names: dict[bytes, str]
) -> bytes:
    """The response as clients shall get it; the same bytes where there is nothing to change.

    Topic ids and names of Metadata responses are noted in ``topic_names``.
    """
    if not _names_nodes(asked, frame):
        return frame
    answer = asked.decode_answer(frame)
    if asked.api == METADATA and asked.version >= 10:
        topic_names.update((topic.topic_id, topic.name) for topic in answer.topics if topic.name)
    nodes = _nodes(asked, answer)
    for node in nodes:
        if node.host and node.port > 0:
            node_id = node.broker_id if asked.api == DESCRIBE_CLUSTER else node.node_id
            node.host, node.port = moved(node_id, (node.host, node.port))
    return asked.encode_answer(answer) if nodes else frame


def _names_nodes(asked: Asked, frame: bytes) -> bool:
    """Whether there may be addresses in it.

    Produce and Fetch name leaders (KIP-951) in a tagged field at the very end, whose last bytes
    are a port, a rack and a zero. Where the last bytes can't be that, there is none.
    """
    api, version = asked.api, asked.version
    if api == PRODUCE and version >= 10:
        return frame[-5:] != bytes(5)  # without: throttle_time_ms 0, no tagged fields
    if api == FETCH and version >= 16:
        if frame[-3:] != bytes(3):
            return True
        return frame[-6:-4] == bytes(2) and frame[-4] != 0  # a port that is n times 256
    return api in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER)


def _nodes(asked: Asked, answer: Any) -> list[Any]:
    """The parts of a response that have host and port."""
    if asked.api in (PRODUCE, FETCH):
        return list(answer.node_endpoints)
    if asked.api == METADATA:
        return list(answer.brokers)
    if asked.api == DESCRIBE_CLUSTER:
        return list(answer.brokers) if answer.endpoint_type == _BROKERS else []
    return list(answer.coordinators) if asked.version >= 4 else [answer]
