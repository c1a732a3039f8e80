"""Headers of records in retry and dead-letter topics, and the protocol of their sender. Sans-IO.

All data is in headers, as text in UTF-8, under names that begin with ``kclient.``; key, value and
all other headers stay as they were. What is read back may have been written by any client, so every
number has its range, and one out of it counts as missing: a forged time must not hold up a
partition for longer than its topic's delay (the fault of CVE-2026-41727).

Any ``kclient.Producer`` without serializers is a ``Sender``, so that this package need not know the
producer's. Optional methods of a sender are looked up on its class, since mocks have everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kclient.errors import DeserializationFailed
from kclient.frozen import Frozen, frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kclient.consumer.records import ConsumerRecord
    from kclient.record import Record
    from kclient.types import Headers

TOPIC = "kclient.topic"
PARTITION = "kclient.partition"
OFFSET = "kclient.offset"
TIMESTAMP = "kclient.timestamp"
ATTEMPTS = "kclient.attempts"
EXCEPTION = "kclient.exception"
MESSAGE = "kclient.message"
DUE = "kclient.due"
OURS = frozenset((TOPIC, PARTITION, OFFSET, TIMESTAMP, ATTEMPTS, EXCEPTION, MESSAGE, DUE))

LONGEST_MESSAGE = 1_000
"""Characters of an exception's text that are kept, with those of its causes."""
MOST_CAUSES = 5
"""Causes whose texts are kept, each the cause of the previous one."""
LONGEST_NAME = 250
"""Characters of the name of a topic or an exception's class."""
MOST_ATTEMPTS = 1_000_000
_INT64 = 2**63 - 1
_INT32 = 2**31 - 1


@frozen
class Failure(Frozen):
    """Why a record was sent to a retry topic or a dead-letter topic.

    Attributes:
        topic, partition, offset: Where it was read, and if it came through ``retry_topics`` of the
            run, where it was read before them; None where that is missing. For a record that was
            sent back and failed again, that is the copy.
        timestamp: Its timestamp there, int milliseconds since the epoch.
        attempts: Calls of handlers that failed on it there and in the retry topics. If it can't be
            deserialized, no handler was called: ``run`` counts 1 for that, ``bad_records`` 0.
        exception: Class of the exception that the last one raised, with its module.
        message: That exception's text and those of its causes (``raise ... from``), such as what a
            deserializer raised; cut at 1,000 characters, of which causes have 500 at most.
        due: When it is to be handled again, int milliseconds; None in a dead-letter topic.
        headers: Those of the record without the ``kclient.*`` ones above: send them along with
            the record when sending it back.
    """

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    attempts: int
    exception: str | None
    message: str | None
    due: int | None
    headers: Headers = ()


def failure_of(record: ConsumerRecord[object, object]) -> Failure | None:
    """Return why a record of a retry topic or dead-letter topic was sent there.

    Args:
        record: As ``poll`` returns it or a handler gets it.

    Returns:
        The failure, with None for a header that is missing or invalid; None for a record without
        such headers. If a record was sent back with them, they describe its previous failure.
    """
    found = {name: value for name, value in record.headers if name in OURS}
    if not found:
        return None
    return Failure(
        topic=_text(found.get(TOPIC), LONGEST_NAME),
        partition=_number(found.get(PARTITION), _INT32),
        offset=_number(found.get(OFFSET), _INT64),
        timestamp=_number(found.get(TIMESTAMP), _INT64),
        attempts=_number(found.get(ATTEMPTS), MOST_ATTEMPTS) or 0,
        exception=_text(found.get(EXCEPTION), LONGEST_NAME),
        message=_text(found.get(MESSAGE), LONGEST_MESSAGE),
        due=_number(found.get(DUE), _INT64),
        headers=_others(record.headers),
    )


def headers_of(
    record: Record, error: BaseException, attempts: int, due: int | None, *, sent_on: bool
) -> Headers:
    """The headers with which ``record`` is sent on.

    Args:
        record: As it is stored here.
        error: What its handler raised last.
        attempts: Calls that failed here.
        due: When it is to be handled again; None: never.
        sent_on: It comes from a retry topic, so that its headers have its original position.
            Elsewhere such headers are not ours.
    """
    before = failure_of(record) if sent_on else None
    if before is not None:
        attempts = min(attempts + before.attempts, MOST_ATTEMPTS)
    known = before is not None and None not in (before.topic, before.partition, before.offset)
    origin = before if known else None
    fields: list[tuple[str, str | int | None]] = [
        (TOPIC, origin.topic if origin else record.topic),
        (PARTITION, origin.partition if origin else record.partition),
        (OFFSET, origin.offset if origin else record.offset),
        (TIMESTAMP, origin.timestamp if origin else record.timestamp),
        (ATTEMPTS, attempts),
        (EXCEPTION, _name_of(error)),
        (MESSAGE, _message_of(error)),
        (DUE, due),
    ]
    return _others(record.headers) + tuple(
        (name, str(value).encode("utf-8", "backslashreplace"))
        for name, value in fields
        if value is not None
    )


def wait_of(record: Record, delay: float, now_ms: int) -> float:
    """Seconds until a record of a retry topic is to be handled, at most that topic's ``delay``.

    Nor later than ``delay`` after its timestamp, so that records sent at one time wait once.
    """
    for name, value in record.headers:
        if name == DUE:
            due = _number(value, _INT64)
            if due is None:
                return 0.0
            if record.timestamp >= 0:
                due = min(due, record.timestamp + round(delay * 1000))
            return min(max(0.0, (due - now_ms) / 1000.0), delay)
    return 0.0


def _others(headers: Headers) -> Headers:
    return tuple(pair for pair in headers if pair[0] not in OURS)


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"[-LONGEST_NAME:].removeprefix("builtins.")


def _message_of(error: BaseException) -> str:
    """The text of ``error`` and, behind it, those of its causes that it doesn't contain."""
    text, causes, cause = _text_of(error), "", error.__cause__
    for _ in range(MOST_CAUSES):
        if cause is None:
            break
        more = _text_of(cause)
        if not more or more not in text + causes:
            causes += f"; caused by {_name_of(cause)}" + (f": {more}" if more else "")
        cause = cause.__cause__
    causes = causes[: LONGEST_MESSAGE // 2]
    return text[: LONGEST_MESSAGE - len(causes)] + causes


def _text_of(error: BaseException) -> str:
    try:
        # Its hint is about the position of a consumer that polls.
        return error.message if isinstance(error, DeserializationFailed) else str(error)
    except Exception:  # the application's code
        return "(its text can't be had)"


def _text(value: bytes | None, longest: int) -> str | None:
    return None if value is None else value[: 4 * longest].decode("utf-8", "replace")[:longest]


def _number(value: bytes | None, most: int) -> int | None:
    """A decimal number of 0 to ``most``; None for anything else."""
    if value is None or not 1 <= len(value) <= len(str(_INT64)) or not value.isdigit():
        return None
    number = int(value)
    return number if number <= most else None


class Sender(Protocol):
    """Sends records to retry topics and to the dead-letter topic."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Awaitable[object]:
        """Send one record; when the result has been awaited, the record is in the log."""


def unfit(sender: Any, *, running: bool) -> str | None:
    """The reason why ``sender`` can't send records on, as text; None if none is known.

    Args:
        sender: A ``Sender``; one without a check of its own is accepted.
        running: Whether it must have been started.
    """
    asked = getattr(type(sender), "_unfit_to_relay", None)
    why: str | None = None if asked is None else asked(sender, running=running)
    return why
