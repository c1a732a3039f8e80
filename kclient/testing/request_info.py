"""Facts of requests: ``RequestInfo``, for hooks and conditions of faults, and the entries it names.

``replica_of`` distinguishes requests of followers from those of clients; ``fault.py`` and
``request_log.py`` leave the former out by default. ``named_entries`` yields topics and partitions,
for faults of some of them. It finds them by the names of fields, which Kafka's messages nearly
share, so a new API needs no change here if its fields have those names; only one that names whole
topics needs an entry. ``fault_arguments`` checks whether an API names any at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.errors import ProtocolError
from kclient.protocol.api_versions import API_NAMES
from kclient.protocol.headers import decode_request_header
from kclient.protocol.message import Request, Response, Struct

if TYPE_CHECKING:
    from kclient.testing.request_context import RequestContext

Entry: TypeAlias = tuple[str | None, int | None]
TopicName: TypeAlias = Callable[[str | None, bytes], str | None]
"""Returns the topic name, given the name or the id of a request."""

_LISTS = ("topics", "topic_data", "topic_partitions", "v3_and_below_topics")
_NESTED = ("groups", "markers", "transactions")
"""Lists whose items have topics: OffsetFetch, WriteTxnMarkers and AddPartitionsToTxn."""
_NAMES = ("topic", "name")
_PARTITIONS = ("partitions", "partition_data", "partition_indexes")
_INDEXES = ("index", "partition", "partition_index")
_TOPIC = 2
"""Resource type of topics in requests about configurations."""
_WHOLE_TOPICS = frozenset((3, 19, 20, 32, 33, 37, 44, 75))
"""APIs that name no partitions, only topics."""
CLIENT = -1
"""The replica id of requests that no follower sent."""


def _of_fetch(request: Any) -> int:
    """The replica id of a Fetch, which KIP-903 moved."""
    return _of_other(request if request.replica_id >= 0 else request.replica_state)


def _of_other(request: Any) -> int:
    replica_id: int = request.replica_id
    return replica_id if replica_id >= 0 else CLIENT


REPLICA_ID: dict[int, Callable[[Any], int]] = {
    1: _of_fetch,  # Fetch
    2: _of_other,  # ListOffsets
    23: _of_other,  # OffsetForLeaderEpoch
}
"""By API key, how to get the replica id of a request that followers send, too."""


def replica_of(api_key: int, request: Any) -> int:
    """Node id of the follower that sent a request, -1 if a client did."""
    find = REPLICA_ID.get(api_key)
    return CLIENT if find is None else find(request)


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request that a broker serves; read-only for the functions that get it.

    Attributes:
        broker: Node id of the broker that got it.
        api: Kafka's name of the API.
        api_key: Kafka's number of it.
        version: Of the API.
        client_id: The id that the client sent.
        connection: The number of the connection, counted over the cluster's life.
        correlation_id: As sent.
        replica_id: Node id of the follower that sent it, -1 for requests of clients.
        user: The name of the login of its connection, or of the client's certificate; None without.
        request: The decoded message, of ``kclient.protocol.messages``. It has the records of a
            Produce only before it was executed.
        response: The response, or its bytes if a fault returned them; None if there is none yet.
            Once it was sent, the records of a Fetch are removed.
    """

    broker: int
    api: str
    api_key: int
    version: int
    client_id: str | None
    connection: int
    correlation_id: int
    replica_id: int
    user: str | None
    request: Any
    response: Any = None


def facts_of(call: RequestContext) -> dict[str, object]:
    """The facts that ``Fault.matches`` compares, by the keys of ``Where``."""
    return {
        "api": call.api_key,
        "broker": call.node_id,
        "client_id": call.client_id,
        "version": call.version,
        "connection": call.connection,
        "replica": call.served.replica_id,
    }


def facts_of_start(broker: int, connection: int, start: memoryview) -> dict[str, object]:
    """The same for a client's request of which only the start arrived; fewer without a header."""
    facts: dict[str, object] = {"broker": broker, "connection": connection, "replica": CLIENT}
    try:
        header = decode_request_header(start)
    except ProtocolError:
        return facts
    reported = {"api": header.api_key, "client_id": header.client_id, "version": header.api_version}
    return facts | reported


def info_of(call: RequestContext, response: Response | bytes | None = None) -> RequestInfo:
    """The info of a request at its current stage."""
    return RequestInfo(
        call.node_id,
        API_NAMES[call.api_key],
        call.api_key,
        call.version,
        call.client_id,
        call.connection,
        call.correlation_id,
        call.served.replica_id,
        call.certified if call.session is None else call.session.user,
        call.request,
        response,
    )


# The entries that it names


def names_topics(request_class: type[Request]) -> bool:
    """Whether requests of a kind name topics at all."""
    nested = _NESTED[1:]  # those of DescribeGroups are names
    return bool(_present(request_class, (*_LISTS, "topic_names", "resources", *nested)))


def names_partitions(request_class: type[Request]) -> bool:
    """Whether requests of a kind name partitions of topics."""
    return names_topics(request_class) and request_class.API_KEY not in _WHOLE_TOPICS


def named_entries(request: Any, topic_name: TopicName) -> Iterator[Entry]:
    """(topic, partition) of each entry; None for the partition if the API has none."""
    for name in _present(request, _LISTS):
        for topic in getattr(request, name) or ():
            yield from _of_topic(topic, topic_name)
    slots = request.__slots__
    if "topic_names" in slots:  # DeleteTopics
        yield from ((name, None) for name in request.topic_names)
    if "resources" in slots:  # configurations
        for one in request.resources:
            if one.resource_type == _TOPIC:
                yield one.resource_name, None
    for name in _present(request, _NESTED):
        for one in getattr(request, name):
            if isinstance(one, Struct):
                yield from named_entries(one, topic_name)


def _of_topic(topic: Any, topic_name: TopicName) -> Iterator[Entry]:
    slots = topic.__slots__
    names = _present(topic, _NAMES)
    name = getattr(topic, names[0]) if names else None  # ConsumerGroupHeartbeat has only ids
    if "topic_id" in slots:
        name = topic_name(name, topic.topic_id)
    lists = _present(topic, _PARTITIONS)
    if not lists:
        yield name, None
    for part in (part for field in lists for part in getattr(topic, field) or ()):
        yield name, part if isinstance(part, int) else getattr(part, _present(part, _INDEXES)[0])


def _present(struct: Any, names: Iterable[str]) -> list[str]:
    slots = struct.__slots__
    return [name for name in names if name in slots]
