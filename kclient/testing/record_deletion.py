"""What DeleteRecords may delete (KIP-107): rules, used by its handler."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.testing.image import INTERNAL_TOPICS
from kclient.testing.log import PartitionLog
from kclient.testing.refused import Refused
from kclient.testing.topic_configs import TopicConfig

TO_HIGH_WATERMARK = -1
"""In place of an offset: all that is committed."""


def delete_records(log: PartitionLog, config: TopicConfig, topic: str, offset: int) -> int:
    """Let a leader's log begin at ``offset`` or later.

    Returns:
        The offset, be it below where the log begins already.

    Raises:
        Refused: INVALID_TOPIC_EXCEPTION for Kafka's own topics, POLICY_VIOLATION for those that
            are compacted and never deleted, OFFSET_OUT_OF_RANGE past the high watermark.
    """
    if topic in INTERNAL_TOPICS:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Cannot delete records of internal topic {topic}",
        )
    if config.compacted and not config.deletes:
        raise Refused(ErrorCode.POLICY_VIOLATION)
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.delete_before(offset)
    log.note_segments(config.segment_bytes, config.max_segment_ms)
    return offset
