"""``InternalTopic``: what a coordinator sees of the topic that has its state.

The only file through which coordinators see how brokers store topics and logs: the partitions of
``__consumer_offsets`` or ``__transaction_state`` that a broker leads, their logs, and the creation
of the topic. The coordinator checks before each request; ``watch`` notifies it of a lost partition
at once, so that no request stays waiting at a broker that can't respond to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.errors import ProtocolError
from kclient.protocol.message import LogRecord
from kclient.testing.image import NO_LEADER, BrokerRegistration
from kclient.testing.log import ENDLESS_BYTES, INFLATE_CAP_BYTES
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_rules import TopicSpec, check_new_topic

if TYPE_CHECKING:
    from kclient.record.record_batch import Batch
    from kclient.testing.broker import Broker
    from kclient.testing.log import PartitionLog

_INT16 = struct.Struct(">h")
PREFIX_BYTES = _INT16.size
"""Before the fields of a stored key or value."""
_BITS_32 = 0xFFFFFFFF
_SIGN_32 = 1 << 31


def java_hash(text: str) -> int:
    """``String.hashCode``, signed 32 bits: clients may compute a group's partition with it."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] | units[index + 1] << 8)) & _BITS_32
    return value - (1 << 32) if value & _SIGN_32 else value


def partition_of(key: str, partitions: int) -> int:
    """The partition that a group, or a transactional id, belongs to."""
    value = java_hash(key)
    return (0 if value == -_SIGN_32 else abs(value)) % partitions


def prefixed(number: int, message: LogRecord, version: int) -> bytes:
    """A key or value as coordinators store it: the number of its type or version, then itself."""
    return _INT16.pack(number) + message.encode(version)


def prefix_of(data: bytes) -> int:
    """The number that a stored key or value begins with. Raises ProtocolError: there is none."""
    if len(data) < PREFIX_BYTES:
        raise ProtocolError("a key or value of an internal topic has no type or version")
    return int(_INT16.unpack_from(data)[0])


def keyed_records(batch: Batch) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of each record of a batch; those without a key are of no coordinator."""
    batch.inflate(INFLATE_CAP_BYTES)
    for record in batch.records("", 0):
        if record.key is not None:
            value = record.value
            yield bytes(record.key), None if value is None else bytes(value)


class InternalTopic:
    """An internal topic on one broker.

    Args:
        broker: The broker.
        name: Of the topic.
        partitions: How many it gets when it is created.
        replication_factor: Wanted then; a cluster with fewer brokers is enough.
        configs: Of the topic.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
    ) -> None:
        self.name = name
        self.partitions = partitions
        self._broker = broker
        self._replication_factor = replication_factor
        self._configs = dict(configs)
        self._watched: dict[int, tuple[PartitionLog, Callable[[int], None]]] = {}

    def leads(self, index: int) -> int | None:
        """The leader epoch in which this broker leads a partition, None if it doesn't."""
        replica = self._broker.replicas.get(self.name, index)
        return replica.epoch if replica is not None and replica.leads else None

    def led(self) -> list[int]:
        """All partitions that this broker leads."""
        topic = self._broker.image.topics.get(self.name)
        partitions = () if topic is None else topic.partitions
        return [one.index for one in partitions if self.leads(one.index) is not None]

    def read(self, index: int) -> Iterable[bytes | bytearray]:
        """The batches of a partition, oldest first."""
        replica = self._broker.replicas.get(self.name, index)
        return () if replica is None else (one.data for one in replica.log.batches)

    def append(
        self, index: int, batch: bytes, done: Callable[[ErrorCode], None], seconds: float
    ) -> None:
        """Append to a partition.

        Args:
            index: Of the partition.
            batch: A whole batch.
            done: Gets NONE once all in sync have it, or an error code.
            seconds: How long that may take.
        """
        replica = self._broker.replicas.get(self.name, index)
        if replica is not None and len(batch) > replica.config.max_message_bytes:
            done(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            self._broker.replica_manager.append_internal(
                self.name, index, StoredBatch(batch), done, seconds
            )

    def watch(self, index: int, lost: Callable[[], None]) -> None:
        """Call ``lost`` once, when the leader of the partition changes."""
        replica = self._broker.replicas.get(self.name, index)
        if replica is None:
            return

        def disturbed(size_bytes: int) -> None:
            if size_bytes >= ENDLESS_BYTES:
                self.unwatch(index)
                lost()

        self.unwatch(index)
        self._watched[index] = (replica.log, disturbed)
        replica.log.listen(disturbed)

    def unwatch(self, index: int) -> None:
        """Stop watching the partition."""
        watched = self._watched.pop(index, None)
        if watched is not None:
            log, listener = watched
            log.unlisten(listener)

    def coordinator_of(self, index: int) -> BrokerRegistration | None:
        """A partition's leader, as this broker knows it; None if there is none."""
        image = self._broker.metadata_image
        partition = image.partition(self.name, index)
        if partition is None or partition.leader == NO_LEADER:
            return None
        leader = image.brokers[partition.leader]
        return leader if leader.alive else None

    def create(self) -> None:
        """Create the topic if it doesn't exist, on as many brokers as are up.

        Kafka requires the configured replication factor; here a cluster of one is enough.
        """
        if self.name in self._broker.image.topics:
            return
        try:
            controller = self._broker.controller()
            image = controller.image
            factor = min(self._replication_factor, len(image.alive_brokers))
            spec = TopicSpec(self.name, self.partitions, factor, (), self._configs)
            checked = check_new_topic(image, spec)
            controller.create_topic(checked.name, checked.assignments, checked.config)
        except ApiError:
            return  # the client finds no coordinator, and retries
