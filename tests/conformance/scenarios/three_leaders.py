"""Three brokers: the same requests to leaders, followers and brokers without a replica."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from tests.conformance.run import Run, until
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.delete_records import delete
from tests.conformance.scenarios.describe_log_dirs import of as log_dirs_of
from tests.conformance.scenarios.elect_leaders import PREFERRED, UNCLEAN, elect
from tests.conformance.scenarios.list_offsets import EARLIEST, LATEST
from tests.conformance.scenarios.offset_for_leader_epoch import end_of
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce

LEADER, FOLLOWER, NEITHER = 1, 2, 3


async def led(run: Run, **configs: object) -> str:
    """A topic that broker 1 leads and broker 2 follows, with three batches."""
    topic = await run.topic(replicas=[[LEADER, FOLLOWER]], **configs)
    for step in range(3):
        records = batch_bytes(2, timestamp=NOW + 1000 * step, step_ms=100)
        await run.quietly(produce(topic, records), 9, node=LEADER)

    async def followed() -> bool:
        found = (await run.quietly(fetch(topic, 0), 12, node=FOLLOWER)).responses[0].partitions[0]
        return not found.error_code and found.high_watermark == 6

    await until(followed)
    return topic


@scenario("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def records_for_a_follower(run: Run) -> None:
    topic = await led(run)
    for version in (3, 7, 9, 10, 12):
        await run.ask(produce(topic, batch_bytes()), version, node=FOLLOWER)
    by_id = produce(await run.topic_id(topic), batch_bytes())
    await run.ask(by_id, 13, node=FOLLOWER)
    await run.ask(produce(topic, batch_bytes(), acks=1), 9, "acks=1", node=FOLLOWER)


@scenario("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def records_for_a_broker_without_a_replica(run: Run) -> None:
    topic = await led(run)
    for version in (3, 9, 10, 12):
        await run.ask(produce(topic, batch_bytes()), version, node=NEITHER)


@scenario("Produce", nodes=3)
async def acks_of_all_replicas(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2, 3]], min_insync_replicas=3)
    for acks in (1, -1):
        await run.ask(produce(topic, batch_bytes(2), acks=acks), 9, f"acks={acks}")


@scenario("Produce", nodes=3)
async def more_replicas_are_wanted_than_there_are(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2]], min_insync_replicas=3)
    await run.ask(produce(topic, batch_bytes()), 9)
    await run.ask(produce(topic, batch_bytes(), acks=1), 9, "acks=1")


@scenario("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def records_of_a_follower(run: Run) -> None:
    topic = await led(run)
    for version in (4, 9, 10, 11, 12):
        await run.ask(fetch(topic, 0), version, node=FOLLOWER)
    by_id = fetch(await run.topic_id(topic), 0)
    for version in (13, 16, 18):
        await run.ask(by_id, version, node=FOLLOWER)


@scenario("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def records_of_a_broker_without_a_replica(run: Run) -> None:
    topic = await led(run)
    for version in (4, 11, 12):
        await run.ask(fetch(topic, 0), version, node=NEITHER)
    by_id = fetch(await run.topic_id(topic), 0)
    for version in (13, 15, 16, 18):
        await run.ask(by_id, version, node=NEITHER)


@scenario("Fetch", ErrorCode.UNKNOWN_LEADER_EPOCH, nodes=3)
async def epochs_at_a_follower(run: Run) -> None:
    topic = await led(run)
    for epoch in (0, 1):
        await run.ask(fetch(topic, 0, leader_epoch=epoch), 12, f"epoch {epoch}", node=FOLLOWER)
    await run.ask(fetch(topic, 0, offset=9), 12, "behind the end", node=FOLLOWER)


@scenario("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND, nodes=3)
async def a_session_belongs_to_a_broker(run: Run) -> None:
    topic = await led(run)
    made = await run.ask(fetch(topic, 0, session=(0, 0)), 12, node=LEADER)
    await run.ask(fetch(topic, 0, session=(made.session_id, 1)), 12, node=FOLLOWER)
    await run.ask(fetch(topic, 0, session=(made.session_id, 1)), 12, node=LEADER)


@scenario("Fetch", nodes=3)
async def a_reader_in_the_followers_rack(run: Run) -> None:
    topic = await led(run)
    asked = fetch(topic, 0)
    asked.rack_id = f"rack-{FOLLOWER}"
    for node in (LEADER, FOLLOWER):
        await run.ask(asked, 12, node=node)


@scenario("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def offsets_of_a_follower(run: Run) -> None:
    topic = await led(run)
    for node in (FOLLOWER, NEITHER):
        for version in (1, 5, 7, 11):
            await run.ask(list_offsets(topic, LATEST), version, f"broker {node}", node=node)
        await run.ask(list_offsets(topic, NOW), 7, f"broker {node}, by time", node=node)


@scenario("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def offsets_for_a_debugging_client(run: Run) -> None:
    topic = await led(run)
    asked = list_offsets(topic, EARLIEST)
    asked.replica_id = -2
    for node in (LEADER, FOLLOWER, NEITHER):
        await run.ask(asked, 7, f"broker {node}", node=node)


@scenario("OffsetForLeaderEpoch", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def epochs_of_a_follower(run: Run) -> None:
    topic = await led(run)
    for node in (LEADER, FOLLOWER, NEITHER):
        for version in (2, 4):
            await run.ask(end_of(topic, 0), version, f"broker {node}", node=node)


@scenario("DeleteRecords", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def records_are_deleted_by_the_leader(run: Run) -> None:
    topic = await led(run)
    for node in (FOLLOWER, NEITHER, LEADER):
        await run.ask(delete((topic, {0: 3})), 2, f"broker {node}", node=node)

    async def heard() -> bool:
        found = (await run.quietly(fetch(topic, 0), 12, node=FOLLOWER)).responses[0].partitions[0]
        return bool(found.error_code)

    await until(heard)
    await run.ask(fetch(topic, 0), 12, "the follower", node=FOLLOWER)
    await run.ask(fetch(topic, 0, offset=3), 12, "the follower", node=FOLLOWER)


@scenario("DescribeLogDirs", nodes=3)
async def sizes_of_replicas(run: Run) -> None:
    topic = await led(run)
    for node in (LEADER, FOLLOWER, NEITHER):
        await run.ask(log_dirs_of((topic, [0])), 4, f"broker {node}", node=node)


@scenario("ElectLeaders", ErrorCode.ELECTION_NOT_NEEDED, nodes=3)
async def any_broker_is_asked_for_elections(run: Run) -> None:
    topic = await led(run)
    for node in (LEADER, FOLLOWER, NEITHER):
        await run.ask(elect(PREFERRED, (topic, [0])), 2, f"broker {node}", node=node)
        await run.ask(elect(UNCLEAN, (topic, [0])), 2, f"broker {node}", node=node)
