"""A member on kafka-python."""

from __future__ import annotations

import signal
import time
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from tests.mixed.members.emitting import COMMIT_EVERY, arguments, emit, report_error, report_read

ASSIGNORS = {
    one.name: one
    for one in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}
_stopping = False


class Listener(ConsumerRebalanceListener):
    """Reports; what is revoked can't be committed here, as the client's own loop calls this."""

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Before it joins again."""
        emit("revoked", [one.partition for one in revoked])

    def on_partitions_lost(self, lost: Any) -> None:
        """It was fenced, or its session expired."""
        emit("lost", [one.partition for one in lost])

    def on_partitions_assigned(self, assigned: Any) -> None:
        """After it joined."""
        emit("assigned", [one.partition for one in assigned])


def main() -> None:
    """Read until SIGTERM, then leave."""
    options = arguments()
    signal.signal(signal.SIGTERM, _stop)
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.name,
        partition_assignment_strategy=(ASSIGNORS[options.assignor],),
        session_timeout_ms=int(options.session * 1000),
        heartbeat_interval_ms=int(options.heartbeat * 1000),
        max_poll_interval_ms=60_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    )
    emit("up")
    consumer.subscribe([options.topic], listener=Listener())
    due = time.monotonic() + COMMIT_EVERY
    while not _stopping:
        try:
            found = consumer.poll(timeout_ms=100, max_records=500)
        except KafkaError as error:
            report_error(error, "poll")
            continue
        report_read((one.partition, one.offset) for batch in found.values() for one in batch)
        if time.monotonic() > due:
            _commit(consumer)
            due = time.monotonic() + COMMIT_EVERY
    consumer.close(autocommit=False)
    emit("left")


def _commit(consumer: KafkaConsumer) -> None:
    try:
        consumer.commit()
    except KafkaError as error:
        report_error(error, "commit")
    else:
        emit("committed")


def _stop(*_: Any) -> None:
    global _stopping
    _stopping = True


if __name__ == "__main__":
    main()
