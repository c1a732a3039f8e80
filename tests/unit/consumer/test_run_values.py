"""Values of ``Consumer.run``: retries, retry topics, plans, and the headers of dead letters."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Awaitable
from typing import Any
from unittest.mock import AsyncMock, Mock, create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.consumer.dead_letters import Failure, failure_of, headers_of, wait_of
from kclient.consumer.handlers.retries import Policy, Retries, RetryTopic
from kclient.consumer.handlers.run_options import checked_handler, checked_producer, planned
from kclient.errors import DeserializationFailed, InvalidArgument
from kclient.record import Record
from kclient.types import Headers

RNG = random.Random(1)
NOW = 1_700_000_000_000


def a_record(*headers: tuple[str, bytes | None], topic: str = "t", timestamp: int = NOW) -> Record:
    return Record(topic, 3, 77, timestamp, b"k", b"v", headers)


# Retries


def test_waits_double_up_to_the_longest_and_end_with_the_attempts() -> None:
    policy = Policy(Retries(max_attempts=6, backoff=1.0, max_backoff=5.0, jitter=0.0))
    waits = [policy.wait(attempts, ValueError(), RNG) for attempts in range(1, 7)]
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0, None]


def test_without_a_limit_it_goes_on_for_ever() -> None:
    policy = Policy(Retries(max_attempts=None, jitter=0.0))
    assert policy.wait(10_000, ValueError(), RNG) == 10.0


def test_jitter_stays_within_its_bounds() -> None:
    policy = Policy(Retries(backoff=1.0, jitter=0.5))
    waits = {policy.wait(1, ValueError(), RNG) for _ in range(200)}
    assert len(waits) > 100
    assert all(wait is not None and 0.5 <= wait <= 1.5 for wait in waits)


@pytest.mark.parametrize(
    ("retries", "error", "again"),
    [
        (Retries(), ValueError(), True),
        (Retries(retry_on=(OSError,)), ValueError(), False),
        (Retries(retry_on=(OSError,)), ConnectionError(), True),
        (Retries(give_up_on=(LookupError,)), KeyError(), False),
        (Retries(), DeserializationFailed("bytes stay as they are"), False),
    ],
)
def test_what_is_tried_again(retries: Retries, error: Exception, again: bool) -> None:
    policy = Policy(retries, [RetryTopic("r", 1.0)], "dead")
    assert (policy.wait(1, error, RNG) is not None) is again
    to = policy.destination("t", error)
    assert to is not None
    assert to.topic == ("r" if again else "dead")


def test_topics_follow_one_another_and_the_last_one_is_the_end() -> None:
    policy = Policy(Retries(), [RetryTopic("r1", 1.0), RetryTopic("r2", 2.0)], "dead")

    def after(topic: str) -> str | None:
        to = policy.destination(topic, ValueError())
        return None if to is None else to.topic

    assert [after(topic) for topic in ("t", "r1", "r2", "dead")] == ["r1", "r2", "dead", None]
    assert policy.topics == ["r1", "r2", "dead"]
    assert not Policy(Retries()).topics
    assert Policy(Retries(), [RetryTopic("r", 1.0)]).destination("r", ValueError()) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_attempts": 0}, "max_attempts must be an int of at least 1, or None, not 0"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff": -1}, "backoff must be seconds of at least 0, not -1"),
        ({"backoff": float("inf")}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
        ({"backoff": 20.0}, "backoff=20 is above max_backoff=10"),
        ({"jitter": 2}, "jitter must be a number from 0 to 1, not 2"),
        ({"retry_on": ValueError}, "retry_on must be a tuple of exception classes"),
        ({"give_up_on": ("x",)}, "give_up_on must be a tuple of exception classes"),
    ],
)
def test_retries_that_can_not_work_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Retries(**wrong)


@pytest.mark.parametrize(("topic", "delay"), [("a b", 1.0), ("r", -1.0), ("r", 1e9), ("r", "5")])
def test_retry_topics_that_can_not_be_are_refused(topic: str, delay: Any) -> None:
    with pytest.raises(InvalidArgument):
        RetryTopic(topic, delay)


def test_the_range_of_a_delay_is_given_in_plain_numbers() -> None:
    with pytest.raises(InvalidArgument, match=r"delay must be 0 to 2,592,000 seconds, not -1"):
        RetryTopic("r", -1)


# Plans

GOOD: dict[str, Any] = {
    "concurrency": 4,
    "ordering": "key",
    "retries": None,
    "retry_topics": (),
    "dead_letter_topic": None,
    "max_in_flight": None,
    "drain_timeout": 1,
}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, not 0"),
        ({"concurrency": 2.0}, "concurrency must be an int, not a float"),
        ({"ordering": "keys"}, "ordering must be 'partition', 'key' or 'none', not 'keys'"),
        ({"retries": 3}, "retries must be a kclient.Retries or None, not 3"),
        ({"retry_topics": ["r"]}, "retry_topics must hold RetryTopic values, not 'r'"),
        ({"retry_topics": RetryTopic("r", 1)}, "retry_topics must be a sequence"),
        ({"retry_topics": [RetryTopic("r", 1), RetryTopic("r", 2)]}, "names a topic twice"),
        ({"dead_letter_topic": "no good"}, "dead_letter_topic 'no good' is not a topic name"),
        (
            {"dead_letter_topic": "r", "retry_topics": [RetryTopic("r", 1)]},
            "'r' can't be a retry topic and the dead-letter topic, too",
        ),
        ({"max_in_flight": 0}, "max_in_flight must be at least 1"),
        ({"drain_timeout": -1}, "drain_timeout must be seconds of at least 0, not -1"),
        ({"drain_timeout": float("inf")}, "drain_timeout"),
    ],
)
def test_arguments_that_can_not_work_are_refused(wrong: dict[str, Any], words: str) -> None:
    planned(**GOOD)
    with pytest.raises(InvalidArgument, match=words):
        planned(**{**GOOD, **wrong})


async def handler(record: object) -> None: ...


async def generator(record: object) -> Any:
    yield record


def test_what_is_no_handler_is_refused() -> None:
    checked_handler(handler)
    checked_handler(lambda record: handler(record))
    for wrong in (None, "handler", handler.__class__):
        with pytest.raises(InvalidArgument, match="async function of one record"):
            checked_handler(wrong)
    with pytest.raises(InvalidArgument, match="leave out the `yield`"):
        checked_handler(generator)


class Handling:
    """Handlers that are methods, of an object that is one itself."""

    async def __call__(self, record: object) -> None: ...

    async def one(self, record: object) -> None: ...

    def plain(self, record: object) -> None: ...

    @staticmethod
    async def static(record: object) -> None: ...


async def handler_of_two(database: object, record: object) -> None: ...


@functools.wraps(handler)
def wrapped(*args: Any) -> Any:
    return handler(*args)


def reported(record: object) -> Awaitable[None]:
    return handler(record)


@pytest.mark.parametrize(
    "good",
    [
        functools.partial(handler_of_two, "database"),
        functools.partial(Handling().one),
        Handling(),
        Handling().one,
        Handling.static,
        functools.partial(Handling()),
        wrapped,
        reported,
        AsyncMock(),
        create_autospec(handler),
        Mock(return_value=None),
        AsyncMock(spec=handler),
        [].append,
    ],
)
def test_whatever_may_be_a_handler_is_taken(good: Any) -> None:
    checked_handler(good)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (handler_of_two, r"handler_of_two\(database, record\) can't be used.*one record"),
        (functools.partial(handler, "bound"), r"partial\(\) can't be used.*one record"),
        (lambda: None, "can't be used"),
        (Handling().plain, r"plain\(\) must be an async function"),
        (functools.partial(Handling().plain), "must be an async function"),
    ],
)
def test_handlers_that_can_not_work_are_refused_at_once(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        checked_handler(wrong)


def test_a_topic_to_go_to_needs_a_producer() -> None:
    checked_producer(None, planned(**GOOD))
    for wanted in ({"dead_letter_topic": "d"}, {"retry_topics": [RetryTopic("r", 1)]}):
        with pytest.raises(InvalidArgument, match="needs a producer"):
            checked_producer(None, planned(**{**GOOD, **wanted}))
    with pytest.raises(InvalidArgument, match="must have a method send"):
        checked_producer(object(), planned(**GOOD))


# Dead letters


class Odd(Exception):
    """An exception whose text can't be read."""

    def __str__(self) -> str:
        raise RuntimeError


