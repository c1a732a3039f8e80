"""Records of ``__transaction_state``: encoded as Apache Kafka does, and decoded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kclient.protocol.messages.transaction_log import TransactionLogKey
from kclient.record.message_set import read_batches
from kclient.testing.transactions.metadata import TransactionMetadata, TransactionState
from kclient.testing.transactions.records import decode_batches, encode_batch
from tests.unit.testing.batches import COMMIT, batch_bytes, marker

State = TransactionState
TIMEOUT = 60_000

# Read from the topic of an Apache Kafka 4.3.0: a producer of version 2 began (id 55, epoch 0),
# committed three partitions, then aborted one; a producer of version 1 (id 56) committed one.

KEY = "00000008676f6c64656e2d32"
VALUES: dict[str, tuple[str, TransactionMetadata]] = {
    "it begins": (
        "0001000000000000003700000000ea600000000001a221edc422ffffffffffffffff010008"
        "0000000000000037",
        TransactionMetadata("golden-2", 55, TIMEOUT, 0x1A221EDC422, 55, epoch=0),
    ),
    "ongoing": (
        "0001000000000000003700010000ea60010206746f702d67020000000200000001a221edc543"
        "000001a221edc5430200080000000000000037"
        "02020002",
        TransactionMetadata(
            "golden-2",
            55,
            TIMEOUT,
            0x1A221EDC543,
            55,
            epoch=1,
            state=State.ONGOING,
            partitions=frozenset({("top-g", 2)}),
            started_ms=0x1A221EDC543,
            client_version=2,
        ),
    ),
    "prepared": (
        "0001000000000000003700020000ea60030206746f702d67020000000200000001a221edc546"
        "000001a221edc5430200080000000000000037"
        "02020002",
        TransactionMetadata(
            "golden-2",
            55,
            TIMEOUT,
            0x1A221EDC546,
            55,
            epoch=2,
            state=State.PREPARE_ABORT,
            partitions=frozenset({("top-g", 2)}),
            started_ms=0x1A221EDC543,
            client_version=2,
        ),
    ),
    "complete": (
        "0001000000000000003700020000ea600501000001a221edc546000001a221edc543020008"
        "000000000000003702020002",
        TransactionMetadata(
            "golden-2",
            55,
            TIMEOUT,
            0x1A221EDC546,
            55,
            epoch=2,
            state=State.COMPLETE_ABORT,
            started_ms=0x1A221EDC543,
            client_version=2,
        ),
    ),
}
OF_VERSION_1 = (
    "0001000000000000003800000000ea60020206746f702d67020000000100000001a221edc567"
    "000001a221edc5570100080000000000000038"
)
THREE_PARTITIONS = (
    "0001000000000000003700010000ea60020306746f702d6703000000000000000100066161612d67"
    "020000000000000001a221edc4e4000001a221edc4c302000800000000000000370202000"
    "2"
)


def written(
    metadata: TransactionMetadata | None, value_version: int = 1, name: str = "golden-2"
) -> tuple[str, str]:
    """Key and value of a record, in hex."""
    batch = encode_batch([(name, metadata)], 5, value_version)
    (found,) = read_batches(memoryview(batch))
    (record,) = found.records("", 0)
    assert record.key is not None
    return bytes(record.key).hex(), "" if record.value is None else bytes(record.value).hex()


def batch_of(key: str, value: str | None) -> bytes:
    return batch_bytes(
        key=bytes.fromhex(key), value=None if value is None else bytes.fromhex(value)
    )


def read(*batches: bytes) -> list[tuple[str, TransactionMetadata | None]]:
    return list(decode_batches(batches))


# As Kafka


@pytest.mark.parametrize("when", list(VALUES))
def test_a_state_is_written_as_kafka_does(when: str) -> None:
    value, metadata = VALUES[when]
    assert written(metadata) == (KEY, value)


def test_a_producer_of_version_1_is_written_as_kafka_does() -> None:
    metadata = TransactionMetadata(
        "golden-1",
        56,
        TIMEOUT,
        0x1A221EDC567,
        56,
        epoch=0,
        state=State.PREPARE_COMMIT,
        partitions=frozenset({("top-g", 1)}),
        started_ms=0x1A221EDC557,
    )
    assert written(metadata, name="golden-1") == ("00000008676f6c64656e2d31", OF_VERSION_1)


@pytest.mark.parametrize("when", list(VALUES))
def test_a_state_of_kafka_is_read(when: str) -> None:
    value, metadata = VALUES[when]
    assert read(batch_of(KEY, value)) == [("golden-2", metadata)]


def test_partitions_of_several_topics_are_read_in_the_order_of_kafka() -> None:
    ((_, metadata),) = read(batch_of(KEY, THREE_PARTITIONS))
    assert metadata is not None
    assert metadata.partitions == {("top-g", 0), ("top-g", 1), ("aaa-g", 0)}
    assert len(written(metadata)[1]) == len(THREE_PARTITIONS)


def test_what_is_forgotten_has_no_value() -> None:
    assert written(None) == (KEY, "")
    assert read(batch_of(KEY, None)) == [("golden-2", None)]


def test_version_0_has_no_tags() -> None:
    metadata = VALUES["ongoing"][1]
    value = bytes.fromhex(written(metadata, 0)[1])
    assert value == (
        b"\0\0"
        + (55).to_bytes(8)
        + b"\0\1"
        + TIMEOUT.to_bytes(4)
        + b"\1"
        + (1).to_bytes(4)
        + b"\0\5top-g"
        + (1).to_bytes(4)
        + (2).to_bytes(4)
        + metadata.updated_ms.to_bytes(8)
        + metadata.started_ms.to_bytes(8)
    )
    ((_, back),) = read(batch_of(KEY, value.hex()))
    assert back == replace(metadata, previous_producer_id=-1, client_version=0)


# Logs


def test_changes_come_in_order_from_all_batches() -> None:
    first, last = VALUES["it begins"][1], VALUES["complete"][1]
    other = replace(first, transactional_id="other")
    batches = [
        encode_batch([("golden-2", first), ("other", other)], 5, 1),
        encode_batch([("other", None), ("golden-2", last)], 6, 1),
    ]
    assert read(*batches) == [
        ("golden-2", first),
        ("other", other),
        ("other", None),
        ("golden-2", last),
    ]


@pytest.mark.parametrize(
    "foreign",
    [
        batch_bytes(key=None),
        batch_bytes(key=b""),
        batch_bytes(key=b"\0"),
        batch_bytes(key=b"\0\1\0\1x"),
        batch_bytes(key=b"\0\0\0\5x"),
        batch_bytes(key=b"\0\0\0\1x", value=b""),
        batch_bytes(key=b"\0\0\0\1x", value=b"\0\1\0"),
        batch_bytes(key=b"\0\0\0\1x", value=b"\x7f\xff" + bytes(40)),
        marker(COMMIT, 5),
    ],
    ids=["none", "empty", "short", "type", "cut", "no version", "cut value", "future", "marker"],
)
def test_records_of_no_coordinator_are_skipped(foreign: bytes) -> None:
    known = encode_batch([("golden-2", None)], 5, 1)
    assert read(known, foreign, known) == [("golden-2", None)] * 2


@pytest.mark.parametrize("state", [State.DEAD, State.PREPARE_EPOCH_FENCE, 99])
def test_a_state_that_is_never_written_is_skipped(state: int) -> None:
    value = bytearray.fromhex(VALUES["it begins"][0])
    assert value[16] == State.EMPTY
    value[16] = state
    known = encode_batch([("golden-2", None)], 5, 1)
    assert read(batch_of(KEY, value.hex()), known) == [("golden-2", None)]


TEXTS = some.text(max_size=20)
LONGS = some.integers(0, (1 << 63) - 1)
STATES = some.sampled_from([one for one in State if one.value < State.DEAD])


@given(
    name=TEXTS,
    state=STATES,
    ids=some.tuples(LONGS, LONGS, LONGS),
    epoch=some.integers(0, (1 << 15) - 1),
    partitions=some.frozensets(some.tuples(TEXTS, some.integers(0, 1 << 30)), max_size=5),
    times=some.tuples(LONGS, some.integers(-1, 1 << 40), some.integers(1, (1 << 31) - 1)),
    version=some.integers(0, 2),
)
def test_states_come_back(
    name: str,
    state: TransactionState,
    ids: tuple[int, int, int],
    epoch: int,
    partitions: frozenset[tuple[str, int]],
    times: tuple[int, int, int],
    version: int,
) -> None:
    producer_id, previous, following = ids
    updated, started, timeout = times
    metadata = TransactionMetadata(
        name,
        producer_id,
        timeout,
        updated,
        previous,
        following,
        epoch,
        state=state,
        partitions=frozenset() if state is State.EMPTY else partitions,
        started_ms=started,
        client_version=version,
    )
    assert read(encode_batch([(name, metadata)], 5, 1)) == [(name, metadata)]


def test_a_key_is_the_id_after_its_type() -> None:
    assert KEY == "0000" + TransactionLogKey("golden-2").encode(0).hex()
