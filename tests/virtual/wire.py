"""What producers put on the wire and what comes back, batch by batch, for tests of recovery.

A ``Wire`` is a relay before each broker of a cluster. It reads batches with the embedded broker's
eyes, not with the client's, holds requests and responses back or loses them with their connection
as the test decides, and knows at any time what is in flight. It must not judge what a test is
about; ``check_numbers`` has what must hold in all of them.
"""

from __future__ import annotations

import asyncio
import enum
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kclient.protocol.headers import decode_request_header, decode_response_header
from kclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from kclient.record.message_set import read_batches
from kclient.testing import Cluster
from kclient.testing.stored_batch import StoredBatch
from tests.virtual.relay import Asked, Relay, Session, now

PRODUCE = 0
_SIZE = struct.Struct(">i")
_SEQUENCES = 1 << 31
_CAP = 1 << 24


class Owner(NamedTuple):
    """The producer id and epoch under which a batch was numbered."""

    producer_id: int
    epoch: int


class Sent(NamedTuple):
    """One batch in one Produce request.

    Attributes:
        at: When it passed.
        node: The broker that it went to.
        partition: Index in the topic.
        owner: Producer id and epoch of the batch.
        sequence: Number of its first record.
        data: All its bytes.
        values: Of its records.
        beside: Owners of the partition's other batches that were in flight then.
    """

    at: float
    node: int
    partition: int
    owner: Owner
    sequence: int
    data: bytes
    values: tuple[bytes, ...]
    beside: tuple[Owner, ...] = ()

    @property
    def end(self) -> int:
        """The number that follows its last one."""
        return (self.sequence + len(self.values)) % _SEQUENCES


class Reported(NamedTuple):
    """A broker's response about one batch, with that batch."""

    at: float
    code: int
    offset: int
    batch: Sent


class Fate(enum.Enum):
    """What becomes of a request or a response."""

    PASS = "it passes"
    SPOIL = "it passes, with a bit turned over in the records of the request"
    KEEP = "it stays, and what comes behind it on its connection, until it is let go"
    CUT = "it is lost, and its connection with it"


class _Way:
    """One connection: what is in flight on it, and what is held back, both ways."""

    def __init__(self) -> None:
        self.open = True
        self.under_way: list[list[Sent]] = []
        self.requests: list[bytes] = []
        self.answers: list[tuple[bytes, list[Reported] | None]] = []