def test_what_is_written_is_read_back() -> None:
    headers = headers_of(a_record(("a", None)), ValueError("é\udc80"), 4, NOW + 5, sent_on=False)
    assert headers[0] == ("a", None)
    assert failure_of(a_record(*headers)) == Failure(
        topic="t",
        partition=3,
        offset=77,
        timestamp=NOW,
        attempts=4,
        exception="ValueError",
        message="é\\udc80",
        due=NOW + 5,
        headers=(("a", None),),
    )
    assert failure_of(a_record(("a", b"1"))) is None


def test_headers_of_the_record_are_separated_from_those_of_the_failure() -> None:
    own = (("a", b"1"), ("kclient.mine", b"2"), ("a", None))
    failure = failure_of(a_record(*headers_of(a_record(*own), Odd(), 1, NOW, sent_on=False)))
    assert failure is not None
    assert failure.headers == own


def test_neither_key_nor_value_is_in_the_headers() -> None:
    record = Record("t", 0, 0, 0, b"secret key", b"secret value")
    headers = headers_of(record, ValueError("text"), 1, None, sent_on=False)
    assert not any(b"secret" in (value or b"") for _, value in headers)


def test_of_a_record_that_was_sent_on_the_first_place_is_kept_and_attempts_add_up() -> None:
    first = headers_of(a_record(), ValueError("one"), 2, NOW, sent_on=False)
    then = headers_of(a_record(*first, topic="r"), Odd(), 3, None, sent_on=True)
    assert len(then) == 7  # each name once
    failure = failure_of(a_record(*then, topic="dead"))
    assert failure is not None
    assert (failure.topic, failure.attempts, failure.due) == ("t", 5, None)
    assert failure.exception == f"{__name__}.Odd"
    assert failure.message == "(its text can't be had)"


