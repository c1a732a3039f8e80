"""DescribeTopicPartitions: topics in the order of their names, in pages."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


def describe(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    """A page of topics."""
    start = None if cursor is None else RequestCursor(*cursor)
    return DescribeTopicPartitionsRequest([TopicRequest(one) for one in names], limit, start)


@scenario("DescribeTopicPartitions")
async def topics_in_the_order_of_their_names(run: Run) -> None:
    one, two = await run.topic("one", 2), await run.topic("alone")
    await run.ask(describe(one, two), 0)
    await run.ask(describe(one, one), 0, "twice the same")


@scenario("DescribeTopicPartitions", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def an_unknown_topic(run: Run) -> None:
    topic = await run.topic()
    await run.ask(describe(run.name("nowhere"), topic), 0)


@scenario("DescribeTopicPartitions", ErrorCode.INVALID_TOPIC_EXCEPTION)
async def names_that_no_topic_may_have(run: Run) -> None:
    for name in ("", ".", "a b", "x" * 250):
        await run.ask(describe(name), 0, repr(name[:9]))


@scenario("DescribeTopicPartitions")
async def pages(run: Run) -> None:
    one, two = await run.topic("one", 3), await run.topic("two", 2)
    await run.ask(describe(one, two, limit=2), 0, "the first")
    await run.ask(describe(one, two, limit=2, cursor=(one, 2)), 0, "the second")
    await run.ask(describe(one, two, limit=2, cursor=(two, 1)), 0, "the last")
    await run.ask(describe(one, two, limit=3), 0, "that ends with a topic")
    await run.ask(describe(one, two, limit=5), 0, "that is just large enough")


@scenario("DescribeTopicPartitions")
async def limits_that_make_no_sense(run: Run) -> None:
    topic = await run.topic("one", 3)
    for limit in (0, -1, 1, 1 << 30):
        await run.ask(describe(topic, limit=limit), 0, f"limit {limit}")


@scenario("DescribeTopicPartitions")
async def cursors_beside_the_topics(run: Run) -> None:
    one, two = await run.topic("one", 2), await run.topic("two", 2)
    for cursor in ((one, 2), (one, 7), (two, 7), (two, 0), (run.name("zzz"), 0)):
        await run.ask(describe(one, two, cursor=cursor), 0, f"{cursor[0][:3]} {cursor[1]}")
    await run.ask(describe(one, two, cursor=(run.name("onf"), 1)), 0, "between")
    await run.ask(describe(one, cursor=(one, -1)), 0, "-1")


@scenario("DescribeTopicPartitions")
async def a_page_that_begins_with_an_unknown_topic(run: Run) -> None:
    one = await run.topic("one", 2)
    gone = run.name("gone")
    await run.ask(describe(gone, one, limit=1), 0)
    await run.ask(describe(gone, one, limit=1, cursor=(gone, 0)), 0)