class Wire:
    """Relays before all brokers of a started cluster.

    Attributes:
        sent: Batches in the order in which they came from producers, repeats included.
        reported: The responses about them, in order.
        on_sent: Decides on each batch before its request passes.
        on_reported: Decides on each batch's response before it passes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.sent: list[Sent] = []
        self.reported: list[Reported] = []
        self.on_sent: Callable[[Sent], Fate] = _pass
        self.on_reported: Callable[[Reported], Fate] = _pass
        self._ways: dict[Session, _Way] = {}
        self._news = asyncio.Event()
        self.relays = {node: self._relay(node) for node in cluster.brokers}

    def _relay(self, node: int) -> Relay:
        relay = Relay(f"broker-{node}")
        relay.on_request = lambda session, asked: self._asked(node, session, asked)
        relay.on_answer = self._answered
        return relay

    def _asked(self, node: int, session: Session, asked: Asked) -> Iterable[bytes]:
        way = self._ways.setdefault(session, _Way())
        fate = Fate.PASS
        if asked.api_key == PRODUCE:
            batches = self._batches(node, asked)
            way.under_way.append(batches)
            self.sent += batches
            fate = _worst([self.on_sent(one) for one in batches])
        if fate is Fate.CUT:
            self._cut(session)
        if not way.open:
            return []
        frame = asked.frame
        if fate is Fate.SPOIL:
            last = bytearray(batches[-1].data)
            last[-1] ^= 1
            frame = frame.replace(batches[-1].data, last)
        if fate is Fate.KEEP or way.requests:
            way.requests.append(frame)
            return []
        return [frame]

    def _batches(self, node: int, asked: Asked) -> list[Sent]:
        body = decode_request_header(asked.frame).body_offset
        request: Any = ProduceRequest.decode(asked.frame, asked.version, body)
        return [
            _read(node, part.index, bytes(part.records))._replace(beside=self._beside(part.index))
            for topic in request.topic_data
            for part in topic.partition_data
        ]

    def _beside(self, partition: int) -> tuple[Owner, ...]:
        return tuple(
            one.owner
            for session, way in self._ways.items()
            if way.open and not session._front.is_closing()
            for batches in way.under_way
            for one in batches
            if one.partition == partition
        )

    def _answered(self, session: Session, asked: Asked, frame: bytes) -> Iterable[bytes]:
        way = self._ways[session]
        if not way.open:
            return []
        reported = None
        if asked.api_key == PRODUCE:
            before = sum(kept is not None for _, kept in way.answers)
            reported = _reported(asked, frame, way.under_way[before])
        fate = _worst([self.on_reported(one) for one in reported or ()])
        if fate is Fate.CUT:
            self._cut(session)
            return []
        if fate is Fate.KEEP or way.answers:
            way.answers.append((frame, reported))
            return []
        self._pass_back(way, reported)
        return [frame]

    def _pass_back(self, way: _Way, reported: list[Reported] | None) -> None:
        if reported is not None:
            del way.under_way[0]
            self.reported += [one._replace(at=now()) for one in reported]
            self._news.set()

    def _cut(self, session: Session) -> None:
        self._ways[session].open = False
        session.close()

    def cut(self) -> None:
        """Lose all that is in flight, held back or not, with its connections; hold no more back."""
        self.on_sent = self.on_reported = _pass
        for session, way in self._ways.items():
            if way.open and way.under_way:
                self._cut(session)

    def let_requests_go(self) -> None:
        """Pass on the requests that are held back, and hold none back from here on."""
        self.on_sent = _pass
        for session, way in self._ways.items():
            requests, way.requests = way.requests, []
            for frame in requests if way.open else ():
                session._back.write(_SIZE.pack(len(frame)) + frame)

    def let_answers_go(self, count: int | None = None) -> None:
        """Do the same with responses; with ``count`` so many per connection, and the rest stays."""
        if count is None:
            self.on_reported = _pass
        for session, way in self._ways.items():
            answers = way.answers[:count]
            del way.answers[: len(answers)]
            for frame, reported in answers if way.open else ():
                self._pass_back(way, reported)
                session.say(frame)

    async def wait_reported(self, count: int) -> None:
        """Wait until the responses for so many batches passed, since the beginning."""
        while len(self.reported) < count:
            self._news.clear()
            await self._news.wait()

    def of(self, value: bytes) -> list[Sent]:
        """The batches with a record of that value, repeats included."""
        return [one for one in self.sent if value in one.values]

    def in_partition(self, partition: int) -> list[Sent]:
        """The batches for one partition."""
        return [one for one in self.sent if one.partition == partition]

    def check_numbers(self) -> None:
        """Call ``check_numbers`` for each partition."""
        for partition in {one.partition for one in self.sent}:
            check_numbers(self.in_partition(partition))

    @property
    def owners(self) -> list[Owner]:
        """The producer ids and epochs of batches, in the order of their first ones."""
        return list(dict.fromkeys(one.owner for one in self.sent))


def check_numbers(sent: Sequence[Sent]) -> None:
    """In one partition, no number stands for two records, and no record has two numbers.

    That is, of one owner. A new owner starts at 0, and not before all responses to the one before
    it came: while one is missing it is unknown what the log has.
    """
    numbers: dict[tuple[Owner, int], bytes] = {}
    places: dict[tuple[Owner, bytes], int] = {}
    owners: list[Owner] = []
    for one in sent:
        if one.owner not in owners:
            assert one.sequence == 0 or not owners, f"{one.owner} begins at {one.sequence}"
            assert not one.beside, f"{one.owner} begins while {one.beside} are under way"
            owners.append(one.owner)
        assert one.owner == owners[-1], f"{one.owner} sends behind {owners[-1]}"
        for offset, value in enumerate(one.values):
            number = (one.sequence + offset) % _SEQUENCES
            known = numbers.setdefault((one.owner, number), value)
            assert known == value, f"{number} of {one.owner} is {known!r} and {value!r}"
            place = places.setdefault((one.owner, value), number)
            assert place == number, f"{value!r} of {one.owner} is {place} and {number}"


def _pass(_: object) -> Fate:
    return Fate.PASS


def _worst(fates: list[Fate]) -> Fate:
    order = list(Fate)
    return max(fates, key=order.index, default=Fate.PASS)


def _read(node: int, partition: int, data: bytes) -> Sent:
    header = StoredBatch(data)
    values: list[bytes] = []
    for batch in read_batches(memoryview(data)):
        batch.inflate(_CAP)
        values += [bytes(record.value or b"") for record in batch.records("", partition)]
    owner = Owner(header.producer_id, header.producer_epoch)
    return Sent(now(), node, partition, owner, header.base_sequence, data, tuple(values))


def _reported(asked: Asked, frame: bytes, batches: list[Sent]) -> list[Reported]:
    _, body = decode_response_header(frame, asked.api_key, asked.version)
    response: Any = ProduceResponse.decode(frame, asked.version, body)
    said = {
        part.index: (part.error_code, part.base_offset)
        for topic in response.responses
        for part in topic.partition_responses
    }
    return [Reported(now(), *said[one.partition], one) for one in batches if one.partition in said]
