"""CreatePartitions: more partitions, with and without their replicas given."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.metadata import by_name


def grow(
    *topics: tuple[str, int] | tuple[str, int, list[list[int]]], validate_only: bool = False
) -> CreatePartitionsRequest:
    """A request for topics, each with the count to come to, and maybe the new replicas."""
    wanted = []
    for name, count, *rest in topics:
        given = [CreatePartitionsAssignment(one) for one in rest[0]] if rest else None
        wanted.append(CreatePartitionsTopic(name, count, given))
    return CreatePartitionsRequest(wanted, 30_000, validate_only)


@scenario("CreatePartitions")
async def in_every_version(run: Run) -> None:
    topic = await run.topic()
    for version in range(4):
        await run.ask(grow((topic, version + 2)), version)
    await run.wait_led(topic, partitions=5)
    await run.ask(by_name(topic), 12)


@scenario("CreatePartitions", ErrorCode.INVALID_PARTITIONS)
async def counts_that_are_no_growth(run: Run) -> None:
    topic = await run.topic(partitions=2)
    for count in (2, 1, 0, -1):
        await run.ask(grow((topic, count)), 3, str(count))


@scenario("CreatePartitions", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def an_unknown_topic(run: Run) -> None:
    await run.ask_each(grow((run.name("nowhere"), 2)), 0, 3)
    await run.ask(grow(("", 2)), 3, "no name")
    await run.ask(grow(("a b", 2)), 3, "a name that can't be")


@scenario("CreatePartitions", ErrorCode.INVALID_REQUEST)
async def the_same_topic_twice(run: Run) -> None:
    topic, other = await run.topic(), await run.topic("other")
    await run.ask(grow((topic, 2), (topic, 3), (other, 2)), 3)


@scenario("CreatePartitions", ErrorCode.INVALID_REPLICA_ASSIGNMENT)
async def replicas_that_are_given(run: Run) -> None:
    topic = await run.topic()
    cases: dict[str, list[list[int]]] = {
        "too few": [[1]],
        "too many": [[1], [1], [1]],
        "unknown": [[1], [7]],
        "empty": [[1], []],
        "twice": [[1], [1, 1]],
        "none": [],
        "good": [[1], [1]],
    }
    for note, given in cases.items():
        await run.ask(grow((topic, 3, given)), 3, note)


@scenario("CreatePartitions")
async def validation_only(run: Run) -> None:
    topic = await run.topic()
    await run.ask(grow((topic, 4), validate_only=True), 3)
    await run.ask(grow((topic, 1), validate_only=True), 3, "no growth")
    await run.ask(by_name(topic), 12)


@scenario("CreatePartitions")
async def none_at_all(run: Run) -> None:
    await run.ask_each(grow(), 0, 3)


@scenario("CreatePartitions")
async def several_at_once(run: Run) -> None:
    topics = [await run.topic(f"t{one}") for one in range(4)]
    await run.ask(grow(*((topic, 2) for topic in topics), (run.name("nowhere"), 2)), 3)
