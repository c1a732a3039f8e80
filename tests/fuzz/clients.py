"""Whole clients on virtual time, whose brokers respond with mutants: typed errors, usable after.

Each number is one life: a consumer, a producer or an admin client works while some responses of one
API are spoiled, each in another way. While that lasts a call may fail, with a typed error; records
must not be lost, doubled or out of order, unless a spoiled response was false in a way that no
client can detect (a batch with a right CRC, an error code). Afterwards the same client must recover
by itself, within ``PATIENCE`` virtual seconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Callable
from typing import Any, cast

from crc32c import crc32c

import kclient
from kclient.errors import KafkaError, ProtocolError
from kclient.protocol.message import Response
from kclient.protocol.messages.fetch import FetchResponse
from kclient.protocol.messages.metadata import MetadataResponse
from kclient.protocol.messages.produce import ProduceResponse
from kclient.testing import Cluster, run_virtually
from kclient.testing.fault import Action, Fault, Stage
from kclient.testing.request_context import RequestContext
from kclient.types import TopicPartition
from tests.fuzz import operators
from tests.fuzz.fetches import kind_of
from tests.fuzz.seeds import response_seed
from tests.fuzz.targets import Broken, Mutant, Verdict
from tests.unit.consumer.log_bytes import batch

T = "flights"
PARTITIONS, RECORDS, PER_BATCH = 2, 12, 4
PATIENCE = 400.0
"""Virtual seconds after the last spoiled response: a throttle of 300 s at most, then back-offs."""
MOST_SPOILED = 6
QUICK: Any = {
    "request_timeout": 5.0,
    "api_timeout": 15.0,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.5,
    "connection_setup_timeout": 2.0,
    "connection_setup_timeout_max": 2.0,
}
APIS = {
    "consumer": ("Fetch", "Fetch", "Fetch", "Metadata", "ApiVersions", "ListOffsets"),
    "producer": ("Produce", "Produce", "Metadata", "ApiVersions", "InitProducerId"),
    "admin": ("Metadata", "ApiVersions", "DescribeCluster", "CreateTopics", "ListOffsets"),
}


class Spoiler:
    """Spoils the responses of one API, and notes how.

    Attributes:
        api: Its responses are spoiled.
        ways: Operator, whether repaired and whether a field could be read, of each.
        lied: A response was false in a way that no client can detect.
        times: How many responses it spoils.
        last: When it last spoiled one.
    """

    def __init__(self, source: random.Random, api: str) -> None:
        self.ways: list[tuple[str, bool, bool]] = []
        self.lied = False
        self.last = 0.0
        self.times = source.randint(1, MOST_SPOILED)
        self.api = api
        self._source = source
        self._begin = source.choice((0, 0, 1, 3))

    def attach(self, cluster: Cluster) -> Fault:
        """Spoil responses from now on, or from a later one on."""
        fault = Fault(Action.CHANGE, Stage.ANSWER, self.api, self.times, {}, act=self._spoil)
        fault.applies = self._is_time
        return cluster.faults.add(fault)

    def _is_time(self, call: RequestContext, response: Response) -> bool:
        self._begin -= 1
        return self._begin < 0

    def _spoil(self, call: RequestContext, response: Response) -> bytes:
        self.last = asyncio.get_running_loop().time()
        sound = response.encode(call.version)
        seed = response_seed(call.api_key, call.version, sound)
        made = operators.spoiled(self._source, seed, [sound])
        try:
            read = type(response).decode(made.body, call.version)
        except ProtocolError as error:
            reached = bool(error.offset)
        else:
            reached = True
            self.lied = self.lied or is_lie(response, read)
        self.ways.append((f"{self.api}: {made.operator}", made.repaired, reached))
        return struct.pack(">i", call.correlation_id) + made.header + made.body


def is_lie(sound: Response, read: Response) -> bool:
    """Whether a response is false in a way that no client can detect."""
    if isinstance(sound, FetchResponse) and isinstance(read, FetchResponse):
        right, said = records_of(sound), records_of(read)
        return any(not batches_fit(right.get(key, b""), data) for key, data in said.items())
    if isinstance(sound, MetadataResponse) and isinstance(read, MetadataResponse):
        # Another id means that the topic was recreated: its offsets are unrelated to the old ones.
        ids = {topic.topic_id for topic in sound.topics}
        return any(topic.topic_id not in ids for topic in read.topics)
    if isinstance(read, ProduceResponse):
        # An error code is a batch's outcome; a client must believe one that means "not written".
        return any(part.error_code for one in read.responses for part in one.partition_responses)
    return False


def records_of(response: FetchResponse) -> dict[object, bytes]:
    """Record bytes by topic and partition; with its error code, as those end reading."""
    return {
        (topic.topic, topic.topic_id, part.partition_index): bytes(part.records or b"")
        for topic in response.responses
        for part in topic.partitions
    }


def batches_fit(right: bytes, said: bytes) -> bool:
    """Whether the batches that can be believed are the first ones of the right ones."""
    expected = list(split(right))
    for index, one in enumerate(split(said)):
        if index < len(expected) and one == expected[index]:
            continue
        return not believable(one)  # one that can be seen to be wrong ends the reading
    return True


def believable(one: bytes) -> bool:
    """A batch whose CRC is right, or a message set, whose CRCs aren't checked here."""
    if one[16] < 2:
        return True
    return len(one) >= 61 and crc32c(one[21:]) == struct.unpack_from(">I", one, 17)[0]


