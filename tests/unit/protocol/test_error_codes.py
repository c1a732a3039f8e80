"""The error table: complete, and its facts are Kafka's."""

from __future__ import annotations

import pickle

import pytest

from kclient import broker_errors, errors
from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import BrokerError, broker_error


def test_every_code_has_a_row_a_name_and_a_class() -> None:
    assert [code.value for code in ErrorCode] == list(TABLE) == list(range(-1, len(TABLE) - 1))
    for code in ErrorCode:
        assert TABLE[code].name == code.name
        if code:
            error = broker_error(code)
            assert type(error).__module__ == "kclient.broker_errors"
            assert (error.code, error.name) == (code, code.name)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", "retriable refresh_metadata"),
        ("NOT_LEADER_OR_FOLLOWER", "retriable refresh_metadata"),
        ("REQUEST_TIMED_OUT", "retriable"),
        ("NOT_COORDINATOR", "retriable rediscover_coordinator"),
        ("COORDINATOR_NOT_AVAILABLE", "retriable rediscover_coordinator"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "retriable"),
        ("PRODUCER_FENCED", "fatal"),
        ("INVALID_PRODUCER_EPOCH", ""),
        ("SASL_AUTHENTICATION_FAILED", "fatal"),
        ("MESSAGE_TOO_LARGE", ""),
        ("REBALANCE_IN_PROGRESS", ""),
        ("THROTTLING_QUOTA_EXCEEDED", "retriable"),
    ],
)
def test_flags(name: str, flags: str) -> None:
    info = TABLE[ErrorCode[name]]
    known = ("retriable", "fatal", "refresh_metadata", "rediscover_coordinator")
    assert " ".join(flag for flag in known if getattr(info, flag)) == flags


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (-1, "UnknownServerError"),
        (3, "UnknownTopicOrPartition"),
        (6, "NotLeaderOrFollower"),
        (7, "BrokerTimedOut"),
        (10, "MessageTooLarge"),
        (17, "InvalidTopic"),
        (36, "TopicAlreadyExists"),
        (40, "BrokerInvalidConfig"),
    ],
)
def test_class_names(code: int, cls: str) -> None:
    assert type(broker_error(code)).__name__ == cls


def test_no_class_is_called_like_one_of_the_clients_own_errors() -> None:
    generated = {cls.__name__ for cls in vars(broker_errors).values() if _is_new(cls)}
    own = {name for name, cls in vars(errors).items() if _is_from(errors.__name__, cls)}
    assert len(generated) == len(TABLE) - 1
    assert not generated & own


def _is_from(module: str, cls: object) -> bool:
    return isinstance(cls, type) and cls.__module__ == module


def _is_new(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, BrokerError) and cls is not BrokerError


def test_no_hint_is_a_sentence_of_its_own() -> None:
    """Hints are put in brackets after the message."""
    for info in TABLE.values():
        assert info.message.endswith(".")
        if info.hint:
            assert not info.hint.endswith(".")
            assert info.name not in info.hint


def test_broker_errors_survive_pickling() -> None:
    error = broker_error(3, "Produce to orders-3 failed", node_id=2)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.node_id == 2
