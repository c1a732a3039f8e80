"""Fetch responses, all the way into a consumer's buffer and out of it, with both builds.

The mutant comes raw through a connection, as the fetcher gets it, and goes through the session, the
response reader, the buffer and ``take``. An independent walk over the batches bounds the positions:
never past a batch whose CRC is wrong, never over a record. Afterwards a sound response is read,
which must bring all the rest.
"""

from __future__ import annotations

import random
import struct
from typing import Any, cast

from crc32c import crc32c

from kclient.config import ConsumerConfig
from kclient.consumer.fetch_response import FetchFollowUp, FetchResponseReader
from kclient.consumer.fetcher import Fetcher
from kclient.errors import BrokerError, CorruptRecord, KafkaError, ProtocolError
from kclient.network.frames import RawResponse
from kclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from kclient.record import Compression, message_set, record_batch
from kclient.record.implementation import Implementation, load
from kclient.types import TopicPartition
from tests.fuzz.frames import Asked, answer_mutant, usable_connection
from tests.fuzz.seeds import Seed, response_seed
from tests.fuzz.targets import Broken, Mutant, Verdict
from tests.unit.consumer.log_bytes import batch, control
from tests.unit.consumer.test_fetch_scheduler import PlanRig, planned
from tests.unit.record.captures import KAFKA_1_0_2

FETCH = FetchRequest.API_KEY
TOPIC_ID = b"the topic's id.."
FIRST_BY_ID = 13
STARTS = (0, 7, 3)
"""Position of each partition; the second lies inside a batch."""
LOGS = (
    [batch(0, 4), batch(4, 3, codec=Compression.LZ4), batch(7, 2)],
    [batch(5, 6, codec=Compression.ZSTD, value_bytes=40), batch(11, 1), batch(12, 3)],
    [
        batch(3, 2, producer_id=9, transactional=True),
        batch(5, 2, producer_id=8, transactional=True),
        control(7, 9, 0),
        control(8, 8, 1),
        batch(9, 2, codec=Compression.GZIP),
    ],
)
ENDS = (9, 15, 11)
_PREFIX = struct.Struct(">qi")
CAP = 1 << 20
_TAKES = 200
HONEST_ANSWERS = 2
"""Responses after which all must have come: the first may meet a request sent before it."""


def honest(version: int, starts: tuple[int, ...] = STARTS) -> FetchResponse:
    """A sound broker's response."""
    parts = []
    for index, log in enumerate(LOGS):
        kept = [one for one in log if last_offset(one) >= starts[index]]
        part = PartitionData(index, 0, ENDS[index], records=b"".join(kept))
        if version >= 4:
            part.last_stable_offset = ENDS[index]
            part.aborted_transactions = [AbortedTransaction(9, 3)] if index == 2 else None
        if version >= 5:
            part.log_start_offset = 0
        parts.append(part)
    by_id = version >= FIRST_BY_ID
    name = {"topic_id": TOPIC_ID} if by_id else {"topic": "t"}
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=parts, **name)])
    if version >= 7:
        response.session_id = 77
    if version >= 16:
        response.node_endpoints = [NodeEndpoint(2, "other", 9092, None)]
    return response


def last_offset(data: bytes) -> int:
    """Of one batch."""
    return int(struct.unpack_from(">q", data)[0] + struct.unpack_from(">i", data, 23)[0])


def fetch_seeds() -> list[Seed]:
    """One of each version; of old ones with message sets, as well."""
    found = []
    for version in range(FetchResponse.MIN_VERSION, FetchResponse.MAX_VERSION + 1):
        found.append(response_seed(FETCH, version, honest(version).encode(version)))
        if version < 4:
            response = honest(version)
            for part, name in zip(
                response.responses[0].partitions, ("v1-gzip", "v0-none", "v1-lz4"), strict=True
            ):
                part.records = KAFKA_1_0_2[name]
            found.append(response_seed(FETCH, version, response.encode(version)))
    return found


