"""``CannedBroker``: a dialer whose other end sends prepared responses in the next loop iteration.

It stands for sockets and a cluster, and costs next to nothing per request, so that what is counted
is the client: the response to a produce request is the same bytes each time, records to read are
encoded beforehand. One broker, one topic, one partition; it can only acknowledge and serve records.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence

from kclient.hooks import DialTarget
from kclient.protocol.headers import decode_request_header
from kclient.protocol.message import Response
from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.init_producer_id import InitProducerIdResponse
from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.response_frames import encode_response

TOPIC = "flights"
TOPIC_ID = bytes(range(16))
ADDRESS = "canned:9092"
MOST_IN_A_FETCH = 8
"""Batches: a MiB of 128 KiB ones, as ``max_partition_fetch_bytes`` asks for."""
_START = struct.Struct(">ihhi")
_CORRELATION = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_PRODUCE, _FETCH, _METADATA, _API_VERSIONS, _INIT = 0, 1, 3, 18, 22
_VERSIONS = (
    *(ApiVersion(_PRODUCE, 3, 13), ApiVersion(_FETCH, 4, 17), ApiVersion(_METADATA, 0, 13)),
    *(ApiVersion(_API_VERSIONS, 0, 4), ApiVersion(_INIT, 0, 5)),
)


def _answers() -> dict[int, Response]:
    partition = MetadataResponsePartition(0, 0, 1, 0, [1], [1], [])
    topic = MetadataResponseTopic(0, TOPIC, TOPIC_ID, partitions=[partition])
    written = PartitionProduceResponse(0, 0, 0, log_append_time_ms=-1, log_start_offset=0)
    return {
        _API_VERSIONS: ApiVersionsResponse(0, list(_VERSIONS)),
        _METADATA: MetadataResponse(
            brokers=[MetadataResponseBroker(1, "canned", 9092)],
            cluster_id="canned",
            controller_id=1,
            topics=[topic],
        ),
        _INIT: InitProducerIdResponse(producer_id=1000, producer_epoch=0),
        _PRODUCE: ProduceResponse(
            responses=[TopicProduceResponse(TOPIC, TOPIC_ID, partition_responses=[written])]
        ),
    }


class CannedBroker:
    """Dialer and broker in one.

    Args:
        batches: What there is to read: batches as ``BatchBuilder.encode`` gives them, each with
            the number of its records.
    """

    def __init__(self, batches: Sequence[tuple[bytes, int]] = ()) -> None:
        self._answers = _answers()
        self._frames: dict[tuple[int, int], bytearray] = {}
        self._log: dict[int, bytes] = {}
        at, offset = 0, 0
        data = [bytearray(batch) for batch, _ in batches]
        starts = []
        for batch, (_, count) in zip(data, batches, strict=True):
            _OFFSET.pack_into(batch, 0, offset)
            starts.append(offset)
            offset += count
        self.end_offset = offset
        while at < len(data):
            self._log[starts[at]] = b"".join(data[at : at + MOST_IN_A_FETCH])
            at += MOST_IN_A_FETCH

    async def dial(
        self, target: DialTarget, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, as a ``kclient.hooks.Dialer`` does."""
        protocol = protocol_factory()
        if not isinstance(protocol, asyncio.BufferedProtocol):
            raise TypeError(f"{protocol!r} is no BufferedProtocol")
        transport = _Transport(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def answer(self, frame: bytes) -> bytes | bytearray | None:
        """The response to a request, or None if none is sent: there is nothing more to read."""
        _, api, version, correlation_id = _START.unpack_from(frame)
        if api == _FETCH:
            return self._fetched(frame, version, correlation_id)
        known = self._frames.get((api, version))
        if known is None:
            known = bytearray(encode_response(self._answers[api], version, 0))
            self._frames[api, version] = known
        _CORRELATION.pack_into(known, 4, correlation_id)
        return bytes(known)

    def _fetched(self, frame: bytes, version: int, correlation_id: int) -> bytes | None:
        body = frame[4:]
        request = FetchRequest.decode(body, version, decode_request_header(body).body_offset)
        for topic in request.topics:
            for asked in topic.partitions:
                records = self._log.get(asked.fetch_offset)
                if records is not None:
                    end = self.end_offset
                    data = PartitionData(0, 0, end, end, 0, records=records)
                    shown = FetchableTopicResponse(TOPIC, TOPIC_ID, [data])
                    return encode_response(
                        FetchResponse(responses=[shown]), version, correlation_id
                    )
        return None


class _Transport(asyncio.Transport):
    """The client's end of a connection to the can."""

    def __init__(self, broker: CannedBroker, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._broker = broker
        self._protocol: asyncio.BufferedProtocol | None = protocol
        self._loop = asyncio.get_running_loop()
        self._part = b""

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        """Take requests, and schedule the delivery of their responses."""
        taken = self._part + data if self._part else bytes(data)
        start = 0
        while len(taken) - start >= 4:
            size = 4 + _CORRELATION.unpack_from(taken, start)[0]
            if len(taken) - start < size:
                break
            frame = taken if size == len(taken) else taken[start : start + size]
            answer = self._broker.answer(frame)
            if answer is not None:
                self._loop.call_soon(self._deliver, answer)
            start += size
        self._part = taken[start:]

    def _deliver(self, data: bytes | bytearray) -> None:
        at = 0
        while at < len(data) and self._protocol is not None:
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(buffer), len(data) - at)
            buffer[:count] = data[at : at + count]
            buffer.release()
            at += count
            self._protocol.buffer_updated(count)

    def close(self) -> None:
        """Hang up."""
        self.abort()

    def abort(self) -> None:
        """Hang up."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self._loop.call_soon(protocol.connection_lost, None)

    def is_closing(self) -> bool:
        """It hung up."""
        return self._protocol is None

    def get_write_buffer_size(self) -> int:
        """All that is written is taken at once."""
        return 0

    def pause_reading(self) -> None:
        """Do nothing: so little is in flight that the client never calls this."""

    def resume_reading(self) -> None:
        """As above."""
