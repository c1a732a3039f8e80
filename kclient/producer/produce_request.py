"""One Produce request: its batches, its encoding, and the decoding of its response, both without an
object per batch.

The sender creates a ``BatchRequest`` per request. Its message, an ``EncodedProduceRequest``, is
built only when the connection is ready and its version known, so a batch that expired before that
isn't in it. The network writes it and decodes the response as ``PlainProduceResponse``. Both stand
in for the generated messages, only faster: a request is joined from the batches' own buffers in one
copy, and the fixed rows of a response without errors are read at once. A response with anything
else in it, or with invalid bytes, is left to the generated code. Sans-IO.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.errors import NoCommonVersion
from kclient.producer.batch_states import BatchState
from kclient.protocol.message import PiecewiseRequest, Response
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kclient.protocol.primitives import (
    DECODE_ERRORS,
    Buffer,
    check_uuid,
    put_compact_count,
    put_compact_string,
    put_count,
    put_string,
    put_uvarint,
    read_compact_string,
    read_uvarint,
)
from kclient.record import Compression

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.producer._compiled import ProducerBatch
    from kclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

FIRST_WITH_ZSTD = 7
"""KIP-110: older brokers can't read zstd and must not be sent any."""
_UNSAID: dict[int, Row] = {}
_NO_ID = bytes(16)
_IN_FLIGHT = BatchState.IN_FLIGHT
FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
_UUID_BYTES = 16
_TERMS = struct.Struct(">hi").pack
_INDEX_AND_SIZE = struct.Struct(">ii").pack
_INDEX = struct.Struct(">i").pack
# Index and the size of what follows, as a varint of one, two or three bytes.
_INDEX_AND_ONE = struct.Struct(">iB").pack
_INDEX_AND_TWO = struct.Struct(">iBB").pack
_INDEX_AND_THREE = struct.Struct(">iBBB").pack
_ONE_BYTE = 1 << 7
_TWO_BYTES = 1 << 14
_THREE_BYTES = 1 << 21
_NO_TAGS = b"\0"
_ROW = struct.Struct(">ihqqqBBB")
_THROTTLE_AND_TAGS = struct.Struct(">iB")
_NOTHING_MORE = (1, 0, 0)
"""The end of a row without errors of records, message and tags."""
EncodedBatch: TypeAlias = tuple[int, bytes, Buffer]
"""One batch: the index of its partition, its header, and its body: the builder's own buffer, which
doesn't change any more."""
Row: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""Index, error code, base offset, log append time, log start offset, and ``_NOTHING_MORE``."""


class CurrentLeader(NamedTuple):
    """The current leader of a partition as reported by a broker (KIP-951)."""

    leader_id: int
    leader_epoch: int


class PartitionResponse(NamedTuple):
    """The part of a response that concerns one batch."""

    code: int
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    hint: CurrentLeader | None = None


class BatchRequest:
    """The batches of one request.

    Args:
        node_id: The broker it goes to.
        batches: One per partition at most.
        acks: -1, 0 or 1.
        timeout_ms: How long the broker may wait for replicas.
        codec: Compression of the batches.
        view: Has the ids of the topics.
        transactional_id: Of the producer; None without.
        max_version: The newest version that the protocol of its transactions allows; None for any.

    Attributes:
        topics: The batches' topics with their ids, zeros for topics without one.
        max_version: The newest version that can carry all batches; None for any. From v13 on topics
            are named by id only, which topics of an old cluster don't have.
        lingered: Batches that are sent because their linger is over, not because they are full.
        encoded: The message was built, so a broker may have received the batches in it.
        version: Version of the message.
    """

    def __init__(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        acks: int,
        timeout_ms: int,
        codec: Compression,
        view: Cluster,
        transactional_id: str | None = None,
        max_version: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.batches = batches
        self.topics: dict[str, bytes] = {}
        self.max_version = max_version
        self.lingered = 0
        for batch in batches:
            self.lingered += batch.linger_over
            topic = batch.queue.topic
            if topic not in self.topics:
                topic_id = view.topic_id(topic)
                if topic_id is None and max_version is None:
                    self.max_version = FIRST_WITH_TOPIC_IDS - 1
                self.topics[topic] = topic_id or _NO_ID
        self.encoded = False
        self.version = -1
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._transactional_id = transactional_id
        self._included: dict[ProducerBatch, None] = {}

    def message(self, version: int) -> EncodedProduceRequest:
        """Return the request for ``version``, without the batches that have expired.

        Raises:
            NoCommonVersion: The batches are zstd, which ``version`` doesn't support.
        """
        if self._codec is Compression.ZSTD and version < FIRST_WITH_ZSTD:
            raise NoCommonVersion(
                f"broker {self.node_id} speaks Produce v{version}, but zstd needs "
                f"v{FIRST_WITH_ZSTD} (Apache Kafka 2.1)",
                node_id=self.node_id,
                hint="choose another compression",
                maybe_written=False,
            )
        self.encoded = True
        self.version = version
        included = self._included
        topics: dict[str, TopicBatches] = {}
        for batch in self.batches:
            if batch.state is not _IN_FLIGHT:
                continue
            included[batch] = None
            name = batch.queue.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicBatches(name, self.topics[name], [])
            topic.batches.append(batch.encode())
        return EncodedProduceRequest(
            self._acks, self._timeout_ms, list(topics.values()), self._transactional_id
        )

    def carries(self, batch: ProducerBatch) -> bool:
        """Return whether ``batch`` is in the message that was built."""
        return batch in self._included

    def answers(
        self, response: PlainProduceResponse | ProduceResponse | None
    ) -> dict[ProducerBatch, PartitionResponse]:
        """Return the response to each batch in the message; with acks=0 there is no ``response``.

        A batch that the response leaves out gets NETWORK_EXCEPTION: it is sent again, and whether
        it was written is not known until then.
        """
        if response is None:
            return {batch: PartitionResponse(0) for batch in self._included}
        if not isinstance(response, PlainProduceResponse):
            return self._full_answers(response)
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        responses: dict[ProducerBatch, PartitionResponse] = {}
        for batch in self._included:
            queue = batch.queue
            name = self.topics[queue.topic] if by_id else queue.topic
            row = response.topics.get(name, _UNSAID).get(queue.index)
            if row is None:
                responses[batch] = _answer(None)
            else:  # bypasses the constructor, which is Python and costs three times as much
                terms = (row[1], row[2], row[3], row[4], None, (), None)
                responses[batch] = tuple.__new__(PartitionResponse, terms)
        return responses

    def _full_answers(self, response: ProduceResponse) -> dict[ProducerBatch, PartitionResponse]:
        by_partition: dict[tuple[str | bytes, int], PartitionProduceResponse] = {}
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        for topic in response.responses:
            named = bytes(topic.topic_id) if by_id else topic.name
            for part in topic.partition_responses:
                by_partition[named, part.index] = part
        responses: dict[ProducerBatch, PartitionResponse] = {}
        for batch in self._included:
            topic_name = batch.queue.topic
            name = self.topics[topic_name] if by_id else topic_name
            responses[batch] = _answer(by_partition.get((name, batch.queue.index)))
        return responses


def _answer(part: PartitionProduceResponse | None) -> PartitionResponse:
    if part is None:
        return PartitionResponse(
            ErrorCode.NETWORK_EXCEPTION, message="the broker's answer leaves this partition out"
        )
    leader = part.current_leader
    hint = None
    if leader is not None and leader.leader_id >= 0:
        hint = CurrentLeader(leader.leader_id, leader.leader_epoch)
    return PartitionResponse(
        part.error_code,
        part.base_offset,
        part.log_append_time_ms,
        part.log_start_offset,
        part.error_message,
        tuple((e.batch_index, e.batch_index_error_message) for e in part.record_errors or ()),
        hint,
    )


class TopicBatches(NamedTuple):
    """The batches for one topic.

    Attributes:
        name: Topic name.
        topic_id: Topic id; needed from v13 on.
        batches: The encoded batches.
    """

    name: str
    topic_id: bytes
    batches: list[EncodedBatch]


class EncodedProduceRequest(ProduceRequest, PiecewiseRequest):
    """A Produce request over batches that are encoded already.

    Attributes:
        topics: The batches by topic.
    """

    __slots__ = ("topics",)

    def __init__(
        self,
        acks: int,
        timeout_ms: int,
        topics: list[TopicBatches],
        transactional_id: str | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.unknown_tags = None
        self.topics = topics

    @property
    def topic_data(self) -> list[TopicProduceData]:  # type: ignore[override]
        """The topics as generated structures, with a copy of all bytes; for tests and diagnosis."""
        return [
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[
                    PartitionProduceData(index, b"".join((head, body)))
                    for index, head, body in topic.batches
                ],
            )
            for topic in self.topics
        ]

    def pieces(self, version: int) -> list[Buffer]:
        """Return the message in ``version`` as pieces to be joined."""
        terms = _TERMS(self.acks, self.timeout_ms)
        flexible = version >= FIRST_FLEXIBLE
        if self.transactional_id is not None:
            start = bytearray()
            (put_compact_string if flexible else put_string)(start, self.transactional_id)
            start += terms
        elif flexible:
            start = bytearray(b"\0" + terms)
        else:
            start = bytearray((b"\xff\xff" if version >= 3 else b"") + terms)
        (put_compact_count if flexible else put_count)(start, len(self.topics))
        pieces: list[Buffer] = [start]
        for topic in self.topics:
            if version >= FIRST_FLEXIBLE:
                _add_compact(pieces, topic, version)
            else:
                _add_classic(pieces, topic)
        if version >= FIRST_FLEXIBLE:
            pieces.append(_NO_TAGS)
        return pieces


def _add_compact(pieces: list[Buffer], topic: TopicBatches, version: int) -> None:
    """Append one topic in a flexible version."""
    out = bytearray()
    if version >= FIRST_WITH_TOPIC_IDS:
        out += check_uuid(topic.topic_id)
    else:
        put_compact_string(out, topic.name)
    put_compact_count(out, len(topic.batches))
    pieces.append(out)
    for index, head, body in topic.batches:
        size = len(head) + len(body) + 1
        if size < _ONE_BYTE:
            place = _INDEX_AND_ONE(index, size)
        elif size < _TWO_BYTES:
            place = _INDEX_AND_TWO(index, size & 0x7F | 0x80, size >> 7)
        elif size < _THREE_BYTES:
            place = _INDEX_AND_THREE(index, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)
        else:
            long = bytearray(_INDEX(index))
            put_uvarint(long, size)
            place = bytes(long)
        pieces += (place, head, body, _NO_TAGS)
    pieces.append(_NO_TAGS)


def _add_classic(pieces: list[Buffer], topic: TopicBatches) -> None:
    """Append one topic in a version with lengths of fixed size."""
    out = bytearray()
    put_string(out, topic.name)
    put_count(out, len(topic.batches))
    pieces.append(out)
    for index, head, body in topic.batches:
        pieces += (_INDEX_AND_SIZE(index, len(head) + len(body)), head, body)


class PlainProduceResponse(Response):
    """A response with only the fixed fields for each batch: no errors per record, no new leaders.

    Attributes:
        topics: By topic, named as in the request, the row of each partition by its index.
        throttle_time_ms: As in the generated class.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY = ProduceResponse.API_KEY
    NAME = ProduceResponse.NAME
    MIN_VERSION = ProduceResponse.MIN_VERSION
    MAX_VERSION = ProduceResponse.MAX_VERSION
    FIRST_FLEXIBLE = ProduceResponse.FIRST_FLEXIBLE

    def __init__(self, topics: dict[str | bytes, dict[int, Row]], throttle_time_ms: int) -> None:
        self.topics = topics
        self.throttle_time_ms = throttle_time_ms
        self.unknown_tags = None

    @classmethod
    def decode(  # type: ignore[override]
        cls, data: Buffer, version: int, offset: int = 0
    ) -> PlainProduceResponse | ProduceResponse:
        """Decode a response, as the generated class if it has more fields or is malformed.

        Raises:
            ProtocolError: The bytes are no such message.
        """
        if FIRST_FLEXIBLE <= version <= cls.MAX_VERSION:
            try:
                reply = _read_quickly(data, version, offset)
            except DECODE_ERRORS:
                reply = None
            if reply is not None:
                return reply
        return ProduceResponse.decode(data, version, offset)


