"""A member on aiokafka."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.mixed.members.emitting import COMMIT_EVERY, arguments, emit, report_error, report_read

ASSIGNORS = {
    one.name: one
    for one in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
}


class Listener(ConsumerRebalanceListener):
    """Reports, and commits what is revoked."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Before it joins again."""
        if revoked:
            await _commit(self._consumer)
        emit("revoked", [one.partition for one in revoked])

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """After it joined."""
        emit("assigned", [one.partition for one in assigned])


async def main() -> None:
    """Read until SIGTERM, then leave."""
    options = arguments()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
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
    consumer.subscribe([options.topic], listener=Listener(consumer))
    emit("up")
    await consumer.start()
    due = loop.time() + COMMIT_EVERY
    while not stopping.is_set():
        try:
            found = await consumer.getmany(timeout_ms=100, max_records=500)
        except KafkaError as error:
            report_error(error, "poll")
            continue
        report_read((one.partition, one.offset) for batch in found.values() for one in batch)
        if loop.time() > due:
            await _commit(consumer)
            due = loop.time() + COMMIT_EVERY
    await consumer.stop()
    emit("left")


async def _commit(consumer: AIOKafkaConsumer) -> None:
    try:
        await consumer.commit()
    except KafkaError as error:
        report_error(error, "commit")
    else:
        emit("committed")


if __name__ == "__main__":
    asyncio.run(main())
