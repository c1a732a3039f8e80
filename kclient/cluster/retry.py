"""What to do after a failed attempt of a request, and the error to raise in the end. Sans-IO.

``calls`` and ``fanout`` ask ``retry_action`` after each failure; this is the one place of the
package where facts about errors become decisions. ``Attempts`` remembers them for the final error.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
)

SHOWN = 3
"""Attempts that the final error describes; the others are counted."""

UNKNOWN_TOPIC_GRACE = 5.0
"""Seconds for which a topic that the brokers don't know may still be on its way to them."""

MISSING_PARTITION_GRACE = 1.0
"""The same for a partition that a known topic doesn't have: it may be growing right now."""

_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_MOVED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class NoSuchPartition(UnknownTopicOrPartition):
    """The topic is known, and has no such partition."""


class RetryAction(enum.Enum):
    """What follows from a failure."""

    RAISE = "the same request will fail again: raise the error"
    REFRESH = "our view of the cluster is old: get a newer one, then try again"
    REFRESH_AND_BACK_OFF = (
        "the broker is gone: get a newer view, and try again after a little while"
    )
    BACK_OFF = "wait a little, then try again"


def retry_action(error: KafkaError, waited: float) -> RetryAction:
    """What to do after one failed attempt.

    Args:
        error: Why it failed.
        waited: Seconds since the call began. A new topic takes a moment to reach all brokers, so
            one that they don't know is asked for again, but not for as long as the call may last.
    """
    if isinstance(error, BrokerError) and error.code in _UNKNOWN_TOPIC:
        missing = isinstance(error, NoSuchPartition)
        grace = MISSING_PARTITION_GRACE if missing else UNKNOWN_TOPIC_GRACE
        return RetryAction.REFRESH if waited < grace else RetryAction.RAISE
    if isinstance(error, BrokerError):
        if error.code in _MOVED or (error.refresh_metadata and error.retriable):
            return RetryAction.REFRESH
        return RetryAction.BACK_OFF if error.retriable else RetryAction.RAISE
    if not error.retriable:
        return RetryAction.RAISE
    # A broker that is gone may have handed its partitions, or its address, to another one.
    gone = isinstance(error, BrokerUnreachable | ConnectionLost)
    return RetryAction.REFRESH_AND_BACK_OFF if gone else RetryAction.BACK_OFF


@dataclass(slots=True)
class Attempts:
    """The failures of one call so far.

    Attributes:
        what: The request and its aim, such as ``ListOffsets to the leader of orders-3``.
        started: When the call began, in the client's time.
    """

    what: str
    started: float
    failures: list[tuple[str, KafkaError]] = field(default_factory=list)

    def add(self, where: str, error: KafkaError) -> None:
        """Remember that ``where`` (a broker) gave ``error``."""
        self.failures.append((where, error))

    def timeout_error(self, now: float) -> RequestTimedOut:
        """The error of a call whose deadline is here, with the last failure as its cause."""
        lasted = f"{now - self.started:.1f} s"
        if not self.failures:
            return RequestTimedOut(f"{self.what} got no answer in {lasted}")
        where, last = self.failures[-1]
        count = len(self.failures)
        times = "1 attempt" if count == 1 else f"{count} attempts"
        text = f"{self.what} did not succeed in {lasted}, {times}; last on {where}: {last}"
        earlier = self._earlier()
        error = RequestTimedOut(
            text + (f"; before that {earlier}" if earlier else ""),
            topic_partition=last.topic_partition,
            node_id=last.node_id,
            hint=last.hint,
        )
        if last.hint:  # it is in the text of the last failure already
            error.message = error.message.replace(f" ({last.hint})", "", 1)
        error.__cause__ = last
        return error

    def explain(self, error: KafkaError) -> KafkaError:
        """``error``, which ends the call, with a note on the failed attempts before it."""
        earlier = self._earlier()
        if earlier:
            note = f"{self.what} had failed before with {earlier}"
            if any(_maybe_done(failure) for _, failure in self.failures[:-1]):
                note += "; one of these attempts may have taken effect all the same"
            error.add_note(note)
        return error

    def _earlier(self) -> str:
        """The attempts before the last one in short, equal ones counted."""
        counted: dict[str, int] = {}
        for where, error in self.failures[:-1]:
            name = error.name if isinstance(error, BrokerError) else type(error).__name__
            key = f"{name} on {where}"
            counted[key] = counted.get(key, 0) + 1
        latest = list(counted.items())[-SHOWN:]
        parts = [key if count == 1 else f"{key} ({count} times)" for key, count in latest]
        return ", ".join((["..."] if len(counted) > SHOWN else []) + parts)


def _maybe_done(error: KafkaError) -> bool:
    """Whether the broker may have done what it was asked, although the attempt failed."""
    if isinstance(error, BrokerError):
        return error.code == ErrorCode.REQUEST_TIMED_OUT
    return error.maybe_written is not False and isinstance(error, ConnectionLost | RequestTimedOut)
