"""InitProducerId of transactional ids, and how producers that are fenced are refused (KIP-360)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from tests.conformance.members import new_group
from tests.conformance.producers import (
    ADD_PARTITIONS,
    V1,
    V2,
    Producer,
    init,
    new_id,
    new_producer,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.transactions import state_of
from tests.unit.testing.calls import fetch
from tests.unit.testing.transaction_calls import Identity, add_partitions, commit_offset

_FIRST_WITH_KNOWN = 3
"""The first version of InitProducerId with the identity that the producer has."""
_LONGEST_MS = 900_000


@scenario("InitProducerId")
async def a_transactional_id_in_every_version(run: Run) -> None:
    name = await new_id(run)
    for version in range(6):
        await run.ask_patiently(init(name), version)


@scenario("InitProducerId", ErrorCode.INVALID_TRANSACTION_TIMEOUT)
async def timeouts(run: Run) -> None:
    name = await new_id(run)
    for timeout in (0, -1, 1, _LONGEST_MS, _LONGEST_MS + 1, (1 << 31) - 1):
        for version in (0, 4, 5):
            asked = init(name, timeout_ms=timeout)
            await run.ask_patiently(asked, version, f"timeout {timeout}")
        await state_of(run, Producer(run, name, V2), f"timeout {timeout}")


@scenario("InitProducerId")
async def a_timeout_that_changes(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    await producer.begin(topic)
    await run.ask(init(producer.name, timeout_ms=5000), 5)
    await run.ask_patiently(init(producer.name, timeout_ms=7000), 5)
    await state_of(run, producer)


# The identity that the producer has


@scenario("InitProducerId", ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
async def an_identity_is_renewed(run: Run) -> None:
    producer = await new_producer(run)
    for version in range(_FIRST_WITH_KNOWN, 6):
        producer_id, epoch = producer.identity
        asked = init(producer.name, known=producer.identity)
        await run.ask_patiently(asked, version)
        await run.ask_patiently(asked, version, "again")
        for step in (-1, 2):
            other = init(producer.name, known=(producer_id, epoch + step))
            await run.ask_patiently(other, version, f"epoch {step:+d}")
        await producer.init()
        await run.ask_patiently(asked, version, "after another producer began")


@scenario("InitProducerId", ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
async def an_identity_with_another_id(run: Run) -> None:
    producer = await new_producer(run)
    other = (producer.identity[0] + 1_000_000, producer.identity[1])
    for version in range(_FIRST_WITH_KNOWN, 6):
        await run.ask_patiently(init(producer.name, known=other), version)


@scenario("InitProducerId")
async def an_identity_of_a_transactional_id_that_was_forgotten(run: Run) -> None:
    for version in range(_FIRST_WITH_KNOWN, 6):
        name = await new_id(run, f"v{version}")
        await run.ask_patiently(init(name, known=(7, 3)), version)
        await state_of(run, Producer(run, name, V2))


@scenario("InitProducerId", ErrorCode.INVALID_REQUEST)
async def half_an_identity(run: Run) -> None:
    producer = await new_producer(run)
    for known in ((producer.identity[0], -1), (-1, 0)):
        await run.ask_each(init(producer.name, known=known), 3, 4, 5)


@scenario("InitProducerId")
async def an_identity_is_renewed_between_transactions(run: Run) -> None:
    topic = await run.topic()
    for protocol in (V1, V2):
        for committed in (True, False):
            producer = await new_producer(run, protocol, f"{protocol.end}-{committed}")
            await producer.begin(topic)
            first = producer.identity
            await producer.end(committed)
            note = f"{protocol}, {'commit' if committed else 'abort'}"
            asked = init(producer.name, known=first)
            await run.ask_patiently(asked, protocol.init, f"{note}, of the transaction")
            asked = init(producer.name, known=producer.identity)
            await run.ask_patiently(asked, protocol.init, f"{note}, of the next one")
            await state_of(run, producer, note)


# Open transactions


@scenario("InitProducerId", ErrorCode.CONCURRENT_TRANSACTIONS)
async def an_open_transaction_is_aborted(run: Run) -> None:
    topic = await run.topic()
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        await producer.begin(topic)
        await run.ask(init(producer.name), protocol.init, f"{protocol}, first")
        await producer.settle()
        await state_of(run, producer, str(protocol))
        await producer.init(str(protocol))
        await state_of(run, producer, str(protocol))
        await producer.begin(topic)
        await producer.end(True)
    await run.ask(fetch(topic, 0, isolation=1), 12)


@scenario("InitProducerId", ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
async def an_open_transaction_is_aborted_by_its_own_producer(run: Run) -> None:
    topic = await run.topic()
    for protocol in (V1, V2):
        producer = await new_producer(run, protocol, f"v{protocol.end}")
        await producer.begin(topic)
        wrong = init(producer.name, known=(producer.identity[0] + 1_000_000, 0))
        await run.ask(wrong, protocol.init, f"{protocol}, another id")
        asked = init(producer.name, known=producer.identity)
        await run.ask(asked, protocol.init, f"{protocol}, first")
        await producer.settle()
        await state_of(run, producer, str(protocol))
        await run.ask_patiently(asked, protocol.init, f"{protocol}, second")
        await state_of(run, producer, str(protocol))


@scenario("InitProducerId", ErrorCode.CONCURRENT_TRANSACTIONS)
async def an_old_identity_aborts_an_open_transaction(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run)
    await producer.init()
    await producer.begin(topic)
    await run.ask(init(producer.name, known=producer.old), 5)
    await producer.settle()
    await state_of(run, producer)


# Wrong identities


def _wrong(run: Run, producer: Producer) -> list[tuple[str, str, Identity]]:
    """Transactional ids and identities that aren't those of the producer."""
    producer_id, epoch = producer.identity
    return [
        ("an old epoch", producer.name, (producer_id, epoch - 1)),
        ("a new epoch", producer.name, (producer_id, epoch + 1)),
        ("another id", producer.name, (producer_id + 1_000_000, epoch)),
        ("no id", producer.name, (-1, -1)),
        ("unknown", run.name("nowhere"), producer.identity),
        ("no name", "", producer.identity),
    ]


