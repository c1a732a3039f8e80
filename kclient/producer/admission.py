"""Admission: check a record, choose its partition, and put it into a batch or have it wait.

``Producer`` calls ``put`` for records that need a decision; the sender calls ``admit`` when memory
was freed, ``metadata_changed`` and ``expire``. A record that can't go into a batch at once waits in
a queue of ``WaitingRecords``. While earlier records for its topic wait in a queue, a new one is
queued behind them, so that order is kept.
Sans-IO: futures and times are passed in. It must not know about requests.
"""

from __future__ import annotations

import copy
import logging
import math
from typing import TYPE_CHECKING, Any

from kclient.broker_errors import InvalidTopic, TopicAuthorizationFailed, UnknownTopicOrPartition
from kclient.cluster.retry import UNKNOWN_TOPIC_GRACE
from kclient.errors import (
    BufferFull,
    DeliveryTimedOut,
    InvalidArgument,
    KafkaError,
    MetadataTimedOut,
    RecordTooLarge,
    broker_error,
)
from kclient.producer._compiled import Delivery, RecordAppender, WhenFull
from kclient.producer.outgoing import (
    checked_partition,
    checked_timestamp,
    plain_bytes,
    plain_headers,
    serialized,
)
from kclient.producer.waiting_records import WaitingRecord, WaitingRecords
from kclient.record import partition_of_key
from kclient.record.implementation import codec
from kclient.record.layout import NO_HEADERS, RECORD_OVERHEAD
from kclient.types import check_topic_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from kclient.clock import Clock
    from kclient.cluster.updater import MetadataUpdater
    from kclient.cluster.view import Cluster
    from kclient.config import ProducerConfig
    from kclient.hooks import ClientLog, Partitioner, Serializer
    from kclient.producer._compiled import PartitionQueue
    from kclient.producer.accumulator import Accumulator, TopicQueues
    from kclient.producer.delivery import DeliveryHost
    from kclient.producer.outgoing import Content

BATCH_OVERHEAD = 61
"""Bytes of a batch header."""
_GRACE_FOR_NEW = 3 * UNKNOWN_TOPIC_GRACE
"""Seconds for which brokers may report a topic as unknown while they auto-create it."""
PARTITION_PATIENCE = 2 * UNKNOWN_TOPIC_GRACE
"""Seconds that a record waits for a partition that its topic doesn't have by current metadata."""
_FORGIVEN = 0.05
"""Share of delivery_timeout that a wait for memory or metadata may take without shortening it."""
_SERVED_AT_ONCE = 1000
"""Waiting records that leave their queue before the sender yields to the event loop."""

_FATAL_TOPIC_ERRORS = frozenset({InvalidTopic.code, TopicAuthorizationFailed.code})

logger = logging.getLogger("kclient.producer")


