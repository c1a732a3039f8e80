"""What must hold where ``kclient.process`` copies records, whatever breaks: ``ProcessWatch``.

The judge reads the logs themselves, batch by batch, and the brokers' own tables: what is committed
of the source must be in each target once and in order, no transaction may be open, and the offsets
of the group must be those of the source's end. Offsets that go back, or that are committed outside
of a transaction, are seen when they are written. Used by ``process_run``; it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from kclient.record.message_set import read_batches
from kclient.testing import Cluster
from kclient.testing.events import TransactionChanged
from kclient.testing.groups.coordinator import GroupCoordinator
from kclient.testing.groups.offsets import Offsets
from kclient.testing.groups.shard import Shard
from kclient.testing.image import TRANSACTION_TOPIC
from kclient.testing.log import PartitionLog
from kclient.testing.log_state import COMMIT, marker_type
from kclient.testing.transactions.metadata import TransactionState
from kclient.types import TopicPartition
from tests.virtual.group_watch import GROUP, GroupWatch

SOURCE = "source"
TARGETS = ("copies", "others")
SHOWN = 5
_INFLATED = 1 << 20
_AT_REST = frozenset(
    (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
)


class Committed(NamedTuple):
    """A record that ``read_committed`` readers get."""

    offset: int
    key: bytes | None
    value: bytes | None


def committed_records(log: PartitionLog) -> list[Committed]:
    """All records of a log, without those of aborted transactions, and of open ones."""
    waiting: dict[int, list[Committed]] = {}
    found: list[Committed] = []
    for stored in log.batches:
        if stored.is_control:
            records = waiting.pop(stored.producer_id, [])
            if marker_type(stored) == COMMIT:
                found += records
            continue
        into = waiting.setdefault(stored.producer_id, []) if stored.is_transactional else found
        for batch in read_batches(memoryview(stored.data)):
            batch.inflate(_INFLATED)
            into += [Committed(one.offset, one.key, one.value) for one in batch.records("", 0)]
    return sorted(found)


def place_of(partition: int, offset: int) -> bytes:
    """The key by which a target's record names the source's record that it follows from."""
    return b"%d@%d" % (partition, offset)


class ProcessWatch(GroupWatch):
    """Checks the group, its source and its targets.

    Attributes:
        handled: Calls of handlers.
        ended: By type of error, how often that ended a ``process``.
    """

    def __init__(self, cluster: Cluster, *args: Any) -> None:
        super().__init__(cluster, *args)
        self.handled = 0
        self._ends: dict[tuple[int, int], int] = {}  # of the source, where its log ends there
        self.ended: Counter[str] = Counter()
        self._raised: set[tuple[TopicPartition, int]] = set()

    def begins(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Record that a handler was called."""
        self.handled += 1
        if offset < self.handed.get(partition, 0):
            self.again += 1
        self.handed[partition] = max(self.handed.get(partition, 0), offset + 1)
        known = self.values.setdefault((partition, offset), value)
        if known != value:
            self.fail(f"{partition}@{offset} is {value!r}, and was {known!r} before")

    def raises(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a handler may raise for a record: once, or a long batch would take too long."""
        place = (partition, offset)
        first = place not in self._raised
        self._raised.add(place)
        return first

    # Offsets

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive what brokers write into their tables of offsets."""
        load, commit, end = Shard.load, Offsets.commit, Offsets.end
        loading: list[Shard] = []

        def note(offsets: Offsets) -> None:
            for topic, partitions in offsets.read(GROUP).items():
                for index, found in partitions.items():
                    self.commit(TopicPartition(topic, index), found.offset)

        def watched_load(shard: Shard, *args: Any) -> None:
            loading.append(shard)
            try:
                load(shard, *args)
            finally:
                loading.pop()
            note(shard.offsets)

        def watched_commit(offsets: Offsets, record: Any) -> None:
            commit(offsets, record)
            if not loading and record.key.group == GROUP:
                self.fail(f"{record.key} is committed outside of a transaction")

        def watched_end(offsets: Offsets, *args: Any) -> None:
            end(offsets, *args)
            if not loading:
                note(offsets)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Shard, "load", watched_load)
            patch.setattr(Offsets, "commit", watched_commit)
            patch.setattr(Offsets, "end", watched_end)
            yield

    def _group_offsets(self) -> dict[str, dict[int, Any]] | None:
        """The group's offsets, as its coordinator has them; None while there is none."""
        node_id = self._cluster.coordinator(GROUP)
        if node_id < 0 or not self._cluster.brokers[node_id].running:
            return None
        groups: GroupCoordinator = self._cluster.brokers[node_id].groups
        shard = groups._shards.get(0)
        return None if shard is None else shard.offsets.read(GROUP)

    # The end

    def missing(self) -> list[str]:
        """What is not at rest yet: open transactions, offsets that are behind, ids that end."""
        return [*self._behind(), *self._open(), *self._unfinished()]

    def _behind(self) -> Iterator[str]:
        found = self._group_offsets()
        if found is None:
            yield "the group has no coordinator"
            return
        for index in range(self._cluster.partition_count(SOURCE)):
            log = self._cluster.log(SOURCE, index)
            key = (index, log.end_offset)
            if key not in self._ends:
                records = committed_records(log)
                self._ends[key] = records[-1].offset + 1 if records else 0
            end = self._ends[key]
            known = found.get(SOURCE, {}).get(index)
            if (0 if known is None else known.offset) != end:
                yield f"of {SOURCE}-{index} {known and known.offset} is committed, its end is {end}"

    def _open(self) -> Iterator[str]:
        cluster = self._cluster
        for topic in cluster.topics:
            for index in range(cluster.partition_count(topic)):
                log = cluster.log(topic, index)
                if log.transactions.first_open_offset is not None:
                    where = log.transactions.first_open_offset
                    yield f"a transaction is open in {topic}-{index} from {where} on"
                elif log.last_stable_offset != log.high_watermark:
                    yield f"{topic}-{index} is stable up to {log.last_stable_offset} only"

    def _unfinished(self) -> Iterator[str]:
        for node_id in self._cluster.brokers:
            shards = self._cluster.brokers[node_id].transactions._shards
            for index, shard in shards.items():
                if self._cluster.leader(TRANSACTION_TOPIC, index) != node_id:
                    continue
                for name, entry in shard.entries.items():
                    if entry.metadata.state not in _AT_REST or entry.pending is not None:
                        yield f"{name} is {entry.metadata.state.name}, {entry.pending} is pending"

    def count_states(self, state: str) -> int:
        """How often a transactional id came into a state."""
        return sum(one.state == state for one in self._cluster.events.of(TransactionChanged))

    def look_at_end(self) -> None:
        """Check that each target has what follows from the source: each record once, in order."""
        wanted: dict[bytes, bytes | None] = {}
        for index in range(self._cluster.partition_count(SOURCE)):
            for one in committed_records(self._cluster.log(SOURCE, index)):
                wanted[place_of(index, one.offset)] = one.value
        for topic in TARGETS:
            got: list[Committed] = []
            for index in range(self._cluster.partition_count(topic)):
                records = committed_records(self._cluster.log(topic, index))
                self._look_at_order(f"{topic}-{index}", records)
                got += records
            self._compare(topic, wanted, got)

    def _compare(self, topic: str, wanted: dict[bytes, bytes | None], got: list[Committed]) -> None:
        counts = Counter(one.key for one in got)
        for what, places in (
            ("doubled", [key for key, count in counts.items() if count > 1]),
            ("lost", [key for key in wanted if key not in counts]),
            ("made up", [key for key in counts if key not in wanted]),
            ("changed", [one.key for one in got if wanted.get(one.key or b"") != one.value]),
        ):
            if places:
                self.fail(f"{topic}: {len(places)} {what}, such as {places[:SHOWN]}")

    def _look_at_order(self, where: str, records: list[Committed]) -> None:
        last: dict[bytes, int] = {}
        for one in records:
            partition, _, offset = (one.key or b"").partition(b"@")
            if int(offset) < last.get(partition, -1):
                self.fail(f"{where}: {one.key!r} comes after {last[partition]}")
            last[partition] = int(offset)

    def look_at(self, topic: str, read: list[bytes | None]) -> None:
        """Compare what a ``read_committed`` consumer got with what the logs say."""
        written = Counter(
            one.key
            for index in range(self._cluster.partition_count(topic))
            for one in committed_records(self._cluster.log(topic, index))
        )
        got = Counter(read)
        if got != written:
            self.fail(
                f"{topic}: a reader got {[*(got - written)][:SHOWN]} too much, and not "
                f"{[*(written - got)][:SHOWN]}"
            )
