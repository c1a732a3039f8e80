"""What an answer about one batch means: the one place where the producer's retry rules are.

``settlement`` asks and carries out. The flags of the error table are facts; what follows from them
for a batch is decided here. Sans-IO.
"""

from __future__ import annotations

import enum

from kclient.error_codes import TABLE, ErrorCode


class Verdict(enum.Enum):
    """What to do about a batch after an answer."""

    WRITTEN = "the log has it"
    RETRY = "send the same bytes with the same numbers again"
    SPLIT = "send it again in smaller batches, within its numbers"
    START_OVER = "the numbering is broken: renumber under a new epoch, then send again"
    DISOWNED = "another owner has our producer id: the same under a new id"
    REJECT = "give it up"


TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_DAMAGED = frozenset({ErrorCode.CORRUPT_MESSAGE})
_DISOWNED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
_NUMBERING = _DISOWNED | {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}

_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_MAYBE_WRITTEN_WHILE_REPLICATING = frozenset(
    {
        # With acks=all the leader has appended already when it loses the partition meanwhile.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


def judge(
    code: int, record_count: int, *, first: bool, numbered: bool, log_start_known: bool
) -> Verdict:
    """The verdict on a batch answered with ``code``.

    Args:
        code: Error code of the partition in the answer.
        record_count: Records of the batch.
        first: Everything sent before it in its partition is settled, or the numbering is broken
            already.
        numbered: It carries sequence numbers.
        log_start_known: The answer told where the partition's log starts.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.WRITTEN
    if code in TOO_LARGE:
        return Verdict.SPLIT if record_count > 1 else Verdict.REJECT
    if numbered and code in _NUMBERING:
        if not first:
            return Verdict.RETRY  # it only stumbled over what is missing before it
        if code == ErrorCode.UNKNOWN_PRODUCER_ID and not log_start_known:
            return Verdict.RETRY
        return Verdict.DISOWNED if code in _DISOWNED else Verdict.START_OVER
    info = TABLE.get(code)
    return Verdict.RETRY if info is not None and info.retriable else Verdict.REJECT


def may_be_written(code: int, *, acks_all: bool) -> bool:
    """An attempt answered with ``code`` may have left the batch in the log."""
    if code not in TABLE or code in _MAYBE_WRITTEN:
        return True
    return acks_all and code in _MAYBE_WRITTEN_WHILE_REPLICATING


def wants_metadata(code: int) -> bool:
    """The answer says that our view of the cluster is old."""
    info = TABLE.get(code)
    return info is not None and info.refresh_metadata


def doubts_connection(code: int) -> bool:
    """Bytes came to the broker otherwise than we wrote them: the same ones may pass elsewhere."""
    return code in _DAMAGED