class Admission:
    """Admits the records of one producer.

    Attributes:
        waiting_records: Records that wait to be put into a batch.
        appender: The fast path, for records that need no decision.
        log: Logger for warnings; the producer replaces it by its own.
        max_record: Bytes of the largest allowed record.
        max_block: Seconds that a waiting call may take; None means no limit.
        partitioned: True if the application supplies a partitioner.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        host: DeliveryHost,
        clock: Clock,
        metadata: MetadataUpdater,
        serializers: tuple[Serializer[Any] | None, Serializer[Any] | None],
        partitioner: Partitioner | None,
    ) -> None:
        self.waiting_records = WaitingRecords(
            config.max_parked, accumulator.budget, accumulator.transactions
        )
        self.log: logging.Logger | ClientLog = logger
        self._accumulator = accumulator
        self._known = accumulator.topics
        self._host = host
        self._clock = clock
        self._metadata = metadata
        self._key_serializer, self._value_serializer = serializers
        self._partitioner = partitioner
        self.partitioned = partitioner is not None
        self._limit = config.buffer_memory
        self.max_record = min(config.max_request_size, config.buffer_memory) - BATCH_OVERHEAD
        self.appender = RecordAppender(accumulator.budget, self.max_record)
        self._delivery_timeout = config.delivery_timeout
        self._forgiven = config.delivery_timeout * _FORGIVEN
        self._grace = _GRACE_FOR_NEW if config.allow_auto_create_topics else UNKNOWN_TOPIC_GRACE
        self._unknown: set[str] = set()  # topics that a warning was logged for
        self._hopeless: dict[str, float] = {}  # missing topics, and for how long they were missing
        self._followed: Cluster | None = None
        self.max_block = config.max_block
        self._shortened: dict[PartitionQueue, None] = {}  # whose batch got an earlier deadline
        self.waiting_records.memory_queue_emptied = self._seal_shortened

    # Records from the application.

    def put(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp: int | None,
        when_full: WhenFull | Callable[[], asyncio.Future[None]],
    ) -> Delivery:
        """Admit one record; see ``Producer.send`` for the arguments.

        ``when_full`` may be a function that creates a future: the record is then queued as by
        ``enqueue``, with that future as its ``WaitingRecord.waiter``, which completes when the
        record is in a batch or has failed.

        Raises:
            SerializationFailed, InvalidArgument, RecordTooLarge, BufferFull: The record was not
                accepted.
        """
        if self._accumulator.transactions is not None:
            self._accumulator.transactions.check_open()
        if self._value_serializer is not None:
            value = serialized(topic, "value", value, self._value_serializer)
        elif value.__class__ is not bytes:
            value = plain_bytes(topic, "value", value)
        if self._key_serializer is not None:
            key = serialized(topic, "key", key, self._key_serializer)
        elif key is not None and key.__class__ is not bytes:
            key = plain_bytes(topic, "key", key)
        size, encoded_headers = RECORD_OVERHEAD, NO_HEADERS
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            plain, more = plain_headers(topic, headers)
            encoded_headers = codec.encode_headers(plain)
            size += more
        if size > self.max_record:
            raise self.too_large(topic, size)
        if timestamp is None:
            timestamp = self._clock.wall_ms()
        else:
            timestamp = checked_timestamp(timestamp)
        if partition is not None:
            partition = checked_partition(partition)
        content = timestamp, key, value, encoded_headers, size
        return self.put_plain(topic, partition, content, when_full)

    def put_plain(
        self,
        topic: str,
        partition: int | None,
        content: Content,
        when_full: WhenFull | Callable[[], asyncio.Future[None]],
    ) -> Delivery:
        """Like ``put``, for arguments that are already checked.

        Raises:
            InvalidArgument, BufferFull: The record was not accepted.
        """
        if topic.__class__ is not str:
            topic = check_topic_name(topic)
        known = self._known.get(topic)
        if (
            known is not None
            and (partition is None or partition < known.count)
            and self._accumulator.budget.used + content[4] <= self._limit
            and self.none_waiting(topic)
        ):
            return self._place(known, partition, content)
        return self._hold(check_topic_name(topic), partition, content, when_full)

    def none_waiting(self, topic: str) -> bool:
        """True if no queue holds records that a new one for ``topic`` must wait behind."""
        if not self._accumulator.budget.waiting:
            return True
        return (
            self.waiting_records.next_for_memory() is None
            and not self.waiting_records.has_waiting(topic)
        )

    def _place(
        self,
        topic: TopicQueues,
        partition: int | None,
        content: Content,
        deadline: float | None = None,
    ) -> Delivery:
        """Put a record into a batch; with ``deadline``, into one that expires near that time."""
        accumulator = self._accumulator
        _, key, _, _, size = content
        sticky = False
        if partition is None:
            if self._partitioner is not None:
                partition = self.choose(topic, key)
            elif key is not None:
                partition = partition_of_key(key, topic.count)
            else:
                sticky = True
                partition = topic.sticky.ready(0)
                if partition < 0:
                    partition = topic.move_sticky()
        queue = topic.queues[partition] or accumulator.queue(topic, partition)
        if deadline is not None:
            accumulator.separate(queue, deadline)
        delivery = accumulator.append(queue, content)
        if delivery is None:
            if sticky and topic.sticky.due():
                if queue.open is not None:
                    accumulator.seal(queue)  # it was full, and no more records will be added
                queue = accumulator.queue(topic, topic.move_sticky())
                if deadline is not None:
                    accumulator.separate(queue, deadline)
                delivery = accumulator.append(queue, content)
            if delivery is None:
                delivery = accumulator.append_first(queue, content, self._clock.now())
        if sticky:
            topic.sticky.note(size)
        return delivery

    def choose(self, topic: TopicQueues, key: bytes | None) -> int:
        """Return the choice of the application's partitioner; -1 without one.

        Without one, records with a key go to the partition that Java's producer would choose
        (``record.murmur``), the others to that of ``StickyPartitioner`` (uniform sticky, KIP-794).

        Raises:
            InvalidArgument: The partitioner fails, or returns no partition of the topic.
        """
        partitioner, count = self._partitioner, topic.count
        if partitioner is None:
            return -1
        name = type(partitioner).__name__
        try:
            chosen = partitioner.partition(topic.name, key, count)
        except KafkaError:
            raise
        except Exception as error:
            raise InvalidArgument(
                f"{name} failed for topic {topic.name}: {type(error).__name__}: {error}",
                maybe_written=False,
            ) from error
        if not isinstance(chosen, int) or isinstance(chosen, bool):
            raise InvalidArgument(
                f"{name} chose {chosen!r} for topic {topic.name}: a partitioner must return an int"
            )
        if not 0 <= chosen < count:
            raise InvalidArgument(
                f"{name} chose partition {chosen} of topic {topic.name}, which has {count}: "
                f"allowed is 0 to {count - 1}"
            )
        return chosen

    def too_large(self, topic: str, size: int) -> RecordTooLarge:
        """Return the error for a record of ``size`` bytes, which is over ``max_record``."""
        return RecordTooLarge(
            f"a record for topic {topic!r} takes {size + BATCH_OVERHEAD:,} bytes with its batch, "
            f"allowed are {self.max_record + BATCH_OVERHEAD:,}",
            hint="raise max_request_size (and max.message.bytes of the topic), or send less",
            maybe_written=False,
        )

    # Records that can't go into a batch yet.

    def _hold(
        self,
        topic: str,
        partition: int | None,
        content: Content,
        when_full: WhenFull | Callable[[], asyncio.Future[None]],
    ) -> Delivery:
        known = self._known.get(topic)
        placeable = known is not None and (partition is None or partition < known.count)
        for_memory = placeable and not self.waiting_records.has_waiting(topic)
        self._check_line(topic, content[4], for_memory, when_full)
        record = WaitingRecord(self._host, self.waiting_records, topic, partition, content)
        delivery = Delivery(record, 0, content[0])
        record.delivery = delivery
        now = self._clock.now()
        if isinstance(when_full, WhenFull):
            record.deadline = now + self._delivery_timeout
        else:
            record.waiter = when_full()
            if self.max_block is not None:
                record.deadline = now + self.max_block
        planned = self.waiting_records.next_due()
        if for_memory:
            self.waiting_records.wait_for_space(record)
        elif (
            known is not None
            and partition is not None
            and not self.waiting_records.has_waiting(topic)
        ):
            self._wait_for_partition(record, partition)
        else:
            self.waiting_records.wait_for_topic(record, now)
            self._metadata.touch(topic)
            self._learn_or_ask(topic, self._metadata.view, known_now=known is None)
        if for_memory or record.deadline < (math.inf if planned is None else planned):
            self._accumulator.wake()  # to free memory; or the sender would sleep for too long
        return delivery

    def _check_line(
        self,
        topic: str,
        size: int,
        for_memory: bool,
        when_full: WhenFull | Callable[[], asyncio.Future[None]],
    ) -> None:
        if not isinstance(when_full, WhenFull):
            return
        if not for_memory:
            self.waiting_records.check_topic_line(topic, size, self._accumulator.budget.used)
        elif when_full is WhenFull.QUEUE:
            self.waiting_records.check_memory_queue(size, self._memory_words())
        else:
            raise BufferFull(
                self._memory_words(),
                hint="use `await producer.enqueue(...)`, which waits for space",
                maybe_written=False,
            )

    def _memory_words(self) -> str:
        return (
            f"{self._accumulator.budget.used:,} bytes of records wait for their acknowledgement, "
            f"buffer_memory={self._limit:,}"
        )

    def _learn_or_ask(self, topic: str, view: Cluster, *, known_now: bool) -> None:
        """Use the metadata of ``topic`` if the view has it, else request an update."""
        if known_now and view.partition_count(topic):
            self._learn(topic, view)
            self._serve_line(topic, view)
            self.admit()
        if not known_now or self.waiting_records.has_waiting(topic):
            self._metadata.request_update(topic)

    def _wait_for_partition(self, record: WaitingRecord, partition: int) -> None:
        """Have a record wait for ``partition``: its topic may have grown since the last refresh."""
        self.waiting_records.wait_for_partition(
            record, partition, self._clock.now() + PARTITION_PATIENCE
        )
        self._ask_again(record.topic)
        self._accumulator.wake()  # the sender may sleep until a later time

    def _ask_again(self, topic: str) -> None:
        self._metadata.touch(topic)
        self._metadata.request_update(topic)

    def admit(self) -> None:
        """Put waiting records into batches, in order, as far as memory is available."""
        flushed: dict[PartitionQueue, None] = {}
        left = _SERVED_AT_ONCE
        while (record := self.waiting_records.next_for_memory()) is not None:
            if self._accumulator.budget.used + record.size > self._limit:
                break
            if left == 0:
                self._accumulator.wake()  # the sender calls again after a yield to the loop
                break
            left -= 1
            self._admit(record, flushed)
        for queue in flushed:
            self._accumulator.seal(queue)

    def _admit(self, record: WaitingRecord, flushed: dict[PartitionQueue, None]) -> None:
        topic = self._known[record.topic]
        deadline = self._clock.now() + self._delivery_timeout
        # max_block bounds the wait of enqueue; a short wait of send does not count, so that records
        # of both methods, which alternate while memory is full, share batches.
        if record.waiter is None and deadline - record.deadline > self._forgiven:
            deadline = record.deadline
        try:
            delivery = self._place(topic, record.wanted, record.content, deadline)
        except KafkaError as error:
            record.refused(error)
            return
        batch = self._accumulator.batch_of(delivery._outcome)
        if batch is not None:
            if self._accumulator.shorten(batch, deadline):
                self._shortened[batch.queue] = None
            for wait in record.flushes or ():
                batch.watch(wait)
                wait.pending -= 1  # from now on it waits for the batch
                if wait.urgent:
                    flushed[batch.queue] = None
        record.admitted(delivery)

    def _seal_shortened(self) -> None:
        """Seal shortened batches: no record waits for memory, so new ones get a full timeout."""
        shortened, self._shortened = self._shortened, {}
        for queue in shortened:
            self._accumulator.separate(queue, self._clock.now() + self._delivery_timeout)

    def metadata_changed(self, view: Cluster) -> None:
        """Apply new partitions and leaders; admit the records that waited for them."""
        before, self._followed = self._followed, view
        for name in list(self._known):
            if name not in view.topics:
                self._retire(name)
            elif before is None or not view.has_same_leaders(before, name):
                self._learn(name, view)
        for name in self.waiting_records.unknown_topics():
            self._learn(name, view)
            self._serve_line(name, view)
        for place in self.waiting_records.unknown_partitions():
            if place.partition < self._known[place.topic].count:
                self.waiting_records.partition_came(place)
            else:
                self._ask_again(place.topic)
        self.admit()

    def _learn(self, name: str, view: Cluster) -> None:
        found = view.topic(name)
        if found is None or found.error or not found.leaders:
            return
        self._unknown.discard(name)
        self._hopeless.pop(name, None)
        topic = self._accumulator.topic(name)
        topic.learn(found.leaders, found.leader_epochs, view.topic_id(name))
        if self._partitioner is None and self._key_serializer is None is self._value_serializer:
            self.appender.topics[name] = topic.topic_state
        self._accumulator.update_leaders(topic)

    def _retire(self, name: str) -> None:
        """Forget ``name``, unused for ``metadata_max_idle``; its next record awaits metadata."""
        if any(record.topic == name for record in self.waiting_records.all_waiting()):
            return
        if self._accumulator.retire(name):
            self.appender.topics.pop(name, None)

    def _serve_line(self, name: str, view: Cluster) -> None:
        """Admit or fail the records that wait for a topic, if its metadata suffices for that."""
        known = self._known.get(name)
        code = view.topic_error(name)
        if known is None:
            if code in _FATAL_TOPIC_ERRORS:
                for record in self.waiting_records.waiting_for(name):
                    record.refused(broker_error(code, f"send to topic {name}", maybe_written=False))
            elif self._metadata.confirmed_unknown(
                name, self.waiting_records.waiting_since(name), self._grace
            ):
                self._hopeless[name] = self._clock.now() - self.waiting_records.waiting_since(name)
                self._accumulator.wake()  # the sender will have them failed
            else:
                self._ask_again(name)
                self._warn_of_unknown(name, code)
            return
        for record in self.waiting_records.waiting_for(name):
            if record.wanted is not None and record.wanted >= known.count:
                self._wait_for_partition(record, record.wanted)
        self.waiting_records.topic_known(name)

    def _warn_of_unknown(self, name: str, code: int) -> None:
        """Log a warning, once per topic, that records wait for a topic unknown to the brokers."""
        if code == UnknownTopicOrPartition.code and name not in self._unknown:
            self._unknown.add(name)
            self.log.warning(
                "topic %s doesn't exist: its records wait for it, %g s at most as long as brokers "
                "say so (create it, or check its spelling)",
                name,
                min(2 * self._grace, self._delivery_timeout),
            )

    # Expiry.

    def expire(self, now: float) -> None:
        """Fail waiting records past their deadline, a limited number of them per call."""
        left = _SERVED_AT_ONCE - self._refuse_hopeless(_SERVED_AT_ONCE)
        for _ in range(left):
            record = self.waiting_records.pop_due(now)
            if record is None:
                return
            record.refused(self._overdue(record))
        self._accumulator.wake()  # the sender calls again after a yield to the loop

    def _refuse_hopeless(self, most: int) -> int:
        """Fail records that wait for a missing topic; return how many. Later ones wait as long."""
        refused = 0
        for name, waited in list(self._hopeless.items()):
            for record in self.waiting_records.waiting_for(name, most - refused):
                record.refused(
                    broker_error(
                        UnknownTopicOrPartition.code,
                        f"topic {name} doesn't exist: brokers have said so for {waited:.1f} s",
                        hint=f"create topic {name} first, or check its spelling",
                        maybe_written=False,
                    )
                )
                refused += 1
            if not self.waiting_records.has_waiting(name):
                del self._hopeless[name]
        return refused

    def _overdue(self, record: WaitingRecord) -> KafkaError:
        enqueued = record.waiter is not None
        setting = (
            f"max_block={self.max_block:g} s"
            if enqueued and self.max_block is not None
            else f"delivery_timeout={self._delivery_timeout:g} s"
        )
        if self.waiting_records.awaits_partition(record):
            if self._clock.now() < record.deadline:
                setting = f"{PARTITION_PATIENCE:g} s"
            count = self._known[record.topic].count
            return unknown_partition(record.topic, record.wanted, count, setting)
        if record.line is not None and self.waiting_records.has_waiting(record.topic):
            return self._topic_missing(record, setting)
        if enqueued:
            return BufferFull(
                f"no space within {setting}: {self._memory_words()}",
                hint="are the brokers reachable? Else raise buffer_memory or send less at once",
                maybe_written=False,
            )
        return DeliveryTimedOut(
            f"a record for topic {record.topic} found no space within {setting}: "
            f"{self._memory_words()}",
            maybe_written=False,
        )

    def _topic_missing(self, record: WaitingRecord, setting: str) -> KafkaError:
        name = record.topic
        code = self._metadata.view.topic_error(name)
        if code == UnknownTopicOrPartition.code:
            return broker_error(
                code,
                f"topic {name} did not come to exist within {setting}",
                hint=f"create topic {name} first, or check its spelling",
                maybe_written=False,
            )
        return MetadataTimedOut(
            f"no usable metadata of topic {name} within {setting}"
            + (f"; the brokers answer with error code {code}" if code else ""),
            hint="check that the brokers are up and reachable from here",
            maybe_written=False,
        )

    def _waits_for(self, record: WaitingRecord) -> str:
        name = record.topic
        if self.waiting_records.awaits_partition(record):
            return f"topic {name} has no partition {record.wanted} as far as is known"
        if not self.waiting_records.has_waiting(name):
            return f"a record for topic {name} found no space: {self._memory_words()}"
        code = self._metadata.view.topic_error(name)
        if code == UnknownTopicOrPartition.code:
            return f"topic {name} doesn't exist"
        return f"the metadata of topic {name} is not here yet"

    def fail_waiting(
        self, error: KafkaError, *, enqueued_only: bool = False
    ) -> Generator[None, None, None]:
        """Fail all records that wait in a queue now (close), one per step."""
        for record in self.waiting_records.all_waiting():
            # Between two steps it may have left its queue.
            if record.line is not None and (record.waiter is not None or not enqueued_only):
                own = copy.copy(error)
                own.__cause__ = error.__cause__
                own.message = f"{error.message}; {self._waits_for(record)}"
                own.maybe_written = False  # it was in no batch, unlike other records
                record.refused(own)
                yield


def unknown_partition(topic: str, partition: object, count: int, setting: str) -> MetadataTimedOut:
    """Return the error for a record or row that waited in vain for ``partition`` to appear."""
    return MetadataTimedOut(
        f"partition {partition} of topic {topic} did not come to exist within {setting}: the topic "
        f"has {count}, 0 to {count - 1}",
        hint="check its number, and that the brokers are up and reachable from here",
        maybe_written=False,
    )
