"""A member on kclient, which reads and commits in one of three ways.

"poll" commits by itself what polls returned; "iterate" lets the client commit; "run" gives records
to handlers. At SIGUSR1 it reports its health and where its tasks wait, for the report on a group
that is stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
from collections.abc import Iterable
from typing import Any

import kclient
from kclient.errors import CommitFailed, KafkaError
from tests.mixed.members.emitting import COMMIT_EVERY, arguments, emit, report_error, report_read

LEAVING = 10.0
_WORDS = 1500
"""Characters of a stack or of a health that are reported."""


async def main() -> None:
    """Read until SIGTERM, then leave."""
    options = arguments()
    settings: dict[str, Any] = {}
    if options.way == "poll":
        settings["enable_auto_commit"] = False

    async def revoked(partitions: Iterable[kclient.TopicPartition]) -> None:
        if options.way == "poll":
            await commit(consumer)
        emit("revoked", _numbers(partitions))

    def assigned(partitions: Iterable[kclient.TopicPartition]) -> None:
        membership = consumer.health().group
        emit(
            "assigned", _numbers(partitions), leads=membership is not None and membership.is_leader
        )

    consumer: kclient.Consumer[Any, Any] = kclient.Consumer(
        options.bootstrap,
        options.topic,
        group=options.group,
        client_id=options.name,
        partition_assignment_strategy=(options.assignor,),
        session_timeout=options.session,
        heartbeat_interval=options.heartbeat,
        max_poll_interval=60.0,
        auto_offset_reset="earliest",
        auto_commit_interval=COMMIT_EVERY,
        fetch_max_wait=0.1,
        request_timeout=options.request_timeout,
        on_assigned=assigned,
        on_revoked=revoked,
        on_lost=lambda partitions: emit("lost", _numbers(partitions)),
        **settings,
    )
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, report_state, consumer)
    emit("up")
    await consumer.start()
    ways = {"poll": polling, "iterate": iterating, "run": running}
    reading = asyncio.create_task(ways[options.way or "poll"](consumer, stopping))
    leaving = asyncio.create_task(stopping.wait())
    await asyncio.wait([reading, leaving], return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        reading.result()  # raises what ended it before it was asked to leave
    elif options.way != "poll":
        reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    await consumer.close(LEAVING)
    leaving.cancel()
    emit("left")


async def polling(consumer: kclient.Consumer[Any, Any], stopping: asyncio.Event) -> None:
    """Take lists of records, and commit now and then."""
    loop = asyncio.get_running_loop()
    due = loop.time() + COMMIT_EVERY
    while not stopping.is_set():
        try:
            records = await consumer.poll(500, timeout=0.1)
        except KafkaError as error:
            bear(error, "poll")
            continue
        report_read((record.partition, record.offset) for record in records)
        if loop.time() > due:
            await commit(consumer)
            due = loop.time() + COMMIT_EVERY
    await commit(consumer)


async def commit(consumer: kclient.Consumer[Any, Any]) -> None:
    """Commit what polls returned."""
    try:
        await consumer.commit()
    except CommitFailed as error:
        report_error(error, "commit")
    except KafkaError as error:
        bear(error, "commit")
    else:
        emit("committed")


async def iterating(consumer: kclient.Consumer[Any, Any], _: asyncio.Event) -> None:
    """Take record by record; asking for the next one marks a record as processed."""
    while True:
        try:
            async for record in consumer:
                report_read([(record.partition, record.offset)])
        except KafkaError as error:
            bear(error, "async for")


async def running(consumer: kclient.Consumer[Any, Any], _: asyncio.Event) -> None:
    """Have handlers called, several at a time."""

    async def handle(record: Any) -> None:
        await asyncio.sleep(0.001)
        report_read([(record.partition, record.offset)])

    await consumer.run(handle, concurrency=8, ordering="partition")


def bear(error: KafkaError, where: str) -> None:
    """Report an error; one that isn't retriable ends the program."""
    report_error(error, where)
    if not error.retriable:
        raise error


def report_state(consumer: kclient.Consumer[Any, Any]) -> None:
    """Report the client's health, and where all tasks wait."""
    emit("health", health=repr(consumer.health())[:_WORDS])
    for task in asyncio.all_tasks():
        stack = io.StringIO()
        task.print_stack(limit=4, file=stack)
        emit("task", stack=stack.getvalue()[-_WORDS:])


def _numbers(partitions: Iterable[kclient.TopicPartition]) -> list[int]:
    return [one.partition for one in partitions]


if __name__ == "__main__":
    asyncio.run(main())
