"""A member on librdkafka, by confluent-kafka."""

from __future__ import annotations

import signal
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.mixed.members.emitting import COMMIT_EVERY, arguments, emit, report_error, report_read

_stopping = False


def main() -> None:
    """Read until SIGTERM, then leave."""
    options = arguments()
    signal.signal(signal.SIGTERM, _stop)
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "client.id": options.name,
            "partition.assignment.strategy": options.assignor,
            "session.timeout.ms": int(options.session * 1000),
            "heartbeat.interval.ms": int(options.heartbeat * 1000),
            "max.poll.interval.ms": 60_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "socket.timeout.ms": int(options.request_timeout * 1000),
            "reconnect.backoff.max.ms": 1000,
        }
    )

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        _commit(consumer)
        emit("revoked", [one.partition for one in partitions])

    emit("up")
    consumer.subscribe(
        [options.topic],
        on_assign=lambda _, partitions: emit("assigned", [one.partition for one in partitions]),
        on_revoke=revoked,
        on_lost=lambda _, partitions: emit("lost", [one.partition for one in partitions]),
    )
    due = time.monotonic() + COMMIT_EVERY
    while not _stopping:
        read = []
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                read.append((message.partition(), message.offset()))
            else:
                emit("error", where="poll", error=str(message.error()))
        report_read(read)
        if time.monotonic() > due:
            _commit(consumer)
            due = time.monotonic() + COMMIT_EVERY
    consumer.close()
    emit("left")


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].name() != "_NO_OFFSET":
            report_error(error, "commit")
    else:
        emit("committed")


def _stop(*_: Any) -> None:
    global _stopping
    _stopping = True


if __name__ == "__main__":
    main()
