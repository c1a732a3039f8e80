"""What must hold in a cluster whatever breaks: ``Watch`` inspects brokers and quorum.

It checks every image that a controller publishes, and after each operation every copy of every
partition. It remembers what any high watermark covered by offset, epoch and checksum: that much is
committed, and every in-sync broker must have it, until a broker from outside the ISR is elected,
which begins a new count. Used by ``cluster_run.py``; it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kclient.testing import Cluster
from kclient.testing.controller import Controller
from kclient.testing.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from kclient.testing.quorum import QuorumEvent
from kclient.testing.replica import Replica
from kclient.testing.stored_batch import StoredBatch

Key = tuple[bytes, int]
Mark = tuple[int, int]
"""A batch's leader epoch and checksum: producers never send the same value twice."""


@dataclass(slots=True)
class Committed:
    """What is committed in one partition.

    Attributes:
        marks: By base offset, in order.
        bases: Their offsets.
        end: The highest offset that any high watermark reached.
        floor: The leader epoch of the last unclean election.
        loose: Brokers whose copy may hold what that election lost.
        seen: High watermarks of the copies when they were last looked at.
    """

    marks: dict[int, Mark] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    end: int = 0
    floor: int = -1
    loose: set[int] = field(default_factory=set)
    seen: dict[int, int] = field(default_factory=dict)

    def add(self, batch: StoredBatch) -> None:
        """Record that it is committed."""
        self.marks[batch.base_offset] = mark_of(batch)
        self.bases.append(batch.base_offset)
        self.end = batch.next_offset


def mark_of(batch: StoredBatch) -> Mark:
    """What identifies a batch."""
    return batch.leader_epoch, batch.crc


