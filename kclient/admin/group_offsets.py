"""Offsets of a group, set from outside of it: OffsetCommit without a member.

``Admin.alter_consumer_group_offsets`` calls it. A group that has members accepts nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kclient.cluster.coordinator import Coordinator, CoordinatorKey
from kclient.cluster.offset_requests import LAST_BY_NAME, OffsetCommit
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, KafkaError, RequestTimedOut
from kclient.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kclient.types import GroupMetadata

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.types import OffsetAndMetadata, TopicPartition

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
    commit = OffsetCommit(GroupMetadata(group), offsets, core.metadata.view)
    outcomes: dict[TopicPartition, KafkaError | None] = {}

    def check(response: OffsetCommitResponse, node_id: int) -> KafkaError | None:
        outcomes.update(commit.read(response))
        errors = [error for error in outcomes.values() if error is not None]
        for error in errors:
            error.node_id = node_id
            if isinstance(error, BrokerError) and error.code in _HAS_MEMBERS:
                error.hint = _HINT
        return next((error for error in errors if error.retriable), None)

    try:
        await Coordinator(core, group, CoordinatorKey.GROUP).call(
            commit.build,
            api=OffsetCommitRequest,
            check=check,
            may_repeat=lambda api, error: error.retriable,
            retry_state=core.calls.retry_state(f"OffsetCommit of group {group}", timeout),
            max_version=LAST_BY_NAME,  # ids may be of a topic that was deleted since
        )
    except (BrokerError, RequestTimedOut) as error:
        for key in offsets:
            own = outcomes.get(key, error)
            outcomes[key] = error if own is not None and own.retriable else own
    return outcomes
