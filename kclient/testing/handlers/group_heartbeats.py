"""ConsumerGroupHeartbeat (68) and ShareGroupHeartbeat (76): groups that are not served yet.

Refused as by Apache Kafka where the features group.version and share.version are 0, as they are
here. It advertises them all the same, and so do we: librdkafka waits for ever where a heartbeat
isn't advertised, and fails at once where it is refused.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kclient.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kclient.testing.call import Call

_NOT_SERVED = "The embedded cluster doesn't serve {} groups yet, only classic ones."


def handle_consumer(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Refuse a member of a consumer group (KIP-848)."""
    return ConsumerGroupHeartbeatResponse(
        error_code=_code(call), error_message=_NOT_SERVED.format("consumer")
    )


def handle_share(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """Refuse a member of a share group (KIP-932)."""
    return ShareGroupHeartbeatResponse(
        error_code=_code(call), error_message=_NOT_SERVED.format("share")
    )


def _code(call: Call) -> ErrorCode:
    return call.error_for() or ErrorCode.UNSUPPORTED_VERSION
