"""How a Metadata answer becomes topics, and what of an older answer outlives it. Sans-IO.

Called by ``metadata`` topic by topic. The rules, from Java's ``Metadata`` and KIP-320/KIP-516:

- a leader epoch never goes back for the same topic id: a broker that lags behind is not believed;
- another topic id is another topic: everything of the old one is forgotten;
- an answer without epochs is taken as it is, since brokers older than 2.4 (Metadata before
  version 9) tell stale epochs or none, in the middle of a rolling upgrade too;
- partitions are never taken away from the same topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.cluster.partition import NO_EPOCH
from kclient.cluster.topic import EMPTY_ROW, NO_NODE, NO_TOPIC_ID, Row, Topic

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kclient.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

RELIABLE_EPOCHS_FROM = 9
"""Metadata version from which leader epochs can be believed (KAFKA-9212)."""

HOLES_ALLOWED = 1000
"""Partitions missing in an answer that we would still number around: more is nonsense."""


def read_topics(
    decoding: Generator[MetadataResponseTopic | None, None, MetadataResponse], version: int
) -> Generator[None, None, tuple[MetadataResponse, list[Topic]]]:
    """All topics of an answer while it is decoded, letting go of their partitions at once.

    100,000 decoded partitions at a time would make every full pass of the garbage collector, and
    freeing them in the end, hold the loop for longer than all the rest.
    """
    read: list[Topic] = []
    rows: dict[Row, Row] = {}
    try:
        while True:
            said = next(decoding)
            if said is not None:
                read.append(read_topic(said, version, rows))
                said.partitions = []
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
        return _read_out_of_order(said, version, rows)
    columns = []
    errors = {}
    for p in listed:
        row = (tuple(p.replica_nodes), tuple(p.isr_nodes), tuple(p.offline_replicas))
        columns.append(rows.setdefault(row, row))
        if p.error_code:
            errors[p.partition_index] = p.error_code
    return Topic.of_columns(
        said.name or "",
        said.topic_id,
        said.is_internal,
        said.error_code,
        [p.leader_id if p.leader_id >= 0 else NO_NODE for p in listed],
        _epochs(listed, version),
        columns,
        errors,
    )


def _epochs(listed: Sequence[MetadataResponsePartition], version: int) -> list[int]:
    if version < RELIABLE_EPOCHS_FROM:
        return [NO_EPOCH] * len(listed)
    return [p.leader_epoch if p.leader_epoch >= 0 else NO_EPOCH for p in listed]


def _read_out_of_order(said: MetadataResponseTopic, version: int, rows: dict[Row, Row]) -> Topic:
    limit = 2 * len(said.partitions) + HOLES_ALLOWED
    by_index = {p.partition_index: p for p in said.partitions if 0 <= p.partition_index < limit}
    count = max(by_index, default=-1) + 1
    leaders, epochs, columns = [NO_NODE] * count, [NO_EPOCH] * count, [EMPTY_ROW] * count
    errors = {}
    for index, p in by_index.items():
        leaders[index] = p.leader_id if p.leader_id >= 0 else NO_NODE
        epochs[index] = _epochs([p], version)[0]
        row = (tuple(p.replica_nodes), tuple(p.isr_nodes), tuple(p.offline_replicas))
        columns[index] = rows.setdefault(row, row)
        if p.error_code:
            errors[index] = p.error_code
    return Topic.of_columns(
        said.name or "",
        said.topic_id,
        said.is_internal,
        said.error_code,
        leaders,
        epochs,
        columns,
        errors,
    )


def goes_back(old: Topic, new: Topic) -> bool:
    """Whether ``new`` tells less than ``old`` about what may be the same topic."""
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

    Only for topics of which ``goes_back(old, new)`` is true: partition by partition, the higher
    leader epoch stands. Partitions that ``new`` lacks stay if the topic id is known to be the same.
    """
    count = len(new.leaders)
    leaders, epochs = list(new.leaders), list(new.leader_epochs)
    rows, errors = list(new.rows), new.partition_errors
    old_errors = old.partition_errors
    same = old.topic_id == new.topic_id != NO_TOPIC_ID
    for index in range(len(old.leaders)):
        if index < count and not NO_EPOCH < epochs[index] < old.leader_epochs[index]:
            continue
        if index >= count:
            if not same:
                break
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
