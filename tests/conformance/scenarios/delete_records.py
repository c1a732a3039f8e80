"""DeleteRecords, and the log's new start offset in other responses."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.list_offsets import EARLIEST, MAX_TIMESTAMP, filled
from tests.conformance.scenarios.offset_for_leader_epoch import end_of
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce


def delete(*topics: tuple[str, dict[int, int]]) -> DeleteRecordsRequest:
    """A request to delete the records before an offset of each partition."""
    wanted = [
        DeleteRecordsTopic(name, [DeleteRecordsPartition(*one) for one in offsets.items()])
        for name, offsets in topics
    ]
    return DeleteRecordsRequest(wanted, 5000)


@scenario("DeleteRecords")
async def in_every_version(run: Run) -> None:
    topic = await filled(run)
    for version in (0, 1, 2):
        await run.ask(delete((topic, {0: version + 1})), version)
    await run.ask(list_offsets(topic, EARLIEST), 7)


@scenario("DeleteRecords")
async def up_to_the_end(run: Run) -> None:
    topic = await filled(run)
    await run.ask(delete((topic, {0: -1})), 2)
    await run.ask(fetch(topic, 0, offset=6), 12)
    await run.ask(end_of(topic, 0), 4)
    await run.quietly(produce(topic, batch_bytes(1)), 9)
    await run.ask(fetch(topic, 0, offset=6), 12)


@scenario("DeleteRecords", ErrorCode.OFFSET_OUT_OF_RANGE)
async def offsets(run: Run) -> None:
    topic = await filled(run)
    for offset in (3, 1, 0, 3, 7, -2, 6):
        await run.ask_each(delete((topic, {0: offset})), 0, 2, note=f"offset {offset}")


@scenario("DeleteRecords", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await filled(run)
    await run.ask_each(delete((run.name("nowhere"), {0: 1})), 0, 2)
    await run.ask_each(delete((topic, {7: 1})), 0, 2, note="partition 7")
    await run.ask(delete((topic, {0: 1}), (run.name("nowhere"), {0: 1})), 2, "beside one")
    await run.ask(delete(("", {0: 1})), 2, "no name")


@scenario("DeleteRecords", ErrorCode.OFFSET_OUT_OF_RANGE)
async def what_is_left(run: Run) -> None:
    topic = await filled(run)
    await run.ask(delete((topic, {0: 3})), 2)
    for offset in (0, 2, 3, 4):
        await run.ask(fetch(topic, 0, offset=offset), 12, f"offset {offset}")
    await run.ask(list_offsets(topic, NOW), 7, "by time")
    await run.ask(list_offsets(topic, MAX_TIMESTAMP), 7, "the greatest time")
    await run.ask(end_of(topic, 0), 4)
    await run.ask(produce(topic, batch_bytes(1)), 9)


@scenario("DeleteRecords", ErrorCode.POLICY_VIOLATION)
async def a_topic_that_is_only_compacted(run: Run) -> None:
    topic = await run.topic(cleanup_policy="compact")
    await run.quietly(produce(topic, batch_bytes(2)), 9)
    await run.ask_each(delete((topic, {0: 1})), 0, 2)
    both = await run.topic("both", cleanup_policy="compact,delete")
    await run.quietly(produce(both, batch_bytes(2)), 9)
    await run.ask(delete((both, {0: 1})), 2, "compacted and deleted")


@scenario("DeleteRecords")
async def nothing(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(delete(), 0, 2)
    await run.ask_each(delete((topic, {})), 0, 2, note="no partitions")
    await run.ask(delete((topic, {0: 0})), 2, "of an empty log")


@scenario("DeleteRecords")
async def several_topics(run: Run) -> None:
    topics = [await run.topic(f"t{number}", 4) for number in range(4)]
    for topic in topics:
        await run.quietly(produce(topic, batch_bytes(2), partition=1), 9)
    await run.ask(delete(*((topic, {3: 0, 0: 0, 1: 1, 2: 0}) for topic in topics)), 2)
