"""One Produce request: the batches that travel in it, its bytes, and the answer per batch.

The sender makes one per request. The message is built only when the connection is there and its
version known, so a batch whose time was over before that isn't in it. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kclient.error_codes import ErrorCode
from kclient.errors import NoCommonVersion
from kclient.producer.batch import BatchState
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kclient.record import Compression

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.producer.batch import ProducerBatch
    from kclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_ZSTD = 7
"""KIP-110: older brokers can't read zstd and must not be given any."""


class Hint(NamedTuple):
    """A broker's word on who leads a partition now (KIP-951)."""

    leader_id: int
    leader_epoch: int


class Answer(NamedTuple):
    """What the broker says about one batch."""

    code: int
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    hint: Hint | None = None


class Shipment:
    """The batches of one request.

    Args:
        node_id: The broker it goes to.
        batches: One per partition at most.
        acks: -1, 0 or 1.
        timeout_ms: How long the broker may wait for replicas.
        codec: Compression of the batches.
        topic_id: Looks a topic's id up, None where it has none.

    Attributes:
        encoded: The message was built, so a broker may have seen what is in it.
        version: Of the message.
    """

    __slots__ = (
        "_acks",
        "_codec",
        "_included",
        "_named",
        "_timeout_ms",
        "_topic_id",
        "batches",
        "encoded",
        "node_id",
        "version",
    )

    def __init__(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        acks: int,
        timeout_ms: int,
        codec: Compression,
        topic_id: Callable[[str], bytes | None],
    ) -> None:
        self.node_id = node_id
        self.batches = batches
        self.encoded = False
        self.version = -1
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._topic_id = topic_id
        self._included: dict[ProducerBatch, None] = {}
        self._named: dict[str, bytes] = {}

    @property
    def max_version(self) -> int | None:
        """The newest version that can carry all of it; None for any.

        From v13 on topics are named by id only, which topics of an old cluster don't have.
        """
        if all(self._topic_id(batch.queue.topic) is not None for batch in self.batches):
            return None
        return FIRST_WITH_TOPIC_IDS - 1

    def message(self, version: int) -> ProduceRequest:
        """The request for ``version``, without the batches whose time is over."""
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
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in self.batches:
            if batch.state is not BatchState.IN_FLIGHT:
                continue
            self._included[batch] = None
            records = batch.records().encode(
                batch.producer_id, batch.producer_epoch, batch.wire_sequence
            )
            part = PartitionProduceData(index=batch.queue.index, records=records)
            topics.setdefault(batch.queue.topic, []).append(part)
        return ProduceRequest(
            transactional_id=None,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topic_data=[self._topic(name, parts, version) for name, parts in topics.items()],
        )

    def carries(self, batch: ProducerBatch) -> bool:
        """``batch`` is in the message that was built."""
        return batch in self._included

    def answers(self, response: ProduceResponse | None) -> dict[ProducerBatch, Answer]:
        """What was said about each batch in the message; no response is expected with acks=0.

        A batch that the response leaves out gets NETWORK_EXCEPTION: it is sent again, and whether
        it was written is not known until then.
        """
        if response is None:
            return {batch: Answer(0) for batch in self._included}
        said: dict[tuple[str | bytes, int], PartitionProduceResponse] = {}
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        for topic in response.responses:
            named = bytes(topic.topic_id) if by_id else topic.name
            for part in topic.partition_responses:
                said[named, part.index] = part
        answers: dict[ProducerBatch, Answer] = {}
        for batch in self._included:
            name: str | bytes | None = batch.queue.topic
            if by_id:
                name = self._named.get(batch.queue.topic)
            found = said.get((name, batch.queue.index)) if name is not None else None
            answers[batch] = _answer(found)
        return answers

    def _topic(
        self, name: str, parts: list[PartitionProduceData], version: int
    ) -> TopicProduceData:
        if version < FIRST_WITH_TOPIC_IDS:
            return TopicProduceData(name=name, partition_data=parts)
        topic_id = self._topic_id(name) or bytes(16)
        self._named[name] = topic_id
        return TopicProduceData(topic_id=topic_id, partition_data=parts)


def _answer(part: PartitionProduceResponse | None) -> Answer:
    if part is None:
        return Answer(
            ErrorCode.NETWORK_EXCEPTION, message="the broker's answer leaves this partition out"
        )
    leader = part.current_leader
    hint = None
    if leader is not None and leader.leader_id >= 0:
        hint = Hint(leader.leader_id, leader.leader_epoch)
    return Answer(
        part.error_code,
        part.base_offset,
        part.log_append_time_ms,
        part.log_start_offset,
        part.error_message,
        tuple((e.batch_index, e.batch_index_error_message) for e in part.record_errors or ()),
        hint,
    )
