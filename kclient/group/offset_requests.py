"""OffsetCommit and OffsetFetch: the requests in any version, and their responses. Sans-IO.

Made by ``offsets`` for each attempt. ``commit_error_action`` is the one place that decides what an
error means for a commit; all retries follow it. A partition whose offset isn't reported has an
error, never a default: a consumer must not start at an arbitrary offset.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kclient.cluster.retry import MISSING_PARTITION_GRACE, UNKNOWN_TOPIC_GRACE
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    broker_error,
    some_of,
)
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
    from kclient.group.member import Generation

_FIRST_IN_KAFKA: Final = 1
"""Version 0 of both requests keeps offsets in ZooKeeper, and never checks whether a member may
commit."""
_LAST_BY_NAME: Final = 9
"""Last version of both requests that names topics (KIP-848)."""
_FIRST_COMMIT_OF_INSTANCES: Final = 7
_FIRST_STABLE_FETCH: Final = 7
"""Older brokers can't wait for open transactions (KIP-447)."""
_FIRST_FETCH_OF_GROUPS: Final = 8
_NO_EPOCH: Final = -1
SHOWN: Final = 5
"""Partitions that an error text names."""


class CommitErrorAction(enum.Enum):
    """What follows from an error of a commit."""

    RETRY = "the same commit may succeed in a while"
    REBALANCING = "the group rebalances: it may succeed once, or until, this member has joined anew"
    FENCED = "the coordinator doesn't have this member, or not in that generation"
    REFUSED = "it would fail again"


_OUSTED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_UNKNOWN_HINT: Final = (
    "check that the topic exists, and how many partitions it has; without the right to describe a "
    "topic it looks as if it did not exist"
)
_FINAL = frozenset({ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE})


def commit_error_action(error: KafkaError) -> CommitErrorAction:
    """The action after ``error``. An unknown topic may not have reached the coordinator yet."""
    if isinstance(error, BrokerError):
        if error.code in _OUSTED:
            return CommitErrorAction.FENCED
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            return CommitErrorAction.REBALANCING
        if error.code in _FINAL:
            return CommitErrorAction.REFUSED
    return CommitErrorAction.RETRY if error.retriable else CommitErrorAction.REFUSED


def is_unknown(error: KafkaError) -> bool:
    """Whether ``error`` reports an unknown partition, which may still be propagating."""
    return isinstance(error, BrokerError) and error.code in _UNKNOWN


def was_recreated(partition: TopicPartition, topic_id: bytes | None, view: Cluster) -> bool:
    """Whether ``view`` has another topic of that name than the one of ``topic_id``."""
    return bool(topic_id) and view.topic_id(partition.topic) not in (None, topic_id)


def patience(
    partition: TopicPartition,
    view: Cluster,
    topic_id: bytes | None = None,
    *,
    by_name: bool = False,
) -> float:
    """Return for how many seconds a coordinator may not know ``partition``.

    For ever where the view has it, as then it is the coordinator that lags behind. A request by
    name is not repeated for long: a topic that is recreated would take the offset.

    Args:
        partition: The partition.
        view: The current view of the cluster.
        topic_id: Of the topic that the offset was read from, empty where brokers have no ids; None
            for an offset that was not read here.
        by_name: The request named the topic.
    """
    if was_recreated(partition, topic_id, view):
        return 0.0
    count = view.partition_count(partition.topic)
    if by_name and (topic_id is not None or count is not None):
        return MISSING_PARTITION_GRACE
    if count is None:
        return UNKNOWN_TOPIC_GRACE
    return MISSING_PARTITION_GRACE if partition.partition >= count else math.inf


def combined_error(errors: Mapping[TopicPartition, KafkaError], group_id: str) -> KafkaError:
    """Combine the errors of a commit that failed for these partitions into one.

    It is that of the first partition, naming all with the same kind; others are in its notes.
    """
    kinds: dict[type[KafkaError], list[TopicPartition]] = {}
    for partition, error in errors.items():
        kinds.setdefault(type(error), []).append(partition)
    (kind, partitions), *others = kinds.items()
    error = errors[partitions[0]]
    if issubclass(kind, BrokerError):
        doing = f"commit of {some_of(partitions, SHOWN)} by group {group_id}"
        about = partitions[0] if len(partitions) == 1 else None
        hint = _UNKNOWN_HINT if is_unknown(error) else None
        node_id = error.node_id
        error = broker_error(kind.code, doing, topic_partition=about, node_id=node_id, hint=hint)
    for other, some in others:
        error.add_note(f"{some_of(some, SHOWN)}: {other.__name__}: {errors[some[0]]}")
    return error


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
        self.max_version = None if len(self._ids) == len(found) else _LAST_BY_NAME

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
        if version > _LAST_BY_NAME:
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
        group_id: Of the group.
        generation: Of the member that commits; ``OUTSIDE`` without membership.
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
        group_id: str,
        generation: Generation,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        view: Cluster,
        topic_ids: Mapping[TopicPartition, bytes | None] | None = None,
        wanted: Callable[[TopicPartition], bool] = lambda partition: True,
    ) -> None:
        self._group_id = group_id
        self._generation = generation
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
        member = self._generation
        self.by_name = version <= _LAST_BY_NAME
        request = OffsetCommitRequest(
            group_id=self._group_id,
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
        return f"commit of offset {offset} of {key} by group {self._group_id}"


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
