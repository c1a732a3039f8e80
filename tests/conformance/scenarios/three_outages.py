"""Three brokers, one of which is down: elections, replicas in sync, and what is refused then."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import DeleteRecordsRequest
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.metadata import MetadataRequest
from tests.conformance.run import Run, until
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.create_partitions import grow
from tests.conformance.scenarios.create_topics import create, spec
from tests.conformance.scenarios.delete_records import delete
from tests.conformance.scenarios.delete_topics import by_name as gone
from tests.conformance.scenarios.describe_topic_partitions import describe
from tests.conformance.scenarios.elect_leaders import PREFERRED, UNCLEAN, elect
from tests.conformance.scenarios.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from tests.conformance.scenarios.metadata import by_name
from tests.conformance.scenarios.offset_for_leader_epoch import end_of
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce

DOWN = 3
ANY_REPLICA = -2
"""The replica id with which followers respond, too."""


@scenario("ElectLeaders", ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, nodes=3)
async def a_leader_goes_and_comes_back(run: Run) -> None:
    topic = await run.topic(replicas=[[DOWN, 1, 2]])
    await run.quietly(produce(topic, batch_bytes(2)), 9, node=DOWN)
    await run.stop(DOWN)
    await run.wait_leader(topic, 1)
    await run.ask(by_name(topic), 12, "it is down")
    await run.ask(describe(topic), 0, "it is down")
    await run.ask(elect(PREFERRED, (topic, [0])), 2, "it is down")
    await run.ask(produce(topic, batch_bytes(2)), 9, "the next leader")
    await run.ask(list_offsets(topic, LATEST), 7, "the next leader")
    await run.ask(list_offsets(topic, LATEST, leader_epoch=0), 7, "in the epoch ago")
    await run.ask(fetch(topic, 0), 12, "the next leader")
    await run.ask(fetch(topic, 0, leader_epoch=0), 12, "in the epoch ago")
    await run.ask(end_of(topic, 0), 4, "the epoch ago")
    await run.ask(end_of(topic, 1), 4, "the new epoch")
    await run.restart(DOWN, topic)
    await run.ask(by_name(topic), 12, "it is back")
    await run.ask(elect(PREFERRED, (topic, [0])), 2, "it is back")
    await run.wait_leader(topic, DOWN)
    await run.ask(by_name(topic), 12, "it leads again")
    await run.ask(fetch(topic, 0), 12, "it leads again", node=DOWN)
    await run.ask(elect(PREFERRED, (topic, [0])), 2, "it leads already")


@scenario(
    "Metadata",
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    nodes=3,
)
async def a_partition_without_a_leader(run: Run) -> None:
    topic = await run.topic(replicas=[[DOWN], [1]])
    await run.stop(DOWN)
    await run.wait_leader(topic, -1)
    for version in (4, 5, 9, 12):
        await run.ask(by_name(topic), version)
    await run.ask(describe(topic), 0)
    await run.ask(produce(topic, batch_bytes()), 9)
    await run.ask(produce(topic, batch_bytes()), 12)
    await run.ask(fetch(topic, 0), 12)
    await run.ask(fetch(await run.topic_id(topic), 0), 16)
    await run.ask(list_offsets(topic, LATEST), 7)
    await run.ask(elect(PREFERRED, (topic, [0, 1])), 2, "preferred")
    await run.ask(elect(UNCLEAN, (topic, [0])), 2, "unclean")
    await run.restart(DOWN, topic)
    await run.wait_leader(topic, DOWN)
    await run.ask(by_name(topic), 12, "it is back")


@scenario("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, nodes=3)
async def fewer_in_sync_than_wanted(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2, DOWN]], min_insync_replicas=3)
    await run.ask(produce(topic, batch_bytes()), 9, "all are there")
    await run.stop(DOWN)
    await run.wait_leader(topic, 1)
    for version in (3, 8, 9, 12):
        await run.ask(produce(topic, batch_bytes()), version, "one is gone")
    await run.ask(produce(topic, batch_bytes(), acks=1), 9, "acks=1")
    await run.ask(list_offsets(topic, LATEST), 7, "readers don't get that")
    await run.ask(fetch(topic, 0), 12, "readers don't get that")
    await run.ask(describe(topic), 0, "eligible leaders")
    await run.restart(DOWN, topic)
    await run.ask(produce(topic, batch_bytes()), 9, "it is back")
    await run.ask(list_offsets(topic, LATEST), 7, "it is back")


@scenario("CreateTopics", ErrorCode.INVALID_REPLICA_ASSIGNMENT, nodes=3)
async def topics_while_a_broker_is_down(run: Run) -> None:
    grown = await run.topic("grown", replicas=[[1, 2, DOWN]])
    await run.stop(DOWN)
    await run.ask(create(spec(run.name("three"), 1, 3)), 7, "on all three")
    alone = spec(run.name("alone"), -1, -1, [(0, [DOWN])])
    await run.ask(create(alone), 7, "on that one alone")
    both = spec(run.name("both"), -1, -1, [(0, [DOWN, 1])])
    await run.ask(create(both), 7, "on that one and another")
    await run.wait_leader(run.name("both"), 1)
    await run.ask(by_name(run.name("both")), 12)
    await run.ask(grow((grown, 2)), 3, "a partition more")
    await run.ask(grow((grown, 2, [[DOWN, 1, 2]])), 3, "with its replicas")
    await run.restart(DOWN, grown)


@scenario("DescribeCluster", nodes=3)
async def brokers_that_are_down(run: Run) -> None:
    await run.stop(DOWN)
    for version in (0, 1, 2):
        await run.ask(DescribeClusterRequest(), version)
    await run.ask(DescribeClusterRequest(include_fenced_brokers=True), 2, "fenced ones")
    await run.ask(MetadataRequest([]), 12)
    await run.restart(DOWN)


@scenario("Produce", ErrorCode.REQUEST_TIMED_OUT, nodes=3)
async def a_replica_vanishes_before_it_is_missed(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2, DOWN]], min_insync_replicas=3)
    await run.crash(DOWN)
    hasty = produce(topic, batch_bytes())
    hasty.timeout_ms = 200
    await run.ask(hasty, 9, "that waits no longer than this")
    patient = produce(topic, batch_bytes())
    patient.timeout_ms = 4000
    await run.ask(patient, 9, "that still waits when it is missed")
    await run.ask(produce(topic, batch_bytes()), 9, "then")
    await run.restart(DOWN, topic)
    await run.ask(list_offsets(topic, LATEST), 7, "all were appended that weren't refused")


def hasty(topic: str, offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    """A request to delete the records before an offset, with a timeout."""
    request = delete((topic, {0: offset}))
    request.timeout_ms = timeout_ms
    return request


async def replicated(run: Run, *replicas: int) -> str:
    """A topic with two batches that all replicas have."""
    topic = await run.topic(replicas=[list(replicas)])
    for _ in range(2):
        await run.quietly(produce(topic, batch_bytes(2)), 9, node=replicas[0])
    return topic


async def led_by_the_second(run: Run) -> str:
    """A replicated topic that broker 1 leads, though broker 2 is preferred."""
    topic = await replicated(run, 2, 1, DOWN)
    await run.stop(2)
    await run.wait_leader(topic, 1)
    await run.restart(2, topic)
    return topic


async def copied_by_2(run: Run, topic: str, offset: int) -> None:
    """Wait until broker 2 has all records below an offset."""
    copied = list_offsets(topic, LATEST)
    copied.replica_id = ANY_REPLICA

    async def has_it() -> bool:
        found = (await run.quietly(copied, 7, node=2)).topics[0].partitions[0]
        return bool(found.offset == offset)

    await until(has_it)


@scenario("DeleteRecords", ErrorCode.REQUEST_TIMED_OUT, nodes=3)
async def records_that_a_silent_follower_still_has(run: Run) -> None:
    topic = await replicated(run, 1, 2, DOWN)
    await run.ask(hasty(topic, 1, 5000), 2, "all are there")
    await run.pause(DOWN)
    await run.ask(hasty(topic, 3, 300), 2, "one is silent")
    await run.ask(list_offsets(topic, EARLIEST), 7, "the leader has deleted them")
    await run.ask(hasty(topic, 3, 0), 2, "without a time")
    await run.ask(hasty(topic, 1, 0), 2, "what all have deleted")
    await run.resume(DOWN)
    await run.ask(hasty(topic, 3, 10_000), 2, "it is back")


@scenario("DeleteRecords", ErrorCode.REQUEST_TIMED_OUT, nodes=3)
async def a_topic_goes_while_its_records_are_deleted(run: Run) -> None:
    topic = await replicated(run, 1, 2, DOWN)
    await run.pause(DOWN)
    waiting = await run.peer().begin(hasty(topic, 3, 1500), 2, "while one is silent")

    async def begun() -> bool:
        earliest = await run.quietly(list_offsets(topic, EARLIEST), 7)
        return bool(earliest.topics[0].partitions[0].offset == 3)

    await until(begun)
    await run.ask(gone(topic), 5)
    await waiting.answer()
    await run.resume(DOWN)


@scenario("DeleteRecords", ErrorCode.REQUEST_TIMED_OUT, nodes=3)
async def another_leads_while_records_are_deleted(run: Run) -> None:
    topic = await led_by_the_second(run)
    await run.pause(DOWN)
    waiting = await run.peer().begin(hasty(topic, 3, 1500), 2, "while one is silent")

    async def followed() -> bool:
        found = (await run.quietly(fetch(topic, 0), 12, node=2)).responses[0].partitions[0]
        return bool(found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE)

    await until(followed)
    await run.ask(elect(PREFERRED, (topic, [0])), 2)
    await waiting.answer()
    await run.resume(DOWN)
    await run.wait_leader(topic, 2)
    await run.ask(list_offsets(topic, EARLIEST), 7, "the next leader", node=2)


@scenario("ListOffsets", ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, nodes=3)
async def a_new_leader_does_not_know_yet_what_is_committed(run: Run) -> None:
    topic = await led_by_the_second(run)
    await run.pause(DOWN)
    await run.quietly(produce(topic, batch_bytes(2, timestamp=NOW + 5000), acks=1), 9)
    await run.ask(list_offsets(topic, NOW + 1000), 7, "a time that isn't committed")
    await run.ask(list_offsets(topic, MAX_TIMESTAMP), 7, "the greatest isn't committed")
    await copied_by_2(run, topic, 6)
    await run.quietly(elect(PREFERRED, (topic, [0])), 2)
    await run.wait_leader(topic, 2)
    for version in (4, 5, 11):
        await run.ask(list_offsets(topic, LATEST), version, node=2)
    await run.ask(list_offsets(topic, 0), 7, "by time", node=2)
    await run.ask(list_offsets(topic, NOW + 1000), 7, "a time to be", node=2)
    await run.ask(list_offsets(topic, NOW + 9000), 7, "a time that isn't there", node=2)
    await run.ask(list_offsets(topic, MAX_TIMESTAMP), 7, "the greatest time", node=2)
    await run.ask(list_offsets(topic, EARLIEST), 7, "the earliest", node=2)
    await run.ask(fetch(topic, 0, offset=4), 12, "readers get nothing", node=2)
    await run.resume(DOWN)

    async def committed() -> bool:
        found = (await run.quietly(list_offsets(topic, LATEST), 7, node=2)).topics[0].partitions[0]
        return not found.error_code

    await until(committed)
    await run.ask(list_offsets(topic, LATEST), 7, "the silent one has it, too", node=2)


@scenario("Produce", ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS, nodes=3)
async def a_replica_is_silent_before_it_is_missed(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2, DOWN]], min_insync_replicas=3)
    await run.pause(DOWN)
    hurried = produce(topic, batch_bytes())
    hurried.timeout_ms = 200
    await run.ask(hurried, 9, "that waits no longer than this")
    patient = produce(topic, batch_bytes())
    patient.timeout_ms = 6000
    await run.ask(patient, 9, "that still waits when it is missed")
    await run.ask(produce(topic, batch_bytes()), 9, "then")
    await run.ask(describe(topic), 0, "then")
    await run.resume(DOWN)
    await run.wait_in_sync(topic)
    await run.ask(list_offsets(topic, LATEST), 7, "all were appended that weren't refused")


@scenario("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def another_leads_while_records_wait(run: Run) -> None:
    topic = await led_by_the_second(run)
    await run.pause(DOWN)
    waiting = []
    for step, version in enumerate((9, 12)):
        waiting.append(await run.peer().begin(produce(topic, batch_bytes(2)), version))
        await copied_by_2(run, topic, 6 + 2 * step)
    await run.quietly(elect(PREFERRED, (topic, [0])), 2)
    for one in waiting:
        await one.answer()
    await run.resume(DOWN)
