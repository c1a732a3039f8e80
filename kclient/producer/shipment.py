"""One Produce request: the batches that travel in it, its bytes, and the answer per batch.

The sender makes one per request. The message is built only when the connection is there and its
version known, so a batch whose time was over before that isn't in it. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kclient.error_codes import ErrorCode
from kclient.errors import NoCommonVersion
from kclient.producer.batch_states import BatchState
from kclient.producer.cargo import (
    FIRST_WITH_TOPIC_IDS,
    Cargo,
    CargoReply,
    Row,
    TopicCargo,
)
from kclient.record import Compression

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.producer.hot import ProducerBatch
    from kclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

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


_UNSAID: dict[int, Row] = {}
_NO_ID = bytes(16)
_IN_FLIGHT = BatchState.IN_FLIGHT


class Shipment:
    """The batches of one request.

    Args:
        node_id: The broker it goes to.
        batches: One per partition at most.
        acks: -1, 0 or 1.
        timeout_ms: How long the broker may wait for replicas.
        codec: Compression of the batches.
        view: Has the ids of the topics.

    Attributes:
        topics: Theirs with their ids, zeros where they have none.
        max_version: The newest version that can carry all of it; None for any. From v13 on topics
            are named by id only, which topics of an old cluster don't have.
        lingered: How many went since their time was over, and not since they were full.
        encoded: The message was built, so a broker may have seen what is in it.
        version: Of the message.
    """

    def __init__(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        acks: int,
        timeout_ms: int,
        codec: Compression,
        view: Cluster,
    ) -> None:
        self.node_id = node_id
        self.batches = batches
        self.topics: dict[str, bytes] = {}
        self.max_version: int | None = None
        self.lingered = 0
        for batch in batches:
            self.lingered += batch.ripe
            topic = batch.queue.topic
            if topic not in self.topics:
                topic_id = view.topic_id(topic)
                if topic_id is None:
                    self.max_version = FIRST_WITH_TOPIC_IDS - 1
                self.topics[topic] = topic_id or _NO_ID
        self.encoded = False
        self.version = -1
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._included: dict[ProducerBatch, None] = {}

    def message(self, version: int) -> Cargo:
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
        included = self._included
        topics: dict[str, TopicCargo] = {}
        for batch in self.batches:
            if batch.state is not _IN_FLIGHT:
                continue
            included[batch] = None
            name = batch.queue.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicCargo(name, self.topics[name], [])
            topic.parcels.append(batch.parcel())
        return Cargo(self._acks, self._timeout_ms, list(topics.values()))

    def carries(self, batch: ProducerBatch) -> bool:
        """``batch`` is in the message that was built."""
        return batch in self._included

    def answers(self, response: CargoReply | ProduceResponse | None) -> dict[ProducerBatch, Answer]:
        """What was said about each batch in the message; no response is expected with acks=0.

        A batch that the response leaves out gets NETWORK_EXCEPTION: it is sent again, and whether
        it was written is not known until then.
        """
        if response is None:
            return {batch: Answer(0) for batch in self._included}
        if not isinstance(response, CargoReply):
            return self._full_answers(response)
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        answers: dict[ProducerBatch, Answer] = {}
        for batch in self._included:
            queue = batch.queue
            name = self.topics[queue.topic] if by_id else queue.topic
            row = response.topics.get(name, _UNSAID).get(queue.index)
            if row is None:
                answers[batch] = _answer(None)
            else:  # not through its constructor, which is Python and costs three times as much
                terms = (row[1], row[2], row[3], row[4], None, (), None)
                answers[batch] = tuple.__new__(Answer, terms)
        return answers

    def _full_answers(self, response: ProduceResponse) -> dict[ProducerBatch, Answer]:
        said: dict[tuple[str | bytes, int], PartitionProduceResponse] = {}
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        for topic in response.responses:
            named = bytes(topic.topic_id) if by_id else topic.name
            for part in topic.partition_responses:
                said[named, part.index] = part
        answers: dict[ProducerBatch, Answer] = {}
        for batch in self._included:
            topic_name = batch.queue.topic
            name = self.topics[topic_name] if by_id else topic_name
            answers[batch] = _answer(said.get((name, batch.queue.index)))
        return answers


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
