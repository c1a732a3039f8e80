"""OffsetCommit and OffsetFetch: the requests in any version, and their responses. Sans-IO.

``group.offsets`` makes one for each attempt, ``admin.group_offsets`` one from outside of a group.
A partition whose offset isn't reported has an error, never a default: a consumer must not start at
an arbitrary offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError, NoCommonVersion, ProtocolError, broker_error
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.types import GroupMetadata

_FIRST_IN_KAFKA: Final = 1
"""Version 0 of both requests keeps offsets in ZooKeeper, and never checks whether a member may
commit."""
LAST_BY_NAME: Final = 9
"""Last version of both requests that names topics (KIP-848)."""
_FIRST_COMMIT_OF_INSTANCES: Final = 7
_FIRST_STABLE_FETCH: Final = 7
"""Older brokers can't wait for open transactions (KIP-447)."""
_FIRST_FETCH_OF_GROUPS: Final = 8
_NO_EPOCH: Final = -1


class TopicIds:
    """The ids of some topics, as one view has them.

    Requests about offsets name topics in their older versions and use ids in their newest one,
    which can only be used where the ids of all of them are known.

    Args:
        view: The current view of the cluster.
        topics: Names.
        known: Ids that count in place of the view's, where they are not empty.

    Attributes:
        max_version: Highest version that can be built; None for no limit.
    """

    def __init__(
        self,
        view: Cluster,
        topics: Iterable[str],
        known: Mapping[str, bytes | None] | None = None,
    ) -> None:
        ids = known or {}
        found = {topic: ids.get(topic) or view.topic_id(topic) for topic in topics}
        self._ids = {topic: one for topic, one in found.items() if one is not None}
        self._names = {one: topic for topic, one in self._ids.items()}
        self.max_version = None if len(self._ids) == len(found) else LAST_BY_NAME

    def check(self, version: int, in_zookeeper: str) -> None:
        """Raise NoCommonVersion if ``version`` uses ids and one isn't known, or it is too old.

        ``in_zookeeper``: The text for a version that doesn't know of offsets in Kafka.
        """
        if self.max_version is not None and version > self.max_version:
            raise NoCommonVersion(f"version {version} needs the ids of topics, and one is unknown")
        if version < _FIRST_IN_KAFKA:
            raise NoCommonVersion(in_zookeeper, hint="it needs Apache Kafka 0.9 or newer")

    def identify(self, topic: Any, name: str, version: int) -> None:
        """Put the id or the name, as ``version`` has it, into a topic of a request."""
        if version > LAST_BY_NAME:
            topic.topic_id = self._ids[name]
        else:
            topic.name = name

    def name_of(self, name: str, topic_id: bytes) -> str:
        """Our name of a topic in a response, which has a name or an id; empty if unknown."""
        return name or self._names.get(bytes(topic_id), "")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic, in order."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def _left_out(api: str, key: TopicPartition) -> ProtocolError:
    return ProtocolError(
        f"the answer of {api} leaves out {key}",
        struct=f"{api}Response",
        field="topics",
        topic_partition=key,
    )


