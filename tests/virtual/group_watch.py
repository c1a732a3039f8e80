"""What must hold in a group whatever breaks: ``GroupWatch`` gathers the facts and judges them.

The members of ``group_player`` report what they own, are handed and have finished; the brokers' own
table of offsets, read where they write it, shows what is committed, in the true order. Used by
``group_run``; it changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kclient.testing import Cluster
from kclient.testing.groups.offsets import Offsets
from kclient.testing.groups.shard import Shard
from kclient.types import TopicPartition

GROUP = "audit"
LONGEST_DOUBT = 1.25
"""Sessions for which a member that the group has removed may not know it.

That is one in which no broker can be reached, and the time of its callbacks.
"""


class GroupWatch:
    """Checks the group.

    Args:
        cluster: Started or not.
        topics: Those that the group reads.
        session: Seconds of a session.
        say: Called with a line for the trace about what happens.

    Attributes:
        failures: What should not have been, as text.
        committed: By partition, the offset that the group has committed.
        finished: By partition, up to where the users' work is done.
        handed: By partition, up to where records were handed over.
        values: Of every record that was handed over.
        commits: How many changes of a committed offset there were.
        again: Records that were handed over once more.
    """

    def __init__(
        self, cluster: Cluster, topics: Sequence[str], session: float, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self.topics = topics
        self._session = session
        self._say = say
        self.failures: list[str] = []
        self.committed: dict[TopicPartition, int] = {}
        self.finished: dict[TopicPartition, int] = {}
        self.handed: dict[TopicPartition, int] = {}
        self.values: dict[tuple[TopicPartition, int], bytes] = {}
        self._owners: dict[TopicPartition, dict[str, str]] = {}
        self._put_out: dict[tuple[TopicPartition, str], float] = {}
        self._releasing: set[tuple[TopicPartition, str]] = set()
        self.commits = 0
        self.again = 0

    def fail(self, text: str) -> None:
        """Record a failure."""
        self._say(f"WRONG: {text}")
        self.failures.append(f"{asyncio.get_running_loop().time():.3f}: {text}")

    # Ownership

    def assigned(self, name: str, member_id: str, partition: TopicPartition) -> None:
        """Record that this member was assigned the partition."""
        owners = self._owners.setdefault(partition, {})
        if name in owners:
            self.fail(f"{name} is given {partition}, which it has")
        present = self.members()
        for other, known_as in owners.items():
            if other != name and present is not None and known_as in present:
                self.fail(f"{partition} is given to {name}, and {other} has it")
            elif other != name and (partition, other) not in self._releasing:
                self._put_out[partition, other] = asyncio.get_running_loop().time()
        owners[name] = member_id

    def begins_to_release(self, name: str, partition: TopicPartition) -> None:
        """Record that the member knows that it has to release it."""
        self._releasing.add((partition, name))
        self._put_out.pop((partition, name), None)

    def released(self, name: str, partition: TopicPartition) -> None:
        """Record that the member no longer owns it."""
        if self._owners.get(partition, {}).pop(name, None) is None:
            self.fail(f"{name} gives {partition} up, and didn't have it")
        self._releasing.discard((partition, name))
        self._put_out.pop((partition, name), None)

    def forget(self, name: str) -> None:
        """Record that the member is dead."""
        for partition, owners in self._owners.items():
            owners.pop(name, None)
            self._put_out.pop((partition, name), None)

    def owners(self, partition: TopicPartition) -> list[str]:
        """The members that believe they own it."""
        return list(self._owners.get(partition, ()))

    def members(self) -> set[str] | None:
        """The member ids that the coordinator has; None while there is no coordinator."""
        node_id = self._cluster.coordinator(GROUP)
        if node_id < 0 or not self._cluster.brokers[node_id].running:
            return None
        shard = self._cluster.brokers[node_id].groups._shards.get(0)
        if shard is None:
            return None
        group = shard.groups.get(GROUP)
        return set() if group is None else set(group.members)

    def look(self) -> None:
        """Check that no removed member believes for too long that it owns a partition."""
        now = asyncio.get_running_loop().time()
        for (partition, name), since in list(self._put_out.items()):
            if now - since > LONGEST_DOUBT * self._session:
                self.fail(f"{name} still believes to have {partition}, for {now - since:.1f} s")
                del self._put_out[partition, name]

    # Records

    def start_of(self, partition: TopicPartition) -> int:
        """The offset at which its next owner must begin."""
        return self.committed.get(partition, 0)

    def took(self, name: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Record that a record was handed over."""
        end = self.handed.get(partition, 0)
        if offset > end:
            self.fail(f"{name}: {partition}@{offset} is handed over, and nobody was given {end}")
        elif offset < end:
            self.again += 1
        self.handed[partition] = max(end, offset + 1)
        known = self.values.setdefault((partition, offset), value)
        if known != value:
            self.fail(f"{name}: {partition}@{offset} is {value!r}, and was {known!r} before")

    def done(self, partition: TopicPartition, end: int) -> None:
        """Record that a user has finished its work up to there."""
        self.finished[partition] = max(self.finished.get(partition, 0), end)

    # Commits

    def commit(self, partition: TopicPartition, offset: int) -> None:
        """Record that the group's offset is this from now on."""
        before = self.committed.get(partition, 0)
        if offset != before:
            self.commits += 1
            self._say(f"  committed {partition} {before} -> {offset}")
        if offset < before:
            self.fail(f"the commit of {partition} went from {before} back to {offset}")
        if offset > self.finished.get(partition, 0):
            done = self.finished.get(partition, 0)
            self.fail(f"{partition}: {offset} is committed, and only {done} is finished")
        self.committed[partition] = offset

    def acknowledged(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Record that these were acknowledged to the user as committed."""
        for partition, offset in offsets.items():
            if self.committed.get(partition, 0) < offset:
                known = self.committed.get(partition, 0)
                self.fail(f"{name} was told that {partition}@{offset} is committed: {known} is")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive what brokers write into their tables of offsets."""
        load, commit = Shard.load, Offsets.commit
        loading: list[Shard] = []

        def watched_load(shard: Shard, *args: Any) -> None:
            loading.append(shard)
            try:
                load(shard, *args)
            finally:
                loading.pop()
            for topic, partitions in shard.offsets.read(GROUP).items():
                for index, found in partitions.items():
                    self.commit(TopicPartition(topic, index), found.offset)

        def watched_commit(offsets: Offsets, record: Any) -> None:
            commit(offsets, record)
            if not loading and record.value is not None and record.key.group == GROUP:
                self.commit(
                    TopicPartition(record.key.topic, record.key.partition), record.value.offset
                )

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Shard, "load", watched_load)
            patch.setattr(Offsets, "commit", watched_commit)
            yield

    # The end

    def missing(self) -> list[str]:
        """Partitions of which some records were handed to no member."""
        return [
            f"{topic}-{index}: {self.handed.get(TopicPartition(topic, index), 0)} of {end}"
            for topic in self.topics
            for index in range(self._cluster.partition_count(topic))
            if self.handed.get(TopicPartition(topic, index), 0)
            < (end := self._cluster.end_offset(topic, index))
        ]

    def look_at_end(self) -> None:
        """Check that all was read: it is what is in the logs."""
        for topic in self.topics:
            for index in range(self._cluster.partition_count(topic)):
                partition = TopicPartition(topic, index)
                for record in self._cluster.records(topic, index):
                    known = self.values.get((partition, record.offset))
                    if known != record.value:
                        self.fail(f"{partition}@{record.offset} is {record.value!r}, not {known!r}")
