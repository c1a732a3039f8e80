"""What a ``flush`` or ``send_many`` waits for: a count of batches, and what failed among them.

The producer registers one ``FlushWait`` with every batch and parked record of the moment; each
reports when it is settled. Sans-IO: the waiter's callback comes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import FlushFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.errors import KafkaError

ERRORS_KEPT = 10


class FailureTally:
    """A count of failed records with the first few errors."""

    def __init__(self) -> None:
        self.count = 0
        self.errors: list[KafkaError] = []

    def add(self, count: int, error: KafkaError) -> None:
        """Count ``count`` more records that failed with ``error``."""
        self.count += count
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(error)

    def merge(self, other: FailureTally) -> None:
        """Count what ``other`` has as well."""
        self.count += other.count
        self.errors.extend(other.errors[: ERRORS_KEPT - len(self.errors)])

    def failure(self) -> FlushFailed | None:
        """The error that says all this; None if nothing failed."""
        if not self.count:
            return None
        records = "1 record was" if self.count == 1 else f"{self.count:,} records were"
        first = f"; first: {self.errors[0]}" if self.errors else ""
        failure = FlushFailed(
            f"{records} not delivered{first}", count=self.count, errors=self.errors
        )
        failure.__cause__ = self.errors[0] if self.errors else None
        return failure


class FlushWait:
    """Waits for a number of batches and parked records.

    Attributes:
        pending: How many are not settled yet.
        unsent: Bytes of those that are sealed and were in no request yet.
        delivered: Records that were acknowledged.
        tally: What failed.
        listening: Somebody will be told; False once the wait was cancelled.
        urgent: Batches should not linger for it.
        notify: Called whenever something settles.
    """

    def __init__(self, *, urgent: bool) -> None:
        self.urgent = urgent
        self.pending = 0
        self.unsent = 0
        self.delivered = 0
        self.tally = FailureTally()
        self.listening = True
        self.notify: Callable[[], None] | None = None
        self._few = 0
        self._when_few: Callable[[], None] | None = None

    def when_few_unsent(self, few: int, notify: Callable[[], None]) -> None:
        """Call ``notify`` once, when ``unsent`` has fallen to ``few`` or less."""
        self._few = few
        self._when_few = notify

    def left(self, size: int) -> None:
        """One of the awaited, of ``size`` bytes, goes into its first request, or never will."""
        self.unsent -= size
        if self._when_few is not None and self.unsent <= self._few:
            notify, self._when_few = self._when_few, None
            notify()

    def settled(self, delivered: int) -> None:
        """One of the awaited is through with ``delivered`` records written."""
        self.pending -= 1
        self.delivered += delivered
        if self.notify is not None:
            self.notify()

    def failed(self, count: int, error: KafkaError, delivered: int = 0) -> None:
        """One of the awaited was given up with ``count`` records."""
        self.tally.add(count, error)
        self.settled(delivered)