class Consumed:
    """A consumer's fetch side without a loop, at ``STARTS``, that reads responses."""

    def __init__(self, *, read_committed: bool) -> None:
        self.rig: PlanRig = planned(1, 1, 1)
        self.released = 0
        self.news = FetchFollowUp(1)
        self.subscription = self.rig.subscription
        for index, start in enumerate(STARTS):
            self.subscription.update_metadata(self.rig.state(index), TOPIC_ID, -1)
            self.subscription.seek(self.rig.state(index), start)
        plan = self.rig.plan
        if plan is None:
            raise Broken("no plan")
        self.reader = FetchResponseReader(
            self.subscription,
            self.rig.buffer,
            plan,
            ConsumerConfig(
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                metadata_max_age=60.0,
                decompression_cap=CAP,
            ),
            back_off=lambda state: self.subscription.back_off(state, 0.0),
        )

    def positions(self) -> list[int | None]:
        return [self.rig.position(index) for index in range(len(STARTS))]

    def read(self, body: memoryview, version: int) -> FetchResponse:
        """As ``Fetcher`` does it. Raises ProtocolError."""
        queue = self.rig.queue(1)
        self.rig.due(1)
        queue.session.next_request(version >= FIRST_BY_ID)
        lease = self.rig.buffer.lease(len(body), self._release)
        try:
            response = FetchResponse.decode(body, version)
            parts = Fetcher._parts(cast(Any, None), queue, response)
            if queue.session.answered(response.error_code, response.session_id, parts):
                for partition, part in parts.items():
                    ask = queue.session.asked.get(partition)
                    state = self.subscription.get(partition)
                    if ask is not None and state is not None:
                        self.reader.read(state, ask, part, lease, self.news, 0.0)
        finally:
            lease.drop()
        return response

    def _release(self) -> None:
        self.released += 1

    def drain(self) -> list[tuple[Any, ...]]:
        """All that poll would be given; what is blocked is inflated here."""
        found: list[tuple[Any, ...]] = []
        for _ in range(_TAKES):
            found += [
                (r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                for r in self.rig.buffer.take(3)
            ]
            for data in list(self.rig.buffer.blocked):
                if data.blocked is not None:
                    try:
                        data.blocked.inflate()
                    except CorruptRecord as error:
                        data.refuse(data.blocked, error)
                self.rig.buffer.unblock(data)
            if not self.rig.buffer.has_turns:
                return found
        raise Broken("poll finds no end")

    def errors(self) -> list[KafkaError]:
        """What poll would raise, one after the other."""
        found: list[KafkaError] = []
        while (error := self.subscription.take_error()) is not None:
            if not isinstance(error, KafkaError):
                raise Broken(f"not a typed error: {error!r}")
            found.append(error)
        corrupt, self.rig.corrupt = self.rig.corrupt, []
        for partition, error in corrupt:
            if error.topic_partition != partition or error.offset is None:
                raise Broken(f"the error doesn't say where: {error}")
            if str(partition) not in str(error):
                raise Broken(f"the text doesn't say where: {error}")
            found.append(error)
        return found


def reachable(records: bytes, start: int) -> list[int] | None:
    """Where a position may stand after ``records``; None where they hold message sets."""
    points, pos = [start], 0
    while len(records) - pos >= 17:
        base, length = _PREFIX.unpack_from(records, pos)
        end = pos + 12 + length
        if length < 14 or end > len(records):
            break
        if records[pos + 16] < 2:
            return None
        sound = records[pos + 16] == 2 and end - pos >= 61
        if (
            not sound
            or crc32c(records[pos + 21 : end]) != struct.unpack_from(">I", records, pos + 17)[0]
        ):
            if sound and base + struct.unpack_from(">i", records, pos + 23)[0] < points[-1]:
                pos = end  # it lies before the position: the consumer skips it unread
                continue
            break
        points.append(max(points[-1], base + struct.unpack_from(">i", records, pos + 23)[0] + 1))
        pos = end
    return points


def kind_of(error: KafkaError) -> str:
    """The class of an error, with all broker errors as one."""
    return "BrokerError" if isinstance(error, BrokerError) else type(error).__name__


class Fetches:
    """The target; see the docstring of the file."""

    traced = False

    def __init__(self) -> None:
        self._seeds = fetch_seeds()
        self._others = [seed.root.raw for seed in self._seeds]
        self._builds = (load("pure"), load("cython"))

    def mutant(self, source: random.Random) -> Mutant:
        """Of a Fetch response of any version."""
        return answer_mutant(source, source.choice(self._seeds), self._others)

    def judge(self, mutant: Mutant) -> Verdict:
        """Through a connection, then with both builds."""
        seed: Seed = mutant.extra.seed
        connection = usable_connection(FETCH)
        first, _ = Asked(connection, seed, FetchRequest(), raw=True).outcomes(mutant)
        if not isinstance(first, RawResponse):
            if not isinstance(first, KafkaError):
                raise Broken(f"the request ended with {first!r}")
            return Verdict("no frame", False)
        body = bytes(first.body)
        first.release()
        committed = seed.version >= 4 and len(body) % 2 == 0
        pure, compiled = (self._consume(one, body, seed, committed) for one in self._builds)
        if pure != compiled:
            raise Broken(f"pure says {pure}\ncompiled {compiled}")
        return pure[0]

    def _consume(
        self, build: Implementation, body: bytes, seed: Seed, committed: bool
    ) -> tuple[Verdict, Any]:
        record_batch.codec = message_set.codec = build
        consumed = Consumed(read_committed=committed)
        try:
            response = consumed.read(memoryview(body), seed.version)
        except ProtocolError as error:
            if consumed.positions() != list(STARTS) or error.offset is None:
                raise Broken(f"after {error} the positions are {consumed.positions()}") from error
            self._check_usable(consumed, seed, committed)
            return Verdict("refused", error.offset > 0), str(error)
        rows = consumed.drain()
        errors = consumed.errors()
        self._check(consumed, response, rows)
        positions = consumed.positions()
        self._check_usable(consumed, seed, committed)
        if consumed.released != 1 + HONEST_ANSWERS:
            raise Broken("the frame was not given back")
        outcome = kind_of(errors[0]) if errors else "records" if rows else "no records"
        return Verdict(outcome, True), (rows, positions, list(map(str, errors)))

    def _check(
        self, consumed: Consumed, response: FetchResponse, rows: list[tuple[Any, ...]]
    ) -> None:
        """The positions are where the sound batches end, or behind the last record."""
        parts = Fetcher._parts(cast(Any, None), consumed.rig.queue(1), response)
        for index, start in enumerate(STARTS):
            part = parts.get(TopicPartition("t", index))
            given = [row[1] for row in rows if row[0] == index]
            position = consumed.rig.position(index)
            if sorted(set(given)) != given or any(offset < start for offset in given):
                raise Broken(f"partition {index}: offsets {given} from {start} on")
            records = b"" if part is None or part.error_code else bytes(part.records or b"")
            points = reachable(records, start)
            if points is None:
                points = [start, position or 0]
            if position not in points and position not in [offset + 1 for offset in given]:
                raise Broken(f"partition {index} is at {position}, not at one of {points}")
            if given and not given[-1] < (position or 0) <= max(*points, given[-1] + 1):
                raise Broken(f"partition {index} is at {position} after {given}, of {points}")

    def _check_usable(self, consumed: Consumed, seed: Seed, committed: bool) -> None:
        """Sound responses bring all that is left."""
        starts = [position or 0 for position in consumed.positions()]
        rows: list[tuple[Any, ...]] = []
        for _ in range(HONEST_ANSWERS):
            now = tuple(state.fetch_offset or 0 for state in consumed.subscription)
            consumed.read(memoryview(honest(seed.version, now).encode(seed.version)), seed.version)
            rows += consumed.drain()
        hidden = (3, 4, 7, 8) if committed else (7, 8)
        for index, start in enumerate(starts):
            if start > ENDS[index]:
                continue  # a sound-looking batch led past the log's end, which no client can detect
            wanted = [n for n in range(start, ENDS[index]) if index != 2 or n not in hidden]
            got = [row[1] for row in rows if row[0] == index]
            if got != wanted or consumed.rig.position(index) != ENDS[index]:
                raise Broken(f"partition {index}: after {start} came {got}, not {wanted}")


def make() -> Fetches:
    """The target."""
    return Fetches()
