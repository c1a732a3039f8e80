"""DescribeTransactions, ListTransactions and DescribeProducers (KIP-664)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.list_transactions import ListTransactionsRequest
from tests.conformance.members import new_group
from tests.conformance.producers import V1, V2, init, new_id, new_producer
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce

_VERSIONS = (0, 1, 2)
"""Versions of ListTransactions; 1 has the filter by duration, 2 that by a pattern."""
_HOUR_MS = 3_600_000


def _listed(
    run: Run, *states: str, ids: tuple[int, ...] = (), ms: int = -1, pattern: str | None = None
) -> ListTransactionsRequest:
    """List transactions with filters; without ids and pattern those of this run."""
    if pattern is None and not ids:
        pattern = f".*{run.name('')}"
    return ListTransactionsRequest(list(states), list(ids), ms, pattern)


def _producers(topic: str, *partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest([TopicRequest(topic, list(partitions))])


# Transactional ids


@scenario("DescribeTransactions")
async def transactions_in_every_state(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        asked = DescribeTransactionsRequest([producer.name])
        await run.ask(asked, 0, f"{protocol}, empty")
        await producer.begin(topic)
        await run.ask(asked, 0, f"{protocol}, open")
        await producer.end_quietly(True)
        await run.ask(asked, 0, f"{protocol}, committed")
        await producer.begin_commit(group, topic, 3)
        found = await run.quietly(asked, 0)
        topics = [one.topic for one in found.transaction_states[0].topics]
        run.at(1).record("topics with a group", "DescribeTransactions", {"topics": topics})
        await producer.end_quietly(False)
        await run.ask(asked, 0, f"{protocol}, aborted")


@scenario("DescribeTransactions", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST)
async def transactions_that_do_not_exist(run: Run) -> None:
    producer, nowhere = await new_producer(run), run.name("nowhere")
    await run.ask(DescribeTransactionsRequest([nowhere]), 0)
    await run.ask(DescribeTransactionsRequest([""]), 0, "no name")
    await run.ask(DescribeTransactionsRequest([]), 0, "none")
    names = [nowhere, producer.name, "", producer.name]
    await run.ask(DescribeTransactionsRequest(names), 0, "several")


@scenario("ListTransactions")
async def many_transactions(run: Run) -> None:
    for stem in "abcdefgh":
        await new_producer(run, V2, stem)
    await run.ask(_listed(run), 2)


@scenario("ListTransactions")
async def filters_by_producer_and_state(run: Run) -> None:
    topic = await run.topic()
    producer, other = await new_producer(run), await new_producer(run, V1, "other")
    first = producer.identity[0]
    both = (first, other.identity[0])
    await producer.begin(topic)
    for version in _VERSIONS:
        await run.ask(_listed(run, ids=(first,)), version, "one producer")
        await run.ask(_listed(run, ids=both), version, "two producers")
        await run.ask(_listed(run, ids=(first, 1 << 60)), version, "beside an unknown one")
        await run.ask(_listed(run, ids=(1 << 60,)), version, "an unknown one")
        for states in (("Ongoing",), ("Empty",), ("Empty", "Ongoing"), ("Dead",)):
            await run.ask(_listed(run, *states, ids=both), version, ", ".join(states))
    for committed in (True, False):
        await producer.end_quietly(committed)
        for state in ("CompleteCommit", "CompleteAbort", "PrepareCommit", "PrepareAbort"):
            await run.ask(_listed(run, state, ids=both), 1, state)


@scenario("ListTransactions")
async def filters_by_unknown_states(run: Run) -> None:
    producer = await new_producer(run)
    who = (producer.identity[0],)
    for states in (
        ("Nothing",),
        ("empty",),
        ("Empty", "Nothing"),
        ("Nothing", "Else", "Nothing"),
        ("PrepareEpochFence", "Dead"),
        ("",),
    ):
        for version in _VERSIONS:
            await run.ask(_listed(run, *states, ids=who), version, repr(states))


@scenario("ListTransactions")
async def filters_by_duration(run: Run) -> None:
    topic = await run.topic()
    producer, idle = await new_producer(run), await new_producer(run, V2, "idle")
    await producer.begin(topic)
    both = (producer.identity[0], idle.identity[0])
    for duration in (-1, -2, _HOUR_MS, (1 << 63) - 1):
        await run.ask(_listed(run, ids=both, ms=duration), 1, f"{duration} ms")
    await producer.end_quietly()
    await run.ask(_listed(run, ids=both, ms=_HOUR_MS), 1, "after the end")


@scenario("ListTransactions", ErrorCode.INVALID_REGULAR_EXPRESSION)
async def filters_by_pattern(run: Run) -> None:
    producer = await new_producer(run, V2, "producer.one")
    await new_producer(run, V2, "producer-two")
    who, token = (producer.identity[0],), run.name("")
    for pattern in ("", ".*", "producer", f"producer.*{token}", f"producer[.]one{token}", "P.*"):
        asked = _listed(run, ids=who, pattern=pattern)
        await run.ask(asked, 2, repr(pattern).replace(token, "-token"))
    await run.ask(_listed(run, pattern=f"producer.(one|two){token}"), 2, "both")
    for pattern in ("[", "(", "*"):
        await run.ask(_listed(run, pattern=pattern), 2, pattern)
    await run.ask(_listed(run, "Nothing", pattern="["), 2, "beside an unknown state")


# Producers


@scenario("DescribeProducers")
async def producers_of_a_partition(run: Run) -> None:
    topic = await run.topic()
    await run.ask(_producers(topic, 0), 0, "none")
    for protocol in (V1, V2):
        where = await run.topic(f"v{protocol.end}", partitions=2)
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        for committed in (True, False):
            await producer.begin(where, 2)
            await producer.write(where, 3, "more")
            await run.ask(_producers(where, 0, 1), 0, f"{protocol}, open")
            await producer.end_quietly(committed)
            await run.ask(_producers(where, 0), 0, f"{protocol}, ended")


@scenario("DescribeProducers")
async def a_producer_without_transactions(run: Run) -> None:
    topic = await run.topic()
    found = await run.quietly(init(None), 5)
    for sequence in (0, 2):
        batch = batch_bytes(2, producer=(found.producer_id, 0, sequence))
        await run.quietly(produce(topic, batch), 9)
        await run.ask(_producers(topic, 0), 0)
    await run.quietly(produce(topic, batch_bytes(2)), 9)
    await run.ask(_producers(topic, 0), 0, "beside records without a producer")


@scenario(
    "DescribeProducers",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
async def producers_of_partitions_that_do_not_exist(run: Run) -> None:
    topic = await run.topic()
    await new_id(run)
    await run.ask(_producers(topic, 0, 7, -1), 0, "partition 7")
    await run.ask(_producers(run.name("nowhere"), 0, 1), 0)
    for name in ("", ".", "a b", "x" * 250):
        await run.ask(_producers(name, 0), 0, f"{name[:5]!r}")
    await run.ask(_producers(topic), 0, "no partitions")
    await run.ask(DescribeProducersRequest([]), 0, "no topics")
