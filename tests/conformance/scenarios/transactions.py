"""Transactions: how they begin, what they contain and how they end, in both protocol versions."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.members import new_group
from tests.conformance.producers import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    TRANSACTION,
    V1,
    V2,
    Producer,
    new_id,
    new_producer,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.describe_configs import TOPIC, describe
from tests.unit.testing.calls import fetch
from tests.unit.testing.transaction_calls import add_partitions, commit_offset

_STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")
_INTERNAL = "__transaction_state"
_OF_BROKERS = (4, 5)
"""Versions of AddPartitionsToTxn with several transactions."""


async def state_of(run: Run, producer: Producer, note: str = "") -> None:
    """Record what the coordinator has of a producer."""
    await run.ask(DescribeTransactionsRequest([producer.name]), 0, note)


async def brought_to(run: Run, producer: Producer, topic: str, state: str) -> None:
    """Bring a new producer to a state, unrecorded."""
    if state != "Empty":
        await producer.begin(topic)
    if state.startswith("Complete"):
        await producer.end_quietly(state == "CompleteCommit")


# The life of a transaction


@scenario("FindCoordinator")
async def a_coordinator_in_every_version(run: Run) -> None:
    name = await new_id(run)
    await run.ask_each(FindCoordinatorRequest(name, TRANSACTION), 1, 2, 3)
    several = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[name, "", name])
    await run.ask_each(several, 4, 5, 6)


@scenario("DescribeConfigs")
async def the_internal_topic(run: Run) -> None:
    await new_id(run)
    wanted = MetadataRequest([MetadataRequestTopic(name=_INTERNAL)], False)
    await run.ask(wanted, 12)
    await run.ask(describe((TOPIC, _INTERNAL)), 4)


@scenario("AddPartitionsToTxn")
async def protocol_1_in_every_version(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run, V1)
    for version in range(5):
        known = min(version, ADD_PARTITIONS)
        asked = add_partitions(producer.name, producer.identity, (topic, 0))
        await run.ask_patiently(asked, known)
        await producer.write(topic, version=3 + 2 * version)
        await run.ask_patiently(producer.add_offsets(group), version)
        committed = commit_offset(producer.name, producer.identity, group, version, topic=topic)
        await run.ask(committed, version)
        await run.ask(producer.end_request(version % 2 == 0), version)
        await producer.settle()
        await state_of(run, producer)
    await run.ask(fetch(topic, 0), 12)


@scenario("EndTxn")
async def protocol_1_from_begin_to_end(run: Run) -> None:
    topic, producer = await run.topic(partitions=2), await new_producer(run, V1)
    for committed in (True, False):
        asked = add_partitions(producer.name, producer.identity, (topic, 0), (topic, 1))
        await run.ask_patiently(asked, ADD_PARTITIONS)
        await run.ask(asked, ADD_PARTITIONS, "again")
        for partition in (0, 1):
            await producer.write(topic, 2, partition=partition)
        await state_of(run, producer)
        await producer.end(committed)
        await state_of(run, producer)
    await run.ask(fetch(topic, 0, 1), 12)


@scenario("EndTxn")
async def protocol_2_from_begin_to_end(run: Run) -> None:
    topic, producer = await run.topic(partitions=2), await new_producer(run, V2)
    topic_id = await run.topic_id(topic)
    for committed in (True, False, True):
        await producer.write(topic, 2)
        await producer.write(topic, 2, version=13, partition=1, topic_id=topic_id)
        await producer.write(topic, 1)
        await state_of(run, producer)
        await producer.end(committed)
        await state_of(run, producer)
    await run.ask(fetch(topic, 0, 1), 12)


@scenario("EndTxn", ErrorCode.PRODUCER_FENCED)
async def a_producer_that_changes_the_protocol(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    await producer.begin(topic)
    await run.ask(producer.end_request(True), V2.end, "begun with protocol 1")
    await producer.settle()
    await state_of(run, producer)
    asked = add_partitions(producer.name, producer.identity, (topic, 0))
    await run.ask(asked, ADD_PARTITIONS, "the epoch before")
    producer.protocol = V2
    await producer.init()
    await producer.begin(topic)
    await run.ask(producer.end_request(False), V1.end, "begun with protocol 2")
    await producer.settle()
    await state_of(run, producer)
    await producer.write(topic, note="with the same epoch")
    await run.ask(fetch(topic, 0), 12)


@scenario("EndTxn")
async def transactions_without_records(run: Run) -> None:
    topic = await run.topic(partitions=2)
    producer = await new_producer(run, V1)
    asked = add_partitions(producer.name, producer.identity, (topic, 0))
    await run.ask(asked, ADD_PARTITIONS)
    await producer.end(True)
    empty = add_partitions(producer.name, producer.identity)
    await run.ask(empty, ADD_PARTITIONS, "no partitions")
    await state_of(run, producer)
    await producer.end(False)
    await run.ask(fetch(topic, 0), 12)


@scenario("EndTxn", ErrorCode.INVALID_TXN_STATE)
async def aborts_without_partitions_in_protocol_2(run: Run) -> None:
    producer = await new_producer(run, V2)
    for _ in range(3):
        await producer.end(False)
        await state_of(run, producer)
    await producer.end(True, "nothing to commit")


# Repeated ends


@scenario("EndTxn", ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
async def ends_from_every_state_in_protocol_1(run: Run) -> None:
    topic = await run.topic()
    for state in _STATES:
        for committed in (True, False):
            stem = f"{state.lower()}-{'commit' if committed else 'abort'}"
            producer = await new_producer(run, V1, stem)
            await producer.init("so that there is an epoch before")
            await brought_to(run, producer, topic, state)
            producer_id, epoch = producer.identity
            for other in (epoch - 1, epoch + 1, epoch):
                note = f"{stem}, epoch {other - epoch:+d}"
                await producer.end(committed, note, identity=(producer_id, other))
            await state_of(run, producer)
            await producer.end(committed, "again")
            await producer.end(not committed, "with the other result")


@scenario("EndTxn", ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
async def ends_from_every_state_in_protocol_2(run: Run) -> None:
    topic = await run.topic()
    for state in _STATES:
        for committed in (True, False):
            for step in (-2, -1, 1, 0):
                stem = f"{state.lower()}-{'commit' if committed else 'abort'}-{step}"
                producer = await new_producer(run, V2, stem)
                await producer.init("so that there is an epoch before")
                await brought_to(run, producer, topic, state)
                producer_id, epoch = producer.identity
                asked = (producer_id, epoch + step)
                await producer.end(committed, stem, identity=asked)
                await state_of(run, producer)


@scenario("EndTxn", ErrorCode.INVALID_TXN_STATE)
async def repeated_ends_in_protocol_2(run: Run) -> None:
    topic = await run.topic()
    for committed in (True, False):
        producer = await new_producer(run, V2, f"producer-{committed}")
        await producer.begin(topic)
        first = producer.identity
        await producer.end(committed)
        for _ in range(2):
            await producer.end(committed, "again", identity=first)
        await producer.end(not committed, "with the other result", identity=first)
        await producer.begin(topic)
        await producer.end(committed, "after the next began", identity=first)
        await state_of(run, producer)


# Partitions and groups


@scenario(
    "AddPartitionsToTxn",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
async def topics_and_partitions_that_do_not_exist(run: Run) -> None:
    topic, producer = await run.topic(partitions=4), await new_producer(run, V1)
    parts = [(topic, index) for index in (2, 7, 0, 9, 1, 3)]
    known = add_partitions(producer.name, producer.identity)
    whole = add_partitions(producer.name, producer.identity, *parts)
    known.v3_and_below_topics = whole.v3_and_below_topics[:1]
    known.v3_and_below_topics[0].partitions = [index for _, index in parts]
    await run.ask_each(known, *range(4), note="partitions 7 and 9")
    nowhere = run.name("nowhere")
    both = add_partitions(producer.name, producer.identity, (topic, 0), (nowhere, 0))
    await run.ask_each(both, *range(4), note="a topic that there isn't")
    await state_of(run, producer)


@scenario("AddPartitionsToTxn")
async def partitions_are_added_to_an_open_transaction(run: Run) -> None:
    topic, other = await run.topic(), await run.topic("other")
    producer = await new_producer(run, V1)
    await producer.begin(topic)
    asked = add_partitions(producer.name, producer.identity, (other, 0))
    await run.ask(asked, ADD_PARTITIONS)
    await producer.write(other)
    await producer.write(topic)
    await producer.end(True)
    await run.ask(fetch(topic, 0), 12)
    await run.ask(fetch(other, 0), 12)


@scenario("AddPartitionsToTxn", ErrorCode.TRANSACTION_ABORTABLE)
async def partitions_are_verified(run: Run) -> None:
    topic, producer = await run.topic(partitions=2), await new_producer(run, V1)
    for version in _OF_BROKERS:
        asked = add_partitions(
            producer.name, producer.identity, (topic, 0), version=version, verify_only=True
        )
        await run.ask(asked, version, "before the transaction")
        await producer.begin(topic)
        await run.ask(asked, version, "in the transaction")
        asked.transactions[0].topics[0].partitions = [0, 1]
        await run.ask(asked, version, "with another partition")
        await producer.end_quietly(version == 4)
        await run.ask(asked, version, "after it")


@scenario(
    "AddPartitionsToTxn",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
async def partitions_of_wrong_producers_are_verified(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    await producer.init()
    await producer.begin(topic)
    producer_id, epoch = producer.identity
    for verify_only in (True, False):
        for note, name, identity, where in (
            ("unknown", run.name("nowhere"), producer.identity, topic),
            ("no name", "", producer.identity, topic),
            ("another id", producer.name, (producer_id + 1_000_000, epoch), topic),
            ("an old epoch", producer.name, (producer_id, epoch - 1), topic),
            ("a new epoch", producer.name, (producer_id, epoch + 1), topic),
            ("no topic", producer.name, producer.identity, run.name("nowhere")),
        ):
            asked = add_partitions(name, identity, (where, 0), version=4, verify_only=verify_only)
            text = f"{note}, {'only verified' if verify_only else 'added'}"
            for version in _OF_BROKERS:
                await run.ask(asked, version, text)


@scenario("AddPartitionsToTxn")
async def brokers_add_partitions(run: Run) -> None:
    topic, producer = await run.topic(partitions=2), await new_producer(run, V2)
    for version in _OF_BROKERS:
        asked = add_partitions(producer.name, producer.identity, (topic, 0), version=version)
        await run.ask_patiently(asked, version)
        await state_of(run, producer)
        await producer.end(version == 4)


@scenario("AddPartitionsToTxn", ErrorCode.TRANSACTION_ABORTABLE)
async def several_transactions_in_one_request(run: Run) -> None:
    topic = await run.topic(partitions=2)
    one, two = await new_producer(run, V2, "one"), await new_producer(run, V1, "two")
    await two.begin(topic)
    asked = AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(two.name, *two.identity, True),
            AddPartitionsToTxnTransaction(one.name, *one.identity, False),
        ]
    )
    for transaction, partition in zip(asked.transactions, (1, 0), strict=True):
        whole = add_partitions(one.name, one.identity, (topic, partition))
        transaction.topics = whole.v3_and_below_topics
    await run.ask_each(asked, *_OF_BROKERS)


@scenario("AddOffsetsToTxn")
async def groups_are_added(run: Run) -> None:
    producer = await new_producer(run, V1)
    group, other = await new_group(run), await new_group(run, "other")
    await run.ask(producer.add_offsets(group), ADD_OFFSETS)
    await run.ask_patiently(producer.add_offsets(group), ADD_OFFSETS, "again")
    await run.ask_patiently(producer.add_offsets(other), ADD_OFFSETS, "another group")
    await run.ask_patiently(producer.add_offsets(""), ADD_OFFSETS, "no name")
    await producer.end(True)
    await state_of(run, producer)
