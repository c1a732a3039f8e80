"""Records with deserialized keys and values."""

from __future__ import annotations

import pickle

import pytest

from kclient.consumer.records import DeserializedRecord, converter
from kclient.errors import DeserializationFailed
from kclient.record import Record
from kclient.serializers import JsonDeserializer, StringDeserializer
from kclient.types import TimestampType, TopicPartition

RAW = Record("t", 2, 7, 1_700_000_000_000, b"key", b'{"a":1}', (("h", b"1"),), leader_epoch=4)


def test_without_deserializers_records_stay_as_they_are() -> None:
    assert converter(None, None) is None


def test_key_and_value_are_deserialized_and_the_rest_is_the_records() -> None:
    convert = converter(StringDeserializer(), JsonDeserializer())
    assert convert is not None
    record = convert(RAW)
    assert (record.key, record.value) == ("key", {"a": 1})
    assert (record.topic, record.partition, record.offset) == ("t", 2, 7)
    assert record.topic_partition == TopicPartition("t", 2)
    assert record.timestamp == RAW.timestamp
    assert record.timestamp_type is TimestampType.CREATE_TIME
    assert record.datetime == RAW.datetime
    assert record.headers == (("h", b"1"),)
    assert record.leader_epoch == 4
    assert record.size_bytes == RAW.size_bytes
    assert record.raw is RAW


def test_one_deserializer_leaves_the_other_part_alone() -> None:
    keys, values = converter(StringDeserializer(), None), converter(None, JsonDeserializer())
    assert keys is not None
    assert values is not None
    assert (keys(RAW).key, keys(RAW).value) == ("key", b'{"a":1}')
    assert (values(RAW).key, values(RAW).value) == (b"key", {"a": 1})


def test_a_failure_names_the_place_and_the_way_on() -> None:
    def refuse(topic: str, data: bytes | None) -> object:
        raise KeyError("no id")

    convert = converter(None, refuse)
    assert convert is not None
    with pytest.raises(DeserializationFailed, match=r"value at offset 7 of t-2.*seek to 8") as e:
        convert(RAW)
    assert (e.value.offset, e.value.topic_partition) == (7, TopicPartition("t", 2))
    assert isinstance(e.value.__cause__, KeyError)
    assert "deserialized: KeyError: 'no id' (" in str(e.value)


def test_equality_hash_repr_and_pickle() -> None:
    one, two = DeserializedRecord(RAW, "k", 1), DeserializedRecord(RAW, "k", 1)
    assert one == two
    assert hash(one) == hash(two)
    assert one != DeserializedRecord(RAW, "k", 2)
    assert one != RAW
    assert pickle.loads(pickle.dumps(one)) == one
    assert "offset=7" in repr(one)
