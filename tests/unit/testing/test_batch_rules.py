"""What a broker checks of a produced batch before it takes it."""

from __future__ import annotations

import gzip
import sys

import pytest

from kclient.error_codes import ErrorCode
from kclient.record.compression import Compression
from kclient.testing.batch_rules import RecordsRefused, check_batch, open_batch
from kclient.testing.refused import Refused
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig
from tests.support.v2_batch import encode_batch
from tests.unit.testing.batches import COMMIT, NOW, batch_bytes, marker, patched

HOUR_MS = 3_600_000
CODECS = [codec for codec in Compression if codec]


def check(data: bytes, **given: str) -> StoredBatch:
    """Pass all checks of a Produce v9 to a topic with these configurations."""
    batch = open_batch(data, 9)
    config = TopicConfig({name.replace("_", "."): value for name, value in given.items()}, {})
    check_batch(batch, config, NOW)
    return batch


def refusal(data: bytes, **given: str) -> Refused:
    with pytest.raises(Refused) as caught:
        check(data, **given)
    return caught.value


@pytest.mark.parametrize("codec", Compression)
def test_a_good_batch_is_taken_as_it_is(codec: Compression) -> None:
    data = batch_bytes(5, codec=codec)
    assert bytes(check(data).data) == data


@pytest.mark.parametrize("data", [b"", batch_bytes() + batch_bytes(), batch_bytes()[:-1]])
def test_there_must_be_one_batch(data: bytes) -> None:
    assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_no_records_at_all_are_refused() -> None:
    with pytest.raises(Refused):
        open_batch(None, 9)


def test_an_old_message_set_is_refused() -> None:
    assert refusal(patched(batch_bytes(), ">b", 16, 1)).code is ErrorCode.INVALID_RECORD


def test_zstd_needs_version_7() -> None:
    data = batch_bytes(codec=Compression.ZSTD)
    open_batch(data, 7)
    with pytest.raises(Refused) as caught:
        open_batch(data, 6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_wrong_crc_is_corrupt() -> None:
    data = bytearray(batch_bytes())
    data[-1] ^= 1
    assert refusal(bytes(data)).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_over_the_topics_limit_is_too_large() -> None:
    data = batch_bytes(value=b"x" * 200)
    check(data, max_message_bytes=str(len(data)))
    refused = refusal(data, max_message_bytes=str(len(data) - 1))
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("layout", "position", "value"),
    [
        (">q", 0, 5),  # base offset
        (">i", 57, 2),  # record count
        (">i", 57, 4),
        (">i", 57, -1),
        (">i", 23, 1),  # last offset delta
        (">i", 23, -1),
        (">b", 22, 0x20),  # control
        (">b", 61, 0x7F),  # length of the first record
        (">b", 61, 0x01),
        (">b", 65, 0x40),  # length of its key
    ],
)
def test_a_batch_that_contradicts_itself_is_invalid(layout: str, position: int, value: int) -> None:
    data = patched(batch_bytes(3), layout, position, value)
    assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_clients_cannot_write_markers() -> None:
    assert refusal(marker(COMMIT, 1)).code is ErrorCode.INVALID_RECORD


def test_a_producer_needs_a_sequence() -> None:
    assert refusal(batch_bytes(producer=(5, 0, -1))).code is ErrorCode.INVALID_RECORD


def test_a_transaction_needs_a_coordinator() -> None:
    data = batch_bytes(producer=(5, 0, 0), transactional=True)
    assert refusal(data).code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("codec", [*CODECS, 5, 7])
def test_a_payload_that_is_not_what_its_codec_says_is_an_unknown_error(codec: int) -> None:
    data = patched(batch_bytes(3), ">b", 22, codec)
    assert refusal(data).code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("length", "codec", "code"),
    [
        (b"\x8e\x80\x80\x80\x00", Compression.NONE, None),
        (b"\x8e\x80\x80\x80\x80\x00", Compression.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (b"\x8e\x80\x80\x80\x80\x00", Compression.GZIP, ErrorCode.INVALID_RECORD),
        (b"\xff" * 5, Compression.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (b"\xff" * 4, Compression.NONE, ErrorCode.INVALID_RECORD),
        (b"\x03", Compression.NONE, ErrorCode.INVALID_RECORD),
        (b"\x10", Compression.NONE, ErrorCode.INVALID_RECORD),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
def test_a_length_of_more_than_five_bytes_is_an_unknown_error_where_nothing_is_compressed(
    length: bytes, codec: Compression, code: ErrorCode | None, before: int
) -> None:
    first = b"\x0e\x00\x00\x00\x01\x02v\x00"
    body = first * before + (length + b"\x00\x00" + bytes([2 * before]) + b"\x01\x02v\x00")
    packed = gzip.compress(body) if codec else body
    data = encode_batch(packed, codec, before + 1, NOW, NOW)
    if code is None:
        check(data)
    else:
        assert refusal(data).code is code


def test_a_codec_without_its_package_is_taken_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch_bytes(3, codec=Compression.LZ4)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    assert bytes(check(data).data) == data


def test_a_compacted_topic_wants_keys() -> None:
    check(batch_bytes(2), cleanup_policy="compact")
    refused = refusal(batch_bytes(5, key=None), cleanup_policy="compact")
    assert isinstance(refused, RecordsRefused)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert refused.records == [0, 1, 2, 3, 4]


def test_timestamps_too_far_ahead_are_refused_record_by_record() -> None:
    check(batch_bytes(timestamp=NOW + HOUR_MS))
    refused = refusal(batch_bytes(2, timestamp=NOW + HOUR_MS))
    assert isinstance(refused, RecordsRefused)
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert refused.records == [1]


def test_timestamps_too_old_are_refused_where_the_topic_says_so() -> None:
    check(batch_bytes(timestamp=5))
    refused = refusal(batch_bytes(timestamp=5), message_timestamp_before_max_ms="1000")
    assert refused.code is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_does_not_look_at_timestamps() -> None:
    check(batch_bytes(timestamp=NOW + 10 * HOUR_MS), message_timestamp_type="LogAppendTime")


def test_the_greatest_timestamp_in_the_header_is_made_true() -> None:
    batch = check(patched(batch_bytes(3), ">q", 35, NOW + 999))
    assert batch.max_timestamp == NOW + 2
    assert batch.computed_crc() == batch.crc


def test_a_producer_must_not_claim_log_append_time() -> None:
    data = patched(batch_bytes(2), ">b", 22, 0x08)
    assert not check(data).is_log_append_time  # with CreateTime it is made good
    refused = refusal(data, message_timestamp_type="LogAppendTime")
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