EncodedProduceRequest.RESPONSE = PlainProduceResponse  # type: ignore[assignment]


def _count(data: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Read a count plus one."""
    count = data[pos]
    return (count, pos + 1) if count < _ONE_BYTE else read_uvarint(data, pos, end)


def _read_quickly(data: Buffer, version: int, pos: int) -> PlainProduceResponse | None:
    """Decode a response that has only fixed rows; None for others. Raises DECODE_ERRORS."""
    end = len(data)
    topics: dict[str | bytes, dict[int, Row]] = {}
    topic_count, pos = _count(data, pos, end)
    for _ in range(topic_count - 1):
        name: str | bytes
        if version >= FIRST_WITH_TOPIC_IDS:
            name, pos = bytes(data[pos : pos + _UUID_BYTES]), pos + _UUID_BYTES
        else:
            name, pos = read_compact_string(data, pos, end)
        count, pos = _count(data, pos, end)
        stop = pos + (count - 1) * _ROW.size
        if not 0 < count <= end or stop >= end or data[stop] or name in topics:
            return None
        rows: dict[int, Row] = {}
        for row in _ROW.iter_unpack(data[pos:stop]):
            if row[5:] != _NOTHING_MORE:
                return None
            rows[row[0]] = row
        if len(rows) < count - 1:
            return None
        topics[name] = rows
        pos = stop + 1
    throttle_ms, tags = _THROTTLE_AND_TAGS.unpack_from(data, pos)
    if tags or topic_count == 0 or pos + _THROTTLE_AND_TAGS.size != end:
        return None
    return PlainProduceResponse(topics, throttle_ms)