def split(data: bytes) -> list[bytes]:
    """Pieces as long as they announce."""
    found, pos = [], 0
    while len(data) - pos >= 17:
        end = pos + 12 + struct.unpack_from(">i", data, pos + 8)[0]
        if not pos + 26 <= end <= len(data):
            break
        found.append(data[pos:end])
        pos = end
    return found


class Life:
    """The run of one client; each kind is a subclass.

    Attributes:
        spoiler: Spoils the responses that it gets.
        errors: All that its calls raised.
    """

    def __init__(self, source: random.Random, api: str) -> None:
        self.spoiler = Spoiler(source, api)
        self.errors: list[KafkaError] = []
        self.cluster: Cluster
        self.fault: Fault

    async def run(self) -> None:
        """Live it. Raises Broken."""
        async with Cluster(brokers=2) as self.cluster:
            # Its records are of 1970: nothing may be deleted for its age.
            keep = {"retention.ms": -1}
            self.cluster.create_topic(T, partitions=PARTITIONS, configs=keep)
            for index in range(PARTITIONS):
                for first in range(0, RECORDS, PER_BATCH):
                    self.cluster.append(T, index, batch(first, PER_BATCH))
            self.fault = self.spoiler.attach(self.cluster)
            await self.live()

    async def live(self) -> None:
        """The client's work."""
        raise NotImplementedError

    async def attempt(self, call: Callable[[], Any]) -> Any:
        """Call and await; a typed error is noted, any other is broken."""
        try:
            return await call()
        except KafkaError as error:
            str(error)
            self.errors.append(error)
            return None

    async def started(self, make: Callable[[], Any]) -> Any:
        """Return a started client; one whose start failed is closed, so another one is made."""
        found: list[Any] = []

        async def start() -> bool:
            before, client = len(self.errors), make()
            await self.attempt(client.start)
            if len(self.errors) > before:
                return False
            found.append(client)
            return True

        await self.until("start", start)
        return found[0]

    async def until(self, what: str, done: Callable[[], Any]) -> None:
        """Retry until ``done`` returns something; not for ever once the responses are sound."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not await done():
            if loop.time() > max(begun, self.spoiler.last) + PATIENCE:
                if not self.fault.active:
                    raise Broken(
                        f"{what}: not after {PATIENCE} s with sound answers; spoiled were "
                        f"{self.spoiler.ways}, errors {self.errors[-3:]}"
                    )
                self.cluster.faults.remove(self.fault)
                begun = loop.time()
            await asyncio.sleep(0.05)


class ConsumerLife(Life):
    """Reads two partitions from their beginning to their end, then what comes after."""

    async def live(self) -> None:
        consumer = await self.started(
            lambda: kclient.Consumer(self.cluster.bootstrap, fetch_max_wait=0.2, **QUICK)
        )
        try:
            self._seen: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
            consumer.assign([TopicPartition(T, index) for index in range(PARTITIONS)])
            if self.spoiler.api == "ListOffsets":
                consumer.seek_to_beginning()
            else:
                for partition in consumer.assignment:
                    consumer.seek(partition, 0)
            await self.until("read", lambda: self._read(consumer, RECORDS))
            for index in range(PARTITIONS):
                self.cluster.append(T, index, batch(RECORDS, PER_BATCH))
            await self.until("read on", lambda: self._read(consumer, RECORDS + PER_BATCH))
            if not self.spoiler.lied and not self._moved_by_lookup():
                self._check()
        finally:
            await consumer.close()

    def _moved_by_lookup(self) -> bool:
        return self.spoiler.api == "ListOffsets"

    async def _read(self, consumer: Any, count: int) -> bool:
        before = consumer.positions()
        errors = len(self.errors)
        records = await self.attempt(lambda: consumer.poll(timeout=1.0)) or []
        after = consumer.positions()
        for record in records:
            self._seen[record.partition].append(record.offset)
            if not self.spoiler.lied and record.value != b"%d" % record.offset:
                raise Broken(f"{record} is not what was written")
        if not self.spoiler.lied and not self._moved_by_lookup():
            self._check_positions(before, after, failed=len(self.errors) > errors)
        if (self.spoiler.lied and len(self.errors) > errors) or self._beyond(after):
            for partition in consumer.assignment:  # the way out that the error names
                consumer.seek(partition, 0)
            self._seen = {index: [] for index in range(PARTITIONS)}
        return all((offset or 0) >= count for offset in after.values())

    def _beyond(self, positions: dict[TopicPartition, int | None]) -> bool:
        most = RECORDS + PER_BATCH
        return self.spoiler.lied and any((offset or 0) > most for offset in positions.values())

    def _check_positions(self, before: Any, after: Any, *, failed: bool) -> None:
        for partition, offset in after.items():
            seen = self._seen[partition.partition]
            expected = seen[-1] + 1 if seen else 0
            if offset != expected:
                raise Broken(f"{partition} is at {offset} after {seen} (before: {before})")
            if failed and offset != before[partition]:
                raise Broken(f"an error moved {partition} from {before[partition]} to {offset}")

    def _check(self) -> None:
        for index, offsets in self._seen.items():
            if offsets != list(range(RECORDS + PER_BATCH)):
                raise Broken(f"partition {index} gave {offsets}; spoiled: {self.spoiler.ways}")


class ProducerLife(Life):
    """Sends records one after the other; what is acknowledged is in the log once."""

    async def live(self) -> None:
        times = {"delivery_timeout": 20.0, "max_block": 10.0, "linger": 0.0, **QUICK}
        producer = await self.started(lambda: kclient.Producer(self.cluster.bootstrap, **times))
        sent: dict[bytes, KafkaError | None] = {}
        try:
            for number in range(self.spoiler.times + 2):
                value = b"sent %d" % number
                before = len(self.errors)
                await self.attempt(lambda value=value: self._send(producer, value))  # type: ignore[misc]
                sent[value] = self.errors[-1] if len(self.errors) > before else None
            self.cluster.faults.remove(self.fault)
            await self.until("send", lambda: self._sends(producer))
        finally:
            await self.attempt(producer.close)
        if not self.spoiler.lied:
            self._check(sent)

    async def _send(self, producer: Any, value: bytes) -> Any:
        return await (await producer.enqueue(T, value, partition=0))

    async def _sends(self, producer: Any) -> bool:
        return await self.attempt(lambda: self._send(producer, b"last")) is not None

    def _check(self, sent: dict[bytes, KafkaError | None]) -> None:
        values = [record.value for record in self.cluster.records(T, 0)]
        for value, error in sent.items():
            count = values.count(value)
            if count > 1 or (error is None and count != 1):
                raise Broken(f"{value!r} is {count} times in the log after {error!r}")
            if error is not None and error.maybe_written is False and count:
                raise Broken(f"{value!r} is in the log, but {error!r} says that it isn't")


class AdminLife(Life):
    """Asks and changes what there is."""

    async def live(self) -> None:
        admin = await self.started(lambda: kclient.Admin(self.cluster.bootstrap, **QUICK))
        try:
            for number in range(3):
                await self.attempt(admin.list_topics)
                await self.attempt(lambda: admin.describe_topics([T]))
                await self.attempt(admin.describe_cluster)
                new = kclient.NewTopic(f"new-{number}", 1, 1)
                await self.attempt(lambda new=new: admin.create_topics([new]))  # type: ignore[misc]
                await self.attempt(
                    lambda: admin.list_offsets({TopicPartition(T, 0): kclient.OffsetSpec.LATEST})
                )
            self.cluster.faults.remove(self.fault)
            await self.until("list", lambda: self._lists(admin))
        finally:
            await self.attempt(admin.close)

    async def _lists(self, admin: Any) -> bool:
        found = await self.attempt(admin.list_topics)
        return found is not None and T in {getattr(one, "name", one) for one in found}


LIVES: dict[str, type[Life]] = {
    "consumer": ConsumerLife,
    "producer": ProducerLife,
    "admin": AdminLife,
}


class Clients:
    """The target; see the docstring of the file."""

    traced = False

    def __init__(self) -> None:
        for name in ("kclient", "kclient.consumer", "kclient.testing"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def mutant(self, source: random.Random) -> Mutant:
        """A life; which it is, and what is spoiled in it, follows from the bytes."""
        seed = source.getrandbits(64)
        kind = source.choice(list(LIVES))
        api = source.choice(APIS[kind])
        return Mutant(f"{api} of a {kind}", False, seed.to_bytes(8, "big"), kind, (kind, api))

    def judge(self, mutant: Mutant) -> Verdict:
        """Live it."""
        kind, api = cast(tuple[str, str], mutant.extra)
        source = random.Random(int.from_bytes(mutant.data, "big"))
        life = LIVES[kind](source, api)
        run_virtually(life.run(), seed=source.getrandbits(32), limit=3600.0)
        ways = life.spoiler.ways
        outcome = kind_of(life.errors[0]) if life.errors else "nobody noticed"
        return Verdict(outcome, False, tuple(ways))


def make() -> Clients:
    """The target."""
    return Clients()
