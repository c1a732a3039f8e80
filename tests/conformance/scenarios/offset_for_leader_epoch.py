"""OffsetForLeaderEpoch: where epochs end, and which epochs are refused."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.list_offsets import filled


def end_of(
    topic: str, epoch: int, *, partition: int = 0, current: int = -1
) -> OffsetForLeaderEpochRequest:
    """A consumer's request for the end of an epoch."""
    wanted = OffsetForLeaderPartition(partition, current, epoch)
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [wanted])])


@scenario("OffsetForLeaderEpoch")
async def in_every_version(run: Run) -> None:
    topic = await filled(run)
    await run.ask_each(end_of(topic, 0), 2, 3, 4)


@scenario("OffsetForLeaderEpoch")
async def epochs_that_never_were(run: Run) -> None:
    topic = await filled(run)
    for epoch in (1, 7, -1, -2):
        await run.ask(end_of(topic, epoch), 4, f"epoch {epoch}")


@scenario("OffsetForLeaderEpoch")
async def an_empty_partition(run: Run) -> None:
    topic = await run.topic()
    for epoch in (0, 1, -1):
        await run.ask(end_of(topic, epoch), 4, f"epoch {epoch}")


@scenario("OffsetForLeaderEpoch", ErrorCode.UNKNOWN_LEADER_EPOCH)
async def current_epochs(run: Run) -> None:
    topic = await filled(run)
    for current in (0, 1, -2):
        await run.ask_each(end_of(topic, 0, current=current), 2, 4, note=f"current {current}")


@scenario("OffsetForLeaderEpoch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(end_of(run.name("nowhere"), 0), 2, 4)
    await run.ask_each(end_of(topic, 0, partition=3), 2, 4)
    await run.ask(end_of("", 0), 4, "no name")


@scenario("OffsetForLeaderEpoch")
async def several_and_none(run: Run) -> None:
    one, two = await filled(run), await run.topic("other", 2)
    request = OffsetForLeaderEpochRequest(
        -1,
        [
            OffsetForLeaderTopic(two, [OffsetForLeaderPartition(at, -1, 0) for at in (1, 0)]),
            OffsetForLeaderTopic(one, [OffsetForLeaderPartition(0, 0, 0)]),
        ],
    )
    await run.ask_each(request, 2, 4)
    await run.ask_each(OffsetForLeaderEpochRequest(-1, []), 2, 4, note="none")
