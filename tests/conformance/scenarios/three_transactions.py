"""Three brokers: requests to others than the coordinator, and markers that can't be written yet."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.list_transactions import ListTransactionsRequest
from tests.conformance.members import new_group
from tests.conformance.producers import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    V1,
    V2,
    Producer,
    Protocol,
    init,
    new_producer,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.unit.testing.calls import list_offsets
from tests.unit.testing.transaction_calls import add_partitions, markers


def _others(run: Run, producer: Producer) -> list[int]:
    """The brokers that don't coordinate the producer's transactions."""
    return [node for node in run.up if node != producer.node]


@scenario("InitProducerId", ErrorCode.NOT_COORDINATOR, nodes=3)
async def requests_to_another_broker(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run)
    node = _others(run, producer)[0]
    asked = add_partitions(producer.name, producer.identity, (topic, 0))
    for request, versions in (
        (init(producer.name), (0, 4, 5)),
        (asked, range(4)),
        (producer.add_offsets(group), (0, 4)),
        (producer.end_request(True), (0, 4, 5)),
        (DescribeTransactionsRequest([producer.name]), (0,)),
        (ListTransactionsRequest(producer_id_filters=[producer.identity[0]]), (0, 2)),
    ):
        for version in versions:
            await run.ask(request, version, node=node)
    for only in (True, False):
        asked = add_partitions(
            producer.name, producer.identity, (topic, 0), version=4, verify_only=only
        )
        await run.ask(asked, 4, node=node)


@scenario("WriteTxnMarkers", ErrorCode.NOT_LEADER_OR_FOLLOWER, nodes=3)
async def requests_to_a_follower(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2]])
    for node in (2, 3):
        await run.ask(markers((7, 0), (topic, 0)), 2, f"node {node}", node=node)
        asked = DescribeProducersRequest([TopicRequest(topic, [0])])
        await run.ask(asked, 0, f"node {node}", node=node)


@scenario("EndTxn", nodes=3)
async def an_end_while_a_partition_has_no_leader(run: Run) -> None:
    producer = await new_producer(run)
    leader = _others(run, producer)[0]
    topic = await run.topic(replicas=[[leader]])
    await producer.begin(topic, leader=leader)
    await run.stop(leader)
    await run.at(producer.node).ask(producer.end_request(True), V2.end)
    await run.restart(leader, topic)
    await producer.settle()
    await run.wait_leader(topic, leader)
    await run.ask(list_offsets(topic, -1, isolation=1), 7, node=leader)


async def _prepared(run: Run, protocol: Protocol, committed: bool) -> None:
    """End a transaction while too few replicas of its partition are in sync for a marker."""
    group = await new_group(run)
    producer = await new_producer(run, protocol)
    coordinator = run.at(producer.node)
    await producer.init()
    follower = _others(run, producer)[0]
    topic = await run.topic(replicas=[[producer.node, follower]], min_insync_replicas=2)
    await producer.begin(topic, leader=producer.node)
    first = producer.identity
    await run.stop(follower)
    await coordinator.ask(producer.end_request(committed), protocol.end, "the end")
    for result in (committed, not committed):
        for step in (-1, 0, 1):
            wanted = producer.end_request(result, identity=(first[0], first[1] + step))
            for version in (V1.end, V2.end):
                await coordinator.ask(wanted, version, f"{result}, epoch {step:+d}")
    for step in (0, 1):
        identity = (first[0], first[1] + step)
        note = f"epoch {step:+d}"
        for only in (True, False):
            asked = add_partitions(producer.name, identity, (topic, 0), version=4, verify_only=only)
            await coordinator.ask(asked, 4, note)
        asked = add_partitions(producer.name, identity, (topic, 0))
        await coordinator.ask(asked, ADD_PARTITIONS, note)
        offsets = producer.add_offsets(group, identity=identity)
        await coordinator.ask(offsets, ADD_OFFSETS, note)
        await coordinator.ask(init(producer.name, known=identity), 5, note)
    await coordinator.ask(init(producer.name), 5)
    await coordinator.ask(DescribeTransactionsRequest([producer.name]), 0)
    state = "PrepareCommit" if committed else "PrepareAbort"
    await coordinator.ask(ListTransactionsRequest([state], [first[0]]), 0, state)
    await run.restart(follower, topic)
    await producer.settle()
    await coordinator.ask(DescribeTransactionsRequest([producer.name]), 0, "in the end")
    await coordinator.ask(list_offsets(topic, -1, isolation=1), 7)


_STUCK = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)


@scenario("EndTxn", *_STUCK, nodes=3)
async def a_prepared_commit_of_protocol_1(run: Run) -> None:
    await _prepared(run, V1, True)


@scenario("EndTxn", *_STUCK, nodes=3)
async def a_prepared_abort_of_protocol_1(run: Run) -> None:
    await _prepared(run, V1, False)


@scenario("EndTxn", *_STUCK, nodes=3)
async def a_prepared_commit_of_protocol_2(run: Run) -> None:
    await _prepared(run, V2, True)


@scenario("EndTxn", *_STUCK, nodes=3)
async def a_prepared_abort_of_protocol_2(run: Run) -> None:
    await _prepared(run, V2, False)