class Watch:
    """Checks the cluster.

    Args:
        cluster: Started or not.

    Attributes:
        failures: What should not have been, as text.
        unclean_asked: A test asked for an unclean election, so that one may come.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._control_plane = control_plane = cluster._control_plane
        self._leaders: dict[tuple[Key, int], int] = {}
        self._controllers: dict[int, int] = {}
        self._committed: dict[Key, Committed] = {}
        self._image = control_plane.image
        self.failures: list[str] = []
        self.unclean_asked = False
        publish = control_plane._publish

        def observed(controller: Controller, image: MetadataImage) -> None:
            self._published(image)
            publish(controller, image)

        control_plane._publish = observed  # type: ignore[method-assign]
        control_plane.quorum.watch(self._hear)

    def fail(self, text: str) -> None:
        """Record a failure."""
        self.failures.append(text)

    # Controllers and what they decide

    def _hear(self, news: QuorumEvent, node_id: int) -> None:
        if news is QuorumEvent.CONTROLLER_ELECTED:
            self._controller(self._control_plane.quorum.epoch, node_id)

    def _controller(self, epoch: int, node_id: int) -> None:
        if self._controllers.setdefault(epoch, node_id) != node_id:
            self.fail(f"epoch {epoch} has two controllers, {self._controllers[epoch]}, {node_id}")

    def _published(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        self._controller(image.controller_epoch, image.controller_id)
        if image.controller_epoch < before.controller_epoch:
            self.fail(f"an image of controller epoch {image.controller_epoch} became the newest")
        if image.version <= before.version:
            self.fail(f"image {image.version} follows {before.version}")
        for name, topic in image.topics.items():
            known = before.topics.get(name)
            if known is topic:
                continue
            same = known is not None and known.topic_id == topic.topic_id
            past = known.partitions if known is not None and same else ()
            for facts in topic.partitions:
                was = past[facts.index] if facts.index < len(past) else None
                if was is not facts:
                    self._changed(topic, was, facts)

    def _changed(
        self, topic: TopicImage, was: PartitionRegistration | None, facts: PartitionRegistration
    ) -> None:
        where, key = f"{topic.name}-{facts.index}", (topic.topic_id, facts.index)
        self._leader(where, key, facts.leader_epoch, facts.leader)
        if not set(facts.isr) <= set(facts.replicas):
            self.fail(f"{where}: in sync are {facts.isr} of {facts.replicas}")
        if facts.leader != NO_LEADER and facts.leader not in facts.isr:
            self.fail(f"{where}: the leader {facts.leader} isn't in sync, {facts.isr} are")
        if was is None:
            return
        if facts.leader_epoch < was.leader_epoch or facts.partition_epoch <= was.partition_epoch:
            self.fail(f"{where}: an epoch went back, {was} to {facts}")
        if facts.leader in (NO_LEADER, was.leader) or facts.leader in (*was.isr, *was.elr):
            return
        if not (topic.config.unclean_elections or self.unclean_asked):
            self.fail(f"{where}: {facts.leader} was elected out of sync, after {was}")
            return
        everybody = set(facts.replicas)
        self._committed[key] = Committed(floor=facts.leader_epoch, loose=everybody)

    def _leader(self, where: str, key: Key, epoch: int, leader: int) -> None:
        if self._leaders.setdefault((key, epoch), leader) != leader:
            known = self._leaders[key, epoch]
            self.fail(f"{where}: epoch {epoch} has two leaders, {known} and {leader}")

    # Copies

    def copies(self, topic: TopicImage, facts: PartitionRegistration) -> list[Replica]:
        """All copies of a partition, those included whose brokers are down."""
        brokers = self._cluster.brokers
        found = (brokers[one].replicas.get(topic.name, facts.index) for one in facts.replicas)
        return [one for one in found if one is not None and one.topic_id == topic.topic_id]

    def look(self) -> None:
        """Look at all copies."""
        for topic in self._control_plane.image.topics.values():
            for facts in topic.partitions:
                self._look(topic, facts)

    def _look(self, topic: TopicImage, facts: PartitionRegistration) -> None:
        key = topic.topic_id, facts.index
        committed = self._committed.get(key)
        if committed is None:
            committed = self._committed[key] = Committed()
        copies = self.copies(topic, facts)
        for copy in copies:
            node_id = copy.node_id
            if copy.leads:
                self._leader(repr(copy), key, copy.epoch, node_id)
            if node_id in committed.loose:
                if copy.epoch < committed.floor or node_id not in facts.isr:
                    committed.seen.pop(node_id, None)
                    continue
                committed.loose.discard(node_id)
            self._high_watermark(copy, committed)
        for copy in copies:
            if copy.node_id in (*facts.isr, *facts.elr) and copy.node_id not in committed.loose:
                self._has_all(copy, committed)

    def _high_watermark(self, copy: Replica, committed: Committed) -> None:
        log = copy.log
        new = log.high_watermark
        before = committed.seen.get(copy.node_id, 0)
        if new == before:
            return
        committed.seen[copy.node_id] = new
        if new < before:
            self.fail(f"{copy!r}: the high watermark went from {before} back to {new}")
        if new > log.end_offset:
            self.fail(f"{copy!r}: the high watermark {new} is past the end {log.end_offset}")
        low = max(before, log.start_offset)
        for batch in log.batches_between(low, min(new, committed.end)):
            if committed.marks.get(batch.base_offset, mark_of(batch)) != mark_of(batch):
                self.fail(f"{copy!r}: committed other records at {batch.base_offset}")
        if new > committed.end:
            for batch in log.batches_between(committed.end, new):
                committed.add(batch)
            committed.end = max(committed.end, new)

    def _has_all(self, copy: Replica, committed: Committed) -> None:
        log = copy.log
        if log.end_offset < committed.end:
            self.fail(f"{copy!r} is in sync and ends at {log.end_offset}, not {committed.end}")
        elif committed.bases and committed.bases[-1] >= log.start_offset:
            self._has(copy, committed.bases[-1], committed)

    def _has(self, copy: Replica, base: int, committed: Committed) -> None:
        found = copy.log.batches_between(base, base + 1)
        if not found or mark_of(found[0]) != committed.marks[base]:
            self.fail(f"{copy!r} is in sync and has other records at {base}")

    # What producers and readers received

    def floor_of(self, topic: str, index: int) -> tuple[Key, int] | None:
        """The partition and the epoch of its last unclean election, which ends older promises."""
        found = self._control_plane.image.topics.get(topic)
        if found is None or index >= len(found.partitions):
            return None
        key = found.topic_id, index
        return key, self._committed.setdefault(key, Committed()).floor

    def acknowledged(self, given: tuple[Key, int], base: int, crc: int) -> None:
        """Check a batch that was acknowledged with acks=all: it is committed, and stays there."""
        key, floor = given
        committed = self._committed.get(key)
        if committed is None or committed.floor != floor:
            return
        name = self._control_plane.image.names.get(key[0])
        if name is None or committed.loose:
            return
        self.look()
        mark = committed.marks.get(base)
        if mark is None and base < committed.end:
            self.fail(f"{name}-{key[1]}: {base} was acknowledged and isn't there")
        elif mark is None:
            self.fail(f"{name}-{key[1]}: {base} was acknowledged before it was committed")
        elif mark[1] != crc:
            self.fail(f"{name}-{key[1]}: {base} was acknowledged and holds something else")

    def read(self, given: tuple[Key, int], batch: StoredBatch) -> None:
        """Check a batch that a reader got from a leader: it was committed."""
        key, floor = given
        committed = self._committed.get(key)
        if committed is None or committed.floor != floor or committed.loose:
            return
        known = committed.marks.get(batch.base_offset)
        if known is not None and known != mark_of(batch):
            self.fail(f"a reader got other records at {batch.base_offset} than were committed")

    # The end

    def look_at_end(self) -> None:
        """Check that all copies, healed and in sync, are equal and hold all that was committed."""
        self.look()
        for topic in self._control_plane.image.topics.values():
            for facts in topic.partitions:
                copies = self.copies(topic, facts)
                committed = self._committed[topic.topic_id, facts.index]
                for copy in copies:
                    for base in committed.bases:
                        if base >= copy.log.start_offset:
                            self._has(copy, base, committed)
                start = max(copy.log.start_offset for copy in copies)
                logs = {
                    b"".join(one.data for one in copy.log.batches if one.base_offset >= start)
                    for copy in copies
                }
                ends = {copy.log.end_offset for copy in copies}
                if len(logs) > 1 or len(ends) > 1 or len(copies) < len(facts.replicas):
                    self.fail(f"{topic.name}-{facts.index}: logs differ, they end at {ends}")
