"""From which version of each API a client must keep silent for ``throttle_time_ms`` (KIP-219).

Older versions carry the field too, but there the broker has delayed its answer already. Called by
``connection.py`` with each response. Sans-IO.
"""

from __future__ import annotations

import struct

_FIRST_VERSION = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    23: 3,  # OffsetForLeaderEpoch
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    38: 1,  # CreateDelegationToken
    39: 1,  # RenewDelegationToken
    40: 1,  # ExpireDelegationToken
    41: 1,  # DescribeDelegationToken
    42: 1,  # DeleteGroups
}
"""Of the APIs that are older than KIP-219; the later ones mean it in every version."""

_LEADING_FIELD = {1, 3, 78}
"""APIs whose responses begin with the field, so that it can be read from a raw one."""

_INT32 = struct.Struct(">i")

LONGEST_SILENCE = 300.0
"""Seconds that one answer can keep us silent for. Quotas come to seconds, after a great burst to
minutes; the field holds 24 days, and damaged bytes or a lying broker must not have them."""


def must_keep_silent(api_key: int, version: int) -> bool:
    """The broker has not waited itself, so the client has to."""
    return version >= _FIRST_VERSION.get(api_key, 0)


def throttle_ms_of_raw(api_key: int, body: memoryview) -> int:
    """``throttle_time_ms`` of an undecoded response; 0 where it can't be told."""
    if api_key not in _LEADING_FIELD:
        return 0
    return max(0, int(_INT32.unpack_from(body)[0])) if body.nbytes >= _INT32.size else 0
