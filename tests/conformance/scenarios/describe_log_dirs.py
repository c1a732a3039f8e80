"""DescribeLogDirs: where replicas lie, and how large they are."""

from __future__ import annotations

from kclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce


def of(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    """Partitions of topics."""
    return DescribeLogDirsRequest([DescribableLogDirTopic(*one) for one in topics])


@scenario("DescribeLogDirs")
async def partitions_in_every_version(run: Run) -> None:
    topic = await run.topic(partitions=3)
    await run.quietly(produce(topic, batch_bytes(3), partition=1), 9)
    await run.ask_each(of((topic, [0, 1, 2])), 1, 2, 3, 4, 5)


@scenario("DescribeLogDirs")
async def some_partitions(run: Run) -> None:
    one, two = await run.topic("one", 3), await run.topic("two")
    await run.quietly(produce(one, batch_bytes(3), partition=1), 9)
    await run.ask(of((two, [0]), (one, [1])), 4)
    await run.ask(of((one, [0]), (one, [1])), 4, "a topic twice")


@scenario("DescribeLogDirs")
async def many_partitions(run: Run) -> None:
    topics = [await run.topic(f"t{number}", 6) for number in range(4)]
    await run.ask(of(*((topic, list(range(6))) for topic in topics)), 4)


@scenario("DescribeLogDirs")
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(of((run.name("nowhere"), [0])), 1, 4)
    await run.ask(of((topic, [0, 7])), 4, "partition 7")
    await run.ask(of((topic, [7])), 4, "partition 7 alone")


@scenario("DescribeLogDirs")
async def none_at_all(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(of(), 1, 4)
    await run.ask(of((topic, [])), 4, "no partitions")


@scenario("DescribeLogDirs")
async def all_that_there_are(run: Run) -> None:
    topic = await run.topic()
    await run.quietly(produce(topic, batch_bytes(3)), 9)
    await run.ask_each(DescribeLogDirsRequest(None), 1, 4, listing=True)
