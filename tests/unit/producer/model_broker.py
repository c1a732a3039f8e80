"""A leader with the idempotence rules of Apache Kafka: logs, sequences, the window of five.

Uses ``ProduceRequest`` and ``ProduceResponse`` messages, knows nothing of the client, and keeps
written records so that tests can compare them with the outcomes that the producer reports.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kclient.record import read_batches

WINDOW = 5
WRAP = 2**31


@dataclass
class ProducerEntry:
    """A leader's state for one producer id in one partition."""

    epoch: int
    last_sequence: int
    window: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


@dataclass
class Log:
    """One partition."""

    values: list[bytes] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    start: int = 0
    max_batch_bytes: int = 2**31


class ModelBroker:
    """Appends batches as a leader does."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], Log] = {}

    def log(self, topic: str, partition: int) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def produce(self, request: ProduceRequest, refuse: int = 0) -> ProduceResponse:
        """Append all of ``request``, or reject every batch with ``refuse``; return the response."""
        topics = []
        for topic in request.topic_data:
            parts = []
            for data in topic.partition_data:
                log = self.log(topic.name, data.index)
                code, offset = (refuse, -1) if refuse else self._append(log, bytes(data.records))
                parts.append(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=code,
                        base_offset=offset,
                        log_append_time_ms=-1,
                        log_start_offset=log.start,
                    )
                )
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=parts))
        return ProduceResponse(responses=topics)

    def _append(self, log: Log, data: bytes) -> tuple[int, int]:
        if len(data) > log.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        (batch,) = read_batches(data)
        batch.check_crc()
        records = [bytes(r.value) for r in batch.records("t", 0)]
        if batch.producer_id >= 0:
            code, offset = self._check(log, batch, len(records))
            if code or offset >= 0:
                return code, offset
        base = len(log.values)
        log.values.extend(records)
        if batch.producer_id >= 0:
            first = batch.base_sequence
            last = (first + len(records) - 1) % WRAP
            entry = log.producers[batch.producer_id]
            entry.last_sequence = last
            entry.window.append((first, last, base))
        return 0, base

    def _check(self, log: Log, batch: object, count: int) -> tuple[int, int]:
        entry = log.producers.get(batch.producer_id)
        first = batch.base_sequence
        if entry is None:
            # Since KIP-360 a leader without state for a producer accepts any sequence.
            log.producers[batch.producer_id] = ProducerEntry(batch.producer_epoch, -1)
            return 0, -1
        if batch.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > entry.epoch:
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            log.producers[batch.producer_id] = ProducerEntry(batch.producer_epoch, -1)
            return 0, -1
        last = (first + count - 1) % WRAP
        for known_first, known_last, base in entry.window:
            if (known_first, known_last) == (first, last):
                return 0, base
        if first != (entry.last_sequence + 1) % WRAP:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return 0, -1
