"""Records of ``__consumer_offsets``: encoded as Apache Kafka does, and decoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from kclient.protocol.messages.group_log import GroupMetadataKey, OffsetCommitKey
from kclient.testing.groups import records
from kclient.testing.groups.classic_group import ClassicGroup, Member, State
from kclient.testing.groups.offsets import CommittedOffset
from tests.unit.testing.batches import batch_bytes

TOPIC_ID = bytes.fromhex("104c16b50049f648a8a7cf594b30ef3a")
AT = 0x1A207BA56DA


def written(record: records.Record) -> tuple[str, str]:
    key, value = records.encode(record)
    return key.hex(), "" if value is None else value.hex()


def test_an_offset_is_written_as_kafka_does() -> None:
    committed = CommittedOffset(1, -1, "simple", AT, -1, TOPIC_ID)
    assert written(committed.record("grp", "top", 2)) == (
        "000100036772700003746f7000000002",
        "00040000000000000001ffffffff0773696d706c65000001a207ba56da010010" + TOPIC_ID.hex(),
    )


def test_an_offset_with_an_end_is_written_as_kafka_does() -> None:
    committed = CommittedOffset(1, 4, "ret", AT, AT + 1000, TOPIC_ID)
    assert written(committed.record("grp", "top", 2))[1] == (
        "000100000000000000010003726574000001a207ba56da000001a207ba5ac2"
    )


def test_a_group_is_written_as_kafka_does() -> None:
    group = ClassicGroup("grp", AT)
    group.add(Member("i-1", "i", "cid", "/127.0.0.1", 15000, 10000, "consumer", (("range", b"m"),)))
    group.generation, group.protocol_name = 1, "range"
    assert written(records.group_record(group, {"i-1": b"A"})) == (
        "00020003677270",
        "0003"
        "0008636f6e73756d6572"
        "00000001"
        "000572616e6765"
        "0003692d31"
        "000001a207ba56da"
        "00000001"
        "0003692d31"
        "000169"
        "0003636964"
        "000a2f3132372e302e302e31"
        "00003a98"
        "00002710"
        "000000016d"
        "0000000141",
    )


def test_an_empty_group_is_written_as_kafka_does() -> None:
    group = ClassicGroup("grp", AT)
    group.generation, group.protocol_type = 2, "consumer"
    assert written(records.group_record(group, {}))[1] == (
        "00030008636f6e73756d657200000002ffffffff000001a207ba56da00000000"
    )
    assert written(records.new_group_record(group))[1] == (
        "0003000000000000ffffffff000001a207ba56da00000000"
    )


def test_what_is_deleted_has_no_value() -> None:
    assert written(records.offset_tombstone("grp", "top", 2))[1] == ""
    assert written(records.group_tombstone("grp")) == ("00020003677270", "")


TEXTS = some.text(max_size=20)
BYTES = some.binary(max_size=30)
LONGS = some.integers(0, (1 << 63) - 1)


@given(TEXTS, TEXTS, some.integers(0, 1 << 30), LONGS, TEXTS, LONGS, some.integers(-1, 1 << 40))
def test_offsets_come_back(
    group: str, topic: str, partition: int, offset: int, metadata: str, at: int, expires: int
) -> None:
    committed = CommittedOffset(offset, -1, metadata, at, expires)
    record = committed.record(group, topic, partition)
    (stored,) = records.decode_batches([records.encode_batch([record], 5)])
    assert isinstance(stored, records.Stored)
    back = stored.record
    assert isinstance(back, records.OffsetRecord)
    assert back.key == OffsetCommitKey(group, topic, partition)
    assert back.value is not None
    assert CommittedOffset.read(back.value) == committed


@given(
    some.lists(some.tuples(TEXTS, some.none() | TEXTS, BYTES, BYTES), max_size=4),
    some.integers(0, 1 << 30),
    TEXTS,
)
def test_groups_come_back(
    members: list[tuple[str, str | None, bytes, bytes]], generation: int, protocol: str
) -> None:
    group = ClassicGroup("g", 7)
    group.generation = generation
    for member_id, instance_id, metadata, _ in members:
        protocols = ((protocol, metadata),)
        group.add(Member(member_id, instance_id, "c", "/h", 1, 2, "consumer", protocols))
    if group.members:
        group.protocol_name = protocol
    record = records.group_record(group, {one[0]: one[3] for one in members})
    (stored,) = records.decode_batches([records.encode_batch([record], 5)])
    assert isinstance(stored, records.Stored)
    back = stored.record
    assert isinstance(back, records.GroupRecord)
    assert back.key == GroupMetadataKey("g")
    assert back.value is not None
    again = records.group_from("g", back.value)
    assert again.state is (State.STABLE if members else State.EMPTY)
    assert records.encode(
        records.group_record(
            again, {one.member_id: one.assignment for one in again.members.values()}
        )
    ) == records.encode(record)


def test_records_of_other_kinds_are_passed_over() -> None:
    for key in (b"\x00\x03\x00\x01g", b"\x00\x16\x00\x01g\x00\x01m", b"\xff\xff"):
        assert records.decode(key, b"\x00\x00") is None


def test_what_no_coordinator_wrote_does_not_keep_one_from_loading() -> None:
    batches = [
        records.encode_batch([records.group_tombstone("x")], 1),
        _batch(b"\x00", b"v"),
        _batch(b"\x00\x01\x00\x09too short", b"\x00\x04"),
        _batch(None, b"no key"),
    ]
    found = list(records.decode_batches(batches))
    assert [written(one.record)[0] for one in found if isinstance(one, records.Stored)] == [
        "0002000178"
    ]
    assert len(found) == 1


def _batch(key: bytes | None, value: bytes) -> bytes:
    return batch_bytes(key=key, value=value)
