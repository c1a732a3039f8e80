"""How a Metadata answer becomes topics, and what of an older answer outlives it. Sans-IO.

Called by ``metadata`` topic by topic. The rules, from Java's ``Metadata`` and KIP-320/KIP-516:

- a leader epoch doesn't go back for the same topic id: a broker that lags behind is not believed.
  Only when all brokers report it many times in a row, the higher one was a lie (or bytes that
  were damaged on the way), which must not keep us from the leader for ever;
- another topic id is another topic: everything of the old one is forgotten. Ids are never used
  twice, so a broker that still reports the old one lags behind, and isn't believed either;
- what looks like the past but may be a recreated topic (no ids, or an id that was left behind) is
  believed when it is reported again and again;
- an answer without epochs is taken as it is, since brokers older than 2.4 (Metadata before
  version 9) report stale epochs or none, in the middle of a rolling upgrade too;
- partitions are never taken away from what may be the same topic.

``UnknownTopics`` counts the brokers that say that there is no such topic: producers and consumers
ask it before they give one up. A single response proves nothing, as a broker may lag behind, and
neither does one to a request of before the topic was wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient.cluster.topic import (
    EMPTY_ROW,
    ERROR,
    NO_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    Row,
    Topic,
    pack_row,
)
from kclient.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from kclient.cluster.topic import TopicFields
    from kclient.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

SEVERAL = 2
"""Brokers that must not know a topic, where there are as many."""


RELIABLE_EPOCHS_FROM = 9
"""Metadata version from which leader epochs can be believed (KAFKA-9212)."""

BELIEVE_AFTER = 3
"""Answers in a row after which what looks like the past is taken for the present."""

OUTVOTED_AFTER = 10
"""Answers in a row after which a higher epoch of the same topic id is taken for a lie."""

REMEMBERED_IDS = 4
"""Former ids of one topic that are kept, to know an answer from the past by."""

HOLES_ALLOWED = 1000
"""Partitions missing in an answer that we would still number around: more is nonsense."""


@dataclass(slots=True)
class _Unknown:
    """One topic that no broker has known since.

    Attributes:
        since: When that was first said.
        latest: When it was said again.
        nodes: The brokers that reported it, and when their latest request was made.
    """

    since: float
    latest: float
    nodes: dict[int, float] = field(default_factory=dict)


class UnknownTopics:
    """Topics of one client that brokers don't know, as long as none says otherwise."""

    def __init__(self) -> None:
        self._unknown: dict[str, _Unknown] = {}

    def note(self, new: TopicFields, node_id: int, asked: float, now: float) -> None:
        """A broker that was ``asked`` then said ``new`` of a topic."""
        name = new[0]
        if new[ERROR] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown.pop(name, None)
            return
        found = self._unknown.setdefault(name, _Unknown(now, now))
        found.nodes[node_id], found.latest = asked, now

    def forget(self, name: str) -> None:
        """That topic isn't wanted any more."""
        self._unknown.pop(name, None)

    def is_confirmed(self, topic: str, brokers: int, since: float, grace: float) -> bool:
        """Whether all responses about ``topic`` were for long that the broker doesn't know it.

        That is ``grace`` seconds up to the latest response, counted from ``since`` at the earliest,
        where two brokers said so after it or there is but one, and twice as long where only one of
        several (``brokers``) could be asked.
        """
        found = self._unknown.get(topic)
        if found is None or not any(at > since for at in found.nodes.values()):
            return False
        sure = self.confirmed_by_several(topic, brokers, since)
        return found.latest - max(found.since, since) >= (grace if sure else 2 * grace)

    def confirmed_by_several(self, topic: str, brokers: int, since: float) -> bool:
        """Whether two, or all there are, said when they were asked after ``since`` that they don't
        know ``topic``, and none said otherwise."""
        found = self._unknown.get(topic)
        if found is None:
            return False
        # A bootstrap address is that of a broker, and counts for none.
        asked = sum(at > since for node_id, at in found.nodes.items() if node_id >= 0)
        return asked >= min(SEVERAL, brokers)


def read_topics(
    decoding: Generator[MetadataResponseTopic | None, bool | None, MetadataResponse],
    version: int,
    known: Mapping[str, TopicFields],
) -> Generator[None, None, tuple[MetadataResponse, list[TopicFields]]]:
    """All topics of an answer while it is decoded, letting go of what was decoded at once.

    100,000 decoded partitions at a time would make every full pass of the garbage collector, and
    freeing them in the end, hold the loop for longer than all the rest. For the same reason what
    is ``known`` stands for what is equal to it, and all are plain tuples.
    """
    read: list[TopicFields] = []
    rows: dict[Row, Row] = {}
    taken: bool | None = None
    try:
        while True:
            said = decoding.send(taken)
            taken = said is not None
            if said is not None:
                new = read_topic(said, version, rows).facts
                old = known.get(new[0])
                read.append(old if old is not None and old == new else new)
                said = None
            yield
    except StopIteration as end:
        response: MetadataResponse = end.value
    finally:
        decoding.close()
    return response, read


