"""Offsets of a group, set from outside of it: OffsetCommit without a member.

``Admin.alter_consumer_group_offsets`` calls it. A group that has members accepts nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kclient.cluster.coordinator import Coordinator, CoordinatorKey
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
    broker_error,
)
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.types import OffsetAndMetadata, TopicPartition

_LAST_BY_NAME = 9
"""OffsetCommit: later versions have ids of topics only (KIP-848)."""
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_HINT = (
    "the group has members, which commit by themselves: stop them first, or use a group of its own"
)


async def alter_consumer_group_offsets(
    core: ClientCore,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout: float,
) -> dict[TopicPartition, KafkaError | None]:
    """Commit ``offsets`` to ``group``; None for each partition where that is done."""
    if not offsets:
        return {}
    outcomes: dict[TopicPartition, KafkaError | None] = {}

    def check(response: OffsetCommitResponse, node_id: int) -> KafkaError | None:
        outcomes.update(_outcomes(response, group, offsets, node_id))
        return next((error for error in outcomes.values() if error and error.retriable), None)

    try:
        await Coordinator(core, group, CoordinatorKey.GROUP).call(
            _request(group, offsets),
            api=OffsetCommitRequest,
            check=check,
            may_repeat=lambda api, error: error.retriable,
            retry_state=core.calls.retry_state(f"OffsetCommit of group {group}", timeout),
            max_version=_LAST_BY_NAME,
        )
    except (BrokerError, RequestTimedOut) as error:
        return {key: None if outcomes.get(key, error) is None else error for key in offsets}
    return outcomes


def _request(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, at in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=at.offset,
                committed_leader_epoch=-1 if at.leader_epoch is None else at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=list(topics.values()),
    )


def _outcomes(
    response: OffsetCommitResponse,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    node_id: int,
) -> dict[TopicPartition, KafkaError | None]:
    codes = {
        (topic.name, result.partition_index): result.error_code
        for topic in response.topics
        for result in topic.partitions
    }
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    for partition, at in offsets.items():
        code = codes.get(partition)
        if code is None:
            outcomes[partition] = ProtocolError(
                f"the response to OffsetCommit leaves out {partition}",
                struct="OffsetCommitResponse",
                field="topics",
            )
        elif code:
            outcomes[partition] = broker_error(
                code,
                f"commit of offset {at.offset} of {partition} to group {group} failed",
                topic_partition=partition,
                node_id=node_id,
                hint=_HINT if code in _HAS_MEMBERS else None,
            )
        else:
            outcomes[partition] = None
    return outcomes