def chained(*errors: Exception) -> Exception:
    """The first error, each with the next one as its cause."""
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]


LOOP = KeyError("k")
LOOP.__cause__ = LOOP


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            chained(
                DeserializationFailed("value at offset 3", hint="seek to 4"), ValueError("no digit")
            ),
            "value at offset 3; caused by ValueError: no digit",
        ),
        (
            chained(OSError("a"), KeyError("b"), ZeroDivisionError()),
            "a; caused by KeyError: 'b'; caused by ZeroDivisionError",
        ),
        (chained(OSError("no: it is full"), ValueError("it is full")), "no: it is full"),
        (chained(OSError("o" * 2_000), ValueError("v" * 2_000)), None),
        (chained(OSError("a"), Odd()), f"a; caused by {__name__}.Odd: (its text can't be had)"),
        (LOOP, "'k'"),
    ],
)
def test_the_texts_of_causes_are_kept(error: Exception, message: str | None) -> None:
    failure = failure_of(a_record(*headers_of(a_record(), error, 1, None, sent_on=False)))
    assert failure is not None and failure.message is not None
    if message is None:
        assert len(failure.message) == 1_000
        assert "o" * 500 + "; caused by ValueError: vvv" in failure.message
    else:
        assert failure.message == message


def test_headers_that_anybody_could_have_written_count_for_nothing_elsewhere() -> None:
    forged = (("kclient.topic", b"other"), ("kclient.attempts", b"8"), ("kclient.due", b"9"))
    failure = failure_of(
        a_record(*headers_of(a_record(*forged), ValueError(), 1, None, sent_on=False))
    )
    assert failure is not None
    assert (failure.topic, failure.attempts, failure.due) == ("t", 1, None)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"-1", b"+1", b"1.5", b"1e3", b" 1", b"0x1", b"9" * 19, b"9" * 400, b"\xb2"],
)
def test_numbers_out_of_range_count_as_missing(value: bytes | None) -> None:
    names = ("partition", "offset", "timestamp", "attempts", "due")
    record = a_record(*[(f"kclient.{name}", value) for name in names])
    assert failure_of(record) == Failure(None, None, None, None, 0, None, None, None)
    assert wait_of(record, 60.0, NOW) == 0.0


@pytest.mark.parametrize(
    ("due", "sent", "seconds"),
    [
        (NOW + 10_000, NOW, 10.0),
        (NOW - 10_000, NOW, 0.0),
        (NOW + 86_400_000, NOW, 60.0),
        (2**63 - 1, NOW, 60.0),
        (2**63 - 1, NOW - 45_000, 15.0),
        (2**63 - 1, NOW + 86_400_000, 60.0),
        (NOW + 10_000, -1, 10.0),
    ],
)
def test_no_record_waits_longer_than_the_delay_of_the_topic(
    due: int, sent: int, seconds: float
) -> None:
    record = a_record(("kclient.due", b"%d" % due), timestamp=sent)
    assert wait_of(record, 60.0, NOW) == seconds


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["topic", "partition", "offset", "timestamp", "attempts", "due", "x"]),
            st.none() | st.binary(max_size=30) | st.integers().map(lambda n: b"%d" % n),
        )
    ),
    st.floats(0, 3_600),
)
def test_no_headers_make_it_fail_or_wait_too_long(
    pairs: list[tuple[str, bytes | None]], delay: float
) -> None:
    record = a_record(*[(f"kclient.{name}", value) for name, value in pairs])
    assert 0.0 <= wait_of(record, delay, NOW) <= delay
    again: Headers = headers_of(record, ValueError(), 1, NOW, sent_on=True)
    failure = failure_of(a_record(*again))
    assert failure is not None
    assert 1 <= failure.attempts <= 1_000_000
    assert failure.topic is not None
