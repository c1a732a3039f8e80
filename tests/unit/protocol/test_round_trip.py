"""Every value that a message can hold survives: each class, all versions, by hypothesis."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient.protocol.message import Message
from tests.unit.protocol.every_message import every_message, versions
from tests.unit.protocol.random_messages import random_message

MESSAGES = every_message()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_random_messages_come_back_equal(message: type[Message]) -> None:
    rng = random.Random(message.__name__)
    for version in versions(message):
        for _ in range(2):
            made = random_message(rng, message, version)
            data = made.encode(version)
            assert message.decode(data, version) == made
            assert message.decode(data, version).encode(version) == data


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MESSAGES), st.randoms(use_true_random=False), st.data())
def test_any_message_of_any_version_comes_back_equal(
    message: type[Message], rng: random.Random, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions(message)))
    made = random_message(rng, message, version)
    assert message.decode(made.encode(version), version) == made