class OffsetCommit:
    """A commit of some offsets in one request.

    Args:
        member: Which member of which group commits, or that it is none.
        offsets: What to commit.
        view: Where the ids of topics are looked up that ``topic_ids`` doesn't have.
        topic_ids: Of the topics that the offsets were read from, by partition.
        wanted: Called for each partition as the request is written; False leaves it out.

    Attributes:
        offsets: As given.
        max_version: Highest version that can be built; None for no limit.
        by_name: The request that was built last names topics.
    """

    def __init__(
        self,
        member: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        view: Cluster,
        topic_ids: Mapping[TopicPartition, bytes | None] | None = None,
        wanted: Callable[[TopicPartition], bool] = lambda partition: True,
    ) -> None:
        self._member = member
        self.offsets = offsets
        self.by_name = False
        self._wanted = wanted
        self._unsent: dict[TopicPartition, KafkaError] = {}  # with errors, of the last request
        read_from = topic_ids or {}
        # A deleted topic may have a successor of its name by now: no request by name has these.
        self._unsure = {
            one for one in offsets if read_from.get(one) and view.topic_id(one.topic) is None
        }
        known = {one.topic: read_from.get(one) for one in offsets}
        self._ids = TopicIds(view, {partition.topic for partition in offsets}, known)
        self.max_version = self._ids.max_version

    def build(self, version: int) -> OffsetCommitRequest:
        """Build the request for ``version``.

        Raises:
            NoCommonVersion: The version doesn't keep offsets in Kafka, or is over ``max_version``.
        """
        self._ids.check(version, "OffsetCommit version 0 keeps offsets in ZooKeeper")
        member = self._member
        self.by_name = version <= LAST_BY_NAME
        request = OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.instance_id if version >= _FIRST_COMMIT_OF_INSTANCES else None,
        )
        self._unsent = {one: self._lost(one) for one in self.offsets if not self._wanted(one)}
        for one in self._unsure if self.by_name else ():
            error = self._error(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._unsent.setdefault(one, error)
        sent = [one for one in self.offsets if one not in self._unsent]
        for name, partitions in _by_topic(sent).items():
            topic = OffsetCommitRequestTopic(
                partitions=[_entry(partition, self.offsets[partition]) for partition in partitions]
            )
            self._ids.identify(topic, name, version)
            request.topics.append(topic)
        return request

    def read(self, response: OffsetCommitResponse) -> dict[TopicPartition, KafkaError | None]:
        """Read the outcome of each partition: None if its offset is committed.

        One that the response leaves out has a ``ProtocolError``.
        """
        found: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.topics:
            name = self._ids.name_of(topic.name, topic.topic_id)
            for result in topic.partitions:
                key = TopicPartition(name, result.partition_index)
                if not result.error_code:
                    found.setdefault(key, None)
                    continue
                found[key] = self._error(key, result.error_code)
        found.update(self._unsent)
        return {
            key: found[key] if key in found else _left_out("OffsetCommit", key)
            for key in self.offsets
        }

    def _error(self, key: TopicPartition, code: int) -> KafkaError:
        return broker_error(code, self._doing(key), topic_partition=key)

    def _lost(self, key: TopicPartition) -> KafkaError:
        why = "the partition was lost before the request was sent"
        return KafkaError(f"{self._doing(key)}: {why}", topic_partition=key)

    def _doing(self, key: TopicPartition) -> str:
        offset = self.offsets[key].offset if key in self.offsets else -1
        return f"commit of offset {offset} of {key} by group {self._member.group}"


def _entry(partition: TopicPartition, committed: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    epoch = committed.leader_epoch
    return OffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=_NO_EPOCH if epoch is None else epoch,
        committed_metadata=committed.metadata,
    )


class OffsetFetch:
    """A request for the committed offsets of some partitions.

    Offsets that a transaction is about to change are an error, which is retriable; brokers before
    2.5 report the old ones all the same.

    Args:
        group_id: Of the group.
        partitions: The partitions to look up.
        view: Where the ids of topics are looked up.

    Attributes:
        max_version: Highest version that can be built; None for no limit.
    """

    def __init__(
        self, group_id: str, partitions: Collection[TopicPartition], view: Cluster
    ) -> None:
        self._group_id = group_id
        self._partitions = partitions
        self._ids = TopicIds(view, {partition.topic for partition in partitions})
        self.max_version = self._ids.max_version

    def build(self, version: int) -> OffsetFetchRequest:
        """Build the request for ``version``.

        Raises:
            NoCommonVersion: The version doesn't know of offsets in Kafka, or is over
                ``max_version``.
        """
        self._ids.check(version, "OffsetFetch version 0 reads offsets from ZooKeeper")
        request = OffsetFetchRequest(require_stable=version >= _FIRST_STABLE_FETCH)
        topics = _by_topic(self._partitions).items()
        if version < _FIRST_FETCH_OF_GROUPS:
            request.group_id = self._group_id
            request.topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=[p.partition for p in some])
                for name, some in topics
            ]
            return request
        wanted = []
        for name, some in topics:
            topic = OffsetFetchRequestTopics(partition_indexes=[p.partition for p in some])
            self._ids.identify(topic, name, version)
            wanted.append(topic)
        request.groups = [OffsetFetchRequestGroup(group_id=self._group_id, topics=wanted)]
        return request

    def read(
        self, response: OffsetFetchResponse
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """Read the committed offset of each partition: None for nothing, or its error."""
        code, topics = self._ours(response)
        if code:
            doing = f"OffsetFetch of group {self._group_id} failed"
            return {key: broker_error(code, doing, topic_partition=key) for key in self._partitions}
        found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = {}
        for topic in topics:
            if isinstance(topic, OffsetFetchResponseTopics):
                name = self._ids.name_of(topic.name, topic.topic_id)
            else:
                name = topic.name
            for result in topic.partitions:
                key = TopicPartition(name, result.partition_index)
                found[key] = self._committed(key, result)
        return {
            key: found[key] if key in found else _left_out("OffsetFetch", key)
            for key in self._partitions
        }

    def _ours(
        self, response: OffsetFetchResponse
    ) -> tuple[int, Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics]]:
        for group in response.groups:
            if group.group_id == self._group_id:
                return group.error_code, group.topics
        return response.error_code, response.topics

    def _committed(
        self,
        key: TopicPartition,
        said: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
    ) -> OffsetAndMetadata | KafkaError | None:
        if said.error_code:
            doing = f"OffsetFetch of {key} in group {self._group_id} failed"
            return broker_error(said.error_code, doing, topic_partition=key)
        if said.committed_offset < 0:  # brokers take any number, and -1 stands for nothing
            return None
        epoch = said.committed_leader_epoch
        return OffsetAndMetadata(
            said.committed_offset, epoch if epoch >= 0 else None, said.metadata or ""
        )
