"""The record of a run: the sends and their outcomes, what consumers did and were given.

The workload calls ``History`` as things happen; events are numbered in that order and kept as
values. The value of each record must be unique, as it identifies the record. Nothing is judged
here.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Written(NamedTuple):
    """A record as a log or a consumer has it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Logs: TypeAlias = Mapping[Place, Sequence[Written]]
"""All records of all partitions, in order, at the end of the run."""


class Outcome(enum.Enum):
    """The outcome of a send, as its sender saw it."""

    PENDING = "nothing yet"
    OK = "it is written"
    FAIL = "it is definitely not written"
    INFO = "it may be written or not"


@dataclass(slots=True, eq=False)
class Send:
    """One record that was sent.

    Attributes:
        producer: The sender.
        topic: Where to.
        partition: The requested one; None where the client may choose.
        invoked: Number of the event of the call.
        taken: Number of the event behind which the client has it; None if that is not known.
            A record that is sent behind that may not overtake it.
        resolved: Number of the event that reported the outcome.
        at: The reported place, the offset -1 where unknown; None without an acknowledgement.
        again: How often an outcome was reported after the first time.
    """

    producer: str
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes
    headers: Headers
    invoked: int
    taken: int | None = None
    resolved: int | None = None
    outcome: Outcome = Outcome.PENDING
    at: tuple[Place, int] | None = None
    why: str = ""
    again: int = 0

    def __str__(self) -> str:
        asked = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        reported = self.outcome.name.lower()
        if self.at is not None:
            reported += f" at {self.at[0]}@{self.at[1]}"
        if self.why:
            reported += f" ({self.why})"
        return f"{self.producer} sent {self.value!r} to {asked} #{self.invoked}: {reported}"


class Seek(NamedTuple):
    """A consumer was placed somewhere: at an offset, or at the ``END`` at that time."""

    consumer: str
    place: Place
    offset: int


class Pause(NamedTuple):
    """A partition of a consumer was paused or resumed."""

    consumer: str
    place: Place
    paused: bool


class Delivered(NamedTuple):
    """A consumer was given one record."""

    consumer: str
    place: Place
    record: Written


class Position(NamedTuple):
    """A consumer reported its position."""

    consumer: str
    place: Place
    offset: int


class Acknowledged(NamedTuple):
    """A record was acknowledged to its sender, at an offset."""

    place: Place
    offset: int


Event: TypeAlias = Seek | Pause | Delivered | Position | Acknowledged

END = -1
"""The offset of a seek to the end."""


class History:
    """One run.

    Attributes:
        sends: All sends in the order of their calls.
        events: What consumers did, between the acknowledgements, in order.
        idempotent: Names of the producers that must not double or reorder.
        lines: Everything as text, for people and for the digest; none of a ``lean`` one.

    Args:
        now: Times of the lines.
        lean: Keep no lines: of millions of records they are most of the memory.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0, *, lean: bool = False) -> None:
        self.sends: list[Send] = []
        self.events: list[tuple[int, Event]] = []
        self.idempotent: set[str] = set()
        self.lines: list[str] = []
        self._now = now
        self._lean = lean
        self._count = 0

    def begin(self, now: Callable[[], float]) -> None:
        """Take the times of events from ``now``."""
        self._now = now

    # Writing.

    def producer(self, name: str, *, idempotent: bool = True) -> None:
        """A producer takes part; one that is not idempotent may double and reorder."""
        self._note(f"producer {name} idempotent={idempotent}")
        if idempotent:
            self.idempotent.add(name)

    def send(
        self,
        producer: str,
        topic: str,
        value: bytes,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> Send:
        """A record is about to be sent."""
        number = self._note(f"{producer} send {topic} {partition} {key!r} {value!r}")
        send = Send(producer, topic, partition, key, value, headers, number)
        self.sends.append(send)
        return send

    def taken(self, send: Send) -> None:
        """The client has it, so that nothing that is sent from here on may overtake it."""
        if send.taken is None:
            send.taken = self._note(f"{send.producer} taken {send.value!r}")

    def ok(self, send: Send, place: Place | None = None, offset: int = -1) -> None:
        """It is written, at ``place`` and ``offset`` where those are known."""
        number = self._resolve(send, Outcome.OK, f"{place} {offset}")
        if place is not None and send.again == 0:
            send.at = (place, offset)
            if offset >= 0:
                self.events.append((number, Acknowledged(place, offset)))

    def fail(self, send: Send, why: str = "") -> None:
        """It is definitely not written."""
        send.why = why
        self._resolve(send, Outcome.FAIL, why)

    def info(self, send: Send, why: str = "") -> None:
        """It may be written or not."""
        send.why = why
        self._resolve(send, Outcome.INFO, why)

    def _resolve(self, send: Send, outcome: Outcome, reported: str) -> int:
        number = self._note(f"{send.producer} {outcome.name.lower()} {send.value!r} {reported}")
        if send.resolved is None:
            send.outcome, send.resolved = outcome, number
        else:
            send.again += 1
        return number

    # Reading.

    def seek(self, consumer: str, place: Place, offset: int) -> None:
        """``consumer`` is to go on with the first record at or behind ``offset``."""
        self._event(Seek(consumer, place, offset))

    def seek_to_end(self, consumer: str, place: Place) -> None:
        """``consumer`` is to go on behind the last record of some moment from now on."""
        self._event(Seek(consumer, place, END))

    def pause(self, consumer: str, place: Place) -> None:
        """No more of ``place`` until ``resume``."""
        self._event(Pause(consumer, place, True))

    def resume(self, consumer: str, place: Place) -> None:
        """Undo ``pause``."""
        self._event(Pause(consumer, place, False))

    def delivered(self, consumer: str, records: Iterable[tuple[Place, Written]]) -> None:
        """``consumer`` was given ``records``, in that order."""
        for place, record in records:
            self._event(Delivered(consumer, place, record))

    def position(self, consumer: str, place: Place, offset: int) -> None:
        """``consumer`` reports that the next record of ``place`` is at or behind ``offset``."""
        self._event(Position(consumer, place, offset))

    def _event(self, event: Event) -> None:
        number = self._note("" if self._lean else _line(event))
        self.events.append((number, event))

    # Both.

    def note(self, text: str) -> None:
        """Add another line to the trace, such as a fault."""
        self._note(f"-- {text}")

    def _note(self, text: str) -> int:
        self._count += 1
        if not self._lean:
            self.lines.append(f"{self._now():.6f} {text}")
        return self._count

    def digest(self) -> str:
        """A hash of all lines: two runs with the same one went the same way."""
        if self._lean:
            raise ValueError("a lean history has no lines to tell runs apart by")
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


def _line(event: Event) -> str:
    if isinstance(event, Delivered):
        record = event.record
        return f"{event.consumer} got {event.place}@{record.offset} {record.key!r} {record.value!r}"
    return f"{event[0]} {type(event).__name__.lower()} {event[1]} {event[2:]}"
