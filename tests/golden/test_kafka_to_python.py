"""kclient reads what Kafka writes to the same values, and writes it to the same bytes."""

from __future__ import annotations

import pytest

from kclient.protocol.message import Message
from tests.golden.json_view import differences
from tests.golden.kafka_side import Answer, ask_either, java_class
from tests.unit.protocol.every_message import every_message, versions

SEEDS = range(6)
"""Random messages of each API and version."""


@pytest.fixture(scope="module")
def written_by_kafka() -> dict[type[Message], list[tuple[int, Answer]]]:
    """Random messages of every class: (version, what Kafka wrote)."""
    wanted = [
        (message, version, seed)
        for message in every_message()
        for version in versions(message)
        for seed in SEEDS
    ]
    questions = [
        f"make\t{java_class(message)}\t{version}\t{number * 1000 + seed}"
        for number, (message, version, seed) in enumerate(wanted)
    ]
    found: dict[type[Message], list[tuple[int, Answer]]] = {}
    for (message, version, _), answer in zip(wanted, ask_either(questions), strict=True):
        found.setdefault(message, []).append((version, answer))
    return found


@pytest.mark.parametrize("message", every_message(), ids=lambda message: message.__name__)
def test_every_version_reads_and_writes_as_kafka_does(
    message: type[Message], written_by_kafka: dict[type[Message], list[tuple[int, Answer]]]
) -> None:
    answers = written_by_kafka[message]
    assert {version for version, _ in answers} == set(versions(message))
    for version, answer in answers:
        read = message.decode(answer.data, version)
        assert differences(read, version, answer.json) == [], f"version {version}"
        assert read.encode(version) == answer.data, f"version {version}"


def test_the_random_messages_had_unknown_tags_nulls_and_full_arrays(
    written_by_kafka: dict[type[Message], list[tuple[int, Answer]]],
) -> None:
    """The generator of the messages is not vacuous."""
    seen = {"unknown tags": 0, "null": 0, "two elements": 0}
    for message, answers in written_by_kafka.items():
        for version, answer in answers:
            read = message.decode(answer.data, version)
            seen["unknown tags"] += bool(read.unknown_tags)
            values = [getattr(read, field.name) for field in read.fields()]
            seen["null"] += any(value is None for value in values)
            seen["two elements"] += any(isinstance(v, list) and len(v) > 1 for v in values)
    assert min(seen.values()) > 300, seen
