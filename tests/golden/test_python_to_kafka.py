"""Kafka reads what kclient writes to the same values, and writes it to the same bytes."""

from __future__ import annotations

import random

import pytest

from kclient.protocol.message import Message
from tests.golden.json_view import differences
from tests.golden.kafka_side import Answer, ask_either, java_class
from tests.unit.protocol.every_message import every_message, versions
from tests.unit.protocol.random_messages import random_message

PER_VERSION = 4
"""Random messages of each API and version."""

Case = tuple[int, Message, bytes, Answer]


@pytest.fixture(scope="module")
def read_by_kafka() -> dict[type[Message], list[Case]]:
    """Random messages of every class: (version, message, its bytes, what Kafka made of them)."""
    rng = random.Random(20130101)
    made = []
    for message in every_message():
        for version in versions(message):
            for _ in range(PER_VERSION):
                one = random_message(rng, message, version)
                made.append((version, one, one.encode(version)))
    answers = ask_either(
        [f"echo\t{java_class(type(one))}\t{version}\t{data.hex()}" for version, one, data in made]
    )
    found: dict[type[Message], list[Case]] = {}
    for (version, one, data), answer in zip(made, answers, strict=True):
        found.setdefault(type(one), []).append((version, one, data, answer))
    return found


@pytest.mark.parametrize("message", every_message(), ids=lambda message: message.__name__)
def test_kafka_reads_what_we_write(
    message: type[Message], read_by_kafka: dict[type[Message], list[Case]]
) -> None:
    cases = read_by_kafka[message]
    assert {case[0] for case in cases} == set(versions(message))
    for version, one, data, answer in cases:
        assert answer.data == data, f"version {version}"
        assert differences(one, version, answer.json) == [], f"version {version}"
        assert message.decode(data, version).encode(version) == data
