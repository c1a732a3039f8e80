"""The fuzzer's seeds are what Kafka's own classes write today."""

from __future__ import annotations

from tests.golden.fuzz_seeds import FILE, listing


def test_the_seeds_of_the_fuzzer_are_as_kafka_writes_them() -> None:
    assert FILE.read_text() == listing(), "run: python -m tests.golden.fuzz_seeds"
