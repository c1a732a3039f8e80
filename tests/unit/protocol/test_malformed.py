"""Malformed bytes: always a ProtocolError with struct, field and offset, and little memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from kclient.errors import ProtocolError
from kclient.protocol.message import Message
from kclient.protocol.messages.fetch import FetchResponse
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tests.unit.protocol.every_message import every_message, versions
from tests.unit.protocol.random_messages import random_message

MUTANTS = 40
"""Number of damaged copies of one message of each class and version."""
BAD_PIECES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff" * 10,
    b"\x80" * 10,
    b"\xff\xff\xff\xff\x07",
    b"\x00",
)
"""Lengths of -1, of 2**31-1 and others, varints that don't end."""
PER_BYTE = 64
ONCE = 1 << 16
"""Limits of memory: bytes for each byte of input, and a constant besides."""


def damaged(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """Yield copies of ``data``: cut, flipped, overwritten, with bytes inserted or removed."""
    for cut in {0, 1, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in "12345")}:
        yield data[:cut]
    for _ in range(MUTANTS - 10):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            flipped = bytearray(data)
            flipped[at] ^= 1 << rng.randrange(8)
            yield bytes(flipped)
        elif kind == 1:
            piece = rng.choice(BAD_PIECES)
            yield data[:at] + piece + data[at + len(piece) :]
        elif kind == 2:
            yield data[:at] + rng.choice(BAD_PIECES) + data[at:]
        else:
            yield data[:at] + data[at + rng.randrange(1, 5) :]


def check(message: type[Message], data: bytes, version: int) -> bool:
    """Return whether ``data`` was refused; any message that was read must be writable again."""
    try:
        read = message.decode(data, version)
    except ProtocolError as error:
        assert error.struct, error
        assert error.field, error
        assert error.offset is not None, error
        assert 0 <= error.offset <= len(data), error
        assert f"ends at byte {len(data)}," not in str(error), "the slow path found no fault"
        assert error.__cause__ is None
        return True
    again = message.decode(read.encode(version), version)
    assert again == read or "nan" in repr(read)
    return False


@pytest.mark.parametrize("message", every_message(), ids=lambda message: message.__name__)
def test_damaged_messages_give_a_protocol_error_with_the_offset(message: type[Message]) -> None:
    rng = random.Random(f"damage {message.__name__}")
    for version in versions(message):
        data = random_message(rng, message, version).encode(version)
        if data:
            for mutant in damaged(rng, data):
                check(message, mutant, version)


def test_every_cut_of_a_message_is_refused() -> None:
    topic = MetadataResponseTopic(name="t", partitions=[])
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(1, "host", 9092)], cluster_id="c", topics=[topic]
    )
    for version in versions(MetadataResponse):
        data = response.encode(version)
        for cut in range(len(data)):
            assert check(MetadataResponse, data[:cut], version)


def test_random_noise_is_no_message() -> None:
    rng = random.Random(7)
    for message in every_message():
        for version in (message.MIN_VERSION, message.MAX_VERSION):
            for size in (3, 30, 300):
                check(message, rng.randbytes(size), version)


@pytest.mark.parametrize(
    ("data", "version", "struct_name", "field", "offset"),
    [
        ("7fffffff", 1, "MetadataRequest", "topics", 0),
        ("fffffffe", 1, "MetadataRequest", "topics", 0),
        ("ffffffff", 0, "MetadataRequest", "topics", 0),
        ("00000001" + "0005" + "6162", 1, "MetadataRequestTopic", "name", 4),
        ("00000001" + "ffff", 1, "MetadataRequestTopic", "name", 4),
        ("00000001" + "fffe", 1, "MetadataRequestTopic", "name", 4),
        ("00000001" + "0002" + "c328", 1, "MetadataRequestTopic", "name", 4),
        ("02" + "0000", 9, "MetadataRequestTopic", "name", 1),
        ("02" + "026100", 9, "MetadataRequest", "allow_auto_topic_creation", 4),
        ("ffffffffff", 9, "MetadataRequest", "topics", 0),
        ("01" + "000000" + "01" + "0005", 9, "MetadataRequest", "(tags)", 4),
        ("01" + "000000" + "00" + "00", 9, "MetadataRequest", "(end)", 5),
    ],
)
def test_the_error_names_struct_field_and_offset(
    data: str, version: int, struct_name: str, field: str, offset: int
) -> None:
    with pytest.raises(ProtocolError) as caught:
        MetadataRequest.decode(bytes.fromhex(data), version)
    error = caught.value
    assert (error.struct, error.field, error.offset) == (struct_name, field, offset)
    assert struct_name in str(error)


def test_a_huge_count_allocates_nothing() -> None:
    data = struct.pack(">ii", 0, 2**31 - 1) + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            MetadataResponse.decode(data, 3)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(ProtocolError):
            MetadataResponse.decode(data, 3)
        assert tracemalloc.get_traced_memory()[1] - before < 10_000
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_by_what_the_bytes_could_hold() -> None:
    """Counts that just fit, then bytes that make the most objects: empty arrays and strings."""
    size = 2_000
    tracemalloc.start()
    try:
        for message in every_message():
            for version in (message.MIN_VERSION, message.MAX_VERSION):
                for fill in (b"\x00", b"\x01"):
                    for head in (0, 4, 12):
                        count = struct.pack(">i", size - 100)
                        first = message.FIRST_FLEXIBLE
                        if first is not None and version >= first:
                            count = b"\xed\x0e"
                        data = (bytes(head) + count).ljust(size, fill)
                        tracemalloc.reset_peak()
                        before = tracemalloc.get_traced_memory()[0]
                        check_refused_or_read(message, data, version)
                        peak = tracemalloc.get_traced_memory()[1] - before
                        assert peak <= PER_BYTE * size + ONCE, (message, version, peak)
    finally:
        tracemalloc.stop()


def check_refused_or_read(message: type[Message], data: bytes, version: int) -> None:
    """Decode and discard, or raise a ProtocolError, which is expected."""
    try:
        message.decode(data, version)
    except ProtocolError:
        return


def test_a_bad_known_tag_is_named() -> None:
    response = FetchResponse()
    response.node_endpoints = []
    data = bytearray(response.encode(16))
    assert data[-1] == 0
    data[-1:] = b"\x01" + b"\x00" + b"\x05" + b"\x00\x00\x00\x00\x00"
    with pytest.raises(ProtocolError) as caught:
        FetchResponse.decode(data, 16)
    assert (caught.value.struct, caught.value.field) == ("FetchResponse", "node_endpoints")


def test_stepped_decoding_refuses_the_same_bytes() -> None:
    topic = MetadataResponseTopic(name="t")
    data = MetadataResponse(topics=[topic] * 3, cluster_id="c").encode(12)
    for cut in range(len(data)):
        with pytest.raises(ProtocolError) as caught:
            for _ in MetadataResponse.decode_steps(data[:cut], 12):
                pass
        assert caught.value.offset is not None
    with pytest.raises(ProtocolError, match=r"0 to 13"):
        next(MetadataResponse.decode_steps(data, 99))


def test_a_damaged_request_does_not_hurt_the_next_one() -> None:
    good = MetadataRequest([MetadataRequestTopic(name="t")])
    with pytest.raises(ProtocolError):
        MetadataRequest.decode(b"\xff", 9)
    assert MetadataRequest.decode(good.encode(9), 9) == good