@scenario(
    "AddPartitionsToTxn",
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_REQUEST,
)
async def partitions_of_wrong_producers(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    await producer.init()
    for note, name, identity in _wrong(run, producer):
        await run.ask_each(add_partitions(name, identity, (topic, 0)), *range(4), note=note)
    await producer.begin(topic)
    for note, name, identity in _wrong(run, producer):
        asked = add_partitions(name, identity, (topic, 0))
        await run.ask(asked, ADD_PARTITIONS, f"{note}, in a transaction")


@scenario(
    "AddOffsetsToTxn",
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_REQUEST,
)
async def groups_of_wrong_producers(run: Run) -> None:
    group, producer = await new_group(run), await new_producer(run, V1)
    await producer.init()
    for note, name, identity in _wrong(run, producer):
        asked = producer.add_offsets(group, name=name, identity=identity)
        await run.ask_each(asked, *range(5), note=note)


@scenario(
    "EndTxn",
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_REQUEST,
)
async def ends_of_wrong_producers(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    await producer.init()
    await producer.begin(topic)
    for committed in (True, False):
        for note, name, identity in _wrong(run, producer):
            asked = producer.end_request(committed, name=name, identity=identity)
            await run.ask_each(asked, *range(6), note=note)
    await state_of(run, producer)


@scenario(
    "TxnOffsetCommit",
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
async def offsets_of_wrong_producers(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    producer = await new_producer(run, V1)
    await producer.init()
    for note, name, identity in _wrong(run, producer):
        asked = commit_offset(name, identity, group, 3, topic=topic)
        await run.ask_each(asked, *range(6), note=note)
    await producer.begin_commit(group, topic, 3)
    for note, name, identity in _wrong(run, producer):
        asked = commit_offset(name, identity, group, 4, topic=topic)
        await run.ask_each(asked, *range(6), note=f"{note}, in a transaction")


@scenario(
    "Produce",
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
async def records_of_wrong_producers(run: Run) -> None:
    topic, producer = await run.topic(), await new_producer(run, V1)
    await producer.init()
    for note, name, identity in _wrong(run, producer):
        if identity[0] >= 0:
            asked = producer.batch(topic, name=name, identity=identity, sequence=0)
            await run.ask_each(asked, 3, 9, 10, 11, 12, note=note)
    await producer.begin(topic)
    for note, name, identity in _wrong(run, producer):
        if identity[0] >= 0:
            asked = producer.batch(topic, name=name, identity=identity, sequence=0)
            await run.ask_each(asked, 3, 10, 11, 12, note=f"{note}, in a transaction")
    await run.ask(fetch(topic, 0), 12)


@scenario(
    "EndTxn",
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
async def a_fenced_producer_in_every_api(run: Run) -> None:
    topic, group = await run.topic(), await new_group(run)
    for protocol in (V1, V2):
        old = await new_producer(run, protocol, f"v{protocol.end}")
        await old.begin(topic)
        new = Producer(run, old.name, protocol)
        await new.init(str(protocol))
        for version in (0, 1, 2, ADD_PARTITIONS):
            await run.ask(add_partitions(old.name, old.identity, (topic, 0)), version)
            await run.ask(old.add_offsets(group), version)
            await run.ask(old.end_request(True), version)
        await run.ask(old.end_request(False), protocol.end, str(protocol))
        asked = commit_offset(old.name, old.identity, group, 1, topic=topic)
        await run.ask(asked, protocol.commit_offsets, str(protocol))
        await old.write(topic, note=str(protocol))
        await run.ask_patiently(init(old.name, known=old.identity), protocol.init, str(protocol))
        await new.begin(topic)
        await old.write(topic, note=f"{protocol}, beside the new one")
        await new.end(True, str(protocol))
    await run.ask(fetch(topic, 0, isolation=1), 12)
