"""The topics of a ``Cluster``: methods for tests to change them and to read their logs.

``ClusterTopics`` is the part of ``Cluster`` that is about topics and partitions. It bypasses the
wire: changes go to the controller, and reads to the logs of the brokers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, broker_error
from kclient.record.layout import MAGIC_POSITION
from kclient.record.message_set import read_batches
from kclient.testing.arguments import assignments_of, configs_of, node_of, text, whole
from kclient.testing.broker import Broker
from kclient.testing.config_defs import as_text
from kclient.testing.control_plane import ControlPlane
from kclient.testing.controller import Controller
from kclient.testing.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from kclient.testing.log import INFLATE_CAP_BYTES, PartitionLog
from kclient.testing.replica import Replica
from kclient.testing.responses import ApiError
from kclient.testing.shared_state import SharedState, changes_cluster
from kclient.testing.stored_batch import StoredBatch, split_batches
from kclient.testing.topic_rules import TopicSpec, check_growth, check_new_topic, check_total

if TYPE_CHECKING:
    from kclient.record import Record

_V2 = 2
"""The number of the only format that a log keeps."""


class ClusterTopics:
    """Topics and partitions of a cluster."""

    _control_plane: ControlPlane
    _shared: SharedState
    _brokers: dict[int, Broker]

    @property
    def _image(self) -> MetadataImage:
        return self._control_plane.image

    def _controller(self) -> Controller:
        """The active controller. Raises ApiError: NOT_CONTROLLER, if no broker is up that could."""
        reign = self._control_plane.controller
        if reign is None:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                "There is no controller: no broker is up, or none is in touch with the others.",
            )
        return reign

    def _broker(self, node_id: int) -> Broker:
        return self._brokers[node_of("broker", node_id, self._brokers)]

    @property
    def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        return sorted(self._image.topics)

    @changes_cluster
    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, checked as if a client asked for it.

        Args:
            name: Topic name.
            partitions: Number of them; None for the cluster's default.
            replication_factor: Replicas of each; None for the cluster's default.
            assignments: Node ids of each partition's replicas, the first one leads; instead of
                the two counts.
            configs: By Kafka's names, such as ``{"cleanup.policy": "compact"}``.

        Returns:
            ``name``.

        Raises:
            InvalidArgument: An argument of another type or form.
            BrokerError: The error that a broker would have responded with.
        """
        given = configs_of("configs", configs)
        spec = TopicSpec(
            text("name", name),
            -1 if partitions is None else whole("partitions", partitions),
            -1 if replication_factor is None else whole("replication_factor", replication_factor),
            assignments_of(assignments),
            {key: None if value is None else as_text(value) for key, value in given.items()},
        )
        with raise_as_broker_error(f"Creation of topic {name!r} failed"):
            controller = self._controller()
            check_total(len(spec.assignments) or partitions or controller.image.config.partitions)
            checked = check_new_topic(controller.image, spec)
            controller.create_topic(checked.name, checked.assignments, checked.config)
        return name

    @changes_cluster
    def add_partitions(self, topic: str, count: int) -> None:
        """Increase a topic to ``count`` partitions. Raises BrokerError."""
        found = self._topic(topic)
        whole("count", count)
        with raise_as_broker_error(f"Growing topic {topic!r} failed"):
            controller = self._controller()
            check_total(count - len(found.partitions))
            placed = check_growth(controller.image, found, count, None)
            controller.add_partitions(topic, placed)

    @changes_cluster
    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises BrokerError (UNKNOWN_TOPIC_OR_PARTITION)."""
        found = self._topic(name, "name")
        with raise_as_broker_error(f"Deleting topic {name!r} failed"):
            self._controller().delete_topic(found)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, 16 bytes."""
        return self._topic(name, "name").topic_id

    def partition_count(self, topic: str) -> int:
        """The number of a topic's partitions."""
        return len(self._topic(topic).partitions)

    # Partitions

    def leader(self, topic: str, partition: int = 0) -> int:
        """Node id of a partition's leader, -1 if it has none or the last one is down."""
        return self._leader_of(self._partition(topic, partition))

    def _leader_of(self, facts: PartitionRegistration) -> int:
        """The leader if it has a session: no controller records that the last broker is down."""
        found = self._control_plane.quorum.session_of(facts.leader)
        return NO_LEADER if found is None else facts.leader

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """The epoch of the partition's leader."""
        return self._partition(topic, partition).leader_epoch

    @changes_cluster
    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make another replica the leader, with a new epoch.

        Raises:
            BrokerError: ``broker`` has no replica of the partition, is down, or isn't in sync.
        """
        self._partition(topic, partition)
        self._broker(broker)
        with raise_as_broker_error("Moving the leader failed"):
            self._controller().move_leader(topic, partition, broker)

    def log(self, topic: str, partition: int = 0, *, broker: int | None = None) -> PartitionLog:
        """A log, for inspection: offsets, epochs, producers, batches.

        Args:
            topic: Topic name.
            partition: Of the topic.
            broker: The node id; by default the leader's, or without a leader the longest log.

        Raises:
            BrokerError: There is no such log.
        """
        if broker is None:
            return self._replica(topic, partition).log
        self._broker(broker)
        for replica in self._replicas(topic, partition):
            if replica.node_id == broker:
                return replica.log
        raise _unknown(f"{topic}-{partition} on broker {broker}")

    def start_offset(self, topic: str, partition: int = 0) -> int:
        """The first offset that the log has."""
        return self._replica(topic, partition).log.start_offset

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The next offset to be written."""
        return self._replica(topic, partition).log.end_offset

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        """Consumers get records below it: all replicas in sync have them."""
        return self._replica(topic, partition).log.high_watermark

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """All records in the log of one partition, by default of partition 0; without markers.

        The leader's log: records from ``high_watermark`` on may be unacknowledged.
        """
        log = self._replica(topic, partition).log
        found: list[Record] = []
        for stored in log.batches:
            if stored.is_control:
                continue
            for batch in read_batches(memoryview(stored.data)):
                batch.inflate(INFLATE_CAP_BYTES)
                found += batch.records(topic, partition, start_offset=log.start_offset)
        return found

    @changes_cluster
    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Make a log begin at ``before_offset``, as DeleteRecords and retention do.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
        """
        whole("before_offset", before_offset, 0)
        with raise_as_broker_error(f"Deleting records of {topic}-{partition} failed"):
            self._replica(topic, partition).log.delete_before(before_offset)
            for replica in self._replicas(topic, partition):
                if replica.log.start_offset < before_offset <= replica.log.end_offset:
                    replica.log.raise_start(before_offset)

    @changes_cluster
    def append(self, topic: str, partition: int, batches: bytes) -> int:
        """Append v2 batches to a log without any check but the order of offsets.

        For batches that no producer could write: gaps, control batches, transactions, wrong CRCs. A
        batch with a base offset below the log's end is moved to the end; one beyond makes a gap.
        All replicas in sync have it at once.

        Returns:
            Base offset of the first batch.

        Raises:
            InvalidArgument: ``batches`` is not one or more whole batches of format v2.
            BrokerError: LEADER_NOT_AVAILABLE: no broker leads it, or the new leader doesn't know.
        """
        whole_batches = _split(batches)
        facts = self._partition(topic, partition)
        replica = self._replica(topic, partition)
        if not replica.leads:
            raise broker_error(
                ErrorCode.LEADER_NOT_AVAILABLE, f"Appending to {topic}-{partition} failed"
            )
        end = replica.log.end_offset
        in_sync = [
            one
            for one in self._replicas(topic, partition)
            if one.node_id in facts.isr and one is not replica and one.log.end_offset == end
        ]
        first = -1
        for data in whole_batches:
            batch = StoredBatch(data)
            base = max(batch.base_offset, replica.log.end_offset)
            batch.place(base, facts.leader_epoch)
            for one in in_sync:
                one.log.append_placed(StoredBatch(batch.data))
            replica.log.append_placed(batch)
            first = base if first < 0 else first
        self._brokers[replica.node_id].replica_manager.put(
            replica, end, [one.node_id for one in in_sync]
        )
        for one in in_sync:
            one.log.advance(replica.log.high_watermark)
        return first

    def _replicas(self, topic: str, index: int) -> list[Replica]:
        facts = self._partition(topic, index)
        found = (self._brokers[one].replicas.get(topic, index) for one in facts.replicas)
        return [one for one in found if one is not None]

    def _replica(self, topic: str, index: int) -> Replica:
        """The leader's replica, or the one with the longest log."""
        facts = self._partition(topic, index)
        found = self._replicas(topic, index)
        if not found:
            raise _unknown(f"{topic}-{index}")
        return max(found, key=lambda one: (one.node_id == facts.leader, one.log.end_offset))

    def _partition(self, topic: str, index: int) -> PartitionRegistration:
        count = len(self._topic(topic).partitions)
        found = self._image.partition(topic, whole("partition", index))
        if found is None:
            raise _unknown(f"{topic}-{index}; {topic} has 0 to {count - 1}")
        return found

    def _topic(self, name: str, argument: str = "topic") -> TopicImage:
        found = self._image.topics.get(text(argument, name))
        if found is None:
            raise _unknown(f"topic {name!r}; there are {', '.join(self.topics[:10]) or 'none'}")
        return found


def _split(batches: bytes) -> list[memoryview]:
    """Split the bytes that a test gave into batches, which must be whole."""
    if not isinstance(batches, bytes | bytearray | memoryview):
        raise InvalidArgument(f"batches={batches!r} must be the bytes of v2 batches")
    try:
        found = split_batches(batches)
    except ApiError as refused:
        raise InvalidArgument(f"batches can't be: {refused.message}") from None
    rest = len(batches) - sum(len(one) for one in found)
    if rest or not found or any(one[MAGIC_POSITION] != _V2 for one in found):
        raise InvalidArgument(
            f"batches must be whole batches of format v2, not {len(found)} and {rest} more bytes"
        )
    return found


def _unknown(what: str) -> Exception:
    return broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, broker_message=f"There is no {what}")


@contextlib.contextmanager
def raise_as_broker_error(doing: str) -> Iterator[None]:
    """Turn an ApiError into the BrokerError that a client would have got."""
    try:
        yield
    except ApiError as refused:
        raise broker_error(refused.code, doing, broker_message=refused.message) from None
