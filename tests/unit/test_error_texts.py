"""The text of ``str(error)``: the error's own, then that of its cause, then the hint."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import ssl
from typing import Any

import pytest

from kclient import errors
from kclient.errors import (
    BackgroundTaskDied,
    BrokerUnreachable,
    CommitFailed,
    ConnectionLost,
    DeserializationFailed,
    FlushFailed,
    HandlerFailed,
    KafkaError,
    RequestTimedOut,
    SerializationFailed,
    broker_error,
    text_of,
)
from kclient.producer.outgoing import plain_headers, serialized


def caused(error: KafkaError, cause: BaseException | None) -> KafkaError:
    error.__cause__ = cause
    return error


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


CAUSES = [
    (OSError(errno.EPIPE, "Broken pipe"), "BrokenPipeError: [Errno 32] Broken pipe"),
    (ssl.SSLError(1, "wrong version number"), "wrong version number"),
    (ValueError("row 7 has no id"), "ValueError: row 7 has no id"),
    (broker_error(29, "Fetch of orders-3"), "TOPIC_AUTHORIZATION_FAILED (29): Fetch of orders-3"),
]


@pytest.mark.parametrize(("cause", "text"), CAUSES, ids=lambda value: type(value).__name__)
def test_the_text_of_the_cause_is_in_that_of_the_error(cause: BaseException, text: str) -> None:
    error = caused(ConnectionLost("the connection broke", hint="try again"), cause)
    assert str(error).startswith("the connection broke: ")
    assert text in str(error)
    assert str(error).endswith(" (try again)")


def test_a_broker_error_has_it_too() -> None:
    error = caused(broker_error(-1, "Produce to t-0"), ValueError("no schema"))
    assert "Produce to t-0" in str(error)
    assert ": ValueError: no schema" in str(error)


def test_raise_from_has_it_without_further_steps() -> None:
    with pytest.raises(BackgroundTaskDied, match=r"^the sender died: KeyError: 't'$"):
        raise BackgroundTaskDied("the sender died") from KeyError("t")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("10.0.0.1:9092: Connection refused", ConnectionRefusedError(errno.ECONNREFUSED, "Call")),
        ("it broke: [Errno 32] Broken pipe", OSError(errno.EPIPE, "Broken pipe")),
        ("1 record failed; first: no space", errors.BufferFull("no space", hint="wait")),
        ("no answer in 3 s", TimeoutError()),
        ("no text", Unprintable()),
        ("alone", None),
    ],
)
def test_what_is_in_the_text_already_or_is_empty_is_not_added(
    text: str, cause: BaseException | None
) -> None:
    assert str(caused(BrokerUnreachable(text), cause)) == text


def test_the_name_of_a_class_is_not_doubled() -> None:
    error = caused(HandlerFailed("the handler failed: ValueError"), ValueError("no id"))
    assert str(error) == "the handler failed: ValueError: no id"


def test_causes_of_causes_are_followed_to_the_first_foreign_one() -> None:
    foreign = ValueError("inner")
    foreign.__cause__ = KeyError("its own affair")
    lost = caused(ConnectionLost("connection lost", hint="see the log"), foreign)
    text = str(caused(RequestTimedOut("no answer", hint="wait"), lost))
    assert text == "no answer: connection lost: ValueError: inner (wait)"


def test_a_ring_of_causes_ends() -> None:
    one, two = KafkaError("one"), KafkaError("two")
    caused(one, caused(two, one))
    assert str(one) == "one: two"


def test_a_restored_or_copied_error_keeps_the_text_of_its_cause() -> None:
    def local() -> None: ...  # can't be pickled

    cause = ValueError("no id", local)
    inner = caused(ConnectionLost("connection lost"), cause)
    for error in (
        caused(DeserializationFailed("bad", offset=3, hint="seek"), cause),
        caused(FlushFailed("1 record", count=1, errors=()), inner),
        caused(broker_error(3, "Fetch"), cause),
        caused(CommitFailed("lost"), None),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert str(pickle.loads(pickle.dumps(again))) == str(error)
        assert str(copy.copy(error)) == str(error)
        assert str(caused(KafkaError("outer"), again)).count("no id") == str(error).count("no id")


def test_a_new_cause_takes_the_place_of_a_lost_one() -> None:
    again = pickle.loads(pickle.dumps(caused(KafkaError("bad"), ValueError("old"))))
    assert str(caused(again, ValueError("new"))) == "bad: ValueError: new"


def test_an_exception_has_the_text_that_a_traceback_ends_with() -> None:
    assert text_of(ValueError("no id")) == "ValueError: no id"
    assert text_of(TimeoutError()) == "TimeoutError"
    assert text_of(Unprintable()) == "Unprintable"


def test_what_a_serializer_raised_is_in_the_text() -> None:
    def refuse(topic: str, value: object) -> bytes:
        raise ValueError("row 7 has no id")

    with pytest.raises(SerializationFailed) as caught:
        serialized("t", "value", "row", refuse)
    assert str(caught.value).endswith("for topic 't': ValueError: row 7 has no id")


def test_headers_that_are_no_pairs_show_no_inner_workings() -> None:
    wrong: Any = ["ab"]
    with pytest.raises(SerializationFailed) as caught:
        plain_headers("t", wrong)
    assert "unpack" not in str(caught.value)
    assert os.linesep not in str(caught.value)
