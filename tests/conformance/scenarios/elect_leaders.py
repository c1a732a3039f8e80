"""ElectLeaders, preferred and unclean, where one broker leads all that there is."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

PREFERRED, UNCLEAN = 0, 1


def elect(kind: int, *topics: tuple[str, list[int]]) -> ElectLeadersRequest:
    """A request to elect leaders of partitions."""
    return ElectLeadersRequest(kind, [TopicPartitions(*one) for one in topics], 10_000)


@scenario("ElectLeaders", ErrorCode.ELECTION_NOT_NEEDED)
async def leaders_that_lead_already(run: Run) -> None:
    topic = await run.topic(partitions=2)
    await run.ask_each(elect(PREFERRED, (topic, [0, 1])), 0, 1, 2)
    await run.ask_each(elect(UNCLEAN, (topic, [0])), 1, 2, note="unclean")


@scenario("ElectLeaders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(elect(PREFERRED, (run.name("nowhere"), [0])), 0, 2)
    await run.ask(elect(PREFERRED, (topic, [7, 0])), 2, "partition 7")
    await run.ask(elect(UNCLEAN, (run.name("nowhere"), [0])), 2, "unclean")


@scenario("ElectLeaders")
async def none_at_all(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(elect(PREFERRED), 0, 2)
    await run.ask(elect(PREFERRED, (topic, [])), 2, "no partitions")


@scenario("ElectLeaders")
async def kinds_of_elections(run: Run) -> None:
    topic = await run.topic()
    for kind in (2, -1):
        await run.ask_each(elect(kind, (topic, [0])), 1, 2, note=f"kind {kind}")


@scenario("ElectLeaders")
async def the_same_partition_twice(run: Run) -> None:
    topic = await run.topic()
    await run.ask(elect(PREFERRED, (topic, [0, 0])), 2)
