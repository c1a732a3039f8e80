"""DeleteRecords (21) and DescribeLogDirs (35): the start and the size of logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kclient.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.delayed_operations import DelayedOperation
from kclient.testing.image import INTERNAL_TOPICS, MetadataImage
from kclient.testing.replica import Replica
from kclient.testing.replica_manager import ReplicaManager
from kclient.testing.replicas import Replicas
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingResult

_TO_HIGH_WATERMARK = -1
"""Special offset: delete all committed records."""
_NO_WATERMARK = -1
TOTAL_BYTES = 1 << 40
"""The size of a broker's disk in responses; it has none."""


# Deletion (KIP-107)


def delete_records(
    call: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | PendingResult[DeleteRecordsResponse]:
    """Delete records of each partition; the last entry applies if one is named twice.

    The response waits until the followers that are up have deleted them, too.
    """
    offsets = {
        (topic.name, one.partition_index): one.offset
        for topic in request.topics
        for one in topic.partitions
    }
    response = DeleteRecordsResponse()
    shown: dict[str, DeleteRecordsTopicResult] = {}
    begun: list[_DeletePartitionStatus] = []
    for (name, index), offset in sorted(offsets.items()):
        if name not in shown:
            shown[name] = DeleteRecordsTopicResult(name)
            response.topics.append(shown[name])
        result = DeleteRecordsPartitionResult(index)
        shown[name].partitions.append(result)
        _delete_of(call, name, offset, result, begun)
    replica_manager = call.broker.replica_manager
    if _all_deleted(begun, replica_manager.replicas):
        return response
    return _DelayedDeleteRecords(begun, replica_manager, request.timeout_ms / 1000, response).answer


def _delete_of(
    call: RequestContext,
    name: str,
    offset: int,
    result: DeleteRecordsPartitionResult,
    begun: list[_DeletePartitionStatus],
) -> None:
    """Delete records of a leader's log, and add the wait for its followers."""

    def settle(code: ErrorCode, low: int) -> None:
        result.error_code, result.low_watermark = code, low

    try:
        call.check_fault(name, result.partition_index)
        topic = call.topic(AclOperation.DELETE, name, ZERO_UUID, False)
        replica = call.replica(topic, result.partition_index, leader_only=True)
        required = _deleted(replica, name, offset)
        call.broker.replica_manager.moved(replica, at_once=True)
        call.check_fault(name, result.partition_index, after=True)
    except ApiError as refused:
        settle(refused.code, _NO_WATERMARK)
        return
    low = low_watermark(replica, call.image)
    settle(ErrorCode.NONE, low)
    begun.append(_DeletePartitionStatus(replica, required, low, settle))


def _deleted(replica: Replica, topic: str, offset: int) -> int:
    """Make a leader's log begin at an offset or later; return that offset (KIP-107)."""
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if replica.config.compacted and not replica.config.deletes:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    if offset == _TO_HIGH_WATERMARK:
        offset = replica.log.high_watermark
    if offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    replica.log.delete_before(offset)
    return offset


def low_watermark(replica: Replica, image: MetadataImage) -> int:
    """The lowest log start on brokers that are up; ``replica`` is the leader's, which knows all."""
    low = replica.log.start_offset
    for node_id, follower in replica.followers.items():
        if follower.start_offset < low:
            broker = image.brokers.get(node_id)
            if broker is not None and broker.alive:
                low = follower.start_offset
    return low


@dataclass(eq=False, repr=False)
class _DeletePartitionStatus:
    """One partition of a request.

    Args:
        replica: The leader's replica.
        required: The low watermark to wait for.
        low: The current low watermark.
        notify: Called with the outcome and its low watermark, once.
    """

    replica: Replica
    required: int
    low: int
    notify: Callable[[ErrorCode, int], None]
    done: bool = False

    def look(self, replicas: Replicas) -> None:
        """Set the outcome, if there is one now."""
        facts = self.replica.facts
        found = replicas.get(facts.topic, facts.index)
        if found is None:
            self.settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_WATERMARK)
        elif not found.leads:
            self.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER, _NO_WATERMARK)
        else:
            low = low_watermark(found, replicas.image)
            if low >= self.required:
                self.settle(ErrorCode.NONE, low)

    def settle(self, code: ErrorCode, low: int) -> None:
        """Set its outcome."""
        self.done = True
        self.notify(code, low)


def _all_deleted(deleting: Sequence[_DeletePartitionStatus], replicas: Replicas) -> bool:
    """Check each for an outcome; return whether all have one."""
    for one in deleting:
        if not one.done:
            one.look(replicas)
    return all(one.done for one in deleting)


class _DelayedDeleteRecords(DelayedOperation[DeleteRecordsResponse]):
    """Responds when all replicas of ``deleting`` begin at the offset, or after ``seconds``.

    Followers report their log start when they fetch. Like Kafka's ``DelayedDeleteRecords``, with
    its limits: it checks only when a follower fetched or the high watermark moved. If the leader is
    replaced, the topic is deleted or a broker goes down meanwhile, only the timeout ends it.
    """

    def __init__(
        self,
        deleting: Sequence[_DeletePartitionStatus],
        replica_manager: ReplicaManager,
        seconds: float,
        response: DeleteRecordsResponse,
    ) -> None:
        super().__init__(seconds)
        self.answer.draft = response
        self._response = response
        self._deleting = deleting
        self._hosted = replica_manager
        self._watched = {one.replica for one in deleting}
        self._listeners = [(one.replica.log, partial(self._grown, one.replica)) for one in deleting]
        replica_manager.deletions[self._fetched] = None
        for log, listener in self._listeners:
            log.listen(listener)

    def _fetched(self, replica: Replica) -> None:
        if replica in self._watched:
            self.look()

    def _grown(self, replica: Replica, _: int) -> None:
        if replica.leads:
            self.look()

    def _attempt(self, last: bool) -> None:
        if last:
            for one in self._deleting:
                if not one.done:
                    one.settle(ErrorCode.REQUEST_TIMED_OUT, one.low)
        if last or _all_deleted(self._deleting, self._hosted.replicas):
            self.answer.complete(self._response)

    def _release(self) -> None:
        super()._release()
        self._hosted.deletions.pop(self._fetched, None)
        for log, listener in self._listeners:
            log.unlisten(listener)


# Sizes


def describe_log_dirs(
    call: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe the requested logs, or all of them; unknown ones are left out."""
    code = call.error_for() or call.denial(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if code is not None:
        return DescribeLogDirsResponse(error_code=code)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, DescribeLogDirsTopic] = {}
    used = 0
    for local in call.broker.replicas:
        call.broker.replica_manager.tidy(local)
        name, index = local.facts.topic, local.facts.index
        used += local.log.size_bytes
        if wanted is not None and (name, index) not in wanted:
            continue
        shown = topics.setdefault(name, DescribeLogDirsTopic(name))
        lag = max(local.log.high_watermark - local.log.end_offset, 0)
        shown.partitions.append(DescribeLogDirsPartition(index, local.log.size_bytes, lag, False))
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                ErrorCode.NONE,
                call.image.config.log_dirs[0],
                list(topics.values()),
                TOTAL_BYTES,
                TOTAL_BYTES - used,
                False,
            )
        ]
    )
