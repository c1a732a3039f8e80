"""What members send each other: Java's bytes, and whatever else peers may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.errors import ProtocolError
from kclient.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kclient.hooks import MemberSubscription
from kclient.types import TopicPartition

SUBSCRIPTION = MemberSubscription(
    ("orders", "bills"),
    b"\1\2",
    (TopicPartition("orders", 1), TopicPartition("orders", 0), TopicPartition("bills", 3)),
    7,
    "rack-a",
)
BYTES = bytes.fromhex(
    "0003 00000002 0005 62696c6c73 0006 6f7264657273 00000002 0102"
    "00000002 0005 62696c6c73 00000001 00000003"
    "0006 6f7264657273 00000002 00000000 00000001"
    "00000007 0006 7261636b2d61"
)
"""As Java's client writes SUBSCRIPTION."""
PARTS = [TopicPartition("orders", 2), TopicPartition("orders", 0), TopicPartition("bills", 1)]
PART_BYTES = bytes.fromhex(
    "0003 00000002 0006 6f7264657273 00000002 00000002 00000000"
    "0005 62696c6c73 00000001 00000001 ffffffff"
)
"""As Java's client writes an assignment of PARTS."""

names = st.text(max_size=8)
parts = st.builds(TopicPartition, names, st.integers(-(2**31), 2**31 - 1))
subscriptions = st.builds(
    MemberSubscription,
    st.lists(names, max_size=4).map(tuple),
    st.none() | st.binary(max_size=8),
    st.lists(parts, max_size=6).map(tuple),
    st.integers(-1, 2**31 - 1),
    st.none() | st.text(min_size=1, max_size=4),
)


def test_a_subscription_is_written_as_java_writes_it() -> None:
    assert encode_subscription(SUBSCRIPTION) == BYTES


def test_a_minimal_subscription_is_written_as_java_writes_it() -> None:
    data = encode_subscription(MemberSubscription(("t",)))
    assert data.hex() == "000300000001000174ffffffff00000000ffffffffffff"


def test_an_assignment_is_written_as_java_writes_it() -> None:
    assert encode_assignment(PARTS) == PART_BYTES


def test_a_subscription_is_read_with_its_instance_id_from_elsewhere() -> None:
    found = decode_subscription(BYTES, "i1")
    assert found.topics == ("bills", "orders")
    assert found.user_data == b"\1\2"
    assert sorted(found.owned) == sorted(SUBSCRIPTION.owned)
    assert (found.generation, found.rack, found.instance_id) == (7, "rack-a", "i1")


@given(subscriptions)
def test_what_is_written_is_read_again(sub: MemberSubscription) -> None:
    found = decode_subscription(encode_subscription(sub))
    assert sorted(found.topics) == sorted(sub.topics)
    assert sorted(found.owned) == sorted(sub.owned)
    assert (found.user_data, found.generation) == (sub.user_data, sub.generation)
    assert found.rack == sub.rack


@pytest.mark.parametrize(
    ("data", "owned", "generation"),
    [
        ("0000 00000001 000174 ffffffff", 0, -1),
        ("0001 00000001 000174 ffffffff 00000001 000174 00000001 00000005", 1, -1),
        ("0002 00000001 000174 ffffffff 00000001 000174 00000001 00000005 00000009", 1, 9),
    ],
)
def test_older_versions_are_read(data: str, owned: int, generation: int) -> None:
    found = decode_subscription(bytes.fromhex(data))
    assert (found.topics, found.user_data) == (("t",), None)
    assert (len(found.owned), found.generation, found.rack) == (owned, generation, None)


def test_a_newer_version_is_read_as_the_newest_known_one_whatever_follows() -> None:
    newer = b"\0\x09" + BYTES[2:] + b"something new"
    assert decode_subscription(newer) == decode_subscription(BYTES)
    assert decode_assignment(b"\x7f\xff" + PART_BYTES[2:] + b"!") == PARTS


def test_bytes_after_the_known_fields_are_passed_over_as_in_java() -> None:
    assert decode_subscription(BYTES + b"more") == decode_subscription(BYTES)


def test_no_generation_and_no_rack_have_one_form_each() -> None:
    data = bytes.fromhex("0003 00000000 ffffffff 00000000 80000000 0000")
    found = decode_subscription(data)
    assert (found.generation, found.rack) == (-1, None)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff" + BYTES[2:], b"\0\3\x7f\xff\xff\xff"])
def test_what_is_no_subscription_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="ConsumerProtocolSubscription") as refused:
        decode_subscription(data)
    assert refused.value.struct == "ConsumerProtocolSubscription"


def test_bytes_that_end_early_are_a_protocol_error() -> None:
    for size in range(len(BYTES)):
        with pytest.raises(ProtocolError):
            decode_subscription(BYTES[:size])
    for size in range(1, len(PART_BYTES)):
        with pytest.raises(ProtocolError):
            decode_assignment(PART_BYTES[:size])


def test_a_name_that_is_no_text_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(BYTES.replace(b"bills", b"bil\xff\xfe"))


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda end: BYTES[:20] + end))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_subscription, decode_assignment):
        try:
            read(data)
        except ProtocolError:
            pass


def test_a_member_that_the_leader_left_out_has_nothing() -> None:
    assert decode_assignment(b"") == []


def test_a_partition_that_is_assigned_twice_is_ours_once() -> None:
    assert decode_assignment(encode_assignment([*PARTS, *PARTS])) == PARTS


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(ProtocolError, match="'t' partition -1"):
        decode_assignment(encode_assignment([TopicPartition("t", -1)]))


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError):
        encode_subscription(MemberSubscription(("t" * 40_000,)))
    with pytest.raises(ProtocolError):
        encode_assignment([TopicPartition("t" * 40_000, 0)])