def read_topic(said: MetadataResponseTopic, version: int, rows: dict[Row, Row]) -> Topic:
    """One topic of a Metadata answer of ``version``.

    Args:
        said: As decoded.
        version: Of the response.
        rows: Rows seen so far; equal ones are shared through it.
    """
    listed = said.partitions
    # Most brokers list partitions in order, some in the order of a hash table.
    if any(p.partition_index != index for index, p in enumerate(listed)):
        listed = _in_order(listed)
    columns = []
    errors = {}
    for index, p in enumerate(listed):
        row = pack_row(p.replica_nodes, p.isr_nodes, p.offline_replicas)
        columns.append(rows.setdefault(row, row))
        if p.error_code:
            errors[index] = p.error_code
    epochs = [p.leader_epoch if p.leader_epoch >= 0 else NO_EPOCH for p in listed]
    if version < RELIABLE_EPOCHS_FROM:
        epochs = [NO_EPOCH] * len(listed)
    return Topic.of_columns(
        said.name or "",
        said.topic_id,
        said.is_internal,
        said.error_code,
        [p.leader_id if p.leader_id >= 0 else NO_NODE for p in listed],
        epochs,
        columns,
        errors,
    )


def _in_order(listed: Sequence[MetadataResponsePartition]) -> list[MetadataResponsePartition]:
    """The partitions by number, with an empty one for each that is left out."""
    from kclient.protocol.messages.metadata import MetadataResponsePartition

    limit = 2 * len(listed) + HOLES_ALLOWED
    by_index = {p.partition_index: p for p in listed if 0 <= p.partition_index < limit}
    hole = MetadataResponsePartition(leader_id=NO_NODE, leader_epoch=NO_EPOCH)
    return [by_index.get(index, hole) for index in range(max(by_index, default=-1) + 1)]


def is_stale(old: Topic, new: Topic) -> bool:
    """Whether ``new`` knows less than ``old`` of what may be the same topic."""
    if NO_TOPIC_ID not in (old.topic_id, new.topic_id) and old.topic_id != new.topic_id:
        return False
    if len(new.leaders) < len(old.leaders):
        return True
    return any(
        NO_EPOCH < now < then
        for then, now in zip(old.leader_epochs, new.leader_epochs, strict=False)
    )


def keep_newest(old: Topic, new: Topic) -> Topic:
    """``new``, but with what ``old`` knows better of the same topic.

    Only for topics of which ``is_stale(old, new)`` is true: partition by partition, the higher
    leader epoch stands, and partitions that ``new`` lacks stay.
    """
    count = len(new.leaders)
    leaders, epochs = list(new.leaders), list(new.leader_epochs)
    rows, errors = list(new.rows), dict(new.partition_errors)
    old_errors = old.partition_errors
    for index in range(len(old.leaders)):
        if index < count and not NO_EPOCH < epochs[index] < old.leader_epochs[index]:
            continue
        if index >= count:
            leaders.append(NO_NODE)
            epochs.append(NO_EPOCH)
            rows.append(EMPTY_ROW)
        leaders[index], epochs[index] = old.leaders[index], old.leader_epochs[index]
        rows[index] = old.rows[index]
        errors.pop(index, None)
        if index in old_errors:
            errors[index] = old_errors[index]
    return Topic.of_columns(
        new.name, new.topic_id, new.is_internal, new.error, leaders, epochs, rows, errors
    )


class TopicHistory:
    """What is remembered of topics beyond the view, so that no answer turns it back."""

    def __init__(self) -> None:
        self._lost: dict[str, Topic] = {}
        self._doubts: dict[str, int] = {}
        self._former_ids: dict[str, tuple[bytes, ...]] = {}

    def forget(self, name: str) -> None:
        """That topic isn't wanted any more."""
        for memory in (self._lost, self._doubts, self._former_ids):
            memory.pop(name, None)

    def merged(self, old: Topic | None, new: Topic) -> Topic:
        """``new`` after a look at ``old``, the topic in the view, and at what was before that."""
        name = new.name
        floor = self._lost.get(name) if old is None or old.error else old
        if new.error:
            # Without an id there is no telling whether it will be the same topic again.
            if floor is not None and floor.topic_id != NO_TOPIC_ID:
                self._lost[name] = floor
            return Topic.of_columns(name, new.topic_id, new.is_internal, new.error)
        self._lost.pop(name, None)
        if floor is None:
            return new
        left_behind = new.topic_id in self._former_ids.get(name, ())
        if not left_behind and not is_stale(floor, new):
            self._doubts.pop(name, None)
        elif not self._believe(name, floor.topic_id == new.topic_id != NO_TOPIC_ID):
            return floor if left_behind else keep_newest(floor, new)
        if NO_TOPIC_ID not in (floor.topic_id, new.topic_id) and floor.topic_id != new.topic_id:
            former = [i for i in self._former_ids.get(name, ()) if i != new.topic_id]
            self._former_ids[name] = (*former, floor.topic_id)[-REMEMBERED_IDS:]
        return new

    def _believe(self, name: str, same: bool) -> bool:
        self._doubts[name] = self._doubts.get(name, 0) + 1
        if self._doubts[name] < (OUTVOTED_AFTER if same else BELIEVE_AFTER):
            return False
        del self._doubts[name]
        return True
