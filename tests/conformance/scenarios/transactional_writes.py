"""What transactions write, and what readers with read_committed get of it (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Sequence

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kclient.protocol.messages.offset_fetch import OffsetFetchRequest
from kclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.conformance.members import new_group, settled
from tests.conformance.producers import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    V1,
    V2,
    Producer,
    Protocol,
    new_producer,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.offset_commit import commit
from tests.conformance.scenarios.offset_fetch import of, of_groups
from tests.unit.testing.calls import fetch, list_offsets
from tests.unit.testing.transaction_calls import Identity, add_partitions, commit_offset, markers

_NO_SESSION = 4
_PRODUCE = (3, 8, 9, 10, 11, 12)
_ENDS = (-1, -2, -3)
"""What ListOffsets takes for the end, the start and the greatest time."""
_COORDINATOR_EPOCH = 5
_FIRST_WITH_MEMBERS = 3
"""The first version of TxnOffsetCommit with member and generation."""


# Records


@scenario("Produce", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
async def records_without_a_transactional_id(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    await producer.begin(topic)
    await run.ask_each(producer.batch(topic, name=None), *_PRODUCE)
    asked = producer.batch(topic, name=None, topic_id=await run.topic_id(topic))
    await run.ask(asked, 13)


@scenario("Produce", ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
async def records_outside_of_a_transaction(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    asked = producer.batch(topic, sequence=0)
    await run.ask_each(asked, 3, 8, 9, 10, 11, note="before the first")
    await producer.begin(topic)
    for committed in (True, False):
        await producer.end_quietly(committed)
        asked = producer.batch(topic, sequence=1)
        note = f"after the {'commit' if committed else 'abort'}"
        await run.ask_each(asked, 3, 8, 9, 10, 11, note=note)
        if committed:
            await producer.begin(topic)
    await run.ask(fetch(topic, 0), 12)


@scenario("Produce", ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
async def records_for_a_partition_that_was_not_added(run: Run) -> None:
    topic, producer = await run.topic(partitions=2), await new_producer(run, V1)
    await producer.begin(topic)
    asked = producer.batch(topic, partition=1, sequence=0)
    await run.ask_each(asked, 3, 8, 9, 10, 11)
    await run.ask(producer.batch(topic, partition=1, sequence=0), V2.produce, "protocol 2")
    await run.ask(fetch(topic, 0, 1), 12)


@scenario("Produce", ErrorCode.INVALID_TXN_STATE)
async def other_records_of_a_producer_with_a_transaction(run: Run) -> None:
    topic = await run.topic(partitions=2)
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        await producer.begin(topic)
        for version in (3, 10, 11, 12):
            asked = producer.batch(topic, transactional=False, sequence=1)
            await run.ask(asked, version, str(protocol))
        asked = producer.batch(topic, transactional=False, partition=1, sequence=0)
        await run.ask(asked, protocol.produce, f"{protocol}, where it has none")
        await producer.end(True)
    await run.ask(fetch(topic, 0, 1), 12)


@scenario("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
async def sequences_of_transactions(run: Run) -> None:
    topic = await run.topic(partitions=2)
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        if protocol.adds:
            asked = add_partitions(producer.name, producer.identity, (topic, 0))
            await run.ask(asked, ADD_PARTITIONS)
            asked = add_partitions(producer.name, producer.identity, (topic, 1))
            await run.ask_patiently(asked, ADD_PARTITIONS)
        note = f"{protocol}, not the first"
        await producer.write(topic, note=note, partition=1, sequence=3)
        await producer.begin(topic)
        await producer.write(topic, note=f"{protocol}, a gap", sequence=7)
        await producer.write(topic, note=f"{protocol}, the same again", sequence=0)
        await producer.end(True, str(protocol))
        await producer.begin(topic)
        await producer.write(topic, note=f"{protocol}, in the next")
        await producer.end(True, str(protocol))
    await run.ask(fetch(topic, 0, 1), 12)


@scenario("Produce", ErrorCode.INVALID_PRODUCER_EPOCH)
async def records_that_arrive_late(run: Run) -> None:
    topic = await run.topic(partitions=2)
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        await producer.begin(topic)
        sent, late = producer.batch(topic, sequence=0), producer.batch(topic, sequence=1)
        await producer.end(True)
        await run.ask(sent, protocol.produce, f"{protocol}, the same again")
        await run.ask(late, protocol.produce, f"{protocol}, after the end")
        if protocol.adds:
            asked = add_partitions(producer.name, producer.identity, (topic, 0))
            await run.ask(asked, ADD_PARTITIONS)
        await producer.write(topic, note=f"{protocol}, the next")
        await run.ask(late, protocol.produce, f"{protocol}, in the next transaction")
        await producer.end(False)
    await run.ask(fetch(topic, 0), 12)


@scenario("Produce", ErrorCode.INVALID_PRODUCER_ID_MAPPING)
async def records_of_two_producers_in_one_request(run: Run) -> None:
    topic = await run.topic(partitions=3)
    for protocol in (V1, V2):
        one = await new_producer(run, protocol, f"one-{protocol.end}")
        two = await new_producer(run, protocol, f"two-{protocol.end}")
        await one.begin(topic)
        await two.begin(topic, partition=1)
        asked = one.batch(topic, sequence=1)
        data = two.batch(topic, partition=1, sequence=1).topic_data[0].partition_data
        asked.topic_data[0].partition_data += data
        await run.ask(asked, protocol.produce, str(protocol))
        other = one.batch(topic, partition=2, transactional=False, sequence=0)
        asked.topic_data[0].partition_data[1:] = other.topic_data[0].partition_data
        await run.ask(asked, protocol.produce, f"{protocol}, with other records")
        await one.end(True)
        await two.end(True)
    await run.ask(fetch(topic, 0, 1, 2), 12)


@scenario("Produce", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def records_for_topics_that_do_not_exist(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    asked = producer.batch(topic, partition=7, sequence=0)
    await run.ask_each(asked, 11, 12, note="partition 7")
    asked = producer.batch(run.name("nowhere"), sequence=0)
    await run.ask_each(asked, 11, 12)


# Readers


async def _seen(run: Run, topic: str, note: str) -> None:
    for isolation in (0, 1):
        text = f"{note}, {'committed' if isolation else 'all'}"
        await run.ask(fetch(topic, 0, isolation=isolation), 12, text)
        for timestamp in _ENDS:
            asked = list_offsets(topic, timestamp, isolation=isolation)
            await run.ask(asked, 7, f"{text}, {timestamp}")


async def _read_committed(run: Run, protocol: Protocol) -> None:
    topic = await run.topic()
    one = await new_producer(run, protocol, "one")
    two = await new_producer(run, protocol, "two")
    await one.begin(topic, 2)
    await _seen(run, topic, "one is open")
    await two.begin(topic, 3)
    await one.write(topic)
    await one.end(False)
    await _seen(run, topic, "one is aborted, two is open")
    await one.begin(topic)
    await two.end(True)
    await _seen(run, topic, "one is open again")
    await one.end(False)
    await two.begin(topic)
    await two.end(False)
    await _seen(run, topic, "all have ended")
    for offset in range(12):
        await run.ask(fetch(topic, 0, offset=offset, isolation=1), 12)


@scenario("Fetch")
async def protocol_1_read_committed(run: Run) -> None:
    await _read_committed(run, V1)


@scenario("Fetch")
async def protocol_2_read_committed(run: Run) -> None:
    await _read_committed(run, V2)


@scenario("Fetch")
async def aborted_transactions_behind_what_was_read(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    for _ in range(3):
        await producer.begin(topic)
        await producer.end(False)
    for offset in range(6):
        asked = fetch(topic, 0, offset=offset, isolation=1, partition_max_bytes=1)
        await run.ask(asked, 12, f"one batch, from {offset} on")


@scenario("Fetch")
async def aborted_transactions_in_every_version(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    await producer.begin(topic)
    await producer.end(False)
    await producer.begin(topic)
    for version in range(_NO_SESSION, 13):
        await run.ask(fetch(topic, 0, isolation=1), version)
    topic_id = await run.topic_id(topic)
    await run.ask_each(fetch(topic_id, 0, isolation=1), *range(13, 19))
    await run.ask_each(fetch(topic_id, 0), 13, 18, note="all records")


@scenario("ListOffsets")
async def last_stable_offsets_in_every_version(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    await producer.begin(topic, 2)
    await producer.end(True)
    await producer.begin(topic)
    for version in range(2, 12):
        await run.ask(list_offsets(topic, -1, isolation=1), version)
    await run.ask_each(list_offsets(topic, 0, isolation=1), 4, 7, note="the first by time")


@scenario("DeleteRecords")
async def records_of_transactions_are_deleted(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    for count in (1, 2):
        await producer.begin(topic, count)
        await producer.end(False)
    await producer.begin(topic)
    for offset in (1, 3, 5, -1):
        wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
        await run.ask(DeleteRecordsRequest([wanted], 5000), 2, f"before {offset}")
        await run.ask(list_offsets(topic, -2, isolation=1), 7)
        await run.ask(fetch(topic, 0, offset=max(offset, 5), isolation=1), 12)


# Offsets


async def _stable(run: Run, group: str, topic: str, note: str) -> None:
    """Record the offsets that a consumer gets, with require_stable and without."""
    old, new = of(group, topic), of_groups((group, [topic]))
    for stable in (True, False):
        text = f"{note}, {'stable' if stable else 'any'}"
        old.require_stable = new.require_stable = stable
        await run.ask(old, 7, text)
        await run.ask_each(new, 8, 9, note=text)
        every = OffsetFetchRequest(group, None, require_stable=stable)
        await run.ask(every, 7, f"{text}, all topics")


@scenario("OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT)
async def offsets_are_committed(run: Run) -> None:
    topic = await run.topic()
    for protocol in (V1, V2):
        group = await new_group(run, f"v{protocol.end}")
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        for committed in (True, False, True):
            await producer.begin_commit(group, topic, 3 if committed else 4)
            await _stable(run, group, topic, f"{protocol}, open")
            await producer.end(committed)
            await _stable(run, group, topic, f"{protocol}, ended")


@scenario("TxnOffsetCommit")
async def offsets_in_every_version(run: Run) -> None:
    topic, member = await run.topic(), await settled(run)
    for version in range(6):
        producer = await new_producer(run, V1 if version < 5 else V2, f"v{version}")
        if producer.protocol.adds:
            await run.ask(producer.add_offsets(member.group), min(version, ADD_OFFSETS))
        who = (member.id, member.generation) if version >= _FIRST_WITH_MEMBERS else ("", -1)
        asked = commit_offset(
            producer.name, producer.identity, member.group, version, topic=topic, member=who
        )
        await run.ask(asked, version)
        await producer.end(True)
        await run.ask(of(member.group, topic), 7)


@scenario("TxnOffsetCommit", ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
async def offsets_of_a_group_that_was_not_added(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run, V1)
    asked = commit_offset(producer.name, producer.identity, group, 3, topic=topic)
    await run.ask_each(asked, *range(5), note="no transaction")
    await producer.begin(topic)
    await run.ask_each(asked, *range(5), note="a transaction without the group")
    await run.ask(asked, V2.commit_offsets, "protocol 2")


@scenario(
    "TxnOffsetCommit",
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)
async def offsets_of_wrong_members(run: Run) -> None:
    topic = await run.topic()
    member = await settled(run, instance="one")
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        await producer.begin_commit(member.group, topic, 1)
        for note, who, instance in (
            ("no member", ("", -1), None),
            ("an unknown member", ("nobody", member.generation), None),
            ("an old generation", (member.id, member.generation - 1), None),
            ("a new generation", (member.id, member.generation + 1), None),
            ("no generation", (member.id, -1), None),
            ("a generation alone", ("", member.generation), None),
            ("an unknown instance", (member.id, member.generation), "two"),
            ("another member's instance", ("nobody", member.generation), "one"),
            ("the member", (member.id, member.generation), "one"),
        ):
            asked = commit_offset(
                producer.name, producer.identity, member.group, 2, topic=topic, member=who
            )
            asked.group_instance_id = instance
            await run.ask_each(asked, 3, 4, note=f"{protocol}, {note}")
            if not protocol.adds:
                await run.ask(asked, protocol.commit_offsets, f"{protocol}, {note}")


@scenario("TxnOffsetCommit", ErrorCode.ILLEGAL_GENERATION, ErrorCode.INVALID_GROUP_ID)
async def offsets_of_groups_that_do_not_exist(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run, V1)
    for name in (group, ""):
        await run.ask_patiently(producer.add_offsets(name), ADD_OFFSETS)
        for note, who in (("a member", ("nobody", 3)), ("no member", ("", -1))):
            asked = commit_offset(
                producer.name, producer.identity, name, 3, topic=topic, member=who
            )
            await run.ask_each(asked, 3, 4, 5, note=f"{note} of {name and 'a group'}")
    await producer.end(False)
    await run.quietly(DeleteGroupsRequest([""]), 2)  # other runs must find no group


@scenario(
    "TxnOffsetCommit",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
)
async def offsets_that_can_not_be(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run, V1)
    await producer.begin_commit(group, topic, 1)

    def asked(
        where: str, partition: int = 0, metadata: str | None = None
    ) -> TxnOffsetCommitRequest:
        found = commit_offset(producer.name, producer.identity, group, 3, topic=where)
        found.topics[0].partitions[0].partition_index = partition
        found.topics[0].partitions[0].committed_metadata = metadata
        return found

    await run.ask_each(asked(run.name("nowhere")), *range(6))
    await run.ask_each(asked(topic, 7), *range(6), note="partition 7")
    for size in (4096, 4097):
        text = asked(topic, 0, "x" * size)
        await run.ask_each(text, *range(6), note=f"{size} characters")
    await producer.end(True)
    await run.ask(of(group, topic), 7)


@scenario("OffsetCommit")
async def other_commits_beside_a_transaction(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run)
    await run.quietly(commit(group, topic, 1), 9)
    await producer.begin_commit(group, topic, 3)
    await run.ask(commit(group, topic, 5), 9, "behind it")
    await _stable(run, group, topic, "open")
    await producer.end(True)
    await _stable(run, group, topic, "the later one wins")
    await producer.begin_commit(group, topic, 7)
    await run.ask(DeleteGroupsRequest([group]), 2, "while it is open")
    await producer.end(True)
    await run.ask(of(group, topic), 7)


# Markers


def _marked(
    identity: Identity, *where: tuple[str, int], version: int = 0, epoch: int = _COORDINATOR_EPOCH
) -> WriteTxnMarkersRequest:
    return markers(identity, *where, coordinator_epoch=epoch, transaction_version=version)


@scenario("WriteTxnMarkers", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def markers_in_every_version(run: Run) -> None:
    topic = await run.topic(partitions=2)
    asked = _marked((7, 0), (topic, 0))
    await run.ask_each(asked, 1, 2)
    await run.ask_each(_marked((7, 0), (topic, 7)), 1, 2, note="partition 7")
    await run.ask_each(_marked((7, 0), (run.name("nowhere"), 0)), 1, 2)
    await run.ask_each(WriteTxnMarkersRequest([]), 1, 2, note="none")
    await run.ask(fetch(topic, 0), 12)


@scenario(
    "WriteTxnMarkers",
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
async def markers_of_old_producers_and_coordinators(run: Run) -> None:
    topic = await run.topic()
    await run.ask(_marked((7, 3), (topic, 0)), 2)
    for version in (0, 2):
        note = f"transaction version {version}"
        for epoch in (2, 3, 4):
            asked = _marked((7, epoch), (topic, 0), version=version)
            await run.ask(asked, 2, f"{note}, epoch {epoch}")
        asked = _marked((7, 4), (topic, 0), version=version, epoch=_COORDINATOR_EPOCH - 1)
        await run.ask(asked, 2, f"{note}, an old coordinator")
    await run.ask(fetch(topic, 0), 12)


async def _marker_of(run: Run, protocol: Protocol, versions: Sequence[int]) -> None:
    topic = await run.topic()
    producer: Producer = await new_producer(run, protocol)
    await producer.init()
    await producer.begin(topic)
    producer_id, epoch = producer.identity
    for version in versions:
        for step in (-1, 0, 1):
            asked = _marked((producer_id, epoch + step), (topic, 0), version=version)
            response = await run.quietly(asked, 2)
            code = response.markers[0].topics[0].partitions[0].error_code
            run.at(1).record(
                f"WriteTxnMarkers v2, transaction version {version}, epoch {step:+d}",
                "WriteTxnMarkers",
                {"error_code": f"{ErrorCode(code).name} ({code})"},
            )
    await producer.write(topic, note="after the markers")
    await run.ask(fetch(topic, 0, isolation=1), 12)


@scenario("WriteTxnMarkers", ErrorCode.INVALID_PRODUCER_EPOCH)
async def markers_for_an_open_transaction(run: Run) -> None:
    await _marker_of(run, V1, (0,))


@scenario("WriteTxnMarkers", ErrorCode.INVALID_PRODUCER_EPOCH)
async def markers_of_protocol_2_for_an_open_transaction(run: Run) -> None:
    await _marker_of(run, V2, (2,))
