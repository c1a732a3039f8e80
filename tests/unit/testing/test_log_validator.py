"""Checks of a produced batch, beside those that `tests/conformance` compares with Kafka."""

from __future__ import annotations

import gzip
import sys

import pytest

from kclient.error_codes import ErrorCode
from kclient.record.compression import Compression
from kclient.testing.log_validator import check_batch, open_batch
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig
from tests.support.v2_batch import encode_batch
from tests.unit.testing.batches import NOW, batch_bytes, patched

HOUR_MS = 3_600_000


def check(data: bytes, **given: str) -> StoredBatch:
    """Run all checks of a Produce v9 to a topic with these configurations; return the batch."""
    batch = open_batch(data, 9)
    config = TopicConfig({name.replace("_", "."): value for name, value in given.items()}, {})
    check_batch(batch, config, NOW)
    return batch


def refusal(data: bytes, **given: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(data, **given)
    return caught.value


def test_no_records_at_all_are_refused() -> None:
    with pytest.raises(ApiError):
        open_batch(None, 9)


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


def test_log_append_time_does_not_look_at_timestamps() -> None:
    check(batch_bytes(timestamp=NOW + 10 * HOUR_MS), message_timestamp_type="LogAppendTime")


def test_a_producer_must_not_claim_log_append_time() -> None:
    data = patched(batch_bytes(2), ">b", 22, 0x08)
    assert not check(data).is_log_append_time  # the broker corrects it under CreateTime
    refused = refusal(data, message_timestamp_type="LogAppendTime")
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
